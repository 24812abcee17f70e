"""Choose the CPUs of a bound pod: ``nodenumaresource/cpu_accumulator``.

First one NUMA node that has enough, then one socket, then the largest sockets whole, then what is
left, core by core or CPU by CPU. "First" is, by the node's strategy, the fullest or the emptiest.
A pod with an exclusive policy avoids cores or NUMA nodes used by pods of the same policy ("clash"),
where it can.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_koordinator.annotations import CPUBindPolicy, CPUExclusivePolicy
from numazones_koordinator.cpu_topology import CPUTopology, lowest

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"


class NoCPUs(Exception):
    """There are not enough CPUs; the message is the scheduler's."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Order in which CPUs are chosen."""

    bind_policy: str
    exclusive_policy: str
    most_allocated: bool
    """Fill the fullest NUMA node that has enough, not the emptiest."""
    clashing: CPUSet
    """CPUs used by pods of the same exclusive policy."""


def take_cpus(topology: CPUTopology, available: CPUSet, need: int, preference: Preference) -> CPUSet:
    """Choose CPUs.

    Raises:
        NoCPUs: fewer are available than needed.
    """
    if need < 1:
        return 0
    if need > available.bit_count():
        raise NoCPUs(NOT_ENOUGH_CPUS)
    return _Accumulator(topology, available, need, preference).run()


class _Accumulator:
    """One choice in progress: CPUs still free, taken, and the number still needed."""

    __slots__ = ("by_core", "by_numa", "free", "need", "preference", "sign", "taken", "topology")

    def __init__(self, topology: CPUTopology, available: CPUSet, need: int, preference: Preference) -> None:
        self.topology = topology
        self.free = available
        self.need = need
        self.preference = preference
        self.taken: CPUSet = 0
        self.by_core = preference.exclusive_policy == CPUExclusivePolicy.PCPU_LEVEL
        self.by_numa = preference.exclusive_policy == CPUExclusivePolicy.NUMA_NODE_LEVEL
        self.sign = 1 if preference.most_allocated else -1

    def run(self) -> CPUSet:
        full = self.preference.bind_policy == CPUBindPolicy.FULL_PCPUS
        if full or self.topology.per_core == 1:
            self._take_whole_cores()
        if self.need > 0 and not full:
            self._take_spread()
        if self.need > 0:
            self._take_rest()
        return self.taken

    def _take(self, cpus: CPUSet) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    # Whole cores: policy FullPCPUs, or machines without hyperthreading.

    def _take_whole_cores(self) -> None:
        topology = self.topology
        if self.need <= topology.per_numa and any(
            self._take_from_first(self._cores_of_numas(avoid=avoid)) for avoid in (True, False)
        ):
            return
        if self.need <= topology.per_socket and self._take_from_first(self._cores_of_sockets()):
            return
        self._take_whole_sockets()

    def _take_from_first(self, parts: Iterable[CPUSet]) -> bool:
        """Take all that is needed, core by core, from the first part that has enough."""
        for cpus in parts:
            if cpus.bit_count() >= self.need:
                self._take(self.topology.first_by_core(cpus, self.need))
                return True
        return False

    def _take_whole_sockets(self) -> None:
        """Sockets that fit whole, the largest first; then cores of the others, the smallest first.

        A defect of the scheduler is kept: after the last core that fits, every further socket gives one more.
        """
        aside = []
        for cpus in sorted(self._cores_of_sockets(), key=int.bit_count, reverse=True):
            if self.need < cpus.bit_count():
                aside.append(cpus)
                continue
            self._take(cpus)
            if self.need < 1:
                return
        size = self.topology.per_core
        if self.need < size:
            return
        for cpus in sorted(aside, key=int.bit_count):
            for core in self.topology.by_core(cpus):
                self._take(core)
                if self.need < size:
                    break
            if self.need < 1:
                return

    def _cores_of_numas(self, *, avoid: bool) -> Iterator[CPUSet]:
        """Free whole cores by NUMA node, in the order of the strategy."""
        topology, sign = self.topology, self.sign
        pool = self.free & ~self._clash(cores=False, numas=avoid)
        grouped = self._group(topology.whole_cores(pool), topology.numas, topology.numa_of)

        def order(numa: int) -> tuple[int, int, int]:
            socket = topology.sockets[topology.socket_of[_first(grouped[numa])]]
            return sign * grouped[numa].bit_count(), sign * (socket & pool).bit_count(), numa

        for numa in sorted(grouped, key=order):
            yield grouped[numa]

    def _cores_of_sockets(self) -> Iterator[CPUSet]:
        """Free whole cores by socket, in the order of the strategy."""
        topology = self.topology
        grouped = self._group(topology.whole_cores(self.free), topology.sockets, topology.socket_of)
        for socket in sorted(grouped, key=lambda socket: (self.sign * grouped[socket].bit_count(), socket)):
            yield grouped[socket]

    def _group(
        self, cpus: CPUSet, parts: Mapping[int, CPUSet], part_of: Mapping[int, int]
    ) -> dict[int, CPUSet]:
        """Cores by NUMA node or socket; a core that has CPUs on two goes with the lowest."""
        if self.topology.nested:
            return {part: inside for part, whole in parts.items() if (inside := whole & cpus)}
        grouped: dict[int, CPUSet] = {}
        for core in self.topology.by_core(cpus):
            part = part_of[_first(core)]
            grouped[part] = grouped.get(part, 0) | core
        return grouped

    # One NUMA node or socket, CPUs of different cores first.

    def _take_spread(self) -> None:
        topology = self.topology
        if self.need <= topology.per_numa and any(self._take_in_numa(avoid=avoid) for avoid in (True, False)):
            return
        if self.need <= topology.per_socket:
            any(self._take_in_socket(avoid=avoid) for avoid in (True, False))

    def _take_in_numa(self, *, avoid: bool) -> bool:
        topology, sign = self.topology, self.sign
        pool = self.free & ~self._clash(cores=avoid, numas=avoid)
        grouped = {numa: inside for numa, cpus in topology.numas.items() if (inside := cpus & pool)}

        def order(numa: int) -> tuple[int, int, int]:
            socket = topology.sockets[topology.socket_of[_first(grouped[numa])]]
            return sign * grouped[numa].bit_count(), sign * (socket & pool).bit_count(), numa

        for numa in sorted(grouped, key=order):
            cpus = topology.one_per_core(grouped[numa]) if avoid else grouped[numa]
            if cpus.bit_count() >= self.need:
                self._take(self._first_spread(cpus))
                return True
        return False

    def _take_in_socket(self, *, avoid: bool) -> bool:
        topology = self.topology
        pool = self.free & ~self._clash(cores=avoid, numas=False)
        grouped = {
            socket: topology.one_per_core(inside) if avoid else inside
            for socket, cpus in topology.sockets.items()
            if (inside := cpus & pool)
        }
        for socket in sorted(grouped, key=lambda socket: (self.sign * grouped[socket].bit_count(), socket)):
            if grouped[socket].bit_count() >= self.need:
                self._take(self._first_spread(grouped[socket]))
                return True
        return False

    def _first_spread(self, cpus: CPUSet) -> CPUSet:
        """All that is needed of some CPUs: one of every core, then the next of every core, and so on."""
        if cpus.bit_count() <= self.topology.per_core:
            return lowest(cpus, self.need)
        chosen: CPUSet = 0
        need = self.need
        while need > 0:
            turn = self.topology.one_per_core(cpus & ~chosen)
            chosen |= lowest(turn, need)
            need -= turn.bit_count()
        return chosen

    # The rest, CPU by CPU, close to what is taken.

    def _take_rest(self) -> None:
        for avoid in (True, False):
            for cpu in self._spread(self._nearest_cpus(avoid=avoid)):
                self._take(1 << cpu)
                if self.need < 1:
                    return

    def _nearest_cpus(self, *, avoid: bool) -> list[int]:
        topology = self.topology
        pool = self.free & ~self._clash(cores=avoid, numas=avoid)
        sign = self.sign
        keyed = []
        for core, cpus in topology.cores:
            inside = cpus & pool
            if inside:
                highest = inside.bit_length() - 1
                socket = topology.socket_of[highest]
                in_socket = topology.sockets[socket]
                key = (
                    -(in_socket & self.taken).bit_count(),
                    sign * (in_socket & pool).bit_count(),
                    sign * (topology.numas[topology.numa_of[highest]] & pool).bit_count(),
                    inside.bit_count(),
                    socket,
                    core,
                )
                keyed.append((key, inside))
        keyed.sort()
        return [cpu for _, inside in keyed for cpu in cpuset.ids(inside)]

    def _clash(self, *, cores: bool, numas: bool) -> CPUSet:
        """CPUs to avoid: beside those of the same exclusive policy, the pod's own among them."""
        topology = self.topology
        used = self.preference.clashing | self.taken
        clash: CPUSet = 0
        if cores and self.by_core and used:
            for core, cpus in topology.cores:
                if cpus & used or (core == 0 and used & ~topology.all):
                    clash |= cpus
        if numas and self.by_numa and used:
            for numa in topology.numas_touched(used):
                clash |= topology.numas.get(numa, 0)
        return clash

    def _spread(self, cpus: list[int]) -> list[int]:
        """One CPU of every core, then the next of every core, and so on."""
        if len(cpus) <= self.topology.per_core:
            return cpus
        rounds: list[list[int]] = []
        seen: dict[int, int] = {}
        for cpu in cpus:
            core = self.topology.core_of[cpu]
            turn = seen.get(core, 0)
            seen[core] = turn + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(cpu)
        return [cpu for turn in rounds for cpu in turn]


def _first(cpus: CPUSet) -> int:
    """The lowest id."""
    return (cpus & -cpus).bit_length() - 1
