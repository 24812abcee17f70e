"""The machine as the CPU Manager sees it.

Rules: ``cpumanager/topology``. A core is known by its lowest thread, a core without an uncore
cache takes its socket's id for the cache's, and threads per core, CPUs per socket and CPUs per cache
are averages over the machine, rounded down, not properties of the single core or socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import Machine

Part = tuple[int, CPUSet]
"""Id and CPUs of a NUMA node, socket, core or cache."""


@dataclass(frozen=True, eq=False)
class CPUTopology:
    """Tables of a machine's CPUs, each made when it is first used."""

    machine: Machine

    @cached_property
    def all_cpus(self) -> CPUSet:
        """All online CPUs."""
        return self.machine.all_cpus

    @cached_property
    def numa_cpus(self) -> dict[int, CPUSet]:
        """NUMA id → CPUs, of the NUMA nodes that have CPUs."""
        return {numa: cpus for numa, cpus in self.machine.cpus_of_numa.items() if cpus}

    @cached_property
    def numas(self) -> tuple[Part, ...]:
        """The same by id."""
        return tuple(sorted(self.numa_cpus.items()))

    @cached_property
    def numa_mask(self) -> int:
        """NUMA nodes that have CPUs."""
        return cpuset.of(self.numa_cpus)

    @cached_property
    def sockets(self) -> dict[int, CPUSet]:
        """Socket id → CPUs, by id."""
        return dict(sorted(self.machine.cpus_of_socket.items()))

    @cached_property
    def socket_parts(self) -> tuple[Part, ...]:
        """The same by id."""
        return tuple(self.sockets.items())

    @cached_property
    def cores(self) -> dict[int, CPUSet]:
        """Lowest thread of a core → CPUs, by id."""
        return {_lowest(cpus): cpus for cpus in self.machine.cpus_of_core.values()}

    @cached_property
    def uncore_caches(self) -> dict[int, CPUSet]:
        """Uncore cache id → CPUs; a core without one counts as in the cache of its socket's id."""
        caches: dict[int, CPUSet] = {}
        for cpu in self.machine.cpus:
            cache = cpu.socket if cpu.uncore_cache is None else cpu.uncore_cache
            caches[cache] = caches.get(cache, 0) | 1 << cpu.id
        return caches

    @cached_property
    def sockets_of_numa(self) -> dict[int, tuple[Part, ...]]:
        """NUMA id → the sockets that share CPUs with it."""
        return _within(self.numa_cpus, self.sockets)

    @cached_property
    def numas_of_socket(self) -> dict[int, tuple[Part, ...]]:
        """Socket id → the NUMA nodes that share CPUs with it."""
        return _within(self.sockets, self.numa_cpus)

    @cached_property
    def uncore_caches_of_numa(self) -> dict[int, tuple[Part, ...]]:
        """NUMA id → the uncore caches that share CPUs with it."""
        return _within(self.numa_cpus, self.uncore_caches)

    @cached_property
    def cores_of_numa(self) -> dict[int, tuple[Part, ...]]:
        """NUMA id → its cores, by id."""
        return _cores_by_part((numa, cpus) for (numa, _, _), cpus in self.machine.cpus_of_core.items())

    @cached_property
    def cores_of_socket(self) -> dict[int, tuple[Part, ...]]:
        """Socket id → its cores, by id."""
        return _cores_by_part((socket, cpus) for (_, socket, _), cpus in self.machine.cpus_of_core.items())

    @cached_property
    def cpus_per_core(self) -> int:
        """Threads of a core."""
        return self.machine.cpu_count // max(1, len(self.cores))

    @cached_property
    def cpus_per_socket(self) -> int:
        """CPUs of a socket."""
        return self.machine.cpu_count // max(1, len(self.sockets))

    @cached_property
    def cpus_per_uncore_cache(self) -> int:
        """CPUs of an uncore cache."""
        return self.machine.cpu_count // max(1, len(self.uncore_caches))

    @cached_property
    def numa_first(self) -> bool:
        """Return whether NUMA nodes are at least as large as sockets, and so come first in packing."""
        return len(self.sockets) >= len(self.numa_cpus)

    @cached_property
    def capacities(self) -> tuple[int, ...]:
        """CPUs per NUMA node, largest first."""
        return tuple(sorted((cpus.bit_count() for cpus in self.numa_cpus.values()), reverse=True))

    @cached_property
    def smallest_numa(self) -> int:
        """CPUs of the smallest NUMA node that has any."""
        return self.capacities[-1]

    @cached_property
    def smallest_socket(self) -> int:
        """CPUs of the smallest socket."""
        return min(cpus.bit_count() for cpus in self.sockets.values())

    @cached_property
    def smallest_core(self) -> int:
        """CPUs of the smallest core."""
        return min(cpus.bit_count() for cpus in self.cores.values())

    @cached_property
    def _sockets_by_numa(self) -> tuple[tuple[int, int], ...]:
        """(NUMA id, mask of the positions of the sockets that share CPUs with it)."""
        sockets = self.sockets.values()
        return tuple(
            (numa, cpuset.of(position for position, members in enumerate(sockets) if members & cpus))
            for numa, cpus in self.numas
        )

    def fewest_numas(self, cpus: int) -> int:
        """Return the least number of NUMA nodes with so many CPUs, busy or not, or all of them."""
        total = 0
        for count, capacity in enumerate(self.capacities, start=1):
            total += capacity
            if total >= cpus:
                return count
        return len(self.capacities)

    def cpus_in(self, numa_mask: int) -> CPUSet:
        """Return the CPUs of the NUMA nodes of a mask."""
        cpus = 0
        for numa, members in self.numas:
            if numa_mask >> numa & 1:
                cpus |= members
        return cpus

    def numas_of(self, cpus: CPUSet) -> int:
        """Return the mask of the NUMA nodes that CPUs belong to."""
        return cpuset.of([numa for numa, members in self.numas if cpus & members])

    def socket_count(self, numa_mask: int) -> int:
        """Return how many sockets the NUMA nodes of a mask share CPUs with."""
        touched = 0
        for numa, sockets in self._sockets_by_numa:
            if numa_mask >> numa & 1:
                touched |= sockets
        return touched.bit_count()


def _within(outer: dict[int, CPUSet], inner: dict[int, CPUSet]) -> dict[int, tuple[Part, ...]]:
    """Return, per outer part, the inner parts that share CPUs with it, each with all its CPUs."""
    parts = sorted(inner.items())
    return {key: tuple([part for part in parts if part[1] & cpus]) for key, cpus in outer.items()}


def _cores_by_part(cores: Iterable[tuple[int, CPUSet]]) -> dict[int, tuple[Part, ...]]:
    """Return the cores of each part, in the order given."""
    groups: dict[int, list[Part]] = {}
    for key, cpus in cores:
        groups.setdefault(key, []).append((_lowest(cpus), cpus))
    return {key: tuple(parts) for key, parts in groups.items()}


def _lowest(cpus: CPUSet) -> int:
    return (cpus & -cpus).bit_length() - 1
