"""Requests that miss a machine by little, and zones that no shape can use."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.advice.misfits import misfits, shape_of, stranded_zones, unpinned_containers, without_pods
from numazones.cluster.other_requests import with_request
from numazones.kubelet.admission import admit
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.fragmentation import Shape, zones_of
from tests.numazones.kubelet import building

WHOLE_CORES = {"full-pcpus-only": "true"}


def one(cpu: str | int, memory: str = "1Gi") -> Pod:
    return building.pod("p", building.container("main", cpu, memory))


@pytest.mark.parametrize(
    ("node", "pod", "found"),
    [
        # 16 CPUs on two NUMA nodes of 8; CPU 0 is reserved, of whole cores 0 and 8.
        ({"cpu_options": WHOLE_CORES}, one(3), [("cpu", 3, 2, True, (4, 2))]),
        ({"cpu_options": WHOLE_CORES}, one(4), []),
        ({}, one(3), []),
        ({"policy": "single-numa-node"}, one(9), [("cpu", 9, 0, True, (8,))]),
        ({"policy": "best-effort"}, one(9), [("cpu", 9, 0, False, (8,))]),
        ({"policy": "none"}, one(9), []),
        ({}, one(8), []),
        ({}, one(12), []),
        ({}, one(2, "17Gi"), [("memory", 17 << 30, 0, True, (16 << 30,))]),
        ({"memory": "None"}, one(2, "17Gi"), []),
        ({"cpus": "none"}, one(9), []),
    ],
)
def test_requests_that_miss_by_little_are_found_with_what_aligns(
    node: dict[str, Any], pod: Pod, found: list[Any]
) -> None:
    misses = misfits(pod, building.node(**node))
    assert [(it.resource, it.asked, it.granule, it.rejected, it.instead) for it in misses] == found


def test_with_scope_pod_the_containers_count_together() -> None:
    pod = building.pod("p", building.container("a", 6), building.container("b", 3))
    assert list(misfits(pod, building.node(scope="container"))) == []
    (first, second) = misfits(pod, building.node(scope="pod"))
    assert (first.container, first.asked, first.instead) == ("a", 6, (5,))
    assert (second.container, second.asked, second.instead) == ("b", 3, (2,))


@given(
    cpus=st.integers(1, 20),
    memory=st.integers(1, 20),
    policy=st.sampled_from(["single-numa-node", "restricted", "best-effort"]),
    scope=st.sampled_from(["container", "pod"]),
    whole=st.booleans(),
)
def test_proposals_are_admitted_on_one_numa_node_when_empty(
    cpus: int, memory: int, policy: str, scope: str, *, whole: bool
) -> None:
    node = building.node(policy=policy, scope=scope, cpu_options=WHOLE_CORES if whole else {})
    pod = one(cpus, f"{memory}Gi")
    for miss in misfits(pod, node):
        assert admit(node, pod).admitted is not miss.rejected
        for amount in miss.instead:
            admission = admit(node, with_request(pod, miss.container, miss.resource, amount))
            assert admission.admitted
            assert len(zones_of(admission.node, "p")) == 1


@pytest.mark.parametrize(
    ("containers", "floating"),
    [
        ((building.container("main", "1500m"),), ("main",)),
        ((building.container("main", 2),), ()),
        ((building.container("main", 2), building.container("side", "1500m")), ()),
        ((building.container("side", "100m"),), ()),
        (({"name": "main", "resources": {"requests": {"cpu": "1500m"}}},), ()),
    ],
)
def test_guaranteed_pods_that_pin_nothing_are_found(
    containers: tuple[Any, ...], floating: tuple[str, ...]
) -> None:
    pod = building.pod("p", *containers)
    assert unpinned_containers(pod, building.node()) == floating
    assert unpinned_containers(pod, building.node(cpus="none")) == ()


def test_a_zone_that_no_shape_can_use_is_stranded() -> None:
    node: Node = building.node()
    for uid, cpus, memory in (("a", 5, "15Gi"), ("b", 6, "1Gi")):
        node = admit(node, building.pod(uid, building.container("c", cpus, memory))).node
    # Left are 2 CPUs without memory on NUMA node 0, and 2 CPUs with 15Gi on NUMA node 1.
    small, large = Shape.parse("cpu=2,memory=2Gi"), Shape.parse("cpu=4,memory=1Gi")
    assert [(it.numa, it.cpus, it.lacking) for it in stranded_zones(node, [small, large])] == [
        (0, 2, "memory")
    ]
    assert [(it.numa, it.cpus, it.lacking) for it in stranded_zones(node, [large])] == [
        (0, 2, "cpu"),
        (1, 2, "cpu"),
    ]
    assert list(stranded_zones(node, [])) == []
    assert list(stranded_zones(node, [Shape.parse("cpu=9,vendor/gpu=1")])) == []
    assert list(stranded_zones(without_pods(node), [small, large])) == []


def test_zone_without_memory_is_not_stranded_next_to_another() -> None:
    whole = building.machine()
    machine = Machine(whole.cpus, (whole.numa_nodes[0], whole.numa_nodes[1]._replace(memory=0)))
    shape = Shape.parse("cpu=2,memory=2Gi")
    assert list(stranded_zones(building.node(machine, policy="best-effort"), [shape])) == []


def test_shape_of_a_pod_is_its_request_to_the_managers() -> None:
    pod = building.pod("p", building.container("a", 2, "1Gi", vendor_gpu="1"), building.container("b", 1))
    node = building.node(devices=building.gpus((0,)))
    assert str(shape_of(pod, node)) == "cpu=3,memory=2Gi,vendor/gpu=1"
    assert shape_of(one("1500m"), node) is None
