"""Taking CPUs as close together as possible: whole NUMA nodes, sockets, caches and cores first.

Rules: ``cpumanager/cpu_assignment`` of kubelet 1.36. Sorting puts parts with fewer free CPUs first,
so that used ones fill up. Quirks are kept: parts are claimed by their nominal CPUs and sizes, so that
more may be taken than is free where single threads are offline or sockets are unequal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_topology import CPUTopology, Part
from numazones.kubelet.rejection import Rejection

_Filled = tuple[int, int, CPUSet]
"""Number of free CPUs, id and CPUs of a part; sorts in the order in which parts fill up."""


@dataclass(frozen=True, slots=True)
class PackingStrategy:
    """Order in which CPUs are chosen, as the policy options say."""

    spread: bool = False
    """distribute-cpus-across-cores"""
    distributed: bool = False
    """distribute-cpus-across-numa"""
    group: int = 1
    """CPUs that stay together in distribution: threads per core with full-pcpus-only."""
    align_uncore_caches: bool = False
    """prefer-align-cpus-by-uncorecache"""
    rounds_up_uncore_cache_rest: bool = True
    """The rest of a request may take a part of a core from the cache that serves it."""
    prefers_one_socket: bool = False
    """Distribution prefers NUMA nodes of one socket: align-by-socket, since 1.37."""
    keeps_width: bool = False
    """Distribution takes no fewer NUMA nodes than the Topology Manager chose, since 1.38."""
    counts_whole_groups: bool = False
    """Distribution counts what is left over in groups, and therefore ends, since 1.38."""
    copies_combinations: bool = False
    """Distribution uses the combination it chose, since 1.38; before, it may use another one."""
    takes_cores_in_turn: bool = False
    """Spreading goes from core to core, since 1.38; before, by the CPUs' numbers."""


class CPUSelection:
    """CPUs taken so far, still free and still needed, during one choice."""

    __slots__ = ("free", "need", "taken", "topology")

    def __init__(self, topology: CPUTopology, available: CPUSet, count: int) -> None:
        self.topology = topology
        self.free = available & topology.all_cpus
        self.need = count
        self.taken: CPUSet = 0

    def take(self, cpus: CPUSet) -> None:
        """Take CPUs, free or not."""
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    def sorted(self, parts: Sequence[Part], within: CPUSet, free: CPUSet) -> list[_Filled]:
        """Return parts with free CPUs inside ``within``: those with fewest free CPUs first, then by id."""
        inside = free & within
        return sorted([((cpus & free).bit_count(), part, cpus) for part, cpus in parts if cpus & inside])

    def numas(self) -> list[_Filled]:
        """Return NUMA nodes with free CPUs, in the order in which they fill up."""
        topology, free = self.topology, self.free
        if topology.numa_first:
            return self.sorted(topology.numas, free, free)
        return [
            numa
            for _, socket, cpus in self.sockets()
            for numa in self.sorted(topology.numas_of_socket[socket], cpus, free)
        ]

    def sockets(self) -> list[_Filled]:
        """Return sockets with free CPUs, in the order in which they fill up."""
        topology, free = self.topology, self.free
        if not topology.numa_first:
            return self.sorted(topology.socket_parts, free, free)
        return [
            socket
            for _, numa, cpus in self.numas()
            for socket in self.sorted(topology.sockets_of_numa[numa], cpus, free)
        ]

    def cores(self, *, whole: bool = False, uncore_cache: CPUSet | None = None) -> Iterator[CPUSet]:
        """Yield cores with free CPUs in the order in which they are taken, which nothing else decides.

        Sockets or NUMA nodes come as they fill up, and of each the cores with fewest free CPUs first.

        Args:
            whole: yield only those of which the nominal number of CPUs is free.
            uncore_cache: yield only those of this cache, by id, however much of them is free.
        """
        topology, free = self.topology, self.free
        if uncore_cache is not None:
            yield from [cpus for cpus in topology.cores.values() if cpus & uncore_cache & free]
            return
        if topology.numa_first:
            parents, cores = self.sockets(), topology.cores_of_socket
        else:
            parents, cores = self.numas(), topology.cores_of_numa
        size = topology.cpus_per_core
        for _, parent, _ in parents:
            if whole:
                for _, cpus in cores[parent]:
                    if (cpus & free).bit_count() == size:
                        yield cpus
            else:
                yield from [cpus for _, _, cpus in self.sorted(cores[parent], free, free)]

    def uncore_caches(self) -> list[_Filled]:
        """Return uncore caches with free CPUs, in the order in which they fill up."""
        topology, free = self.topology, self.free
        return [
            cache
            for _, numa, cpus in self.numas()
            for cache in self.sorted(topology.uncore_caches_of_numa[numa], cpus, free)
        ]

    def take_whole(self, parts: Iterable[_Filled], size: int | None = None) -> None:
        """Take the parts that are free and not larger than the need.

        A part is free if all its CPUs are or, where a nominal ``size`` is given, so many of them.
        """
        for free, _, cpus in parts:
            nominal = cpus.bit_count()
            if free == (nominal if size is None else size) and self.need >= nominal:
                self.take(cpus)

    def take_numas(self) -> None:
        """Take whole NUMA nodes."""
        if self.need >= self.topology.smallest_numa:
            self.take_whole(self.numas())

    def take_sockets(self) -> None:
        """Take whole sockets; which are free is judged by the nominal size."""
        if self.need >= self.topology.smallest_socket:
            self.take_whole(self.sockets(), self.topology.cpus_per_socket)

    def take_uncore_caches(self, *, rounds_up: bool) -> None:
        """Take whole uncore caches, then a part of one cache if it can serve all that is left."""
        topology = self.topology
        for _, _, cpus in self.uncore_caches():
            if self.need >= topology.cpus_per_uncore_cache:
                self.take_whole(self.uncore_caches())
            if self.need < 1:
                return
            self._take_from_uncore_cache(cpus, rounds_up=rounds_up)
            if self.need < 1:
                return

    def _take_from_uncore_cache(self, cache: CPUSet, *, rounds_up: bool) -> None:
        topology = self.topology
        wanted = self.need // topology.cpus_per_core
        if rounds_up and self.need % topology.cpus_per_core:
            wanted += 1
        candidates = 0
        for cpus in islice(self.cores(uncore_cache=cache), wanted):
            candidates |= cpus & self.free
        odd = rounds_up and self.need % 2 != 0 and topology.cpus_per_core > 1
        if odd and candidates.bit_count() > self.need:
            candidates ^= 1 << candidates.bit_length() - 1
        if candidates.bit_count() == self.need:
            self.take(candidates)

    def take_cores(self) -> None:
        """Take whole cores; which are free is judged by the nominal size."""
        smallest = self.topology.smallest_core
        if self.need < smallest:
            return
        for cpus in self.cores(whole=True):
            if self.need >= cpus.bit_count():
                self.take(cpus)
                if self.need < smallest:
                    return

    def take_single(self, strategy: PackingStrategy) -> None:
        """Take CPU by CPU: in the order of the cores, or across a socket's cores."""
        for cpu in self._singles(strategy):
            self.take(1 << cpu)
            if self.need < 1:
                return

    def _singles(self, strategy: PackingStrategy) -> Iterator[int]:
        topology, free = self.topology, self.free
        if not strategy.spread:
            parts: Iterable[CPUSet] = self.cores()
        elif not strategy.takes_cores_in_turn:
            parts = (cpus for _, _, cpus in self.sockets())
        else:
            for _, socket, _ in self.sockets():
                filled = self.sorted(topology.cores_of_socket[socket], free, free)
                yield from in_turn([cpus & free for _, _, cpus in filled])
            return
        for part in parts:
            yield from cpuset.ids(part & free)


def take_packed(topology: CPUTopology, strategy: PackingStrategy, available: CPUSet, count: int) -> CPUSet:
    """Choose ``count`` of the available CPUs.

    Raises:
        Rejection: there are not enough.
    """
    if count < 1:
        return 0
    claim = CPUSelection(topology, available, count)
    if count > claim.free.bit_count():
        raise not_enough(count, available)
    if topology.numa_first:
        claim.take_numas()
        claim.take_sockets()
    else:
        claim.take_sockets()
        claim.take_numas()
    if strategy.align_uncore_caches and claim.need > 0:
        claim.take_uncore_caches(rounds_up=strategy.rounds_up_uncore_cache_rest)
    if not strategy.spread:
        claim.take_cores()
    if claim.need > 0:
        claim.take_single(strategy)
    if claim.need > 0:
        raise Rejection("failed to allocate cpus")
    return claim.taken


def in_turn(parts: Iterable[CPUSet]) -> Iterator[int]:
    """Yield the lowest CPU of each part, then the second of each, and so on."""
    for row in zip_longest(*map(cpuset.ids, parts)):
        yield from (cpu for cpu in row if cpu is not None)


def not_enough(count: int, available: CPUSet) -> Rejection:
    """Return the rejection of a request for more CPUs than are available."""
    return Rejection(
        f"not enough cpus available to satisfy request: requested={count}, available={available.bit_count()}"
    )
