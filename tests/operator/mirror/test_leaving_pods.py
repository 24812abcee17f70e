"""Pods that are being deleted: what is expected of a kubelet, and what is promised to others meanwhile.

As seen on four kubelets of 1.36 under load: a share is free within 50 ms of the deletion, the pod's phase is
terminal in the API 1.5 to 6 s later. Of 1,000 pods bound in bursts, one in a hundred came in between.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from numazones.cluster.cluster import MIRROR, ClusterPod
from tests.laws import examples
from tests.operator.offline_pipeline import ALL_OF_A_ZONE, RUNNING, OfflinePipeline, pod, zones_show


@pytest.fixture
def full() -> OfflinePipeline:
    """A node of which every zone is taken, by pods that run."""
    setting = OfflinePipeline()
    setting.add_node()
    setting.pipeline.synced = True
    for name in ("first", "second"):
        setting.state.pods.put(pod(name, **RUNNING))
    return setting


def delete(setting: OfflinePipeline, name: str) -> None:
    setting.state.pods.put(replace(pod(name, **RUNNING), deleting=True))


async def test_leaving_pods_share_is_expected_back_but_not_promised(
    full: OfflinePipeline,
) -> None:
    full.put_pod("waits", cpu=ALL_OF_A_ZONE)
    delete(full, "first")
    assert await full.verdict("waits") == "Inadmissible"
    full.state.pods.put(pod("bound"))
    full.state.pods.put(pod("bound", **RUNNING))
    assert full.outcomes() == {("Admissible", "Admitted"): 1}
    # And the next is expected to find that share taken.
    full.state.pods.put(pod("late"))
    full.state.pods.put(pod("late", phase="Failed", reason="TopologyAffinityError"))
    assert full.outcomes()["Inadmissible", "TopologyAffinityError"] == 1


async def test_a_pod_that_does_not_go_promptly_counts_again(full: OfflinePipeline) -> None:
    zones_show(full, "first", "second")
    delete(full, "first")
    full.clock.now += 6.0
    full.state.pods.put(pod("bound"))
    full.state.pods.put(pod("bound", phase="Failed", reason="TopologyAffinityError"))
    assert full.outcomes() == {("Inadmissible", "TopologyAffinityError"): 1}


async def test_pod_dropped_by_zones_is_gone_despite_a_late_status(
    full: OfflinePipeline,
) -> None:
    zones_show(full, "first", "second")
    delete(full, "first")
    zones_show(full, "second")
    full.clock.now += 30.0
    full.beat()
    full.state.pods.put(pod("bound"))
    full.state.pods.put(pod("bound", **RUNNING))
    assert full.outcomes() == {("Admissible", "Admitted"): 1}


async def test_finished_pod_stops_counting_once_zones_drop_it(
    full: OfflinePipeline,
) -> None:
    zones_show(full, "first", "second")
    zones_show(full, "second")
    full.state.pods.put(pod("bound"))
    full.state.pods.put(pod("bound", **RUNNING))
    assert full.outcomes() == {("Admissible", "Admitted"): 1}
    # Zones that show it again are believed, too: a kubelet that has just started lists nothing at first.
    zones_show(full, "first", "second")
    full.state.pods.put(pod("late"))
    full.state.pods.put(pod("late", phase="Failed", reason="TopologyAffinityError"))
    assert full.outcomes()["Inadmissible", "TopologyAffinityError"] == 1


async def test_a_pod_that_zones_show_was_admitted_whatever_was_expected(full: OfflinePipeline) -> None:
    full.state.pods.put(pod("bound"))  # expected to be rejected, but "first" has just ended by itself
    zones_show(full, "second", "bound")
    full.state.pods.put(pod("first", phase="Succeeded"))
    full.state.pods.put(pod("late"))
    full.state.pods.put(pod("late", phase="Failed", reason="TopologyAffinityError"))
    assert full.outcomes()["Inadmissible", "TopologyAffinityError"] == 1


def mirror(uid: str, **status: Any) -> ClusterPod:
    """A mirror pod of the static pod "first"."""
    shown = pod("first", **RUNNING | status)
    return replace(shown, uid=uid, annotations={MIRROR: "uid-first"})


async def test_static_pod_counts_while_its_mirror_is_recreated(full: OfflinePipeline) -> None:
    full.state.pods.remove(pod("first"))
    full.state.pods.put(mirror("one"))
    zones_show(full, "first", "second")
    full.state.pods.put(replace(mirror("one"), deleting=True))
    full.put_pod("waits", cpu=ALL_OF_A_ZONE)
    full.state.pods.put(pod("bound"))
    full.state.pods.put(pod("bound", phase="Failed", reason="OutOfcpu"))
    full.state.pods.remove(mirror("one"))
    full.state.pods.put(pod("late"))
    full.state.pods.put(pod("late", phase="Failed", reason="OutOfcpu"))
    full.state.pods.put(mirror("two"))
    full.state.pods.put(pod("later"))
    full.state.pods.put(pod("later", phase="Failed", reason="OutOfcpu"))
    assert full.outcomes() == {("Inadmissible", "OutOfcpu"): 3}
    # Only when zones show it no more, its file is gone.
    full.state.pods.remove(mirror("two"))
    assert await full.verdict("waits") == "Inadmissible"
    zones_show(full, "second")
    assert await full.verdict("waits") == "Admissible"


async def test_static_pod_missing_from_zones_goes_with_its_mirror(full: OfflinePipeline) -> None:
    full.state.pods.remove(pod("first"))
    full.state.pods.put(mirror("one"))
    zones_show(full, "second")
    full.put_pod("waits", cpu=ALL_OF_A_ZONE)
    full.state.pods.remove(mirror("one"))
    assert await full.verdict("waits") == "Admissible"


async def test_what_was_bound_before_the_deletion_was_decided_before_it(full: OfflinePipeline) -> None:
    full.state.pods.put(pod("bound"))
    delete(full, "first")
    full.state.pods.put(pod("bound", phase="Failed", reason="TopologyAffinityError"))
    assert full.outcomes() == {("Inadmissible", "TopologyAffinityError"): 1}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("bind", "run", "delete", "vanish")), st.sampled_from("abc")),
        st.tuples(st.just("zones"), st.sets(st.sampled_from("abc")).map(sorted).map(tuple)),
        st.tuples(st.just("time"), st.sampled_from((1.0, 6.0, 70.0))),
    ),
    max_size=14,
)


@given(steps=STEPS)
@settings(max_examples=examples(60))
def test_every_node_with_leaving_pods_is_inspected(
    steps: list[tuple[str, Any]],
) -> None:
    setting = OfflinePipeline()
    setting.add_node()
    setting.pipeline.synced = True
    there: dict[str, ClusterPod] = {}
    for step, about in steps:
        if step == "zones":
            zones_show(setting, *about)
        elif step == "time":
            setting.clock.now += about
        elif step == "vanish":
            if about in there:
                setting.state.pods.remove(there.pop(about))
        elif step in {"bind", "run"} or about in there:
            now = {} if step == "bind" else RUNNING
            there[about] = replace(pod(about, cpu="2", **now), deleting=step == "delete")
            setting.state.pods.put(there[about])
        for node in setting.state.all_nodes():
            alternatives = setting.state.alternatives(node.name, apart=True)
            event("left by pods" if alternatives else "as it is")
            if alternatives != ():
                assert node.name in setting.state.left_by_pods
