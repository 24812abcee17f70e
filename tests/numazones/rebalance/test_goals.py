"""Counts of goals on one node, and their bounds by amounts alone."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.cluster.cluster import ClusterNode
from numazones.placement import Unknown
from numazones.placement.fragmentation import Shape
from numazones.rebalance.goals import FitMore, InvalidGoal, Vacate, Wanted, pending_goals, ungated_pods
from tests.laws import examples
from tests.numazones.rebalance.uncertain_nodes import approximate, not_ready


def shape(cpus: int, count: int | None = None) -> Wanted:
    return Wanted.shape(f"cpu{cpus}", Shape.parse(f"cpu={cpus},memory=1Gi"), count=count)


def test_each_kind_counts_by_itself_up_to_the_wanted_number(build: Any) -> None:
    goal = FitMore((shape(2, count=1), shape(1)))
    counts = goal.worth(build.node("n1"))
    assert counts == (1, 7)
    assert goal.total(counts) == 1 + 7
    assert goal.aim is None
    assert FitMore((shape(2, count=1), shape(1, count=4))).aim == 5


@pytest.mark.parametrize("uncertain", [not_ready, approximate])
def test_a_node_that_is_not_known_for_certain_offers_nothing(
    build: Any, uncertain: Callable[[ClusterNode], ClusterNode]
) -> None:
    node = uncertain(build.node("n1"))
    goal = FitMore((shape(1),))
    assert goal.worth(node) == goal.upper_bound(node) == (0,)
    blind = build.node("n1").with_placement(Unknown("Stale", "old"))
    assert goal.worth(blind) == goal.upper_bound(blind) == (0,)


def test_fitting_goal_concerns_every_node_and_vacating_only_its_own(build: Any) -> None:
    assert FitMore((shape(1),)).concerns("n7")
    assert Vacate("n1").concerns("n1")
    assert not Vacate("n1").concerns("n2")
    assert Vacate("n1").worth(build.put(build.node("n2"), build.pod("p", 1))) == (0,)


def test_pods_in_the_way_are_those_of_the_zone(build: Any) -> None:
    node = build.put(build.node("n1"), build.pod("a", 3), build.pod("b", 4))
    assert Vacate("n1").worth(node) == Vacate("n1").upper_bound(node) == (-2,)
    assert [pod.name for pod in Vacate("n1", 1).occupants(node)] == ["b"]
    blind = node.with_placement(Unknown("Stale", "old"))
    assert Vacate("n1", 1).occupants(blind) == []


def test_a_pod_that_cannot_be_read_cannot_be_a_goal(build: Any) -> None:
    broken = replace(build.pod("p", 1), admission=None, problem="odd")
    with pytest.raises(InvalidGoal, match="default/p cannot be read: odd"):
        FitMore((Wanted("default/p", broken),))
    with pytest.raises(InvalidGoal, match="pod default/p cannot be read: odd"):
        pending_goals([broken])


def containers(*amounts: dict[str, str]) -> dict[str, Any]:
    return {
        "containers": [
            {"name": f"c{at}", "resources": {"requests": one, "limits": one}}
            for at, one in enumerate(amounts)
        ]
    }


@pytest.mark.parametrize(
    ("amounts", "count"),
    [
        (({"cpu": "3", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"}), 0),
        (({"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}), 2),
        (({"cpu": "2", "memory": "1Gi", "vendor.example/nic": "0"},), 3),
        (({},), 20),
    ],
)
def test_node_counts_the_copies_that_its_kubelet_admits(
    build: Any, amounts: tuple[dict[str, str], ...], count: int
) -> None:
    """The node has 3 and 4 CPUs free, and slots for 20 pods."""
    goal = FitMore((Wanted("default/p", build.pod("p", 1, spec=containers(*amounts))),))
    assert goal.worth(build.node("n1")) == (count,)


def test_only_readable_ungated_pods_may_be_bound_at_any_time(build: Any) -> None:
    waiting = replace(build.pod("a", 1), phase="Pending")
    alike, unreadable = replace(waiting, name="b", uid="b"), replace(waiting, admission=None, problem="odd")
    gated = build.pod("c", 2, spec={"schedulingGates": [{"name": "held"}]})
    gone = [replace(build.pod("d", 3), deleting=True), replace(build.pod("e", 3), phase="Succeeded")]
    assert ungated_pods([unreadable, waiting, alike, gated, *gone]) == (waiting,)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from(["single-numa-node", "best-effort"]))
def test_no_node_takes_more_than_its_ceiling(
    build: Any, random_cluster: Callable[[Random], list[ClusterNode]], seed: int, cpus: int, policy: str
) -> None:
    goal = FitMore((shape(cpus),))
    nodes = [*random_cluster(Random(seed)), build.node("n9", policy=policy)]
    for node in nodes:
        assert goal.worth(node) <= goal.upper_bound(node)
