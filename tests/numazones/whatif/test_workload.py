"""Arrivals and departures: the same in the same run, whatever the settings."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.cluster.cluster import ClusterPod
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.workload import InvalidGroup, Leaving, PodGroup, Recipe, RecordedEvents, WorkloadEvent


def events(*groups: str, run: int = 0, mixed: bool = False, churn: int = 0) -> list[WorkloadEvent]:
    recipe = Recipe(tuple(map(PodGroup.parse, groups)), mixed=mixed, churn=churn)
    return list(recipe.events(RandomNumbers(1, run)))


def cpus(happened: Sequence[WorkloadEvent]) -> list[int]:
    return [event.requests["cpu"] // 1000 for event in happened if isinstance(event, ClusterPod)]


def test_groups_arrive_one_after_the_other() -> None:
    assert cpus(events("3xcpu=1,memory=1Gi", "2xcpu=4", "cpu=9")) == [1, 1, 1, 4, 4, 9]


def test_or_all_mixed_in_another_order_each_run() -> None:
    orders = {tuple(cpus(events("4xcpu=1", "4xcpu=2", run=run, mixed=True))) for run in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == [1, 1, 1, 1, 2, 2, 2, 2] for order in orders)


def test_amounts_may_be_drawn() -> None:
    drawn = [count for run in range(50) for count in cpus(events("4xcpu=2-5", run=run))]
    assert set(drawn) == {2, 3, 4, 5}
    assert events("4xcpu=2-5", run=3) == events("4xcpu=2-5", run=3)


def test_workload_pods_are_guaranteed_and_have_unique_names() -> None:
    first, second = events("2xcpu=2,memory=1Gi,x.example/nic=1")
    assert isinstance(first, ClusterPod)
    assert isinstance(second, ClusterPod)
    assert first.admission is not None
    assert first.admission.qos == "Guaranteed"
    assert dict(first.requests) == {"cpu": 2000, "memory": 1 << 30, "x.example/nic": 1}
    assert (first.kubelet_uid, second.kubelet_uid) == ("pod-0", "pod-1")
    assert first.admission.uid == "pod-0"


@given(st.integers(0, 6), st.integers(0, 40), st.integers(1, 3), st.integers(0, 100))
def test_churn_takes_pods_away_and_brings_them_back(count: int, churn: int, away: int, run: int) -> None:
    pods = Recipe((PodGroup.parse(f"{count}xcpu=1-3"),) if count else (), churn=churn, away=away)
    present: set[str] = set()
    steps = 0
    for event in pods.events(RandomNumbers(7, run)):
        if isinstance(event, Leaving):
            present.remove(event.uid)
            steps += 1
        else:
            assert event.kubelet_uid not in present
            present.add(event.kubelet_uid)
        assert len(present) >= count - away - 1 or steps == 0
    assert present <= {f"pod-{number}" for number in range(count)}
    assert len(present) == count - min(steps, away)
    assert steps == (churn if count > away else 0)


def test_what_comes_last_comes_after_all_churn() -> None:
    recipe = Recipe((PodGroup.parse("3xcpu=1"),), churn=5, last=(PodGroup.parse("2xcpu=9"),))
    happened = list(recipe.events(RandomNumbers(1, 0)))
    assert cpus(happened[-2:]) == [9, 9]
    assert [pod.requests["cpu"] for pod in recipe.examples()] == [1000, 9000]


def test_clusters_pods_arrive_on_their_nodes_in_random_order() -> None:
    pods = tuple(event for event in events("9xcpu=1") if isinstance(event, ClusterPod))
    recipe = Recipe((tuple(pod.placed("worker-1") for pod in pods),))
    orders = {
        tuple(event.name for event in recipe.events(RandomNumbers(1, run)) if isinstance(event, ClusterPod))
        for run in range(9)
    }
    assert len(orders) == 9
    assert all(
        isinstance(event, ClusterPod) and event.node == "worker-1"
        for event in recipe.events(RandomNumbers(1, 0))
    )
    kept = Recipe((pods,), shuffled=False)
    assert list(kept.events(RandomNumbers(1, 5))) == list(pods)


def test_a_history_is_the_same_in_every_run() -> None:
    happened = (*events("2xcpu=1"), Leaving("pod-0"))
    assert (
        list(RecordedEvents(happened).events(RandomNumbers(1, 0)))
        == list(RecordedEvents(happened).events(RandomNumbers(2, 9)))
        == list(happened)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory=1Gi", "it requests no CPUs; add cpu=4, for example"),
        ("0xcpu=1", "is not a group of pods"),
        ("cpu", "'cpu' is not a resource with an amount"),
        ("cpu=x", "'cpu=x' is not a resource with an amount"),
        ("cpu=5-2", "'cpu=5-2' is not a resource with an amount"),
        ("cpu=0", "'cpu=0' is not a resource with an amount"),
        ("3x", "is not a group of pods"),
    ],
)
def test_what_is_no_group_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidGroup) as error:
        PodGroup.parse(text)
    assert said in str(error.value)


def test_a_group_reads_as_it_was_written() -> None:
    assert str(PodGroup.parse("20xmemory=4Gi,cpu=2-8")) == "20xcpu=2-8,memory=4Gi"
    assert dict(PodGroup.parse("20xcpu=2-8").largest.requests) == {"cpu": 8000, "memory": 1 << 20}
