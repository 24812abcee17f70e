"""Zones made from a state and read back: nothing that admission needs is lost, half a node is rejected."""

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.api.amounts import in_gibibytes
from numazones.api.meta import Condition
from numazones.api.numazone import NUMAZone
from numazones.api.snapshot import ContainerHolding, KnownCache, KnownDevice, NodeSnapshot
from numazones.api.zone_building import build_zones
from numazones.api.zones import IncompleteZones, ZonesNotReady, node_from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery import quantity
from numazones.cluster.sharing import Sharing
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration, MemoryReservation
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.versions import UnsupportedVersion
from tests.conformance import scenario as vectors
from tests.laws import examples
from tests.numazones.api.nodes import GIB, NIC, TPM, amounts, nodes, pod

Names = Mapping[str, tuple[str, str]]


def published(node: Node, names: Names) -> list[dict[str, Any]]:
    """The zones as the API server has them."""
    zones = zones_from_node(node, node_name="worker", pods=names)
    published: list[dict[str, Any]] = json.loads(json.dumps([zone.to_api() for zone in zones]))
    return published


def read(bodies: list[dict[str, Any]]) -> Node:
    return node_from_zones([NUMAZone.from_api(body) for body in bodies])


def assert_equal_states(restored: Node, node: Node) -> None:
    assert restored.cpus == node.cpus
    assert restored.memory == node.memory
    assert restored.device_assignments == node.device_assignments
    assert restored.kubelet.devices.resources == node.kubelet.devices.resources
    assert restored.kubelet.cpus.reserved == node.kubelet.cpus.reserved
    assert restored.kubelet.memory == node.kubelet.memory


def assert_equal_decisions(restored: Node, node: Node, asked: Pod) -> None:
    expected, answer = admit(node, asked), admit(restored, asked)
    assert (answer.admitted, answer.reason, answer.message, answer.containers) == (
        expected.admitted,
        expected.reason,
        expected.message,
        expected.containers,
    )
    assert_equal_states(answer.node, expected.node)


@settings(max_examples=examples(150))
@given(node=nodes(), asked=st.lists(amounts, min_size=1, max_size=2), named=st.booleans())
def test_zones_hold_the_exact_admission_state(node: Node, asked: list[dict[str, str]], named: bool) -> None:  # noqa: FBT001
    names = {uid: ("default", f"pod-{uid}") for uid in node.pods} if named else {}
    bodies = published(node, names)
    restored = read(bodies)
    assert_equal_states(restored, node)
    assert published(restored, names) == bodies
    assert_equal_decisions(restored, node, Pod.from_api(pod("new", asked, [])))


def test_so_it_is_on_reference_machines(shared: Path) -> None:
    with gzip.open(shared / "conformance" / "dev.jsonl.gz", "rt") as lines:
        scenarios = [json.loads(line) for number, line in enumerate(lines) if number % 40 == 0]
    steps = 0
    for scenario in scenarios:
        try:
            node = vectors.node(scenario)
        except InvalidConfiguration:
            continue
        names: dict[str, tuple[str, str]] = {}
        for step in scenario["steps"]:
            restored = read(published(node, names))
            assert_equal_states(restored, node)
            if step["op"] == "remove":
                node = remove(node, step["uid"])
                continue
            asked = Pod.from_api(step["pod"])
            assert_equal_decisions(restored, node, asked)
            names[asked.uid] = (step["pod"]["metadata"]["namespace"], step["pod"]["metadata"]["name"])
            node = admit(node, asked).node
            steps += 1
    assert steps > 100


# A small machine, whose figures can be worked out on paper: two NUMA nodes of two cores with two threads.

MACHINE = Machine(
    tuple(CPU(cpu, cpu % 4, cpu % 4 // 2, 0, cpu % 4 // 2) for cpu in range(8)),
    tuple(NUMANode(numa, 8 * GIB, ((2048, 512),), (10, 21) if numa == 0 else (21, 10)) for numa in (0, 1)),
)
CONFIG = KubeletConfiguration(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    memory_manager_policy="Static",
    reserved_memory=(MemoryReservation(0, (("memory", quantity.parse("1Gi")),)),),
    topology_manager_policy="restricted",
)
DEVICES = {
    NIC: (
        Device("nic-0", (0,)),
        Device("nic-1", (0,)),
        Device("nic-2", (1,)),
        Device("nic-3", (0,), healthy=False),
    ),
    TPM: (Device("tpm-0"),),
}
NAMES = {"a": ("default", "pod-a"), "b": ("default", "pod-b")}


def small_node(*bodies: dict[str, Any]) -> Node:
    node = Node.fresh(MACHINE, CONFIG, DEVICES)
    for body in bodies:
        admission = admit(node, Pod.from_api(body))
        assert admission.admitted, admission.message
        node = admission.node
    return node


def small_zones(*bodies: dict[str, Any]) -> list[dict[str, Any]]:
    return published(small_node(*bodies), NAMES)


def rows(zone: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        row["name"]: (row["capacity"], row["reserved"], row["allocatable"], row["assigned"], row["available"])
        for row in zone["status"]["resources"]
    }


ONE_POD = pod("a", [{"cpu": "2", "memory": "2Gi", NIC: "1", TPM: "1"}], [])
WIDE_POD = pod("b", [{"cpu": "5", "memory": "10Gi"}], [])


def test_zones_hold_what_pods_have_as_a_whole() -> None:
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "systemReserved": {"memory": "924Mi"},
            "topologyManagerPolicy": "restricted",
            "topologyManagerScope": "pod",
            "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
        }
    )
    own = {"cpu": "1", "memory": "1Gi"}
    containers = [
        {"name": "own", "resources": {"requests": own, "limits": own}},
        {"name": "rest"},
    ]
    amounts = {"cpu": "3", "memory": "2Gi"}
    asked = Pod.from_api(
        {
            "metadata": {"uid": "u", "namespace": "default", "name": "pod-u"},
            "spec": {"containers": containers, "resources": {"requests": amounts, "limits": amounts}},
        }
    )
    node = admit(Node.fresh(MACHINE, config), asked).node
    bodies = published(node, {"u": ("default", "pod-u")})
    (whole,) = [item for item in bodies[0]["status"]["assignments"] if not item.get("container")]
    assert (whole["pod"], whole["cpus"]) == ("pod-u", "1,4-5")
    assert bodies[0]["status"]["cpus"]["exclusive"] == "1,4-5"
    restored = read(bodies)
    assert_equal_states(restored, node)
    assert_equal_states(remove(restored, "u"), remove(node, "u"))


def test_amounts_follow_the_kubelets_books() -> None:
    first, second = small_zones(ONE_POD)
    assert rows(first) == {
        "cpu": ("4", "1", "3", "2", "1"),
        "memory": ("8Gi", "1Gi", "6Gi", "2Gi", "4Gi"),
        "hugepages-2Mi": ("1Gi", "0", "1Gi", "0", "1Gi"),
        NIC: ("3", "0", "2", "1", "1"),
    }
    assert rows(second) == {
        "cpu": ("4", "0", "4", "0", "4"),
        "memory": ("8Gi", "0", "7Gi", "0", "7Gi"),
        "hugepages-2Mi": ("1Gi", "0", "1Gi", "0", "1Gi"),
        NIC: ("1", "0", "1", "0", "1"),
    }
    assert first["status"]["cpus"] == {"reserved": "0", "exclusive": "1,5", "shared": "4"}
    assert first["status"]["summary"] == {
        "assigned": "2",
        "free": "1",
        "memory": "8.0Gi",
        "memoryFree": "4.0Gi",
        "devices": "nic:1/2",
    }


def test_headroom_counts_whole_cores_apart() -> None:
    first, second = small_zones(ONE_POD)
    # CPU 4 is free, but its sibling 0 is reserved.
    assert first["status"]["headroom"] == {"exclusiveCPUs": 1, "fullCoreCPUs": 0, "memory": "4Gi"}
    assert second["status"]["headroom"] == {"exclusiveCPUs": 4, "fullCoreCPUs": 4, "memory": "7Gi"}


def test_a_zone_bound_to_others_gives_no_memory_alone() -> None:
    for zone in small_zones(WIDE_POD):
        assert zone["status"]["memoryGroup"] == [0, 1]
        assert zone["status"]["headroom"]["memory"] == "0"
        (assignment,) = zone["status"]["assignments"]
        assert assignment["memory"] == [{"bytes": 10 * GIB, "numaIDs": [0, 1]}]


def test_without_policies_nothing_is_given_exclusively() -> None:
    node = Node.fresh(MACHINE, KubeletConfiguration())
    for zone in published(node, {}):
        assert zone["status"]["headroom"] == {"exclusiveCPUs": 0, "fullCoreCPUs": 0}
        assert "memoryGroup" not in zone["status"]


def test_what_is_the_usual_is_left_out() -> None:
    first, _ = small_zones(ONE_POD)
    (assignment,) = first["status"]["assignments"]
    assert assignment == {
        "namespace": "default",
        "pod": "pod-a",
        "uid": "a",
        "container": "c0",
        "cpus": "1,5",
        "memory": [{"bytes": 2 * GIB}],
    }
    holder = {"namespace": "default", "pod": "pod-a", "container": "c0"}
    assert first["status"]["devices"] == [
        {"resource": NIC, "id": "nic-0", "assignedTo": holder},
        {"resource": NIC, "id": "nic-1"},
        {"resource": NIC, "id": "nic-3", "healthy": False},
        # No NUMA node is close to it, so the first zone lists it.
        {"resource": TPM, "id": "tpm-0", "numaIDs": [], "assignedTo": holder},
    ]


def test_device_of_unnamed_or_several_holders_is_listed_with_them() -> None:
    body = pod("a", [{"cpu": "1", "memory": "1Gi", NIC: "1"}], [{"cpu": "1", "memory": "1Gi", NIC: "1"}])
    node = small_node(body)
    first, _ = published(node, NAMES)
    app, init = first["status"]["assignments"]
    held = [device for device in first["status"]["devices"] if "assignedTo" in device]
    assert [device["assignedTo"]["container"] for device in held] == ["i0"]
    assert app["devices"] == [{"resource": NIC, "ids": ["nic-0"]}]
    assert "devices" not in init
    unnamed, _ = published(node, {})
    assert all("assignedTo" not in device for device in unnamed["status"]["devices"])
    assert [entry["devices"] for entry in unnamed["status"]["assignments"]] == [app["devices"]] * 2


def test_the_snapshot_says_what_the_zones_say() -> None:
    first, second = small_zones(ONE_POD)
    assert first["status"]["snapshot"] == second["status"]["snapshot"]
    again, _ = small_zones(ONE_POD)
    other, _ = small_zones(WIDE_POD)
    assert first["status"]["snapshot"] == again["status"]["snapshot"] != other["status"]["snapshot"]


def test_the_snapshot_ignores_when_conditions_changed() -> None:
    def identity(**more: str) -> str:
        condition = Condition(type="Ready", status="True", reason="Complete", **more)
        zones = build_zones(NodeSnapshot("worker", MACHINE, conditions=(condition,)))
        assert zones[0].status is not None
        return zones[0].status.snapshot

    assert identity() == identity(last_transition_time="2026-01-31T08:00:00Z")
    assert identity() != identity(message="all is well")


def test_what_is_not_known_is_left_out() -> None:
    first = build_zones(NodeSnapshot("worker", MACHINE, memory_unknown=0b01))[0].to_api()["status"]
    assert first["resources"] == [
        {"name": "cpu", "capacity": "4"},
        {"name": "memory"},
        {"name": "hugepages-2Mi", "capacity": "1Gi"},
    ]
    assert first["summary"] == {"memory": "?", "memoryFree": "?"}
    assert not {"kubelet", "cpus", "headroom", "memoryGroup", "assignments", "devices"} & set(first)


def test_caches_of_hardware_and_kubelet_are_distinguished() -> None:
    machine = Machine(
        tuple(CPU(cpu, cpu, 0, 0, 0, uncore_cache=cpu // 2) for cpu in range(4)), (NUMANode(0, GIB),)
    )
    caches = (KnownCache(3, 0, 0b0011), KnownCache(3, 1, 0b1100), KnownCache(4, 0, 0b1111))
    topology = build_zones(NodeSnapshot("worker", machine, caches=caches))[0].to_api()["status"]["topology"]
    assert topology["caches"] == [
        {"level": 3, "id": 0, "cpus": "0-1", "uncore": True},
        {"level": 3, "id": 1, "cpus": "2-3", "uncore": True},
        {"level": 4, "id": 0},
    ]


def test_dies_are_told_where_a_socket_has_several() -> None:
    def dies(*dies: int) -> list[dict[str, Any]]:
        machine = Machine(
            tuple(CPU(cpu, cpu, 0, die, 0) for cpu, die in enumerate(dies)), (NUMANode(0, GIB),)
        )
        topology = build_zones(NodeSnapshot("worker", machine))[0].to_api()["status"]["topology"]
        found: list[dict[str, Any]] = topology.get("dies", [])
        return found

    assert dies(0, 0) == []
    assert dies(0, 1) == [{"id": 0, "cpus": "0"}, {"id": 1, "cpus": "1"}]


def test_dynamic_resources_are_shown_and_do_not_count_as_devices() -> None:
    snapshot = NodeSnapshot(
        "worker",
        Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, GIB),)),
        holders=(
            ContainerHolding("default", "p", "a", "c", claims=frozenset({("gpu.example.com", "pool/gpu-0")})),
        ),
    )
    (zone,) = build_zones(snapshot)
    assert zone.to_api()["status"]["assignments"] == [
        {
            "namespace": "default",
            "pod": "p",
            "uid": "a",
            "container": "c",
            "devices": [{"resource": "gpu.example.com", "ids": ["pool/gpu-0"]}],
        }
    ]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "?"),
        (0, "0.0Gi"),
        (1023, "<0.1Gi"),
        (65436 << 20, "63.9Gi"),
        (2 << 60, "2147483648.0Gi"),
    ],
)
def test_bytes_are_rounded_for_people_always_in_the_same_unit(amount: int | None, text: str) -> None:
    assert in_gibibytes(amount) == text


def test_the_owner_is_the_node_where_its_uid_is_known() -> None:
    (zone,) = build_zones(
        NodeSnapshot("worker", Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, GIB),)), node_uid="u")
    )
    assert zone.to_api()["metadata"] == {
        "name": "worker-numa-0",
        "labels": {"numazones.io/node": "worker"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "u"}],
    }


def test_zone_of_64_cpus_and_30_containers_is_small() -> None:
    machine = Machine(
        tuple(CPU(cpu, cpu % 64, cpu % 64 // 32, 0, cpu % 64 // 32) for cpu in range(128)),
        tuple(NUMANode(numa, 256 * GIB + 12288, ((2048, 0), (1048576, 0)), (10, 21)) for numa in (0, 1)),
    )
    names = {
        f"2529f0d2-7238-4968-be18-c3ece3aa5{n:03}": ("prod", f"web-7d4b9c6f5-x2x{n:02}") for n in range(30)
    }
    holders = tuple(
        ContainerHolding(
            *names[uid],
            uid,
            "app",
            cpuset.of([n + 1, n + 65]),
            (Block(0b01, "memory", 4 * GIB + n * 4096),),
            frozenset({(NIC, f"0000:17:02.{n}")} if n < 8 else set()),
        )
        for n, uid in enumerate(names)
    )
    zones = build_zones(
        NodeSnapshot(
            "worker-3.example",
            machine,
            node_uid="2529f0d2-7238-4968-be18-c3ece3aa523d",
            kubelet=zones_from_node(small_node(), node_name="x", pods={})[0].status.kubelet,  # type: ignore[union-attr]
            reserved_cpus=cpuset.parse("0,64"),
            exclusive_cpus=cpuset.parse("1-30,65-94"),
            memory_reserved={(0, "memory"): GIB},
            memory_assigned={(0, "memory"): 121 * GIB},
            devices=tuple(KnownDevice(NIC, f"0000:17:02.{n}", 0b01) for n in range(8)),
            holders=holders,
            pods_fingerprint="pfp0v001b92008c14168b3a6",
            conditions=tuple(
                Condition(
                    type=kind, status="True", reason=reason, last_transition_time="2026-01-31T08:00:00Z"
                )
                for kind, reason in (("Ready", "Complete"), ("Consistent", "SourcesAgree"))
            ),
        )
    )
    assert len(zones[0].status.assignments) == 30  # type: ignore[union-attr]
    size = len(json.dumps(zones[0].to_api(), separators=(",", ":")))
    assert size <= 8 * 1024, size


# What is rejected

Change = Callable[[list[dict[str, Any]]], Any]


def status(numa: int, **values: Any) -> Change:
    def change(zones: list[dict[str, Any]]) -> None:
        for name, value in values.items():
            if value is None:
                del zones[numa]["status"][name]
            else:
                zones[numa]["status"][name] = value

    return change


def kubelet(**values: Any) -> Change:
    def change(zones: list[dict[str, Any]]) -> None:
        for zone in zones:
            zone["status"]["kubelet"].update(values)

    return change


def row(name: str, **values: Any) -> Change:
    def change(zones: list[dict[str, Any]]) -> None:
        (found,) = [row for row in zones[0]["status"]["resources"] if row["name"] == name]
        for key, value in values.items():
            found[key] = value
            if value is None:
                del found[key]

    return change


def assignment(**values: Any) -> Change:
    return lambda zones: zones[0]["status"]["assignments"][0].update(values)


NOT_READY = [
    {"type": "Ready", "status": "False", "reason": "Unreadable", "message": "cpu_manager_state: cut off"}
]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda zones: zones.clear(),
            IncompleteZones,
            "there are no NUMAZones; check that the exporter is running",
        ),
        (lambda zones: zones.pop(), IncompleteZones, "node worker: 1 of 2 NUMAZones published so far; wait"),
        (lambda zones: zones.append(zones[0]), IncompleteZones, "two NUMAZones describe the same NUMA node"),
        (lambda zones: zones[1].pop("status"), IncompleteZones, "NUMAZone of NUMA node 1 has no status yet"),
        (
            lambda zones: zones[1]["spec"].update(nodeName="other"),
            IncompleteZones,
            "the NUMAZones belong to several nodes",
        ),
        (status(1, snapshot="other"), IncompleteZones, "its NUMAZones were written at different times"),
        (
            status(1, conditions=NOT_READY),
            ZonesNotReady,
            r"NUMA node 1 is not ready \(Unreadable: cpu_manager_st",
        ),
        (status(1, conditions=[]), ZonesNotReady, r"NUMA node 1 is not ready \(no Ready condition\)"),
        (
            status(0, kubelet=None),
            ZonesNotReady,
            "NUMA node 0: its topology or the kubelet's settings are missing",
        ),
        (
            status(1, kubelet={"version": "v1.30.1"}),
            IncompleteZones,
            "contradict each other about the kubelet's settings",
        ),
        (
            status(0, cpus=None),
            ZonesNotReady,
            "NUMA node 0: its NUMAZone does not show how its CPUs are used",
        ),
        (
            status(0, memoryAssignments=None),
            ZonesNotReady,
            "NUMA node 0: the memory manager's state is missing",
        ),
        (status(0, topology={"cpus": "0"}), ZonesNotReady, "NUMA node 0: CPUs 0 belong to no core"),
        (
            status(0, topology={"distances": [{"numaID": 7, "distance": 10}]}),
            ZonesNotReady,
            "NUMA node 0: the distances do not match the machine's NUMA nodes",
        ),
        (kubelet(version=""), ZonesNotReady, "lack the kubelet's version"),
        (kubelet(version="v1.12.0"), UnsupportedVersion, "older than"),
        (kubelet(topologyManagerPolicy="balanced"), InvalidConfiguration, '"balanced" must be one of'),
        (kubelet(cpuManagerPolicy="dynamic"), InvalidConfiguration, 'unknown policy: "dynamic"'),
        (row("memory", capacity=None), ZonesNotReady, "NUMA node 0: the capacity of memory is missing"),
        (row("memory", assigned=None), ZonesNotReady, "NUMA node 0: the assigned of memory is missing"),
        (row("memory", assigned="9Gi"), NumazonesError, "free amount of memory is negative"),
        (assignment(uid=""), ZonesNotReady, "container c0 of default/pod-a: its pod's UID is unknown"),
        (assignment(cpus="9-10"), NumazonesError, "holds CPUs 9-10, which no NUMA node of"),
        (assignment(pod="renamed"), ZonesNotReady, "nic-0 is assigned to default/pod-a, which holds nothing"),
    ],
)
def test_half_a_node_is_rejected_by_name(change: Change, error: type[Exception], message: str) -> None:
    zones = small_zones(ONE_POD)
    change(zones)
    with pytest.raises(error, match=message):
        read(zones)


def device(**values: Any) -> Change:
    return lambda zones: zones[0]["status"]["devices"][0].update(values)


@pytest.mark.parametrize(
    "change",
    [
        kubelet(topologyManagerScope="pod"),
        kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        status(0, cpus={"reserved": "0,4", "exclusive": "", "shared": "1,5"}),
        status(0, topology={"cpus": "0-1,4-5", "cores": ["0", "1", "4", "5"], "sockets": [{"id": 0}]}),
        row("memory", capacity="9Gi"),
        row("memory", reserved="2Gi"),
        device(id="nic-7"),
        device(resource="vendor.example/fpga"),
        device(healthy=False),
        device(registered=False),
        device(numaIDs=[0, 1]),
    ],
)
def test_who_reads_many_nodes_gets_each_kubelet_as_if_alone(change: Change) -> None:
    remember = Sharing().remember
    plain, other = small_zones(), small_zones()
    change(other)
    first, second, again = (
        node_from_zones([NUMAZone.from_api(zone) for zone in zones], remember=remember)
        for zones in (plain, other, plain)
    )
    alone = read(other)
    assert second.kubelet is not first.kubelet
    assert (second.config, second.machine) == (alone.config, alone.machine)
    assert_equal_states(second, alone)
    assert again.kubelet is first.kubelet


def test_the_order_of_zones_does_not_matter() -> None:
    zones = small_zones(ONE_POD)
    assert_equal_states(read(zones[::-1]), read(zones))


def gpu(number: int, numa: int) -> KnownDevice:
    return KnownDevice("vendor.example/gpu", f"gpu-{number}", numa)


def nic(number: int, numa: int) -> KnownDevice:
    return KnownDevice(NIC, f"nic-{number}", numa)


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        ((gpu(0, 0b01), gpu(1, 0b01)), "gpu:2/2"),
        # The same two GPUs are in both zones: they must not read like four.
        ((gpu(0, 0b11), gpu(1, 0b11)), "gpu:2/2@0-1"),
        ((gpu(0, 0b11), gpu(1, 0b01)), "gpu:1/1,gpu:1/1@0-1"),
        ((gpu(0, 0b01), nic(0, 0b01), nic(1, 0b10)), "gpu:1/1,nic:1/1"),
        ((gpu(0, 0b01), gpu(1, 0b11), nic(0, 0b01), nic(1, 0b11)), "gpu:1/1,gpu:1/1@0-1,+2"),
        ((), None),
    ],
)
def test_devices_of_several_zones_stand_apart_and_columns_stay_narrow(
    devices: tuple[KnownDevice, ...], shown: str | None
) -> None:
    zone = build_zones(NodeSnapshot("worker", MACHINE, devices=devices))[0].to_api()
    assert zone["status"]["summary"].get("devices") == shown


def test_devices_that_cannot_be_counted_are_shown_as_unknown() -> None:
    snapshot = NodeSnapshot("worker", MACHINE, devices=(nic(0, 0b01),), devices_complete=False)
    assert build_zones(snapshot)[0].to_api()["status"]["summary"]["devices"] == "nic:?"
