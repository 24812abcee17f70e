"""Taking CPUs as close together as possible: whole NUMA nodes, sockets, caches and cores first.

Rules: ``cpumanager/cpu_assignment`` of kubelet 1.36. Sorting puts parts with fewer free CPUs first,
so that used ones fill up. Quirks are kept: parts are claimed by their nominal CPUs and sizes, so that
more may be taken than is free where single threads are offline or sockets are unequal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.cpu_topology import CPUTopology, Part
from numazones.kubelet.rejection import Rejection


@dataclass(frozen=True, slots=True)
class Strategy:
    """How CPUs are chosen, as the policy options say."""

    spread: bool = False
    """distribute-cpus-across-cores"""
    distributed: bool = False
    """distribute-cpus-across-numa"""
    group: int = 1
    """CPUs that stay together in distribution: threads per core with full-pcpus-only."""
    align_uncore: bool = False
    """prefer-align-cpus-by-uncorecache"""
    rounds_up_uncore_rest: bool = True
    """The rest of a request may take a part of a core from the cache that serves it."""


class Claim:
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

    def sorted(self, parts: Sequence[Part], within: CPUSet) -> list[Part]:
        """Parts with free CPUs inside ``within``: those with fewest free CPUs first, then by id."""
        free = self.free
        inside = free & within
        keyed = [((cpus & free).bit_count(), part, cpus) for part, cpus in parts if cpus & inside]
        keyed.sort()
        return [(part, cpus) for _, part, cpus in keyed]

    def numas(self) -> list[Part]:
        """NUMA nodes with free CPUs, in the order in which they fill up."""
        topology = self.topology
        if topology.numa_first:
            return self.sorted(topology.numas, self.free)
        return [
            numa
            for socket, cpus in self.sockets()
            for numa in self.sorted(topology.numas_of_socket[socket], cpus)
        ]

    def sockets(self) -> list[Part]:
        """Sockets with free CPUs, in the order in which they fill up."""
        topology = self.topology
        if not topology.numa_first:
            return self.sorted(tuple(topology.sockets.items()), self.free)
        return [
            socket
            for numa, cpus in self.numas()
            for socket in self.sorted(topology.sockets_of_numa[numa], cpus)
        ]

    def cores(self) -> list[Part]:
        """Cores with free CPUs, in the order in which they fill up."""
        topology = self.topology
        if topology.numa_first:
            parents, cores = self.sockets(), topology.cores_of_socket
        else:
            parents, cores = self.numas(), topology.cores_of_numa
        return [core for parent, cpus in parents for core in self.sorted(cores[parent], cpus)]

    def uncores(self) -> list[Part]:
        """L3 caches with free CPUs, in the order in which they fill up."""
        topology = self.topology
        return [
            uncore
            for numa, cpus in self.numas()
            for uncore in self.sorted(topology.uncores_of_numa[numa], cpus)
        ]

    def take_whole(self, parts: Sequence[Part], size: int | None = None) -> None:
        """Take the parts that are free and not larger than the need.

        A part is free if all its CPUs are or, where a nominal ``size`` is given, so many of them.
        """
        free = self.free
        whole = [
            cpus
            for _, cpus in parts
            if (cpus & free).bit_count() == (cpus.bit_count() if size is None else size)
        ]
        for cpus in whole:
            if self.need >= cpus.bit_count():
                self.take(cpus)

    def take_numas(self) -> None:
        """Whole NUMA nodes."""
        if self.need >= self.topology.smallest_numa:
            self.take_whole(self.numas())

    def take_sockets(self) -> None:
        """Whole sockets; free by the nominal size."""
        if self.need >= self.topology.smallest_socket:
            self.take_whole(self.sockets(), self.topology.cpus_per_socket)

    def take_uncores(self, *, rounds_up: bool) -> None:
        """Whole L3 caches first, then a part of one cache if it can serve all that is left."""
        topology = self.topology
        for _, cpus in self.uncores():
            if self.need >= topology.cpus_per_uncore:
                self.take_whole(self.uncores())
            if self.need < 1:
                return
            self._take_from_uncore(cpus, rounds_up=rounds_up)
            if self.need < 1:
                return

    def _take_from_uncore(self, uncore: CPUSet, *, rounds_up: bool) -> None:
        topology = self.topology
        wanted = self.need // topology.cpus_per_core
        if rounds_up and self.need % topology.cpus_per_core:
            wanted += 1
        inside = uncore & self.free
        cores = [cpus for cpus in topology.cores.values() if cpus & inside][:wanted]
        candidates = 0
        for cpus in cores:
            candidates |= cpus & self.free
        odd = rounds_up and self.need % 2 != 0 and topology.cpus_per_core > 1
        if odd and candidates.bit_count() > self.need:
            candidates ^= 1 << candidates.bit_length() - 1
        if candidates.bit_count() == self.need:
            self.take(candidates)

    def take_cores(self) -> None:
        """Whole cores; free by the nominal size."""
        if self.need >= self.topology.smallest_core:
            self.take_whole(self.cores(), self.topology.cpus_per_core)

    def take_single(self, *, spread: bool) -> None:
        """CPU by CPU: in the order of the cores, or across a socket's cores."""
        parts, free = self.sockets() if spread else self.cores(), self.free
        for _, cpus in parts:
            for cpu in cpuset.ids(cpus & free):
                self.take(1 << cpu)
                if self.need < 1:
                    return


def take_packed(topology: CPUTopology, strategy: Strategy, available: CPUSet, count: int) -> CPUSet:
    """Choose ``count`` of the available CPUs.

    Raises:
        Rejection: there are not enough.
    """
    claim = Claim(topology, available, count)
    if count < 1:
        return 0
    if count > claim.free.bit_count():
        raise not_enough(count, available)
    steps: list[Callable[[], None]] = [claim.take_numas, claim.take_sockets]
    if not topology.numa_first:
        steps.reverse()
    if strategy.align_uncore:
        steps.append(lambda: claim.take_uncores(rounds_up=strategy.rounds_up_uncore_rest))
    if not strategy.spread:
        steps.append(claim.take_cores)
    for step in steps:
        step()
        if claim.need < 1:
            return claim.taken
    claim.take_single(spread=strategy.spread)
    if claim.need > 0:
        raise Rejection("failed to allocate cpus")
    return claim.taken


def not_enough(count: int, available: CPUSet) -> Rejection:
    """More CPUs are wanted than there are."""
    return Rejection(
        f"not enough cpus available to satisfy request: requested={count}, available={available.bit_count()}"
    )
