"""Devices and amounts that claims hold already, as the scheduler's plugin counts them.

Rules: ``pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go`` of Kubernetes 1.36. Access for
administration holds nothing. It does not matter whether a pod uses the claim.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from numazones.dra.claims import Allocation, DeviceClaim
from numazones.dra.devices import Key


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that are taken, and what is taken of shared ones."""

    devices: AbstractSet[Key] = frozenset()
    """Those that nobody else can have."""
    shared: AbstractSet[Key] = frozenset()
    """Those that have been allocated at least once in a part."""
    capacity: Mapping[Key, Mapping[str, int]] = field(default_factory=dict, hash=False)
    """Shared device → capacity → amount taken, in nano units."""

    @classmethod
    def of_claims(cls, claims: Iterable[DeviceClaim], *, shares: bool = True) -> "AllocatedDevices":
        """Return what claims hold together.

        ``shares``: whether devices can be shared (DRAConsumableCapacity).
        """
        devices: set[Key] = set()
        shared: set[Key] = set()
        capacity: dict[Key, dict[str, int]] = {}
        for claim in claims:
            for one in claim.allocations:
                if one.admin:
                    continue
                if not (shares and one.share):
                    devices.add(one.device)
                    continue
                shared.add(one.device)
                if one.consumes:
                    amounts = capacity.setdefault(one.device, {})
                    for name, amount in one.consumed.items():
                        amounts[name] = amounts.get(name, 0) + amount.nanos
        return cls(frozenset(devices), frozenset(shared), capacity)

    def with_more(self, more: "AllocatedDevices") -> "AllocatedDevices":
        """Return the sum of both; ``self``, which may be a whole cluster's, is not copied."""
        capacity: dict[Key, Mapping[str, int]] = {}
        for key, amounts in more.capacity.items():
            before = self.capacity.get(key, {})
            names = dict.fromkeys((*before, *amounts))
            capacity[key] = {name: before.get(name, 0) + amounts.get(name, 0) for name in names}
        return AllocatedDevices(
            _with(self.devices, more.devices),
            _with(self.shared, more.shared),
            _overlaid(self.capacity, capacity) if capacity else self.capacity,
        )

    def without(self, devices: Iterable[Key]) -> "AllocatedDevices":
        """Return the same with devices given back; ``self`` is not copied."""
        return AllocatedDevices(_without(self.devices, frozenset(devices)), self.shared, self.capacity)

    def holds(self, device: Key) -> bool:
        """Return whether any claim holds a device or a part of it."""
        return device in self.devices or device in self.shared or device in self.capacity


class AllocatedTable:
    """Allocations of a cluster that change claim by claim."""

    def __init__(self, *, shares: bool = True) -> None:
        """``shares``: whether devices can be shared (DRAConsumableCapacity)."""
        self._shares = shares
        self._allocations: dict[Key, tuple[Allocation, ...]] = {}
        devices: set[Key] = set()
        shared: set[Key] = set()
        capacity: dict[Key, Mapping[str, int]] = {}
        self._devices, self._shared, self._capacity = devices, shared, capacity
        self.current = AllocatedDevices(devices, shared, capacity)
        """Sum of all claims; it follows each change."""

    def take(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        """Take in a claim as it was and as it is; None: it is not there."""
        before = () if old is None else old.allocations
        after = () if new is None else new.allocations
        for one in before:
            left = tuple(other for other in self._allocations.get(one.device, ()) if other.claim != one.claim)
            self._allocations[one.device] = left
        for one in after:
            self._allocations[one.device] = (*self._allocations.get(one.device, ()), one)
        for key in {one.device for one in (*before, *after)}:
            self._count(key)

    def _count(self, key: Key) -> None:
        """Count again what is taken of a device."""
        held = self._allocations[key]
        if not held:
            del self._allocations[key]
        found = AllocatedDevices.of_claims((DeviceClaim("", "", allocations=held),), shares=self._shares)
        for kept, now in ((self._devices, found.devices), (self._shared, found.shared)):
            if key in now:
                kept.add(key)
            else:
                kept.discard(key)
        if key in found.capacity:
            self._capacity[key] = found.capacity[key]
        else:
            self._capacity.pop(key, None)


class _Layers(AbstractSet[Key]):
    """A large set that is not copied, with a few elements more and a few less."""

    def __init__(
        self, base: AbstractSet[Key], more: frozenset[Key] = frozenset(), less: frozenset[Key] = frozenset()
    ) -> None:
        self.base, self.more, self.less = base, more, less

    def __contains__(self, key: object) -> bool:
        return key in self.more or (key in self.base and key not in self.less)

    def __iter__(self) -> Iterator[Key]:
        yield from self.more
        yield from (key for key in self.base if key not in self.more and key not in self.less)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self.more) or bool(self.base)


def _layers(base: AbstractSet[Key]) -> _Layers:
    return base if isinstance(base, _Layers) else _Layers(base)


def _with(base: AbstractSet[Key], more: AbstractSet[Key]) -> AbstractSet[Key]:
    if not more:
        return base
    known = _layers(base)
    return _Layers(known.base, known.more | more, known.less - more)


def _without(base: AbstractSet[Key], less: frozenset[Key]) -> AbstractSet[Key]:
    known = _layers(base)
    return _Layers(known.base, known.more - less, known.less | less)


def _overlaid(
    base: Mapping[Key, Mapping[str, int]], changed: dict[Key, Mapping[str, int]]
) -> Mapping[Key, Mapping[str, int]]:
    """Return a mapping with some values changed, at most two layers deep."""
    if isinstance(base, ChainMap):
        return ChainMap({**base.maps[0], **changed}, *base.maps[1:])
    return ChainMap(changed, dict(base) if not isinstance(base, dict) else base)
