"""The pools that the allocator sees on a node, made of the ResourceSlices of a cluster.

Rules: ``GatherPools`` of ``k8s.io/dynamic-resource-allocation/structured`` (1.36.3). A pool counts in its
highest generation. It is *incomplete* while slices of that generation are missing, and *invalid* where they
contradict each other; neither offers devices, and both are errors for a request for all devices. A pool with
a slice of shared counters is seen from every node, without devices from most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from numazones.dra.devices import Key, PublishedDevice, Reach, Slice
from numazones.dra.rules import AllocatorRules
from numazones.errors import NumazonesError

PoolKey = tuple[str, str]


class UnreadableSelector(NumazonesError):
    """A node selector of a slice cannot be read; the message names the slice."""


@dataclass(frozen=True, slots=True)
class Place:
    """The node that devices are allocated for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


class Candidate:
    """A device that a pool offers, with what has been found out about it."""

    __slots__ = ("device", "slice", "verdicts")

    def __init__(self, device: PublishedDevice, of: Slice) -> None:
        self.device = device
        self.slice = of
        self.verdicts: dict[object, object] | None = None
        """Selector → whether the device meets it, or the error; the same for every claim and node."""

    @property
    def key(self) -> Key:
        """What names the device in the cluster."""
        return self.device.key


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as it is seen from one node."""

    driver: str
    name: str
    devices: tuple[Candidate, ...] = ()
    incomplete: bool = False
    invalid: bool = False
    partitions: tuple[PublishedDevice, ...] = ()
    """The devices of all nodes that share its counters."""
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counter set → counter → amount, in nano units."""

    @property
    def full_name(self) -> str:
        """DRIVER/POOL."""
        return f"{self.driver}/{self.name}"


class DeviceSlices:
    """The ResourceSlices of a cluster in the order in which they are listed; made once for many nodes."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._pools: dict[PoolKey, list[Slice]] = {}
        self._on_node: dict[str, dict[PoolKey, list[Slice]]] = {}
        self._shared: dict[PoolKey, list[Slice]] = {}
        self._candidates: dict[int, tuple[Candidate, ...]] = {}
        self._known: dict[tuple[str, bool, bool], tuple[Place, tuple[NodePool, ...]]] = {}
        self._foreign: dict[bool, list[PoolKey]] = {}
        for one in slices:
            self._pools.setdefault(one.key, []).append(one)
            if one.reach.node and not one.counter_sets:
                self._on_node.setdefault(one.reach.node, {}).setdefault(one.key, []).append(one)
            else:
                self._shared.setdefault(one.key, []).append(one)
        self._selecting = [
            key for key, found in self._shared.items() if any(not one.counter_sets for one in found)
        ]
        """Pools with devices that may be for several nodes."""

    def pools(self, place: Place, rules: AllocatorRules) -> tuple[NodePool, ...]:
        """Return the pools that are seen from a node, in the order in which they are searched.

        Raises:
            UnreadableSelector: a slice has a node selector that cannot be read.
        """
        known = self._known.get(key := (place.name, rules.partitionable, rules.sorted))
        if known is not None and known[0] == place:
            return known[1]
        own = self._on_node.get(place.name, {})
        keys = dict.fromkeys((*own, *self._selecting, *self._troubled(rules)))
        seen = [pool for one in keys if (pool := self._pool(one, place, rules)) is not None]
        if rules.sorted:
            seen.sort(key=lambda pool: (pool.driver, pool.name))
        seen.sort(key=_has_binding_conditions)
        self._known[key] = (place, tuple(seen))
        return tuple(seen)

    def _troubled(self, rules: AllocatorRules) -> list[PoolKey]:
        """Pools with counters that are incomplete or invalid even where they have no devices."""
        if not rules.partitionable:
            return []
        found = self._foreign.get(rules.sorted)
        if found is None:
            elsewhere = Place("")
            found = self._foreign[rules.sorted] = [
                key
                for key, slices in self._shared.items()
                if any(one.counter_sets for one in slices)
                and (pool := self._pool(key, elsewhere, rules)) is not None
                and (pool.incomplete or pool.invalid)
            ]
        return found

    def _pool(self, key: PoolKey, place: Place, rules: AllocatorRules) -> NodePool | None:
        listed = (*self._on_node.get(place.name, {}).get(key, ()), *self._shared.get(key, ()))
        relevant: list[Slice] = []
        for one in listed:
            if not rules.partitionable and (one.per_device is not None or one.counter_sets):
                continue
            if relevant and one.generation < relevant[0].generation:
                continue
            if _is_relevant(one, place):
                if relevant and one.generation > relevant[0].generation:
                    relevant = []
                relevant.append(one)
        if not relevant:
            return None
        generation, whole = relevant[0].generation, relevant
        if len(relevant) != relevant[0].count:
            everything = self._pools[key]
            if any(one.generation > generation for one in everything):
                return None
            whole = [one for one in everything if one.generation == generation]
            if len(whole) != relevant[0].count:
                return NodePool(*key, incomplete=True)
        return self._built(key, relevant, whole, rules)

    def _built(
        self, key: PoolKey, relevant: list[Slice], whole: list[Slice], rules: AllocatorRules
    ) -> NodePool:
        if rules.sorted:
            relevant = sorted(relevant, key=lambda one: one.name)
        offered = [one for one in relevant if not (rules.partitionable and one.counter_sets)]
        devices = tuple(candidate for one in offered for candidate in self._candidates_of(one))
        names = {candidate.device.name for candidate in devices}
        if len(names) < len(devices):
            return NodePool(*key, invalid=True)
        if not rules.partitionable:
            return NodePool(*key, devices)
        counters: dict[str, dict[str, int]] = {}
        sets = [name for one in relevant for name in one.counter_sets]
        for name in sets:
            counters[name] = {}
        for one in relevant:
            for name, counter, amount in one.counters:
                counters[name][counter] = amount.nanos
        partitions = tuple(device for one in whole for device in one.devices if device.counter_sets)
        if len(set(sets)) < len(sets) or any(_lacks(counters, device) for device in partitions):
            return NodePool(*key, invalid=True)
        return NodePool(*key, devices, partitions=partitions, counters=counters)

    def _candidates_of(self, one: Slice) -> tuple[Candidate, ...]:
        found = self._candidates.get(id(one))
        if found is None:
            found = self._candidates[id(one)] = tuple(Candidate(device, one) for device in one.devices)
        return found


def _lacks(counters: Mapping[str, Mapping[str, int]], device: PublishedDevice) -> bool:
    """Return whether a device takes from counters that its pool has not."""
    if not all(name in counters for name in device.counter_sets):
        return True
    return any(counter not in counters[name] for name, counter, _ in device.counters)


def _is_relevant(one: Slice, place: Place) -> bool:
    if one.counter_sets:
        return True
    if one.reach:
        return _includes(one.reach, one, place)
    if one.per_device:
        return any(_includes(device.reach, one, place) for device in one.devices)
    return False


def _includes(reach: Reach, one: Slice, place: Place) -> bool:
    if not reach.well_formed:
        raise UnreadableSelector(f"the node selector in ResourceSlice {one.name} cannot be read")
    return reach.includes(place.name, place.labels)


def reaches(candidate: Candidate, place: Place) -> bool:
    """Return whether a device can be used from a node that its slice is relevant to."""
    if not candidate.slice.per_device:
        return True
    return _includes(candidate.device.reach, candidate.slice, place)


def _has_binding_conditions(pool: NodePool) -> bool:
    return any(candidate.device.binding_conditions for candidate in pool.devices)
