"""The cache-group step of picking CPUs.

Idle groups come first, ordered by how tightly their die (package) fits; partly used ones serve what is
left. Two of the released code's rules never fire or compare an id with a count; that is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from numazones.cpuset import CPUSet
from numazones_topology_aware import cpu_groups
from numazones_topology_aware.cpu_groups import CPUGroup
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.go_sort import go_sorted
from numazones_topology_aware.topology import Topology

_FEWEST = 2

PartOf = Callable[[CPUSet, int], CPUSet]
"""Picks so many CPUs out of a group."""


def pick(
    topology: Topology,
    groups: tuple[CPUGroup, ...],
    available: CPUSet,
    missing: int,
    wanted: Priority,
    part_of: PartOf,
) -> CPUSet:
    """Return the missing CPUs by cache groups; none at all unless the step can serve everything missing."""
    if len(groups) <= 1 or missing < _FEWEST:
        return 0
    offer = _Offer.of(topology, groups, available, missing, wanted)
    if offer.chosen_package is None or offer.free_of(offer.chosen_package) < missing:
        return 0
    chosen = _from_idle(offer, missing, part_of)
    left = missing - chosen.bit_count()
    if left:
        rest = _from_used(offer, left, part_of)
        if rest.bit_count() < left:
            return 0
        chosen |= rest
    return chosen


@dataclass(slots=True)
class _Offer:
    """Free CPUs by group, with sums per die and package."""

    full: int
    """What is missing in whole groups (of the size of the first group)."""
    part: int
    free: dict[int, CPUSet]
    """Group id → free CPUs."""
    idle: list[CPUGroup] = field(default_factory=list)
    used: list[CPUGroup] = field(default_factory=list)
    idle_sums: dict[tuple[int, ...], int] = field(default_factory=dict)
    """(package,) or (package, die) → free CPUs in idle groups."""
    used_sums: dict[tuple[int, ...], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topology: Topology,
        groups: tuple[CPUGroup, ...],
        available: CPUSet,
        missing: int,
        wanted: Priority,
    ) -> "_Offer":
        part = missing % groups[0].cpus.bit_count()
        offer = cls(missing - part, part, {})
        for group in cpu_groups.picked_kinds(topology, groups, low=wanted is Priority.LOW):
            free = group.cpus & available
            if not free:
                continue
            offer.free[group.id] = free
            idle = free == group.cpus
            (offer.idle if idle else offer.used).append(group)
            sums = offer.idle_sums if idle else offer.used_sums
            for place in ((group.package,), (group.package, group.die)):
                sums[place] = sums.get(place, 0) + free.bit_count()
        offer.idle = go_sorted(offer.idle, lambda one, other: offer.compare_idle(one, other) < 0)
        offer.used = go_sorted(offer.used, lambda one, other: offer.compare_used(one, other) < 0)
        return offer

    @property
    def chosen_package(self) -> int | None:
        """Package of the best group."""
        return next((group.package for group in (*self.idle, *self.used)), None)

    def free_of(self, package: int) -> int:
        """Return the free CPUs in the groups of a package."""
        return self.idle_sums.get((package,), 0) + self.used_sums.get((package,), 0)

    def compare_idle(self, one: CPUGroup, other: CPUGroup) -> int:
        """Compare idle groups: negative if ``one`` comes first."""
        for first, second in (
            ((one.package, one.die), (other.package, other.die)),
            ((one.package,), (other.package,)),
        ):
            verdict = self.compare_places(first, second)
            if verdict is not None:
                return verdict or _by_place(one, other)
        return one.id - other.id

    def compare_places(self, first: tuple[int, ...], second: tuple[int, ...]) -> int | None:
        """Compare how tightly dies (packages) fit; 0: equally, None: neither fits."""
        full, part = self.full, self.part
        whole, whole_other = self.idle_sums.get(first, 0), self.idle_sums.get(second, 0)
        rest, rest_other = self.used_sums.get(first, 0), self.used_sums.get(second, 0)
        fits, fits_other = whole >= full and rest >= part, whole_other >= full and rest_other >= part
        if fits and fits_other:
            return whole - whole_other or rest - rest_other
        if fits != fits_other:
            return -1 if fits else 1
        return None

    def compare_used(self, one: CPUGroup, other: CPUGroup) -> int:
        """Compare partly used groups: negative if ``one`` comes first, 0 where the code leaves it open."""
        if self.full > 0 and self.idle:
            return self.compare_by_mistaken_ids(one, other)
        total = self.full + self.part
        first = self.used_sums.get((one.package, one.die), 0)
        second = self.used_sums.get((other.package, other.die), 0)
        if (first >= total) != (second >= total):
            return -1 if first >= total else 1
        if first < total:
            return 0
        return first - second or self.larger(one, other) or _by_place(one, other)

    def compare_by_mistaken_ids(self, one: CPUGroup, other: CPUGroup) -> int:
        """Compare package and die ids with *numbers of CPUs* of the best idle group's, as the code does."""
        best = self.idle[0]
        package = self.idle_sums.get((best.package,), 0)
        die = self.idle_sums.get((best.package, best.die), 0)
        if (one.package == package) != (other.package == package):
            return -1 if one.package == package else 1
        if one.package != package:
            return 0
        if (one.die == die) != (other.die == die):
            return -1 if one.die == die else 1
        if one.die != die:
            return 0
        return self.larger(one, other) or one.id - other.id

    def larger(self, one: CPUGroup, other: CPUGroup) -> int:
        """Compare by free CPUs: negative if ``one`` has more."""
        return self.free[other.id].bit_count() - self.free[one.id].bit_count()


def _by_place(one: CPUGroup, other: CPUGroup) -> int:
    return one.package - other.package or one.die - other.die or one.id - other.id


def _from_idle(offer: _Offer, missing: int, part_of: PartOf) -> CPUSet:
    """Pick from idle groups in order, of any package; the first that is too large is split."""
    chosen: CPUSet = 0
    for group in offer.idle:
        left = missing - chosen.bit_count()
        if not left:
            break
        whole = offer.free[group.id]
        chosen |= whole if whole.bit_count() <= left else part_of(whole, left)
    return chosen


def _from_used(offer: _Offer, left: int, part_of: PartOf) -> CPUSet:
    """Pick from partly used groups: one of the exact size, else in order with the last one split."""
    leading = []
    for group in offer.used:
        if group.package != offer.chosen_package:
            break
        leading.append(offer.free[group.id])
    exact = next((cpus for cpus in leading if cpus.bit_count() == left), None)
    if exact is not None:
        return exact
    chosen: CPUSet = 0
    for cpus in leading:
        missing = left - chosen.bit_count()
        if missing < cpus.bit_count():
            return chosen | part_of(cpus, missing)
        chosen |= cpus
        if missing == cpus.bit_count():
            break
    return chosen
