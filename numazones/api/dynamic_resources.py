"""Devices of dynamic resource allocation (DRA) on a NUMA node, as the operator writes them to NUMAZones.

A device counts where it is (the first NUMA node that it names); one whose NUMA node nobody says, or of which
the node has none, counts for the node alone (NUMA node None).
"""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from numazones.api.meta import MAX_NAME, APIModel, QuantityText, list_of, optional, text
from numazones.apimachinery.quantity import ZERO, Quantity
from numazones.dra.conflicts import cpu_conflict

if TYPE_CHECKING:  # most programs only read what is written here
    from numazones.dra.amounts import NodeDevices
    from numazones.dra.device_classes import DeviceClass
    from numazones.dra.devices import PublishedDevice


class DynamicClass(APIModel):
    """Numbers of a driver's devices on the NUMA node that a DeviceClass selects."""

    name: str = Field(max_length=MAX_NAME, description="Name of the DeviceClass.")
    devices: int | None = optional(
        "Number of devices that it selects; left out, like the next two, if its expressions are not "
        "understood.",
        ge=0,
    )
    allocated: int | None = optional(
        "Number of these devices that are allocated to claims, wholly or in part.", ge=0
    )
    available: int | None = optional(
        "Number of these devices that could each still be allocated, but perhaps not all together.", ge=0
    )


class DynamicCapacity(APIModel):
    """A capacity of devices that several claims share."""

    name: str = Field(max_length=MAX_NAME, description="Qualified name of the capacity, such as dra.cpu/cpu.")
    capacity: QuantityText | None = optional("Total over all shared devices.")
    allocated: QuantityText | None = optional("Amount allocated to claims.")
    available: QuantityText | None = optional("Amount left on devices that could still be allocated.")


class DynamicDriver(APIModel):
    """The devices of one driver."""

    driver: str = Field(max_length=MAX_NAME, description="Name of the driver, such as gpu.nvidia.com.")
    numa_unknown: bool = Field(
        default=False,
        description="True if these devices report no NUMA node of the node; they are listed in its first "
        "NUMAZone.",
    )
    devices: int | None = optional(
        "Number of devices; left out, like the next two, while slices of the driver's pools are missing.",
        ge=0,
    )
    allocated: int | None = optional(
        "Number of devices that are allocated to claims, wholly or in part.", ge=0
    )
    available: int | None = optional(
        "Number of devices that could each still be allocated, but perhaps not all together.", ge=0
    )
    partitions: bool = Field(
        default=False,
        description="True if some devices are partitions of the same hardware, so not all available ones can "
        "be allocated together.",
    )
    classes: tuple[DynamicClass, ...] = list_of(64, "Numbers of devices by DeviceClass.")
    shared: tuple[DynamicCapacity, ...] = list_of(32, "Capacities of the devices that are shared.")


class DynamicResources(APIModel):
    """Devices that the scheduler allocates to claims, by what drivers publish and claims were allocated."""

    drivers: tuple[DynamicDriver, ...] = list_of(64, "Devices by driver.")
    conflict: str = text(
        1024, "Why CPUs of the node may be allocated twice: dra-driver-cpu next to a static CPU manager."
    )


def dynamic_resources(
    devices: "NodeDevices", numas: Iterable[int], classes: "Iterable[DeviceClass]", cpu_manager_policy: str
) -> Mapping[int, DynamicResources]:
    """Return NUMA id → what its zone has to say; zones that have nothing to say are missing.

    ``cpu_manager_policy`` is empty where it is not known.
    """
    zones = sorted(numas)
    amounts = by_numa(devices, classes, zones)
    conflict = cpu_conflict(devices.drivers, cpu_manager_policy)
    found = {}
    for position, numa in enumerate(zones):
        rows = amounts.get(numa, ()) + (amounts.get(None, ()) if position == 0 else ())
        if rows or conflict:
            found[numa] = DynamicResources(drivers=rows, conflict=conflict)
    return found


def by_numa(
    devices: "NodeDevices", classes: "Iterable[DeviceClass]", numas: Container[int]
) -> dict[int | None, tuple[DynamicDriver, ...]]:
    """Return NUMA node → the amounts of its devices by driver; None: devices of an unknown NUMA node.

    ``numas``: the NUMA nodes that the node has.
    """
    groups: dict[tuple[int | None, str], list[PublishedDevice]] = {}
    for device in devices.devices.values():
        numa = device.numa if device.numa in numas else None
        groups.setdefault((numa, device.driver), []).append(device)
    known = sorted(classes, key=lambda one: one.name)
    found: dict[int | None, tuple[DynamicDriver, ...]] = {}
    for numa, driver in sorted(groups, key=lambda key: (key[0] is None, key[0] or 0, key[1])):
        amounts = {} if driver in devices.incomplete else _amounts(devices, groups[numa, driver], known)
        row = DynamicDriver(driver=driver, numa_unknown=numa is None, **amounts)
        found[numa] = (*found.get(numa, ()), row)
    return found


def _amounts(
    known: "NodeDevices", devices: "list[PublishedDevice]", classes: "Iterable[DeviceClass]"
) -> dict[str, Any]:
    return {
        **_counts(known, devices),
        "partitions": any(device.counters for device in devices),
        "classes": tuple(row for one in classes if (row := _class(known, one, devices)) is not None),
        "shared": tuple(_shared(known, [device for device in devices if device.shareable])),
    }


def _counts(known: "NodeDevices", devices: "Iterable[PublishedDevice]") -> dict[str, int]:
    keys = {device.key for device in devices}
    allocated, available = keys & known.allocated.keys(), keys & known.available
    return {"devices": len(keys), "allocated": len(allocated), "available": len(available)}


def _class(
    known: "NodeDevices", one: "DeviceClass", devices: "Iterable[PublishedDevice]"
) -> DynamicClass | None:
    answers = [(one.selects(device), device) for device in devices]
    if any(answer is None for answer, _ in answers):
        return DynamicClass(name=one.name)
    meant = [device for answer, device in answers if answer]
    return DynamicClass(name=one.name, **_counts(known, meant)) if meant else None


def _shared(known: "NodeDevices", devices: "list[PublishedDevice]") -> Iterable[DynamicCapacity]:
    for name in sorted({name for device in devices for name in device.capacity}):
        total, taken, left = ZERO, ZERO, ZERO
        for device in devices:
            capacity = device.capacity.get(name, ZERO)
            part = known.consumed(device.key, name)
            total, taken = total + capacity, taken + part
            if device.key in known.available:
                left += Quantity(max(capacity.nanos - part.nanos, 0), binary=capacity.binary)
        yield DynamicCapacity(
            name=name, capacity=total.canonical(), allocated=taken.canonical(), available=left.canonical()
        )
