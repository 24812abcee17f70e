"""The pools that the allocator sees on a node, made of the ResourceSlices of a cluster.

Rules: ``GatherPools`` of ``k8s.io/dynamic-resource-allocation/structured`` (1.36.3). A pool counts in its
highest generation. It is *incomplete* while slices of that generation are missing, and *invalid* where they
contradict each other; neither offers devices, and both are errors for a request for all devices. A pool with
a slice of shared counters is seen from every node, without devices from most.
"""

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from numazones.dra.devices import Key, NodeAccess, PublishedDevice, Slice
from numazones.dra.rules import AllocatorRules
from numazones.errors import NumazonesError

PoolKey = tuple[str, str]


class UnreadableSelector(NumazonesError):
    """A node selector of a slice cannot be read; the message names the slice."""


@dataclass(frozen=True, slots=True)
class AllocationNode:
    """The node that devices are allocated for."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


class CandidateDevice:
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
    devices: tuple[CandidateDevice, ...] = ()
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
    """The ResourceSlices of a cluster in the order in which they are listed; made once for many nodes.

    Slices may change one by one (``take``), listed by name then; what was found out about other pools is
    kept.
    """

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._pools: dict[PoolKey, list[Slice]] = {}
        self._on_node: dict[str, dict[PoolKey, list[Slice]]] = {}
        self._shared: dict[PoolKey, list[Slice]] = {}
        self._candidates: dict[int, tuple[CandidateDevice, ...]] = {}
        self._known: dict[tuple[str, bool, bool], tuple[AllocationNode, tuple[NodePool, ...]]] = {}
        self._foreign: dict[bool, dict[PoolKey, None]] = {}
        self._selecting: dict[PoolKey, None] = {}
        """Pools with devices that may be for several nodes."""
        for one in slices:
            for found in self._lists_of(one):
                found.append(one)
            self._note_access(one)

    def __bool__(self) -> bool:
        return bool(self._pools)

    def take(self, old: Slice | None, new: Slice | None) -> frozenset[str] | None:
        """Take in a slice as it was and is (None: not there); return the nodes that see it, None: all."""
        keys = {one.key for one in (old, new) if one is not None}
        before = [(self.nodes_of(key), self._is_troubled(key)) for key in keys]
        if old is not None and (new is None or _part(old) != _part(new)):
            self._drop(old)
            old = None
        if new is not None and old is None:
            for listed in self._lists_of(new):
                insort(listed, new, key=_by_name)
        elif new is not None and old is not None:
            for listed in self._lists_of(new):
                listed[listed.index(old)] = new
            self._candidates.pop(id(old), None)
        if new is not None:
            self._note_access(new)
        after = [(self.nodes_of(key), self._is_troubled(key)) for key in keys]
        found = [nodes for nodes, _ in (*before, *after)]
        everywhere = None in found or any(was[1] or now[1] for was, now in zip(before, after, strict=True))
        nodes = None if everywhere else frozenset().union(*(one for one in found if one is not None))
        self._forget(nodes, keys)
        return nodes

    def nodes_of(self, key: PoolKey) -> frozenset[str] | None:
        """Return the nodes that may have devices of a pool; None: any may."""
        if key in self._selecting:
            return None
        slices = self._pools.get(key, ())
        nodes = {one.node_access.node for one in slices}
        return None if "" in nodes else frozenset(nodes)

    def of_pool(self, key: PoolKey) -> tuple[Slice, ...]:
        """Return the slices of a pool, of all generations and nodes."""
        return tuple(self._pools.get(key, ()))

    def _note_access(self, new: Slice) -> None:
        if not new.counter_sets and not new.node_access.node:
            self._selecting[new.key] = None

    def _drop(self, old: Slice) -> None:
        for found in self._lists_of(old):
            found.remove(old)
        self._candidates.pop(id(old), None)
        own = self._on_node.get(old.node_access.node, {})
        for kept in (self._pools, self._shared, own):
            if not kept.get(old.key, True):
                del kept[old.key]
        if not own:
            self._on_node.pop(old.node_access.node, None)
        if all(one.counter_sets for one in self._shared.get(old.key, ())):
            self._selecting.pop(old.key, None)

    def _lists_of(self, one: Slice) -> tuple[list[Slice], list[Slice]]:
        of_node = bool(one.node_access.node and not one.counter_sets)
        part = self._on_node.setdefault(one.node_access.node, {}) if of_node else self._shared
        return self._pools.setdefault(one.key, []), part.setdefault(one.key, [])

    def _forget(self, nodes: frozenset[str] | None, keys: Iterable[PoolKey]) -> None:
        """Forget what was found out about pools that have changed."""
        if nodes is None:
            self._known.clear()
        else:
            for seen_from in product(nodes, (False, True), (False, True)):
                self._known.pop(seen_from, None)
        for ordered, troubled in self._foreign.items():
            for key in keys:
                troubled.pop(key, None)
                if self._is_troubled(key, ordered=ordered):
                    troubled[key] = None

    def pools(self, place: AllocationNode, rules: AllocatorRules) -> tuple[NodePool, ...]:
        """Return the pools that are seen from a node, in the order in which they are searched.

        Raises:
            UnreadableSelector: a slice has a node selector that cannot be read.
        """
        known = self._known.get(key := (place.name, rules.partitionable, rules.sorted))
        if known is not None and known[0] == place:
            return known[1]
        own = self._on_node.get(place.name, {})
        keys = dict.fromkeys((*own, *self._selecting, *self._troubled(rules)))
        seen = [
            pool
            for one in keys
            if (pool := self._pool(one, place, partitionable=rules.partitionable, ordered=rules.sorted))
            is not None
        ]
        if rules.sorted:
            seen.sort(key=lambda pool: (pool.driver, pool.name))
        seen.sort(key=_has_binding_conditions)
        self._known[key] = (place, tuple(seen))
        return tuple(seen)

    def _troubled(self, rules: AllocatorRules) -> Iterable[PoolKey]:
        """Pools with counters that are incomplete or invalid even where they have no devices."""
        if not rules.partitionable:
            return ()
        found = self._foreign.get(rules.sorted)
        if found is None:
            keys = [key for key in list(self._shared) if self._is_troubled(key, ordered=rules.sorted)]
            found = self._foreign[rules.sorted] = dict.fromkeys(keys)
        return tuple(found)

    def _is_troubled(self, key: PoolKey, *, ordered: bool = True) -> bool:
        if not any(one.counter_sets for one in self._shared.get(key, ())):
            return False
        try:
            pool = self._pool(key, AllocationNode(""), partitionable=True, ordered=ordered)
        except UnreadableSelector:
            return False  # the pool has devices for several nodes, which raise it on each
        return pool is not None and (pool.incomplete or pool.invalid)

    def _pool(
        self, key: PoolKey, place: AllocationNode, *, partitionable: bool, ordered: bool
    ) -> NodePool | None:
        listed = (*self._on_node.get(place.name, {}).get(key, ()), *self._shared.get(key, ()))
        relevant = _relevant(listed, place, partitionable=partitionable)
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
        if ordered:
            relevant = sorted(relevant, key=lambda one: one.name)
        return self._built(key, relevant, whole, partitionable=partitionable)

    def _built(
        self, key: PoolKey, relevant: list[Slice], whole: list[Slice], *, partitionable: bool
    ) -> NodePool:
        offered = [one for one in relevant if not (partitionable and one.counter_sets)]
        devices = tuple(candidate for one in offered for candidate in self._candidates_of(one))
        names = {candidate.device.name for candidate in devices}
        if len(names) < len(devices):
            return NodePool(*key, invalid=True)
        if not partitionable:
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

    def _candidates_of(self, one: Slice) -> tuple[CandidateDevice, ...]:
        found = self._candidates.get(id(one))
        if found is None:
            found = self._candidates[id(one)] = tuple(CandidateDevice(device, one) for device in one.devices)
        return found


def _by_name(one: Slice) -> str:
    return one.name


def _part(one: Slice) -> tuple[PoolKey, str, bool]:
    """Return a key of the lists that keep it."""
    return one.key, one.node_access.node, bool(one.counter_sets)


def _lacks(counters: Mapping[str, Mapping[str, int]], device: PublishedDevice) -> bool:
    """Return whether a device takes from counters that its pool has not."""
    if not all(name in counters for name in device.counter_sets):
        return True
    return any(counter not in counters[name] for name, counter, _ in device.counters)


def _relevant(listed: Iterable[Slice], place: AllocationNode, *, partitionable: bool) -> list[Slice]:
    """The slices that count on a node, of the highest generation of these."""
    relevant: list[Slice] = []
    for one in listed:
        if not partitionable and (one.per_device is not None or one.counter_sets):
            continue
        if relevant and one.generation < relevant[0].generation:
            continue
        if _is_relevant(one, place):
            if relevant and one.generation > relevant[0].generation:
                relevant = []
            relevant.append(one)
    return relevant


def _is_relevant(one: Slice, place: AllocationNode) -> bool:
    if one.counter_sets:
        return True
    if one.node_access:
        return _includes(one.node_access, one, place)
    if one.per_device:
        return any(_includes(device.node_access, one, place) for device in one.devices)
    return False


def _includes(access: NodeAccess, one: Slice, place: AllocationNode) -> bool:
    if not access.well_formed:
        raise UnreadableSelector(f"the node selector in ResourceSlice {one.name} cannot be read")
    return access.includes(place.name, place.labels)


def is_accessible(candidate: CandidateDevice, place: AllocationNode) -> bool:
    """Return whether a device can be used from a node that its slice is relevant to."""
    if not candidate.slice.per_device:
        return True
    return _includes(candidate.device.node_access, candidate.slice, place)


def _has_binding_conditions(pool: NodePool) -> bool:
    return any(candidate.device.binding_conditions for candidate in pool.devices)
