"""The devices of dynamic resource allocation (DRA) that a zone has: what the operator writes on it."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from numazones.api.meta import MAX_NAME, APIModel, Quantity, list_of, optional, text
from numazones.dra.amounts import Counts, DriverAmounts, NodeDevices
from numazones.dra.conflicts import cpu_conflict
from numazones.dra.device_classes import DeviceClass


class DynamicClass(APIModel):
    """Numbers of a driver's devices in the zone that a DeviceClass selects."""

    name: str = Field(max_length=MAX_NAME, description="Name of the DeviceClass.")
    devices: int | None = optional(
        "Devices that it selects; left out, with the next two, where its expressions are not understood.",
        ge=0,
    )
    allocated: int | None = optional("Those of them that claims have something of.", ge=0)
    available: int | None = optional("Those of them that could still be allocated, each by itself.", ge=0)


class DynamicCapacity(APIModel):
    """A capacity of devices that several claims share."""

    name: str = Field(max_length=MAX_NAME, description="Qualified name of the capacity, such as dra.cpu/cpu.")
    capacity: Quantity | None = optional("Over all devices that are shared.")
    allocated: Quantity | None = optional("What claims have of it.")
    available: Quantity | None = optional("What is left of devices that could still be allocated.")


class DynamicDriver(APIModel):
    """The devices of one driver."""

    driver: str = Field(max_length=MAX_NAME, description="Name of the driver, such as gpu.nvidia.com.")
    numa_unknown: bool = Field(
        default=False,
        description="These devices name no NUMA node of the node; they are listed on its first zone.",
    )
    devices: int | None = optional(
        "Devices; left out, with the next two, while slices of the driver's pools are missing.", ge=0
    )
    allocated: int | None = optional("Those that claims have something of.", ge=0)
    available: int | None = optional("Those that could still be allocated, each by itself.", ge=0)
    partitions: bool = Field(
        default=False,
        description="Some are partitions of one thing: not all that are available can be allocated together.",
    )
    classes: tuple[DynamicClass, ...] = list_of(64, "The same by DeviceClass.")
    shared: tuple[DynamicCapacity, ...] = list_of(32, "Capacities of the devices that are shared.")


class DynamicResources(APIModel):
    """Devices that the scheduler allocates to claims, by what drivers publish and claims were allocated."""

    drivers: tuple[DynamicDriver, ...] = list_of(64, "Devices by driver.")
    conflict: str = text(
        1024, "Why CPUs of the node may be given out twice: dra-driver-cpu beside a static CPU manager."
    )


def dynamic_resources(
    devices: NodeDevices, numas: Iterable[int], classes: Iterable[DeviceClass], cpu_manager_policy: str
) -> Mapping[int, DynamicResources]:
    """Return NUMA id → what its zone has to say; zones that have nothing to say are missing.

    Args:
        devices: those of the node.
        numas: NUMA ids of its zones.
        classes: the cluster's.
        cpu_manager_policy: the kubelet's; empty where it is not known.
    """
    zones = sorted(numas)
    amounts = devices.by_numa(classes, zones)
    conflict = cpu_conflict(devices.drivers, cpu_manager_policy)
    found = {}
    for position, numa in enumerate(zones):
        rows = [_driver(row) for row in amounts.get(numa, ())]
        if position == 0:
            rows += [_driver(row, numa_unknown=True) for row in amounts.get(None, ())]
        if rows or conflict:
            found[numa] = DynamicResources(drivers=tuple(rows), conflict=conflict)
    return found


def _driver(row: DriverAmounts, *, numa_unknown: bool = False) -> DynamicDriver:
    return DynamicDriver(
        driver=row.driver,
        numa_unknown=numa_unknown,
        **_counts(row.counts),
        partitions=row.partitions,
        classes=tuple(DynamicClass(name=one.name, **_counts(one.counts)) for one in row.classes),
        shared=tuple(
            DynamicCapacity(
                name=one.name,
                capacity=one.capacity.canonical(),
                allocated=one.allocated.canonical(),
                available=one.available.canonical(),
            )
            for one in row.shared
        ),
    )


def _counts(counts: Counts | None) -> dict[str, int]:
    if counts is None:
        return {}
    return {"devices": counts.devices, "allocated": counts.allocated, "available": counts.available}
