"""Picking CPUs out of a set (``pkg/cpuallocator``).

Idle packages first, then idle clusters (hybrid machines), cache groups, idle cores, single threads;
each step may serve a part and leave the rest to the next.
"""

from dataclasses import dataclass, field
from functools import cmp_to_key

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_topology_aware import cache_group_picking, cpu_groups, cpu_priority
from numazones_topology_aware.cpu_groups import CPUGroup
from numazones_topology_aware.cpu_priority import Classes, Priority
from numazones_topology_aware.go_sort import go_sorted
from numazones_topology_aware.topology import Topology


@dataclass(frozen=True, slots=True)
class CPUAllocator:
    """Machine facts that the choice of CPUs needs; results are cached."""

    topology: Topology
    classes: Classes
    clusters: tuple[CPUGroup, ...]
    cache_groups: tuple[CPUGroup, ...]
    cores: tuple[CPUSet, ...]
    """CPUs of each core, by lowest CPU."""
    answers: dict[tuple[CPUSet, int, Priority], CPUSet] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, topology: Topology) -> "CPUAllocator":
        """Return the allocator of a machine."""
        return cls(
            topology,
            cpu_priority.classify(topology),
            cpu_groups.clusters(topology),
            cpu_groups.cache_groups(topology),
            tuple(sorted(set(topology.threads.values()), key=lambda cpus: cpus & -cpus)),
        )

    def take(self, available: CPUSet, count: int, wanted: Priority = Priority.NONE) -> CPUSet | None:
        """Pick CPUs; None if there are not enough, the empty set for a count of 0 or below."""
        size = available.bit_count()
        if size < count:
            return None
        if size == count:
            return available
        if count <= 0:
            return 0
        key = (available, count, wanted)
        if key not in self.answers:
            picking = Picking(self, available, count, wanted)
            self.answers[key] = picking.run()
        return self.answers[key]


class Picking:
    """One choice in progress."""

    def __init__(self, allocator: CPUAllocator, available: CPUSet, count: int, wanted: Priority) -> None:
        self.allocator = allocator
        self.topology = allocator.topology
        self.available = available
        self.missing = count
        self.wanted = wanted
        self.taken: CPUSet = 0

    def run(self) -> CPUSet:
        """Run all steps in order; take nothing unless all CPUs could be taken."""
        self.take_idle_packages()
        if self.missing and self.topology.hybrid:
            self.take_idle_clusters()
        if self.missing:
            self.take_cache_groups()
        return self.finish()

    def finish(self) -> CPUSet:
        """Run the last two steps: cores, threads."""
        if self.missing:
            self.take_idle_cores()
        if self.missing:
            self.take_single_threads()
        return 0 if self.missing else self.taken

    def part_of(self, cpus: CPUSet, count: int) -> CPUSet:
        """Pick cores and threads out of one group."""
        return Picking(self.allocator, cpus, count, self.wanted).finish()

    def take(self, cpus: CPUSet) -> None:
        """Mark CPUs as taken."""
        self.taken |= cpus
        self.available &= ~cpus
        self.missing -= cpus.bit_count()

    def take_cache_groups(self) -> None:
        """Take cache groups, if they can serve everything missing."""
        groups, available = self.allocator.cache_groups, self.available
        self.take(
            cache_group_picking.pick(
                self.topology, groups, available, self.missing, self.wanted, self.part_of
            )
        )

    def take_idle_packages(self) -> None:
        """Take whole packages, or all CPUs of the wanted class in them."""
        idle = []
        for package in self.topology.packages:
            cpus = package.cpus
            if self.wanted is not Priority.NONE:
                cpus &= self.allocator.classes[self.wanted]
            if not cpus & ~self.available:
                idle.append((self.suitability(package.cpus), package.id, cpus))
        for _, _, cpus in sorted(idle):
            if self.missing >= cpus.bit_count():
                self.take(cpus)
            if not self.missing:
                return

    def suitability(self, cpus: CPUSet) -> tuple[int, ...]:
        """Return a key that sorts sets by how well they suit the wanted class, whatever is missing."""
        if self.wanted is Priority.NONE:
            return ()
        counts = [(cpus & members).bit_count() for members in self.allocator.classes.values()]
        position = list(self.allocator.classes).index(self.wanted)
        return (*(-count for count in counts[position:]), *counts[:position])

    def take_idle_clusters(self) -> None:
        """Take whole idle clusters: the tightest one, else those of the tightest die or package."""
        if len(self.allocator.clusters) <= 1:
            return
        low = self.wanted is Priority.LOW
        idle = [
            group
            for group in cpu_groups.picked_kinds(self.topology, self.allocator.clusters, low=low)
            if not group.cpus & ~self.available
        ]
        order = {group: self.tightness(group, idle) for group in idle}
        for group in go_sorted(idle, lambda one, other: order[one] < order[other]):
            if self.missing < group.cpus.bit_count():
                return
            self.take(group.cpus)
            if not self.missing:
                return

    def tightness(self, cluster: CPUGroup, idle: list[CPUGroup]) -> tuple[int, ...]:
        """Return a key that sorts: clusters large enough alone, those of such dies, of such packages."""
        package = [other for other in idle if other.package == cluster.package]
        die = [other for other in package if other.die == cluster.die]
        for tier, together in enumerate(([cluster], die, package)):
            size = sum(other.cpus.bit_count() for other in together)
            if size >= self.missing:
                return tier, size, cluster.package, cluster.die, cluster.id
        return (3,)

    def take_idle_cores(self) -> None:
        """Take whole idle cores that are not larger than what is missing."""
        idle = [cpus for cpus in self.allocator.cores if not cpus & ~self.available]
        if self.wanted is not Priority.NONE:
            idle.sort(key=self.suitability)
        for cpus in idle:
            if self.missing >= cpus.bit_count():
                self.take(cpus)
            if not self.missing:
                return

    def take_single_threads(self) -> None:
        """Take single CPUs: by package (most CPUs taken first), then class, then emptier cores."""
        for cpus in self.ordered_packages():
            free = cpus & self.available
            threads = self.topology.threads
            order = sorted(
                cpuset.ids(free),
                key=lambda cpu: (
                    self.suitability(1 << cpu),
                    (threads[cpu] & free).bit_count(),
                    cpu,
                ),
            )
            for cpu in order[: self.missing]:
                self.take(1 << cpu)
            if not self.missing:
                return

    def ordered_packages(self) -> list[CPUSet]:
        """Return the packages' CPUs in the order in which single threads are taken from them."""
        classes, available, count = self.allocator.classes, self.available, self.missing

        def compare(first: CPUSet, second: CPUSet) -> int:
            if colocated := (second & self.taken).bit_count() - (first & self.taken).bit_count():
                return colocated
            return -cpu_priority.compare(
                classes, first & available, second & available, wanted=self.wanted, count=count
            )

        packages = [package.cpus for package in self.topology.packages]
        return sorted(packages, key=cmp_to_key(compare))
