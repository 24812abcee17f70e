"""Number of further pods of a shape that fit: counted one by one, or by amounts where these suffice."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.placement import Unknown
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.kubelet import KubeletPlacement, fitting_by_amounts
from numazones.prediction.room import FittingPods, copy_of, pod_of_shape
from tests.numazones.kubelet.building import node
from tests.numazones.kubelet.days import days, play

LARGE = {"cpu": 10_000_000, "memory": 1 << 50, "vendor.example/gpu": 100}

shapes = st.builds(
    lambda cpus, memory, gpus: Shape.parse(
        f"cpu={cpus}"
        + (f",memory={memory}" if memory else "")
        + (f",vendor.example/gpu={gpus}" if gpus else "")
    ),
    st.integers(1, 6),
    st.sampled_from(["", "512Mi", "3Gi"]),
    st.integers(0, 2),
)


def counted(state: Node, shape: Shape) -> int:
    """The slow way: admit copies until one is not."""
    pod, number = pod_of_shape(shape), 0
    while True:
        copy = copy_of(pod, number).admission
        assert copy is not None
        decision = admit(state, copy)
        if not decision.admitted or number == 200:
            return number
        state, number = decision.node, number + 1


@given(days(), shapes)
def test_count_by_amounts_equals_admission_one_by_one(day: tuple[Node, list[object]], shape: Shape) -> None:
    _, state = play(*day)  # type: ignore[arg-type]
    asked = Shape(tuple(sorted({"memory": 1 << 20, **dict(shape.resources)}.items())))
    told = fitting_by_amounts(state, asked)
    if told is not None:
        assert told == counted(state, shape)


@given(days(), shapes)
def test_node_room_is_what_its_kubelet_admits_one_by_one(
    day: tuple[Node, list[object]], shape: Shape
) -> None:
    _, state = play(*day)  # type: ignore[arg-type]
    most = counted(state, shape)
    found = FittingPods().count(ClusterNode("n", allocatable=LARGE, pod_slots=200).with_state(state), shape)
    lacks_device = "vendor.example/gpu" in dict(shape.resources) and not state.kubelet.devices.resources
    assert found.fitting == most or lacks_device


def test_sums_of_requests_and_slots_bound_what_fits() -> None:
    state = node(policy="single-numa-node")
    whole = (
        FittingPods()
        .count(ClusterNode("n", allocatable=LARGE).with_state(state), Shape.parse("cpu=1"))
        .fitting
    )
    assert whole > 3
    for bounded in (
        ClusterNode("n", allocatable={**LARGE, "cpu": 3000}),
        ClusterNode("n", allocatable=LARGE, pod_slots=3),
    ):
        assert FittingPods().count(bounded.with_state(state), Shape.parse("cpu=1")).fitting == 3


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_amounts_tell_nothing_where_pods_may_lie_across_numa_nodes(policy: str) -> None:
    placement = KubeletPlacement(node(policy=policy))
    assert fitting_by_amounts(placement.node, Shape.parse("cpu=1,memory=1Mi")) is None


@pytest.mark.parametrize("ids", [range(34), (0, 64)])
def test_no_room_where_the_kubelet_would_hang_or_crash(ids: Iterable[int]) -> None:
    cpus = tuple(CPU(cpu, cpu, 0, 0, numa=0) for cpu in range(8))
    machine = Machine(cpus, tuple(NUMANode(numa, 16 << 30) for numa in ids))
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"},
        },
        version="v1.36.2",
    )
    slow = ClusterNode("n", allocatable=LARGE, pod_slots=9).with_state(Node.fresh(machine, config))
    assert FittingPods().count(slow, Shape.parse("cpu=2,memory=1Gi")).fitting == 0


def test_room_for_pods_with_scheduler_allocated_devices_is_unknown() -> None:
    gpu, counts = "gpu.example/large", FittingPods()
    shape, state = Shape.parse(f"cpu=1,memory=1Gi,{gpu}=1"), node(policy="single-numa-node")
    mapped = ClusterNode("n", allocatable=LARGE, device_classes={gpu: "gpus"}).with_state(state)
    assert counts.count(mapped, shape) == Fragmentation()
    assert counts.why_unknown(mapped, shape).startswith(
        f"it requests {gpu}, which dynamic resource allocation provides (DeviceClass gpus)"
    )
    # Nobody maps it: the node lacks it, and its free CPUs are lost to the shape.
    lacking = ClusterNode("n", allocatable=LARGE).with_state(state)
    assert counts.why_unknown(lacking, shape) == ""
    assert counts.count(lacking, shape).share == 1
    # A device plugin offers it on the node, so that the scheduler counts that.
    plugged = replace(mapped, allocatable={**LARGE, gpu: 1})
    assert counts.why_unknown(plugged, shape) == ""


def test_where_nobody_knows_who_decides_the_node_says_why() -> None:
    unknown = ClusterNode("n", allocatable=LARGE).with_placement(Unknown("Stale", "its exporter is gone"))
    assert FittingPods().why_unknown(unknown, Shape.parse("cpu=1")) == "its exporter is gone"
