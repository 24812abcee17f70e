"""Room per zone, shapes, the share of free CPUs that a shape cannot use, and the spread of KEP-2902."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.startup import KubeletManagers
from numazones.placement import fragmentation
from numazones.placement.fragmentation import Fragmentation, InvalidShape, Shape

GIB = 2**30
NIC = "vendor.example/nic"
GPU, PAGES = "vendor.example/gpu", "hugepages-1Gi"


def machine(zones: int = 2, cores: int = 8, threads: int = 2) -> Machine:
    size = threads * cores
    cpus = tuple(CPU(i, i // threads, i // size, 0, i // size) for i in range(zones * size))
    return Machine(cpus, tuple(NUMANode(n, 32 * GIB) for n in range(zones)))


def node(taken: dict[str, str] | None = None, nics: int = 0, **config: Any) -> Node:
    configuration = KubeletConfiguration.from_api(
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,1", **config}
    )
    assignments = {uid: {"main": cpuset.parse(cpus)} for uid, cpus in (taken or {}).items()}
    devices = {NIC: [Device(f"nic-{number}", numa=(number % 2,)) for number in range(nics)]} if nics else {}
    return Node.restore(KubeletManagers.start(configuration, machine(), devices), cpu_assignments=assignments)


MEMORY: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def test_room_lists_what_the_managers_bind_to_zones() -> None:
    assert fragmentation.room(node(taken={"a": "2-5"})) == {"cpu": {0: 10, 1: 16}}
    assert fragmentation.room(node(nics=3, **MEMORY)) == {
        "cpu": {0: 14, 1: 16},
        "memory": {0: 31 * GIB, 1: 32 * GIB},
        NIC: {0: 2, 1: 1},
    }
    assert fragmentation.room(Node.fresh(machine(), KubeletConfiguration())) == {}


def test_cores_with_a_taken_or_reserved_thread_do_not_count() -> None:
    assert fragmentation.full_core_cpus(node(taken={"a": "2-4"})) == {0: 10, 1: 16}
    assert fragmentation.full_core_cpus(Node.fresh(machine(), KubeletConfiguration())) == {}


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("cpu=16", (("cpu", 16),)),
        ("cpu=16, memory=32Gi, vendor.example/nic=1", (("cpu", 16), ("memory", 32 * GIB), (NIC, 1))),
    ],
)
def test_a_shape_is_written_as_amounts(text: str, resources: tuple[tuple[str, int], ...]) -> None:
    shape = Shape.parse(text)
    assert shape.resources == resources
    assert Shape.parse(str(shape)) == shape


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "cpu=16") for text in ("", "cpu", "cpu=0", "cpu=16,=1", "cpu=many")),
        ("cpu=1500m", "not whole CPUs: such a pod runs on the shared pool, .* use cpu=16, for example"),
        ("memory=1Gi", "no CPUs: such a pod runs on the shared pool, .* add cpu=16, for example"),
        ("cpus=4", r"no CPUs; did you mean cpu\?"),
    ],
)
def test_text_that_is_no_shape_is_rejected_with_the_cure(text: str, said: str) -> None:
    with pytest.raises(InvalidShape, match=said):
        Shape.parse(text)


@pytest.mark.parametrize(
    ("state", "shape", "expected"),
    [
        (node(), "cpu=16", Fragmentation(free=30, usable=16, fitting=1)),
        (node(), "cpu=7", Fragmentation(free=30, usable=28, fitting=4)),
        (node(taken={"a": "16"}), "cpu=16", Fragmentation(free=29)),
        (node(), "cpu=4,memory=20Gi", Fragmentation(free=30, usable=28, fitting=7)),
        (node(**MEMORY), "cpu=4,memory=20Gi", Fragmentation(free=30, usable=8, fitting=2)),
        (node(nics=1), f"cpu=4,{NIC}=1", Fragmentation(free=30, usable=4, fitting=1)),
        (node(), f"cpu=4,{NIC}=1", Fragmentation(free=30)),
        (Node.fresh(machine(), KubeletConfiguration()), "cpu=4", Fragmentation()),
        (
            node(taken={"a": "16,18,20,22"}, cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
            "cpu=8",
            Fragmentation(free=26, usable=16, fitting=2),
        ),
    ],
)
def test_fragmentation_counts_what_further_pods_of_the_shape_use(
    state: Node, shape: str, expected: Fragmentation
) -> None:
    assert fragmentation.fragmentation(state, Shape.parse(shape)) == expected


def test_fragmentation_is_the_share_of_free_cpus_unusable_by_shape() -> None:
    assert Fragmentation(free=30, usable=16, fitting=1).share == pytest.approx(14 / 30)
    assert Fragmentation().share == 0
    parts = [Fragmentation(30, 16, 1), Fragmentation(10, 0, 0)]
    assert fragmentation.total(parts) == Fragmentation(40, 16, 1)
    assert fragmentation.total(parts) - parts[1] == parts[0]


def guaranteed(cpus: int) -> Pod:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    return Pod.from_api(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
        }
    )


@pytest.mark.parametrize(
    ("options", "reserved", "expected"),
    [
        ({}, "15", {0: 8, 1: 0}),
        # The option spreads only what no single NUMA node can give: here each has 7 CPUs for pods.
        ({"distribute-cpus-across-numa": "true"}, "0,8", {0: 4, 1: 4}),
    ],
)
def test_the_worked_examples_of_kep_2902(
    options: dict[str, str], reserved: str, expected: dict[int, int]
) -> None:
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": options,
            "reservedSystemCPUs": reserved,
        }
    )
    state = Node.fresh(machine(zones=2, cores=8, threads=1), config)
    assert fragmentation.exclusive_cpus(state) == {0: 0, 1: 0}
    admission = admit(state, guaranteed(8))
    assert admission.admitted
    assert fragmentation.exclusive_cpus(admission.node) == expected


@given(free=st.integers(1, 64), data=st.data())
def test_the_snugger_hole_scores_higher(free: int, data: st.DataObject) -> None:
    taken = data.draw(st.integers(1, free))
    smaller = data.draw(st.integers(taken, free))

    def score(size: int) -> float:
        return fragmentation.packing({"cpu": {0: size, 1: 7}}, {"cpu": {0: size - taken, 1: 7}})

    assert 0 < score(free) <= score(smaller) <= score(taken) == 1


@given(free=st.integers(2, 64), data=st.data())
def test_a_spread_placement_scores_at_most_half(free: int, data: st.DataObject) -> None:
    first, second = data.draw(st.integers(1, free)), data.draw(st.integers(1, free))
    spread = fragmentation.packing({"cpu": {0: free, 1: free}}, {"cpu": {0: free - first, 1: free - second}})
    assert 0 < spread <= 0.5


def test_a_placement_that_takes_nothing_scores_nothing() -> None:
    assert fragmentation.packing({}, {}) == 0
    assert fragmentation.packing({"cpu": {0: 4}}, {"cpu": {0: 4}}) == 0


def test_pods_zones_are_those_of_cpus_memory_and_devices() -> None:
    start = node(nics=2, topologyManagerPolicy="best-effort", **MEMORY)
    resources = {"cpu": "2", "memory": "1Gi", NIC: "2"}
    body = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": resources, "limits": resources}}]},
    }
    after = admit(start, Pod.from_api(body)).node
    assert fragmentation.zones_of(after, "p") == (0, 1)
    assert fragmentation.zones_of(after, "nobody") == ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            {"cpu": {0: 8, 1: 8}, GPU: {0: 1}}, {"cpu": {0: 8, 1: 4}, GPU: {0: 1}}, 0, id="away from it"
        ),
        pytest.param(
            {"cpu": {0: 8, 1: 8}, GPU: {0: 1}}, {"cpu": {0: 4, 1: 8}, GPU: {0: 1}}, 1, id="beside it"
        ),
        pytest.param({"memory": {0: 8}, GPU: {0: 1}}, {"memory": {0: 4}, GPU: {0: 1}}, 1, id="memory counts"),
        pytest.param({"cpu": {0: 8}, GPU: {0: 2}}, {"cpu": {0: 4}, GPU: {0: 1}}, 0, id="it takes a GPU"),
        pytest.param({"cpu": {0: 8}, GPU: {0: 0}}, {"cpu": {0: 4}, GPU: {0: 0}}, 0, id="none is idle"),
        pytest.param(
            {"cpu": {0: 8, 1: 8}, GPU: {0: 1, 1: 1}},
            {"cpu": {0: 4, 1: 4}, GPU: {0: 1, 1: 1}},
            2,
            id="two NUMA nodes",
        ),
        pytest.param(
            {"cpu": {0: 8}, GPU: {0: 1}, PAGES: {0: 4}},
            {"cpu": {0: 4}, GPU: {0: 1}, PAGES: {0: 4}},
            2,
            id="two kinds",
        ),
    ],
)
def test_stranding_counts_idle_kinds_beside_what_a_pod_takes(
    before: dict[str, dict[int, int]], after: dict[str, dict[int, int]], expected: int
) -> None:
    assert fragmentation.stranding(before, after) == expected
