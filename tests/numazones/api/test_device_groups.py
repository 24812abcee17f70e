"""Resources with more devices than a list can hold: counted in zones, and decided by as exactly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.api import device_groups
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit
from numazones.kubelet.device_manager import Device
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.numazones.api.nodes import nodes
from tests.numazones.kubelet import building

MEMORY = "vendor.example/gpu-mem"
NIC = "vendor.example/nic"


def shared_gpus(count: int) -> dict[str, tuple[Device, ...]]:
    """GPUs shared by MiB, two thirds of them near NUMA node 0, and some network cards."""
    ids = [f"GPU-8a1d7f33-4c6b-4f1e-9a55-0d9c0b2e7f41-_-{number}" for number in range(count)]
    memory = tuple(
        Device(name, (int(number % 3 == 2),), healthy=number % 1000 != 0) for number, name in enumerate(ids)
    )
    return {MEMORY: memory, NIC: tuple(Device(f"0000:17:00.{n}", (n % 2,)) for n in range(4))}


def asking(uid: str, count: int, cpus: int = 1) -> Pod:
    limits: dict[str, Any] = building.container("main", cpus, "64Mi")
    for part in ("requests", "limits"):
        limits["resources"][part][MEMORY] = str(count)
    return building.pod(uid, limits)


def busy(count: int) -> Node:
    node = building.node(devices=shared_gpus(count), policy="restricted")
    for uid, asked in (("small", 7), ("large", count // 8), ("other", 300)):
        said = admit(node, asking(uid, asked))
        assert said.admitted, said.message
        node = said.node
    return node


def zones_of(node: Node) -> list[NUMAZone]:
    pods = {uid: ("team", uid) for uid in node.pods}
    return zones_from_node(node, node_name="worker-1", pods=pods)


def test_tens_of_thousands_of_devices_make_small_equivalent_zones() -> None:
    count = 20_000
    node = busy(count)
    zones = zones_of(node)
    sizes = [len(json.dumps(zone.to_api())) for zone in zones]
    assert max(sizes) < 1 << 14
    again = node_from_zones([NUMAZone.from_api(zone.to_api()) for zone in zones])
    free = sum(1 for number in range(count) if number % 3 == 2 and number % 1000) - 100
    for asked in (1, 1000, free - 500, free + 500, count // 2, count):
        before, after = admit(node, asking("new", asked)), admit(again, asking("new", asked))
        assert (before.admitted, before.message) == (after.admitted, after.message)
        assert before.node.cpus == after.node.cpus
        given_before, given_after = (
            {
                uid: {name: {kind: len(ids) for kind, ids in kinds.items()} for name, kinds in held.items()}
                for uid, held in state.node.device_assignments.items()
            }
            for state in (before, after)
        )
        assert given_before == given_after


def test_zones_name_the_resource_and_keep_everything_else() -> None:
    zones = zones_of(busy(20_000))
    for zone in zones:
        assert zone.status is not None
        (condition,) = [one for one in zone.status.conditions if one.type == "DevicesCounted"]
        assert (condition.status, condition.reason) == ("True", "TooManyToList")
        assert condition.message.startswith(f"{MEMORY} has 20000 devices: counted by NUMA node, ")
        assert [device.id for device in zone.status.devices if device.resource == NIC] == [
            f"0000:17:00.{number}" for number in (zone.spec.numa_id, zone.spec.numa_id + 2)
        ]
        (row,) = [row for row in zone.status.resources if row.name == MEMORY]
        groups = [device for device in zone.status.devices if device.resource == MEMORY]
        assert sum(group.count for group in groups) == int(row.capacity or 0)
        assert sum(group.count for group in groups if group.healthy) == int(row.allocatable or 0)
        assert sum(group.count for group in groups if group.assigned_to) == int(row.assigned or 0)


def test_devices_that_fit_a_list_stay_listed() -> None:
    zones = zones_of(building.node(devices=shared_gpus(1000)))
    counts = [device.count for zone in zones if zone.status for device in zone.status.devices]
    assert counts == [1] * 1004
    assert not any(
        one.type == "DevicesCounted" for zone in zones if zone.status for one in zone.status.conditions
    )


@given(node=nodes(), uid=st.uuids(), asked=st.integers(1, 4))
def test_law_groups_decide_like_lists(node: Node, uid: object, asked: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_groups, "_MOST_LISTED", 0)
        again = node_from_zones(zones_of(node))
    assert again.pods == node.pods
    for resource in node.kubelet.devices.resources:
        limits = {"requests": {"cpu": "1", "memory": "1Mi", resource: str(asked)}}
        limits["limits"] = limits["requests"]
        pod = building.pod(str(uid), {"name": "c", "resources": limits})
        before, after = admit(node, pod), admit(again, pod)
        assert (before.admitted, before.reason, before.node.cpus) == (
            after.admitted,
            after.reason,
            after.node.cpus,
        )
