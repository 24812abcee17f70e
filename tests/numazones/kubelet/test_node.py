"""A node as a value, fresh or from a snapshot."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.admission import admit
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine_state import Block, MemoryTable, NUMANodeState
from numazones.kubelet.node import InvalidNodeState, Node
from numazones.kubelet.startup import KubeletManagers
from tests.laws import examples
from tests.numazones.kubelet.building import GI, configuration, container, gpus, machine, node, pod
from tests.numazones.kubelet.days import days, play

HARDWARE = machine(2, cores=4)
DEVICES = gpus((0,), (1,))


def snapshot(state: Node) -> dict[str, Any]:
    """Return what ``restore`` needs of a node."""
    return {
        "default_cpus": state.cpus.default,
        "cpu_assignments": state.cpus.assignments,
        "machine_state": state.machine_state,
        "memory_assignments": state.memory.assignments,
        "cpu_pods": state.cpus.pods,
        "memory_pods": state.memory.pods,
        "device_assignments": state.device_assignments,
    }


def restored(**parts: Any) -> Node:
    return Node.restore(KubeletManagers.start(configuration("none"), HARDWARE, DEVICES), **parts)


def changed(**fields: Any) -> dict[int, NUMANodeState]:
    """The machine state of a fresh node, the given fields changed on NUMA node 1."""
    fresh = restored().machine_state
    return {**fresh, 1: replace(fresh[1], **fields)}


def table(*, reserved: int = 0, free: int = 0) -> dict[str, MemoryTable]:
    return {"memory": MemoryTable(16 * GI, 0, 16 * GI, reserved, free)}


def test_restoring_nothing_is_a_fresh_node() -> None:
    assert restored().state_key == Node.fresh(HARDWARE, configuration("none"), DEVICES).state_key


@settings(max_examples=examples(80))
@given(days())
def test_a_snapshot_restores_the_node(day: tuple[Node, list[Any]]) -> None:
    _, after = play(*day)
    devices = {name: item.devices for name, item in after.kubelet.devices.resources.items()}
    again = Node.restore(KubeletManagers.start(after.config, after.machine, devices), **snapshot(after))
    assert (again.cpus, again.memory, again.devices) == (after.cpus, after.memory, after.devices)
    assert again.state_key == after.state_key


@settings(max_examples=examples(40))
@given(days(), st.data())
def test_a_restored_node_decides_alike(day: tuple[Node, list[Any]], data: st.DataObject) -> None:
    start, arrivals = day
    _, after = play(start, arrivals[:-1])
    devices = {name: item.devices for name, item in after.kubelet.devices.resources.items()}
    again = Node.restore(KubeletManagers.start(after.config, after.machine, devices), **snapshot(after))
    assert [one.message for one in play(after, arrivals[-1:])[0]] == [
        one.message for one in play(again, arrivals[-1:])[0]
    ]


def test_the_shared_set_defaults_to_what_is_not_assigned() -> None:
    state = restored(cpu_assignments={"u": {"c": cpuset.parse("1,9")}})
    assert cpuset.format(state.cpus.default) == "0,2-8,10-15"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"cpu_assignments": {"u": {"c": 1 << 16}}},
            "container c of pod u holds CPUs 16, which no NUMA node",
        ),
        ({"default_cpus": 1 << 20}, "the shared CPU set holds CPUs 20, which no NUMA node"),
        (
            {"machine_state": changed(memory=table(free=-5))},
            r"NUMA node 1: the free amount of memory is negative \(-5\)",
        ),
        (
            {"machine_state": changed(memory=table(reserved=-1))},
            "NUMA node 1: the assigned amount of memory is negative",
        ),
        ({"machine_state": changed(memory={})}, "NUMA node 1: the amounts of memory are missing"),
        ({"machine_state": changed(cells=0b01)}, r"NUMA node 1: it cannot be in the memory group \[0\]"),
        (
            {"machine_state": changed(cells=1 << 1 | 1 << 9)},
            r"memory group \[1, 9\]",
        ),
        (
            {"machine_state": changed(assignments=-1)},
            "NUMA node 1: the number of memory assignments is negative",
        ),
        ({"machine_state": {0: changed()[0]}}, "NUMA node 1: the Memory Manager's state is missing"),
        (
            {"memory_assignments": {"u": {"c": (Block(1 << 5, "memory", GI),)}}},
            "container c of pod u holds memory on NUMA nodes 5; the machine has NUMA nodes 0-1",
        ),
        (
            {"memory_assignments": {"u": {"c": (Block(1, "hugepages-2Mi", GI),)}}},
            "holds hugepages-2Mi on NUMA node 0, which has no such memory",
        ),
        (
            {"memory_assignments": {"u": {"c": (Block(1, "memory", -1),)}}},
            "holds a negative amount of memory",
        ),
        (
            {"memory_assignments": {"u": {"c": (Block(1, "memory", GI),)}}},
            "state per NUMA node is missing",
        ),
    ],
)
def test_impossible_snapshots_are_rejected_and_name_the_zone(parts: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidNodeState, match=message):
        restored(**parts)


def test_memory_is_left_aside_where_the_memory_manager_is_off() -> None:
    state = Node.restore(
        KubeletManagers.start(configuration(memory="None"), HARDWARE, {}), machine_state={0: changed()[0]}
    )
    assert state.machine_state == {}


def test_devices_that_nobody_announces_any_more_stay_assigned() -> None:
    held = {"u": {"c": {"vendor/gpu": ("gone",), "vendor/old": ("x",)}}}
    state = restored(device_assignments=held)
    assert state.device_assignments == held
    assert state.pods == {"u"}
    rejected = admit(state, pod("v", container("c", **{"vendor/old": "1"})))
    assert "cannot allocate unregistered device vendor/old" in rejected.message
    assert admit(state, pod("v", container("c", vendor_gpu="2"))).admitted


def test_a_resource_registered_without_devices_has_none_that_is_healthy() -> None:
    state = Node.restore(KubeletManagers.start(configuration("none"), HARDWARE, {"vendor/gpu": ()}))
    assert "no healthy devices present" in admit(state, pod("u", container("c", vendor_gpu="1"))).message


def test_plugins_may_announce_other_devices_later() -> None:
    state = admit(
        node(HARDWARE, devices=DEVICES, policy="none"), pod("u", container("c", vendor_gpu="1"))
    ).node
    sick = state.with_devices({"vendor/gpu": (Device("gpu-0", (0,)), Device("gpu-1", (1,), healthy=False))})
    assert sick.device_assignments == state.device_assignments
    assert "Requested: 1, Available: 0" in admit(sick, pod("v", container("c", vendor_gpu="1"))).message
    assert admit(state, pod("v", container("c", vendor_gpu="1"))).admitted


def test_node_keys_ignore_names_of_pods_and_devices() -> None:
    one = admit(node(HARDWARE, devices=DEVICES), pod("a", container("c", 2, vendor_gpu="1"))).node
    renamed = {"vendor/gpu": (Device("uuid-7", (0,)), Device("uuid-8", (1,)))}
    other = admit(node(HARDWARE, devices=renamed), pod("b", container("x", 2, vendor_gpu="1"))).node
    assert one.state_key == other.state_key
    assert hash(one.state_key) == hash(other.state_key)
    assert one.state_key != node(HARDWARE, devices=DEVICES).state_key


def test_the_machine_state_is_as_the_state_file_holds_it() -> None:
    assert node(HARDWARE).machine_state == {
        0: NUMANodeState(0, {"memory": MemoryTable(16 * GI, GI, 15 * GI, 0, 15 * GI)}, 0b01),
        1: NUMANodeState(0, {"memory": MemoryTable(16 * GI, 0, 16 * GI, 0, 16 * GI)}, 0b10),
    }
