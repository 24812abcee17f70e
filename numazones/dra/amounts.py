"""How many devices of dynamic resource allocation each NUMA node of a node has, has given away and has left.

A device counts where it is (the first NUMA node that it names); one whose NUMA node nobody says, or of which
the node has none, counts for the node alone (NUMA node None). *Available* are the devices each of which the
scheduler could still allocate: not allocated (access for administration aside), without a taint that keeps
claims away, and of partitions those whose counters are still to be had, each of them by itself. Of devices
that are shared, their capacities count beside. Pools that are incomplete make all figures of their driver
unknown, since the scheduler allocates nothing from them.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from numazones.apimachinery.quantity import ZERO, Quantity
from numazones.dra.claims import Allocation, DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Device, Key, Pool


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of devices."""

    devices: int
    allocated: int
    """Those of them of which a claim has something."""
    available: int
    """Those of them that could still be allocated, each by itself."""


@dataclass(frozen=True, slots=True)
class SharedCapacity:
    """A capacity of devices that are shared, over all of them."""

    name: str
    capacity: Quantity
    allocated: Quantity
    available: Quantity
    """Of devices that could still be allocated."""


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Numbers of the devices that a DeviceClass means; None: its expressions are not understood."""

    name: str
    counts: Counts | None


@dataclass(frozen=True, slots=True)
class DriverAmounts:
    """What one NUMA node has of a driver's devices."""

    driver: str
    counts: Counts | None
    """None: not all of the driver's devices are known."""
    classes: tuple[ClassCounts, ...] = ()
    """The DeviceClasses that mean some of the devices, or may do so, by name."""
    shared: tuple[SharedCapacity, ...] = ()
    partitions: bool = False
    """Whether some are partitions of one thing: not all that are available can be allocated together."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices of one node, and who has them."""

    devices: Mapping[Key, Device]
    available: frozenset[Key]
    """Those that could still be allocated, each by itself."""
    allocated: Mapping[Key, tuple[Allocation, ...]]
    """Without access for administration."""
    incomplete: frozenset[str] = frozenset()
    """Drivers of which slices are missing."""

    @property
    def drivers(self) -> frozenset[str]:
        """Names of the drivers that have devices in the node."""
        return frozenset(device.driver for device in self.devices.values())

    def by_numa(
        self, classes: Iterable[DeviceClass], numas: Container[int]
    ) -> dict[int | None, tuple[DriverAmounts, ...]]:
        """Return NUMA node → the amounts of its devices by driver; None: devices of an unknown NUMA node.

        Args:
            classes: the cluster's.
            numas: the NUMA nodes that the node has.
        """
        groups: dict[tuple[int | None, str], list[Device]] = {}
        for device in self.devices.values():
            numa = device.numa if device.numa in numas else None
            groups.setdefault((numa, device.driver), []).append(device)
        known = sorted(classes, key=lambda one: one.name)
        found: dict[int | None, tuple[DriverAmounts, ...]] = {}
        for numa, driver in sorted(groups, key=lambda key: (key[0] is None, key[0] or 0, key[1])):
            row = self._driver(driver, groups[numa, driver], known)
            found[numa] = (*found.get(numa, ()), row)
        return found

    def _driver(self, driver: str, devices: list[Device], classes: Iterable[DeviceClass]) -> DriverAmounts:
        if driver in self.incomplete:
            return DriverAmounts(driver, None)
        return DriverAmounts(
            driver,
            self._counts(devices),
            tuple(row for one in classes if (row := self._class(one, devices)) is not None),
            tuple(self._shared(devices)),
            partitions=any(device.counters for device in devices),
        )

    def _counts(self, devices: Iterable[Device]) -> Counts:
        keys = [device.key for device in devices]
        return Counts(
            len(keys), sum(key in self.allocated for key in keys), sum(key in self.available for key in keys)
        )

    def _class(self, one: DeviceClass, devices: Iterable[Device]) -> ClassCounts | None:
        answers = [(one.selects(device), device) for device in devices]
        if any(answer is None for answer, _ in answers):
            return ClassCounts(one.name, None)
        meant = [device for answer, device in answers if answer]
        return ClassCounts(one.name, self._counts(meant)) if meant else None

    def _shared(self, devices: Iterable[Device]) -> Iterable[SharedCapacity]:
        shared = [device for device in devices if device.shareable]
        for name in sorted({name for device in shared for name in device.capacity}):
            total, taken, left = ZERO, ZERO, ZERO
            for device in shared:
                capacity, consumed = device.capacity.get(name, ZERO), self._consumed(device, name)
                total, taken = total + capacity, taken + consumed
                if device.key in self.available:
                    left += _less(capacity, consumed)
            yield SharedCapacity(name, total, taken, left)

    def _consumed(self, device: Device, name: str) -> Quantity:
        return consumed(self.allocated.get(device.key, ()), name)


def node_devices(node: str, pools: Iterable[Pool], claims: Iterable[DeviceClaim]) -> NodeDevices:
    """Return the devices of a node, and who has them.

    Devices that are in no single node (of slices with a node selector, or for all nodes) are left out: they
    are near none of its NUMA nodes.

    Args:
        node: its name.
        pools: those that have devices in the node; more do no harm.
        claims: those that have been allocated devices of these pools; more do no harm.
    """
    pools = list(pools)
    allocated: dict[Key, tuple[Allocation, ...]] = {}
    for claim in claims:
        for one in claim.allocations:
            if not one.admin:
                allocated[one.device] = (*allocated.get(one.device, ()), one)
    devices: dict[Key, Device] = {}
    available: set[Key] = set()
    incomplete: set[str] = set()
    for pool in pools:
        own = {device.key: device for device in pool.devices if device.node == node}
        if not own:
            continue
        devices |= own
        if not pool.complete:
            incomplete.add(pool.driver)
            continue
        left = _counters_left(pool, allocated)
        available |= {
            key for key, device in own.items() if _is_available(device, allocated.get(key, ()), left)
        }
    return NodeDevices(
        devices,
        frozenset(available),
        {key: allocated[key] for key in devices if key in allocated},
        frozenset(incomplete),
    )


def consumed(allocations: Iterable[Allocation], name: str) -> Quantity:
    """Return what allocations of one device take of a capacity together."""
    total = ZERO
    for one in allocations:
        total += one.consumed.get(name, ZERO)
    return total


def _counters_left(pool: Pool, allocated: Mapping[Key, tuple[Allocation, ...]]) -> dict[tuple[str, str], int]:
    """(counter set, counter) → nano units that the pool's partitions have not taken."""
    left = {key: amount.nanos for key, amount in pool.counters.items()}
    for device in pool.devices:
        if device.key in allocated:
            for owner, counter, amount in device.counters:
                left[owner, counter] = left.get((owner, counter), 0) - amount.nanos
    return left


def _is_available(
    device: Device, allocations: tuple[Allocation, ...], left: Mapping[tuple[str, str], int]
) -> bool:
    if device.tainted or (allocations and not device.shareable):
        return False
    if allocations:  # what it takes of counters is taken once, when it is allocated for the first time
        return all(
            consumed(allocations, name).nanos < amount.nanos for name, amount in device.capacity.items()
        )
    return all(left.get((owner, counter), 0) >= amount.nanos for owner, counter, amount in device.counters)


def _less(capacity: Quantity, taken: Quantity) -> Quantity:
    return Quantity(max(capacity.nanos - taken.nanos, 0), binary=capacity.binary)
