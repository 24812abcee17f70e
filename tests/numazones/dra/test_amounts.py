"""Numbers of devices by NUMA node: what there is, what claims have, what is left."""

from typing import Any

import pytest

from numazones.api.dynamic_resources import DynamicDriver, by_numa
from numazones.dra.amounts import NodeDevices, node_devices
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice, pools_of
from tests.numazones.dra.building import NODE, claim, device, device_class, resource_slice, result


def devices_of(slices: list[Any], claims: list[Any] | None = None) -> NodeDevices:
    return node_devices(NODE, pools_of(map(Slice.from_api, slices)), map(DeviceClaim.from_api, claims or ()))


def amounts(slices: list[Any], claims: list[Any] | None = None, *classes: Any) -> dict[Any, DynamicDriver]:
    found = by_numa(devices_of(slices, claims), map(DeviceClass.from_api, classes), range(2))
    return {numa: row for numa, (row,) in found.items()}


def counted(row: Any) -> tuple[int | None, ...]:
    return row.devices, row.allocated, row.available


def counts(slices: list[Any], claims: list[Any] | None = None) -> dict[Any, tuple[int | None, ...]]:
    return {numa: counted(row) for numa, row in amounts(slices, claims).items()}


UNKNOWN = (None, None, None)
TWO_AND_ONE = resource_slice(device("gpu-0", 0), device("gpu-1", 0), device("gpu-2", 1))


@pytest.mark.parametrize(
    ("slices", "claims", "expected"),
    [
        ([TWO_AND_ONE], [], {0: (2, 0, 2), 1: (1, 0, 1)}),
        ([TWO_AND_ONE], [claim(result("gpu-1"))], {0: (2, 1, 1), 1: (1, 0, 1)}),
        # A claim that waits, access for administration, and devices of others take nothing.
        ([TWO_AND_ONE], [claim()], {0: (2, 0, 2), 1: (1, 0, 1)}),
        ([TWO_AND_ONE], [claim(result("gpu-1", adminAccess=True))], {0: (2, 0, 2), 1: (1, 0, 1)}),
        ([TWO_AND_ONE], [claim(result("gpu-1", pool="worker-2"))], {0: (2, 0, 2), 1: (1, 0, 1)}),
        ([TWO_AND_ONE], [claim(result("gone"))], {0: (2, 0, 2), 1: (1, 0, 1)}),
        # Nobody says where it is: it counts, for no NUMA node.
        (
            [resource_slice(device("gpu-0"), device("gpu-1", 1))],
            [],
            {1: (1, 0, 1), None: (1, 0, 1)},
        ),
        (
            [resource_slice(device("gpu-0", 0, taints=[{"key": "t", "effect": "NoSchedule"}]))],
            [],
            {0: (1, 0, 0)},
        ),
        (
            [resource_slice(device("gpu-0", 7))],
            [],
            {None: (1, 0, 1)},
        ),
        # Devices of other nodes, or of none.
        ([resource_slice(device("gpu-0", 0), node="worker-2")], [], {}),
        ([resource_slice(device("gpu-0", 0), node="", allNodes=True)], [], {}),
        # The scheduler allocates nothing from a pool that is incomplete.
        ([resource_slice(device("gpu-0", 0), count=2)], [], {0: UNKNOWN}),
    ],
)
def test_counts_by_numa_node(
    slices: list[Any], claims: list[Any], expected: dict[Any, tuple[int, ...]]
) -> None:
    assert counts(slices, claims) == expected


def shared(*, cpus: str = "32") -> dict[str, Any]:
    return resource_slice(
        device("cpudevnuma000", 0, allowMultipleAllocations=True, capacity={"cpu": {"value": cpus}}),
        driver="dra.cpu",
    )


def share(cpus: str, name: str) -> dict[str, Any]:
    return claim(
        result("cpudevnuma000", driver="dra.cpu", shareID=name, consumedCapacity={"dra.cpu/cpu": cpus}),
        name=name,
    )


@pytest.mark.parametrize(
    ("taken", "available", "left"), [([], 1, 32), (["8", "4"], 1, 20), (["16", "16"], 0, 0)]
)
def test_shared_devices_count_what_is_left_of_them(taken: list[str], available: int, left: int) -> None:
    claims = [share(cpus, f"share-{number}") for number, cpus in enumerate(taken)]
    row = amounts([shared()], claims)[0]
    assert counted(row) == (1, bool(taken), available)
    (capacity,) = row.shared
    assert capacity.name == "dra.cpu/cpu"
    assert (capacity.capacity, capacity.available) == ("32", str(left))
    assert capacity.allocated == str(sum(map(int, taken)))


def test_partitions_are_available_as_far_as_their_counters_last() -> None:
    def partition(name: str, slots: int) -> dict[str, Any]:
        counters = [{"counterSet": "gpu-0", "counters": {"slots": {"value": str(slots)}}}]
        return device(name, 1, consumesCounters=counters)

    slices = [
        resource_slice(partition("whole", 4), partition("half-0", 2), partition("half-1", 2), count=2),
        resource_slice(
            name="counters",
            count=2,
            sharedCounters=[{"name": "gpu-0", "counters": {"slots": {"value": "4"}}}],
        ),
    ]
    free, half, whole = (
        devices_of(slices, claims) for claims in ([], [claim(result("half-0"))], [claim(result("whole"))])
    )
    assert {name for *_, name in free.available} == {"whole", "half-0", "half-1"}
    assert {name for *_, name in half.available} == {"half-1"}
    assert not whole.available
    assert amounts(slices)[1].partitions


def test_classes_count_the_devices_that_they_mean() -> None:
    slices = [
        resource_slice(
            device("gpu-0", 0, attributes={"type": {"string": "gpu"}}),
            device("vf-0", 0, attributes={"type": {"string": "vf"}}),
        )
    ]
    own = 'device.driver == "gpu.example"'
    classes = [
        device_class("gpus", own, 'device.attributes["gpu.example"].type == "gpu"'),
        device_class("others", 'device.driver == "nic.example"'),
        device_class("unclear", own, "device.attributes.exists(a, b, true)"),
    ]
    row = amounts(slices, [claim(result("vf-0"))], *classes)[0]
    assert [(one.name, counted(one)) for one in row.classes] == [("gpus", (1, 0, 1)), ("unclear", UNKNOWN)]
