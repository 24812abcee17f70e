"""Alignment of what pods hold: on one NUMA node, across several, or away from a device or memory."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.alignment import alignable
from numazones.alignment import pod_alignment as alignment
from numazones.alignment.pod_alignment import Alignment
from numazones.apimachinery.resources import MEMORY
from numazones.kubelet.admission import admit
from numazones.kubelet.machine import numas_of
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.kubelet import KubeletPlacement
from numazones.placement.occupancy import HeldDevices, Holder, Occupancy
from tests.numazones.kubelet import building

MACHINE = building.machine()
"""Two NUMA nodes: CPUs 0-3 and 8-11, 4-7 and 12-15."""


def held(*containers: Holder) -> alignment.PodAlignment:
    """Return the alignment of a pod whose containers hold this."""
    whole = replace(containers[0], containers=containers)
    occupancy = Occupancy("none", "", MACHINE.cpus, (), (whole,), distances=MACHINE.distances)
    (found,) = alignment.alignments(occupancy)
    return found


def holder(cpus: int = 0, memory: tuple[int, ...] = (), **devices: tuple[int, ...]) -> Holder:
    """Return what one container holds; devices by the masks of the NUMA nodes that they are near."""
    parts = tuple(
        HeldDevices(name.replace("_", "/"), tuple(f"{name}-{number}" for number in range(len(masks))), masks)
        for name, masks in devices.items()
    )
    blocks = ((MEMORY, 4 * building.GI, memory),) if memory else ()
    return Holder("main", "uid", cpus, blocks, parts)


NEAR_0, NEAR_1, NEAR_BOTH, NEAR_NONE = 0b01, 0b10, 0b11, 0
ON_0, ON_1, ON_BOTH = 0b0110, 0b0110 << 4, 0b0111 << 2
RULES: dict[str, tuple[Holder, Alignment, tuple[str, ...], tuple[int, ...]]] = {
    "CPUs of one NUMA node": (holder(ON_0), Alignment.ALIGNED, (), (0,)),
    "CPUs and memory of one": (holder(ON_1, (1,)), Alignment.ALIGNED, (), (1,)),
    "a device beside its CPUs": (holder(ON_1, dev_x=(NEAR_1,)), Alignment.ALIGNED, (), (1,)),
    "a device near both": (holder(ON_1, dev_x=(NEAR_BOTH,)), Alignment.ALIGNED, (), (1,)),
    "a device near none in particular": (holder(ON_1, dev_x=(NEAR_NONE,)), Alignment.ALIGNED, (), (1,)),
    "CPUs of two": (holder(ON_BOTH), Alignment.SPANNING, ("cpu",), (0, 1)),
    "memory of two": (holder(ON_0, (0, 1)), Alignment.SPANNING, ("memory",), (0, 1)),
    "memory elsewhere": (holder(ON_0, (1,)), Alignment.REMOTE, ("memory",), (0, 1)),
    "a device elsewhere": (holder(ON_0, dev_x=(NEAR_1,)), Alignment.REMOTE, ("dev/x",), (0, 1)),
    "one of two devices elsewhere": (
        holder(ON_0, dev_x=(NEAR_0,), dev_y=(NEAR_1,)),
        Alignment.SPANNING,
        ("dev/y",),
        (0, 1),
    ),
    "devices that share a NUMA node": (
        holder(dev_x=(NEAR_BOTH,), dev_y=(NEAR_1,)),
        Alignment.ALIGNED,
        (),
        (0, 1),
    ),
    "devices of one kind far apart": (holder(dev_x=(NEAR_0, NEAR_1)), Alignment.SPANNING, ("dev/x",), (0, 1)),
}


@pytest.mark.parametrize(("part", "kind", "remote", "numas"), RULES.values(), ids=RULES)
def test_a_container_is_judged_by_what_it_holds(
    part: Holder, kind: Alignment, remote: tuple[str, ...], numas: tuple[int, ...]
) -> None:
    found = held(part)
    assert (found.alignment, found.remote) == (kind, remote)
    assert found.aligned or found.numas == numas


def test_a_pod_whose_containers_are_aligned_each_for_itself_is() -> None:
    found = held(holder(ON_0, (0,)), replace(holder(ON_1, (1,)), name="other"))
    assert found.aligned
    assert found.numas == (0, 1)
    assert found.distance is None


def test_the_worst_container_counts() -> None:
    found = held(holder(ON_0), replace(holder(ON_BOTH), name="other"))
    assert found.sentence == "spanning 2 NUMA nodes"
    assert found.remote_cpus == 1
    assert found.distance == 20


def test_who_holds_nothing_of_numa_nodes_is_not_judged() -> None:
    occupancy = Occupancy("none", "", MACHINE.cpus, (), (holder(dev_x=(NEAR_NONE,)),))
    assert list(alignment.alignments(occupancy)) == []


def test_cpus_left_on_record_by_init_containers_are_ignored() -> None:
    pod = building.pod("uid", building.container("main"), init=(building.container("init"),))
    whole = replace(holder(), containers=(holder(ON_0), replace(holder(ON_BOTH), name="init")))
    occupancy = Occupancy("none", "", MACHINE.cpus, (), (whole,))
    (found,) = alignment.alignments(occupancy, {"uid": alignment.started_containers(pod)})
    assert found.aligned
    (found,) = alignment.alignments(occupancy)
    assert not found.aligned


def test_pod_with_only_totals_known_is_judged_by_them() -> None:
    """As another placement model than the kubelet tells it."""
    occupancy = Occupancy("model", "", MACHINE.cpus, (), (holder(ON_BOTH),))
    for started in (None, {"uid": frozenset({"main"})}):
        (found,) = alignment.alignments(occupancy, started)
        assert found.sentence == "spanning 2 NUMA nodes"


def admitted(node: Node, pod: Pod) -> Node:
    said = admit(node, pod)
    assert said.admitted, said.message
    return said.node


def possible(node: Node, pod: Pod) -> tuple[bool, bool]:
    """Return whether the node could hold the pod aligned: if it were empty, and as it is."""
    tried = alignable.trials(node, pod)
    return tried.empty.admitted, tried.now is not None and tried.now.admitted


def test_answer_says_whether_the_node_could_align_the_pod() -> None:
    node = building.node(policy="best-effort", memory="None")
    small, wide, large = (
        building.pod(uid, building.container("c", cpus)) for uid, cpus in (("s", 5), ("w", 6), ("l", 9))
    )
    assert possible(node, large) == (False, False)
    node = admitted(admitted(node, small), replace(small, uid="t"))
    assert possible(node, wide) == (True, False)
    assert possible(node, small) == (True, True)


@given(data=st.data())
def test_what_single_numa_node_admits_is_aligned_and_possible(data: st.DataObject) -> None:
    scope = data.draw(st.sampled_from(["container", "pod"]))
    node = building.node(scope=scope, devices=building.gpus((0,), (1,), (1,)))
    for number in range(data.draw(st.integers(1, 6))):
        limits: dict[str, Any] = {"vendor_gpu": "1"} if data.draw(st.booleans()) else {}
        containers = [
            building.container(f"c{index}", data.draw(st.integers(1, 6)), **limits)
            for index in range(data.draw(st.integers(1, 2)))
        ]
        pod = building.pod(f"p{number}", *containers)
        said = admit(node, pod)
        if said.admitted:
            node = said.node
            assert possible(node, pod) == (True, True)
    for found in alignment.alignments(KubeletPlacement(node).occupancy({})):
        assert found.aligned, found


@given(data=st.data())
def test_spans_agrees_with_what_the_decision_says(data: st.DataObject) -> None:
    """The value of a decision and the picture of the node afterwards tell the same."""
    node = building.node(policy=data.draw(st.sampled_from(["none", "best-effort"])), memory="None")
    for number in range(data.draw(st.integers(1, 5))):
        pod = building.pod(f"p{number}", building.container("c", data.draw(st.integers(1, 9))))
        said = admit(node, pod)
        if not said.admitted:
            continue
        node = said.node
        mask = numas_of(node.machine.cpus_of_numa, said.containers["c"].cpus)
        (found,) = (
            one for one in alignment.alignments(KubeletPlacement(node).occupancy({})) if one.uid == pod.uid
        )
        assert (found.alignment is Alignment.SPANNING) == (mask.bit_count() > 1)
        assert sum(found.cpus.values()) == said.containers["c"].cpus.bit_count()
