"""The combined view of the sources: who holds what, what has ended, what contradicts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.api.numazone import NUMAZone, NUMAZoneStatus, ZoneResource
from numazones.api.snapshot import KnownDevice
from numazones.api.zones import node_from_zones
from numazones.apimachinery import quantity
from numazones.kubelet.checkpoints import (
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
    PodDevices,
)
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.machine_state import Block, MemoryTable, NUMANodeState
from numazones_exporter import zones
from numazones_exporter.observation import (
    ContainerResources,
    NodePod,
    Observation,
    PodResources,
    PodResourcesAnswer,
)
from numazones_node.problems import Problem
from numazones_node.sysfs import Hardware

GIB = 2**30
ROOM = 7 * GIB
"""Allocatable memory of a NUMA node: 8 GiB but for 1 GiB reserved."""

CONFIGURATION = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": "0,4",
    "reservedMemory": [{"numaNode": numa, "limits": {"memory": "1Gi"}} for numa in (0, 1)],
    "systemReserved": {"memory": "1948Mi"},
}


def build(observation: Observation) -> list[NUMAZone]:
    snapshot = zones.snapshot_of(observation)
    return [] if snapshot is None else zones.build(snapshot)


def hardware() -> Hardware:
    """Two NUMA nodes of two cores with two threads: CPUs 0-1,4-5 and 2-3,6-7; 8 GiB each."""
    cpus = tuple(CPU(cpu, cpu % 4, cpu % 4 // 2, 0, cpu % 4 // 2) for cpu in range(8))
    return Hardware(
        Machine(cpus, (NUMANode(0, 8 * GIB, (), (10, 21)), NUMANode(1, 8 * GIB, (), (21, 10)))), (), 0, ()
    )


def pod(uid: str, *, phase: str = "Running") -> NodePod:
    return NodePod("ns", f"pod-{uid}", uid, phase, "Guaranteed")


def cpu_state(**entries: dict[str, str]) -> CPUManagerCheckpoint:
    """uid → container → CPUs; the rest is the default set."""
    parsed = {uid: {name: cpuset.parse(text) for name, text in held.items()} for uid, held in entries.items()}
    default = 0xFF
    for held in parsed.values():
        for cpus in held.values():
            default &= ~cpus
    return CPUManagerCheckpoint("static", default, parsed)


def memory_state(
    reserved: tuple[int, int] = (0, 0),
    cells: tuple[int, int] = (0b01, 0b10),
    assignments: tuple[int, int] = (0, 0),
    **entries: dict[str, tuple[Block, ...]],
) -> MemoryManagerCheckpoint:
    return MemoryManagerCheckpoint(
        "Static",
        {
            numa: NUMANodeState(
                assignments[numa],
                {"memory": MemoryTable(8 * GIB, GIB, ROOM, reserved[numa], ROOM - reserved[numa])},
                cells[numa],
            )
            for numa in (0, 1)
        },
        entries,
    )


def block(numa: int, size: int) -> Block:
    return Block(affinity=numa, type="memory", size=size)


def offer(*devices: KnownDevice, **pods: tuple[ContainerResources, ...]) -> PodResourcesAnswer:
    """Pods by uid, with their containers."""
    listed = tuple(PodResources("ns", f"pod-{uid}", containers) for uid, containers in sorted(pods.items()))
    return PodResourcesAnswer(listed, 0xFF & ~0x11, (block(1, ROOM), block(2, ROOM)), devices)


def container(
    name: str, cpus: str = "", *memory: Block, devices: tuple[KnownDevice, ...] = ()
) -> ContainerResources:
    return ContainerResources(name, cpuset.parse(cpus), memory, devices)


def observation(**parts: Any) -> Observation:
    """A node on which nothing is held, changed by ``parts``."""
    whole = {
        "hardware": hardware(),
        "kubelet": KubeletConfiguration.from_api(CONFIGURATION),
        "cpu_manager": cpu_state(),
        "memory_manager": memory_state(),
        "devices": DeviceManagerCheckpoint(),
        "podresources": offer(),
        "pods": (),
        **parts,
    }
    return Observation("n", **whole)


def statuses(found: Observation) -> list[NUMAZoneStatus]:
    built = build(found)
    return [zone.status for zone in built if zone.status is not None]


def rows(found: Observation, name: str) -> list[ZoneResource | None]:
    return [next((row for row in status.resources if row.name == name), None) for status in statuses(found)]


def assigned(found: Observation, name: str) -> list[int]:
    return [quantity.parse(row.assigned or "0").value() if row else 0 for row in rows(found, name)]


def condition(found: Observation, kind: str) -> tuple[str, str, str]:
    (item,) = [item for item in statuses(found)[0].conditions if item.type == kind]
    return item.status, item.reason, item.message


# Who holds what, and who has ended


def test_empty_node_is_ready_with_all_unreserved_resources_available() -> None:
    found = observation()
    assert condition(found, "Ready") == ("True", "Complete", "")
    assert condition(found, "Consistent") == ("True", "SourcesAgree", "")
    assert [
        (row.capacity, row.reserved, row.allocatable, row.assigned, row.available)
        for row in rows(found, "cpu")
        if row
    ] == [("4", "2", "2", "0", "2"), ("4", "0", "4", "0", "4")]
    assert [
        (row.capacity, row.reserved, row.allocatable, row.assigned, row.available)
        for row in rows(found, "memory")
        if row
    ] == [("8Gi", "1Gi", "7Gi", "0", "7Gi")] * 2


ENDINGS = {
    "deleted": ((), {}),
    "succeeded": ((pod("a", phase="Succeeded"),), {}),
    "rejected late, so failed": ((pod("a", phase="Failed"),), {}),
    "not failed yet by the API server, but not active for the kubelet": (
        (pod("a"), pod("other")),
        {"other": ()},
    ),
    "ended, and still listed by a kubelet before 1.34": (
        (pod("a", phase="Succeeded"),),
        {"a": (container("c", "2,6", block(2, GIB)),)},
    ),
}


@pytest.mark.parametrize(("pods", "listed"), ENDINGS.values(), ids=ENDINGS)
def test_a_pod_that_has_ended_holds_nothing(pods: tuple[NodePod, ...], listed: dict[str, Any]) -> None:
    found = observation(
        cpu_manager=cpu_state(a={"c": "2,6"}),
        memory_manager=memory_state((0, GIB), assignments=(0, 1), a={"c": (block(2, GIB),)}),
        devices=DeviceManagerCheckpoint((PodDevices("a", "c", "r", {1: ("d",)}),), {"r": ("d",)}),
        pods=pods,
        podresources=offer(KnownDevice("r", "d", 2), **listed),
    )
    assert assigned(found, "cpu") == [0, 0]
    assert assigned(found, "memory") == [0, 0]
    assert assigned(found, "r") == [0, 0]
    assert [status.assignments for status in statuses(found)] == [(), ()]
    assert [status.memory_assignments for status in statuses(found)] == [0, 0]
    assert condition(found, "Ready")[0] == "True"
    sets = statuses(found)[1].cpus
    assert sets is not None
    assert (sets.exclusive, sets.shared) == ("", "2-3,6-7")


@pytest.mark.parametrize("listed", [{}, {"static": ()}])
def test_pods_keep_resources_until_a_restarted_kubelet_lists_them(
    listed: dict[str, Any],
) -> None:
    """Until a kubelet has its pods from the API server, it lists none but static ones."""
    static = replace(pod("static"), static=True)
    found = observation(
        cpu_manager=cpu_state(a={"c": "2,6"}, ended={"c": "3,7"}, leaving={"c": "1"}),
        memory_manager=memory_state((0, GIB), assignments=(0, 1), a={"c": (block(2, GIB),)}),
        pods=(pod("a"), pod("ended", phase="Succeeded"), replace(pod("leaving"), deleting=True), static),
        podresources=offer(**listed),
    )
    assert assigned(found, "cpu") == [1, 2]
    assert assigned(found, "memory") == [0, GIB]
    assert condition(found, "Ready")[0] == "True"
    heard = replace(found, podresources=offer(a=(container("c", "2,6", block(2, GIB)),), static=()))
    assert assigned(heard, "cpu") == [0, 2]


def test_an_init_containers_cpus_stay_assigned_while_its_pod_lives() -> None:
    found = observation(
        cpu_manager=cpu_state(a={"i": "2-3,6-7", "c": "2,6"}),
        pods=(pod("a"),),
        podresources=offer(a=(container("c", "2,6"),)),
    )
    assert assigned(found, "cpu") == [0, 4]
    assert [(item.container, item.cpus) for item in statuses(found)[1].assignments] == [
        ("c", "2,6"),
        ("i", "2-3,6-7"),
    ]
    assert condition(found, "Ready")[0] == "True"


def test_ended_pods_memory_returns_lowest_numa_node_first() -> None:
    """A group of two: 9 GiB of pod a charged 7+2, 3 GiB of pod b charged 0+3; a ends."""
    found = observation(
        memory_manager=memory_state(
            (7 * GIB, 5 * GIB),
            cells=(0b11, 0b11),
            assignments=(2, 2),
            a={"c": (block(3, 9 * GIB),)},
            b={"c": (block(3, 3 * GIB),)},
        ),
        pods=(pod("b"),),
        podresources=offer(b=(container("c", "", block(3, 3 * GIB)),)),
    )
    assert assigned(found, "memory") == [0, 3 * GIB]
    assert [status.memory_group for status in statuses(found)] == [(0, 1), (0, 1)]
    assert [status.memory_assignments for status in statuses(found)] == [1, 1]


def test_memory_groups_are_free_again_after_their_last_pod() -> None:
    found = observation(
        memory_manager=memory_state(
            (7 * GIB, 2 * GIB), cells=(0b11, 0b11), assignments=(1, 1), a={"c": (block(3, 9 * GIB),)}
        ),
    )
    assert assigned(found, "memory") == [0, 0]
    assert [status.memory_group for status in statuses(found)] == [(0,), (1,)]


def test_zone_in_a_memory_group_has_no_headroom_alone() -> None:
    found = observation(
        memory_manager=memory_state(
            (7 * GIB, 2 * GIB), cells=(0b11, 0b11), assignments=(1, 1), a={"c": (block(3, 9 * GIB),)}
        ),
        pods=(pod("a"),),
        podresources=offer(a=(container("c", "", block(3, 9 * GIB)),)),
    )
    headroom = [status.headroom for status in statuses(found)]
    assert [item.memory if item else None for item in headroom] == ["0", "0"]
    assert [item.exclusive_cpus if item else None for item in headroom] == [2, 4]


def test_pod_missing_from_the_api_server_is_recognised_by_resources() -> None:
    found = observation(
        cpu_manager=cpu_state(a={"c": "2,6"}, gone={"c": "3,7"}),
        podresources=offer(a=(container("c", "2,6"),)),
        pods=(),
    )
    assert assigned(found, "cpu") == [0, 2]
    assert [(item.pod, item.uid) for item in statuses(found)[1].assignments] == [("pod-a", "a")]


def test_state_files_without_other_sources_are_used_with_a_condition() -> None:
    found = observation(cpu_manager=cpu_state(a={"c": "2,6"}), pods=None, podresources=None)
    assert assigned(found, "cpu") == [0, 2]
    status, reason, message = condition(found, "Ready")
    assert (status, reason) == ("Unknown", "EndedPodsUnknown")
    assert message == (
        "neither the node's pods nor podresources could be read; the state files are used unfiltered and "
        "may include pods that have ended"
    )


@pytest.mark.parametrize("podresources", [None, offer(a=(container("c", "2,6"),))])
def test_a_wrong_node_name_is_noticed_by_the_missing_pods(podresources: PodResourcesAnswer | None) -> None:
    found = observation(cpu_manager=cpu_state(a={"c": "2,6"}), pods=(), podresources=podresources)
    reasons = [problem.reason for problem in zones.problems_of(found)]
    assert "NoPodsOfNode" in reasons
    assert condition(found, "Ready")[0] == "Unknown"
    assert "no pod is bound to node n, but the kubelet has pods" in condition(found, "Ready")[2]


# Reserved CPUs


def configured(**changes: Any) -> KubeletConfiguration:
    return KubeletConfiguration.from_api({**CONFIGURATION, **changes})


def test_without_a_list_the_reserved_cpus_are_those_not_allocatable() -> None:
    kubelet = configured(reservedSystemCPUs="", kubeReserved={"cpu": "2"})
    found = observation(kubelet=kubelet, podresources=replace(offer(), allocatable_cpus=0xFF & ~0b1100))
    assert [status.cpus.reserved if status.cpus else None for status in statuses(found)] == ["", "2-3"]


def test_without_list_and_podresources_the_static_policys_choice_is_computed() -> None:
    kubelet = configured(reservedSystemCPUs="", kubeReserved={"cpu": "2"})
    found = observation(kubelet=kubelet, podresources=None)
    assert [status.cpus.reserved if status.cpus else None for status in statuses(found)] == ["0,4", ""]


def test_reserved_cpus_that_contradict_podresources_are_used_and_reported() -> None:
    found = observation(kubelet=configured(reservedSystemCPUs="2,6"))
    assert [status.cpus.reserved if status.cpus else None for status in statuses(found)] == ["", "2,6"]
    assert condition(found, "Ready")[:2] == ("Unknown", "SourcesDisagree")
    status, _, message = condition(found, "Consistent")
    assert status == "False"
    assert message == (
        "restart the kubelet: it will accept its state files; reservedSystemCPUs is 2,6, but according to "
        "podresources, CPUs 0,4 are reserved"
    )


def test_invalid_reserved_cpus_are_reported_and_podresources_used() -> None:
    found = observation(kubelet=configured(reservedSystemCPUs="0-"))
    assert [status.cpus.reserved if status.cpus else None for status in statuses(found)] == ["0,4", ""]
    status, reason, message = condition(found, "Ready")
    assert (status, reason) == ("Unknown", "InvalidCPUList")
    assert message.startswith("reservedSystemCPUs of the kubelet configuration: '0-' is not a CPU list")


def test_reserved_cpus_without_a_source_are_not_guessed() -> None:
    found = observation(kubelet=None, podresources=None)
    (row, _) = rows(found, "cpu")
    assert row == ZoneResource(name="cpu", capacity="4", assigned="0")
    assert statuses(found)[0].cpus is None
    assert (
        "the reserved CPUs are unknown: neither the kubelet configuration nor podresources could be read"
        in (condition(found, "Ready")[2])
    )


def test_policy_none_reserves_no_cpu_and_needs_no_state_file() -> None:
    found = observation(
        kubelet=KubeletConfiguration.from_api({}),
        cpu_manager=None,
        memory_manager=None,
        devices=None,
        podresources=PodResourcesAnswer((), 0, (), ()),
        problems=tuple(
            Problem(name, "NotFound", f"{name} does not exist")
            for name in ("cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint")
        ),
    )
    assert condition(found, "Ready") == ("True", "Complete", "")
    assert [(row.reserved, row.assigned, row.available) for row in rows(found, "cpu") if row] == [
        ("0", "0", "4")
    ] * 2
    assert [(row.reserved, row.assigned, row.available) for row in rows(found, "memory") if row] == [
        ("0", "0", "8Gi")
    ] * 2


def test_strictly_reserved_cpus_are_not_expected_in_cpu_manager_state() -> None:
    kubelet = configured(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"})
    state = CPUManagerCheckpoint("static", 0xFF & ~0x11)
    found = observation(kubelet=kubelet, cpu_manager=state)
    assert condition(found, "Consistent")[0] == "True"


@pytest.mark.parametrize("known", [True, None])
def test_workload_partitioning_keeps_reserved_cpus_apart(known: bool | None) -> None:  # noqa: FBT001
    state = CPUManagerCheckpoint("static", 0xFF & ~0x33, {"a": {"c": 0x22}})
    found = observation(cpu_manager=state, partitioned=known, podresources=None, pods=(pod("a"),))
    found = replace(found, kubelet_version="v1.34.9+1a2b3c4")
    assert condition(found, "Ready") == ("True", "Complete", "")
    assert all(status.kubelet and status.kubelet.workload_partitioning for status in statuses(found))
    node = node_from_zones(build(found))
    assert cpuset.format(node.cpus.default) == "2-3,6-7"
    assert node.kubelet.cpus.keeps_reserved_apart


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"partitioned": False}, id="a node that is not partitioned"),
        pytest.param({"cpu_manager": CPUManagerCheckpoint("static", 0xFF & ~0x13)}, id="one CPU more"),
        pytest.param({"cpu_manager": CPUManagerCheckpoint("static", 0xFF & ~0x01)}, id="one CPU less"),
    ],
)
def test_missing_cpus_that_partitioning_does_not_explain_contradict(parts: dict[str, Any]) -> None:
    found = observation(**{"cpu_manager": CPUManagerCheckpoint("static", 0xFF & ~0x11), **parts})
    assert condition(found, "Ready")[:2] == ("Unknown", "SourcesDisagree")


# Devices


def test_a_device_on_two_numa_nodes_counts_in_both() -> None:
    device = KnownDevice("r", "d", 0b11)
    found = observation(
        devices=DeviceManagerCheckpoint((PodDevices("a", "c", "r", {0: ("d",), 1: ("d",)}),), {"r": ("d",)}),
        pods=(pod("a"),),
        podresources=offer(device, a=(container("c", devices=(device,)),)),
    )
    assert assigned(found, "r") == [1, 1]
    assert [[item.id for item in status.devices] for status in statuses(found)] == [["d"], ["d"]]
    assert condition(found, "Ready")[0] == "True"


def test_a_device_without_topology_is_listed_once_and_counted_nowhere() -> None:
    device = KnownDevice("r", "d", 0)
    found = observation(
        devices=DeviceManagerCheckpoint((PodDevices("a", "c", "r", {-1: ("d",)}),), {"r": ("d",)}),
        pods=(pod("a"),),
        podresources=offer(device, a=(container("c", devices=(device,)),)),
    )
    assert rows(found, "r") == [None, None]
    first, second = statuses(found)
    (listed,) = first.devices
    assert (listed.id, listed.numa_ids) == ("d", ())
    assert listed.assigned_to is not None
    assert listed.assigned_to.pod == "pod-a"
    assert second.devices == ()


def test_device_of_a_nonexistent_numa_node_is_not_lost() -> None:
    found = observation(
        devices=DeviceManagerCheckpoint((), {"r": ("d",)}), podresources=offer(KnownDevice("r", "d", 1 << 9))
    )
    assert [[item.numa_ids for item in status.devices] for status in statuses(found)] == [[(9,)], []]


def test_held_device_that_became_unhealthy_is_shown_and_not_allocatable() -> None:
    found = observation(
        devices=DeviceManagerCheckpoint((PodDevices("a", "c", "r", {1: ("d0",)}),), {"r": ("d1",)}),
        pods=(pod("a"),),
        podresources=offer(
            KnownDevice("r", "d1", 2), a=(container("c", devices=(KnownDevice("r", "d0", 2),)),)
        ),
    )
    (row,) = [row for row in rows(found, "r") if row is not None]
    assert (row.capacity, row.allocatable, row.assigned, row.available) == ("2", "1", "1", "1")
    assert [(item.id, item.healthy) for item in statuses(found)[1].devices] == [("d0", False), ("d1", True)]


def test_tens_of_thousands_of_devices_are_counted() -> None:
    """As plugins offer a GPU's memory in MiB: too many for a list, and one container has 8,000 of them."""
    many = tuple(KnownDevice("vendor/gpu-mem", f"GPU-8a1d7f33-_-{n}", 1 << n % 2) for n in range(50_000))
    held = many[:8000]
    checkpoint = DeviceManagerCheckpoint(
        (
            PodDevices(
                "a",
                "c",
                "vendor/gpu-mem",
                {0: tuple(d.id for d in held[::2]), 1: tuple(d.id for d in held[1::2])},
            ),
        ),
        {"vendor/gpu-mem": tuple(device.id for device in many)},
    )
    found = observation(
        devices=checkpoint, pods=(pod("a"),), podresources=offer(*many, a=(container("c", devices=held),))
    )
    assert condition(found, "Ready") == ("True", "Complete", "")
    assert "vendor/gpu-mem has 50000 devices" in condition(found, "DevicesCounted")[2]
    assert assigned(found, "vendor/gpu-mem") == [4000, 4000]
    assert [[device.count for device in status.devices] for status in statuses(found)] == [[21000, 4000]] * 2
    assert max(len(json.dumps(zone.to_api())) for zone in build(found)) < 8 << 10


def test_thousands_of_devices_without_topology_are_listed_once() -> None:
    """As plugins offer /dev/kvm to virtual machines: a thousand devices for each device file."""
    many = tuple(KnownDevice(f"vm/{name}", f"{n:03}", 0) for name in "abcdef" for n in range(1000))
    found = observation(
        devices=DeviceManagerCheckpoint(
            (), {f"vm/{name}": tuple(f"{n:03}" for n in range(1000)) for name in "abcdef"}
        ),
        podresources=offer(*many),
    )
    assert [len(status.devices) for status in statuses(found)] == [6000, 0]
    assert condition(found, "Ready")[0] == "True"


def test_dynamic_resources_are_shown_with_their_holder_and_counted_nowhere() -> None:
    held = ContainerResources("c", 0, (), (), (("gpu.example", "pool/gpu-0"),))
    found = observation(pods=(pod("a"),), podresources=offer(a=(held,)))
    (assignment,) = statuses(found)[0].assignments
    (shown,) = assignment.devices
    assert (assignment.pod, shown.resource, shown.ids) == ("pod-a", "gpu.example", ("pool/gpu-0",))
    assert rows(found, "gpu.example") == [None, None]


# podresources in place of state files


def test_pod_level_memory_from_podresources_is_counted_once_not_twice() -> None:
    """Pod-level values overlap the containers'."""
    memory = (block(2, GIB),)
    whole = PodResources("ns", "pod-a", (container("c", "2", *memory),), container("", "2-3", *memory))
    found = observation(
        cpu_manager=None,
        memory_manager=None,
        pods=(pod("a"),),
        podresources=replace(offer(), pods=(whole,)),
    )
    assert assigned(found, "memory") == [0, GIB]
    assert assigned(found, "cpu") == [0, 2]


def test_memory_split_missing_from_podresources_is_estimated_and_reported() -> None:
    found = observation(
        memory_manager=None,
        pods=(pod("a"),),
        podresources=offer(a=(container("c", "", block(3, 9 * GIB)),)),
    )
    assert assigned(found, "memory") == [7 * GIB, 2 * GIB]
    status, reason, message = condition(found, "Ready")
    assert (status, reason) == ("Unknown", "EstimatedSplit")
    assert message.startswith("podresources do not show how memory is split across several NUMA nodes")


# Contradictions


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param(
            {
                "cpu_manager": cpu_state(a={"c": "2,6"}),
                "pods": (pod("a"),),
                "podresources": offer(a=(container("c", "3,7"),)),
            },
            "ns/pod-a container c holds CPUs 2,6 according to cpu_manager_state and CPUs 3,7 according "
            "to podresources",
            id="CPUs of a container",
        ),
        pytest.param(
            {
                "memory_manager": memory_state((0, GIB), a={"c": (block(2, GIB),)}),
                "pods": (pod("a"),),
                "podresources": offer(a=(container("c"),)),
            },
            "ns/pod-a container c holds 1Gi of memory on NUMA node 1 according to memory_manager_state "
            "and nothing according to podresources",
            id="memory of a container",
        ),
        pytest.param(
            {"cpu_manager": CPUManagerCheckpoint("static", 0x1FF)},
            'would fail: current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-8"; drain '
            "the node, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start it again; "
            "cpu_manager_state has CPUs 8, which are not online",
            id="a CPU that went offline",
        ),
        pytest.param(
            {"cpu_manager": CPUManagerCheckpoint("static", 0x7F)},
            "remove /var/lib/kubelet/cpu_manager_state and start it again; CPUs 7 are online, but not in "
            "cpu_manager_state",
            id="a CPU that came online",
        ),
        pytest.param(
            {"cpu_manager": CPUManagerCheckpoint("none", 0)},
            'a restart of the kubelet would fail: configured policy "static" differs from state checkpoint '
            'policy "none"; drain the node, stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and '
            "start it again; cpu_manager_state was written under policy none, but the kubelet configuration "
            "says static",
            id="a changed policy",
        ),
        pytest.param(
            {"kubelet": configured(reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}])},
            "NUMA node 0: memory_manager_state has 1Gi of reserved memory, but the configuration says 2Gi",
            id="changed reservedMemory",
        ),
        pytest.param(
            {"devices": DeviceManagerCheckpoint((), {"r": ("d",)})},
            "device d of r is in kubelet_internal_checkpoint, but not in podresources",
            id="a device",
        ),
    ],
)
def test_sources_that_disagree_are_named(parts: dict[str, Any], message: str) -> None:
    found = observation(**parts)
    status, reason, text = condition(found, "Consistent")
    assert (status, reason) == ("False", "SourcesDisagree")
    assert message in text
    assert condition(found, "Ready")[:2] == ("Unknown", "SourcesDisagree")


SCATTERED = sum(1 << cpu for cpu in range(1, 2000, 3))
PODS = {f"p{number}": {"c": "2,6"} for number in range(30)}
MANY_PODS: dict[str, Any] = {
    "pods": tuple(map(pod, PODS)),
    "podresources": offer(**{uid: (container("c", "3,7"),) for uid in PODS}),
}
CPU_FILE = "remove /var/lib/kubelet/cpu_manager_state and start it again"
MEMORY_FILE = "remove /var/lib/kubelet/memory_manager_state and start it again"
OTHER_MEMORY: dict[str, Any] = {
    "kubelet": configured(
        reservedMemory=[
            {"numaNode": numa, "limits": {"memory": amount}}
            for numa, amount in enumerate(("512Mi", "1536Mi"))
        ]
    )
}
OTHER_POLICY: dict[str, Any] = {"memory_manager": MemoryManagerCheckpoint("None", {})}


@pytest.mark.parametrize(
    ("parts", "cures"),
    [
        pytest.param({"cpu_manager": CPUManagerCheckpoint("static", SCATTERED)}, [CPU_FILE], id="CPUs"),
        pytest.param(
            {"cpu_manager": replace(cpu_state(**PODS), default=SCATTERED), **MANY_PODS},
            [CPU_FILE],
            id="CPUs and pods",
        ),
        pytest.param({"cpu_manager": CPUManagerCheckpoint("none", 0), **MANY_PODS}, [CPU_FILE], id="policy"),
        pytest.param({**OTHER_POLICY, **MANY_PODS}, [MEMORY_FILE], id="memory policy"),
        pytest.param({**OTHER_MEMORY, **MANY_PODS}, [MEMORY_FILE], id="memory"),
        pytest.param(
            {"cpu_manager": CPUManagerCheckpoint("static", SCATTERED), **OTHER_MEMORY, **MANY_PODS},
            [CPU_FILE, MEMORY_FILE],
            id="CPUs and memory",
        ),
        pytest.param(
            {"cpu_manager": CPUManagerCheckpoint("none", 0), **OTHER_POLICY, **MANY_PODS},
            [CPU_FILE, MEMORY_FILE],
            id="both policies",
        ),
    ],
)
def test_long_contradictions_do_not_cut_the_cure_off(parts: dict[str, Any], cures: list[str]) -> None:
    _, _, text = condition(observation(**parts), "Consistent")
    assert text.startswith("a restart of the kubelet would fail: ")
    assert len(text) <= 1000
    assert [cure for cure in (CPU_FILE, MEMORY_FILE) if cure in text] == cures


def of_two_pods(**parts: Any) -> dict[str, Any]:
    """The kubelet has given CPU 2 to two pods, of which the first has the other sibling, too."""
    return {
        "cpu_manager": cpu_state(a={"c": "2,6"}, b={"c": "2"}),
        "pods": (
            replace(pod("a"), created="2026-01-31T09:00:00Z"),
            replace(pod("b"), created="2026-01-31T08:00:00Z"),
        ),
        "podresources": offer(a=(container("c", "2,6"),), b=(container("c", "2"),)),
        "kubelet_version": "v1.36.2",
        **parts,
    }


def test_cpu_assigned_to_two_pods_gets_its_own_condition() -> None:
    found = observation(**of_two_pods())
    assert condition(found, "Ready")[:2] == ("True", "Complete")
    assert condition(found, "Consistent")[:2] == ("True", "SourcesAgree")
    status, reason, text = condition(found, "CPUsExclusive")
    assert (status, reason) == ("False", "CPUsOfTwoPods")
    assert text.startswith(
        "ns/pod-b and ns/pod-a both hold CPU 2: delete ns/pod-a, the younger, to resolve this"
    )
    published = build(found)
    assert [zone.status and zone.status.resources[0].assigned for zone in published] == ["0", "2"]
    node = node_from_zones(published)
    assert node.cpus.assignments == {"a": {"c": cpuset.parse("2,6")}, "b": {"c": cpuset.parse("2")}}
    assert node.cpus.default == cpuset.parse("0-1,3-5,7")


def test_no_pod_is_called_younger_without_the_pod_list() -> None:
    _, _, text = condition(observation(**of_two_pods(pods=None)), "CPUsExclusive")
    assert "delete ns/pod-b to resolve this" in text


def test_returned_cpu_held_by_another_pod_counts_as_in_kubelet() -> None:
    """The kubelet takes it for free, so the next pod may be given it."""
    ended = of_two_pods(podresources=offer(a=(container("c", "2,6"),)))  # b is not yet out of the file
    released = of_two_pods(
        cpu_manager=replace(cpu_state(a={"c": "2,6"}), default=cpuset.parse("0-5,7")),
        podresources=offer(a=(container("c", "2,6"),)),
    )
    for parts in (ended, released):
        found = observation(**parts)
        assert condition(found, "Ready")[0] == "True"
        status, reason, text = condition(found, "CPUsExclusive")
        assert (status, reason) == ("False", "CPUsInSharedSet")
        assert text.startswith("ns/pod-a holds CPU 2, but the kubelet considers CPU 2 free")
        node = node_from_zones(build(found))
        assert node.cpus.default == cpuset.parse("0-5,7")
        assert node.cpus.assignments == {"a": {"c": cpuset.parse("2,6")}}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({}, id="nothing is held"),
        pytest.param(
            {
                "cpu_manager": replace(cpu_state(), default=cpuset.parse("0-2,4-6")),
                "podresources": offer(a=(container("c"),)),
            },
            id="taken out of the shared set, not yet recorded",
        ),
        pytest.param(
            {
                "cpu_manager": cpu_state(old={"c": "3,7"}),
                "pods": (pod("a"),),
                "podresources": offer(a=(container("c", "3,7"),)),
            },
            id="an ended pod on record whose CPUs another has",
        ),
        pytest.param(
            {
                "cpu_manager": cpu_state(),
                "podresources": offer(a=(container("c", "3,7"),)),
                "pods": (pod("a"),),
            },
            id="given since the file was read",
        ),
    ],
)
def test_nobody_seems_to_share_between_the_kubelets_writes(parts: dict[str, Any]) -> None:
    for zone in build(observation(**parts)):
        assert zone.status is not None
        assert [item.type for item in zone.status.conditions] == ["Ready", "Consistent"]


def test_many_contradictions_are_counted_so_that_conditions_stay_short() -> None:
    names = [f"p{number:03}" for number in range(200)]
    found = observation(
        pods=tuple(map(pod, names)),
        podresources=offer(**{name: (container("c", "3"),) for name in names}),
    )
    _, _, message = condition(found, "Consistent")
    assert "and 197 more" in message
    assert len(message) <= 1000


# Form


def test_zones_are_owned_by_their_node_where_it_is_known() -> None:
    assert build(observation())[0].metadata.owner_references == ()
    (owner,) = build(observation(node_uid="u"))[0].metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", "n", "u")


def test_without_hardware_there_are_no_zones() -> None:
    assert build(observation(hardware=None)) == []


def snapshot_ids(found: Observation) -> set[str]:
    return {status.snapshot for status in statuses(found)}


def test_all_zones_share_a_snapshot_id_of_their_content() -> None:
    one = observation(durations=(("sysfs", 0.1),))
    same = observation(durations=(("sysfs", 0.2),))
    listed = offer(a=(container("c", "2"),))
    other = observation(cpu_manager=cpu_state(a={"c": "2"}), pods=(pod("a"),), podresources=listed)
    assert len(snapshot_ids(one)) == 1
    assert snapshot_ids(one) == snapshot_ids(same)
    assert snapshot_ids(one) != snapshot_ids(other)


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_entries_in_state_files_changes_nothing(order: list[str]) -> None:
    cpus = {"a": {"c": "1"}, "b": {"c": "2"}, "c": {"i": "3", "c": "3"}}
    blocks = {uid: {"c": (block(1 + number % 2, GIB),)} for number, uid in enumerate("abc")}
    listed = {uid: (container("c", cpus[uid]["c"], *blocks[uid]["c"]),) for uid in "abc"}

    def described(uids: list[str]) -> list[NUMAZone]:
        return build(
            observation(
                cpu_manager=cpu_state(**{uid: cpus[uid] for uid in uids}),
                memory_manager=replace(
                    memory_state((2 * GIB, GIB)), entries={uid: blocks[uid] for uid in uids}
                ),
                pods=tuple(pod(uid) for uid in uids),
                podresources=offer(**listed),
            )
        )

    assert described(order) == described(["a", "b", "c"])


def test_full_zone_of_64_cpus_stays_below_8_kib() -> None:
    cpus = tuple(CPU(cpu, cpu % 32, 0, 0, 0) for cpu in range(64))
    machine = Machine(cpus, (NUMANode(0, 256 * GIB, ((2048, 512), (1048576, 4)), (10,)),))
    names = [f"{number:08}-1234-1234-1234-123456789abc" for number in range(30)]
    devices = tuple(KnownDevice("vendor.example/nic", f"0000:17:02.{number}", 1) for number in range(8))
    held = {
        name: container(
            "app",
            f"{2 + 2 * number}-{3 + 2 * number}",
            block(1, GIB + number),
            devices=devices[number : number + 1],
        )
        for number, name in enumerate(names)
    }
    found = Observation(
        "worker-3.example.com",
        node_uid="12345678-1234-1234-1234-123456789abc",
        kubelet_version="v1.36.2",
        hardware=Hardware(machine, (), 0, ()),
        kubelet=KubeletConfiguration.from_api({**CONFIGURATION, "reservedSystemCPUs": "0-1"}),
        podresources=PodResourcesAnswer(
            tuple(PodResources("production", f"web-{name[:10]}", (held[name],)) for name in names),
            (1 << 64) - 4,
            (block(1, 200 * GIB),),
            devices,
        ),
        pods=tuple(
            NodePod("production", f"web-{name[:10]}", name, "Running", "Guaranteed") for name in names
        ),
    )
    (zone,) = build(found)
    assert zone.status is not None
    assert len(zone.status.assignments) == 30
    assert len(json.dumps(zone.to_api(), separators=(",", ":"))) <= 8 * 1024
