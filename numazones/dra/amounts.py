"""Devices of dynamic resource allocation that a node has, has assigned and has left.

*Available* are the devices each of which the scheduler could still allocate: not allocated (access for
administration aside), without a taint that keeps claims away, and of partitions those whose counters are
still to be had, each of them by itself. Pools that are incomplete make their drivers' figures unknown, since
the scheduler allocates nothing from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from numazones.apimachinery.quantity import ZERO, Quantity
from numazones.dra.claims import Allocation, DeviceClaim
from numazones.dra.devices import Key, Pool, PublishedDevice


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices of one node, and who has them."""

    devices: Mapping[Key, PublishedDevice]
    available: frozenset[Key]
    """Those that could each still be allocated, but perhaps not all together."""
    allocated: Mapping[Key, tuple[Allocation, ...]]
    """Without access for administration."""
    incomplete: frozenset[str] = frozenset()
    """Drivers of which slices are missing."""

    @property
    def drivers(self) -> frozenset[str]:
        """Names of the drivers that have devices in the node."""
        return frozenset(device.driver for device in self.devices.values())

    def consumed(self, device: Key, name: str) -> Quantity:
        """Return what the allocations of a device take of a capacity together; ``name``: qualified."""
        return _consumed(self.allocated.get(device, ()), name)


def node_devices(node: str, pools: Iterable[Pool], claims: Iterable[DeviceClaim]) -> NodeDevices:
    """Return the devices of a node, and who has them.

    Devices that are in no single node (of slices with a node selector, or for all nodes) are left out: they
    are near none of its NUMA nodes.

    More pools and claims than those of the node do no harm.
    """
    pools = list(pools)
    allocated: dict[Key, tuple[Allocation, ...]] = {}
    for claim in claims:
        for one in claim.allocations:
            if not one.admin:
                allocated[one.device] = (*allocated.get(one.device, ()), one)
    devices: dict[Key, PublishedDevice] = {}
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


def _consumed(allocations: Iterable[Allocation], name: str) -> Quantity:
    total = ZERO
    for one in allocations:
        domain, _, short = name.partition("/")
        own = one.consumed.get(short) if domain == one.device[0] else None
        total += one.consumed.get(name) or own or ZERO
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
    device: PublishedDevice, allocations: tuple[Allocation, ...], left: Mapping[tuple[str, str], int]
) -> bool:
    if device.tainted or (allocations and not device.shareable):
        return False
    if allocations:  # what it takes of counters is taken once, when it is allocated for the first time
        return all(
            _consumed(allocations, name).nanos < amount.nanos for name, amount in device.capacity.items()
        )
    return all(left.get((owner, counter), 0) >= amount.nanos for owner, counter, amount in device.counters)
