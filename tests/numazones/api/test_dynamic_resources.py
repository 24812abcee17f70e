"""Zones and the devices that claims get; containers and what they hold of these."""

from typing import Any

import pytest

from numazones import build
from numazones.api.claimed_devices import claimed_devices
from numazones.api.dynamic_resources import dynamic_resources
from numazones.api.numazone import Assignment, DeviceIDs, NUMAZone
from numazones.api.zones_from_node import zones_from_node
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.inventory import Inventory
from tests.numazones.dra.building import NODE, claim, device, device_class, resource_slice, result


def told(slices: list[Any], claims: tuple[Any, ...] = (), policy: str = "none") -> dict[int, dict[str, Any]]:
    inventory = Inventory(map(Slice.from_api, slices), map(DeviceClaim.from_api, claims))
    classes = [DeviceClass.from_api(device_class("gpus", 'device.driver == "gpu.example"'))]
    found = dynamic_resources(inventory.of(NODE), (0, 1), classes, policy)
    return {numa: one.to_api() for numa, one in found.items()}


def test_each_zone_has_the_devices_that_are_there() -> None:
    slices = [resource_slice(device("gpu-0", 0), device("gpu-1", 1), device("gpu-2", 1))]
    counts = {"devices": 2, "allocated": 1, "available": 1}
    assert told(slices, (claim(result("gpu-2")),))[1] == {
        "drivers": [{"driver": "gpu.example", **counts, "classes": [{"name": "gpus", **counts}]}]
    }


def test_devices_without_known_numa_node_are_on_first_zone() -> None:
    found = told([resource_slice(device("gpu-0"), device("gpu-1", 5))])
    assert found.keys() == {0}
    (driver,) = found[0]["drivers"]
    assert (driver["numaUnknown"], driver["devices"]) == (True, 2)


def test_shared_devices_say_what_is_left_of_their_capacity() -> None:
    shared = device("cpus", 0, allowMultipleAllocations=True, capacity={"cpu": {"value": "32"}})
    taken = claim(result("cpus", driver="dra.cpu", shareID="1", consumedCapacity={"dra.cpu/cpu": "12"}))
    (driver,) = told([resource_slice(shared, driver="dra.cpu")], (taken,))[0]["drivers"]
    assert driver["shared"] == [
        {"name": "dra.cpu/cpu", "capacity": "32", "allocated": "12", "available": "20"}
    ]


def test_a_pool_that_lacks_slices_has_no_figures() -> None:
    (driver,) = told([resource_slice(device("gpu-0", 0), count=2)])[0]["drivers"]
    assert driver == {"driver": "gpu.example"}


@pytest.mark.parametrize(
    ("driver", "policy", "expected"),
    [
        ("dra.cpu", "static", True),
        ("dra.cpu", "none", False),
        ("dra.cpu", "", False),
        ("gpu", "static", False),
    ],
)
def test_all_zones_name_two_that_give_out_the_same_cpus(driver: str, policy: str, *, expected: bool) -> None:
    found = told([resource_slice(device("cpus", 0), driver=driver)], policy=policy)
    assert ["conflict" in one for one in found.values()] == ([True, True] if expected else [False])


def test_nodes_without_such_devices_have_nothing_to_say() -> None:
    assert told([]) == {}


def zones_holding(*ids: str) -> list[NUMAZone]:
    """Zones of a node on which a container holds ids under a driver's name."""
    node = build.node(build.machine(numa=2, cores=4, memory="8Gi"))
    first, second = zones_from_node(node, node_name=NODE, pods={})
    assert first.status is not None
    held = (DeviceIDs(resource="gpu.example", ids=ids),)
    holder = Assignment(namespace="team", pod="web", uid="uid-1", container="main", devices=held)
    return [
        first.model_copy(update={"status": first.status.model_copy(update={"assignments": (holder,)})}),
        second,
    ]


def test_what_containers_hold_through_claims_is_read_from_zones() -> None:
    found = claimed_devices(zones_holding("pool/with/slashes/gpu-0", "worker-1/gpu-1"))
    assert found == {
        "uid-1": {
            "main": {
                ("gpu.example", "pool/with/slashes", "gpu-0"),
                ("gpu.example", "worker-1", "gpu-1"),
            }
        }
    }
