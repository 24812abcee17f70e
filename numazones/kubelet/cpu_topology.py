"""The machine as the CPU Manager sees it.

Rules: ``cpumanager/topology``. A core is known by its lowest thread, a core without a known L3
cache takes its socket's id for the cache's, and threads per core, CPUs per socket and CPUs per cache
are averages over the machine, rounded down, not properties of the single core or socket.
"""

from dataclasses import dataclass
from typing import Self

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.machine import Machine

Part = tuple[int, CPUSet]
"""Id and CPUs of a NUMA node, socket, core or cache."""


@dataclass(frozen=True, slots=True, eq=False)
class CPUTopology:
    """Tables about CPUs, made once per machine."""

    machine: Machine
    all_cpus: CPUSet
    numa_mask: int
    """NUMA nodes that have CPUs."""
    numas: tuple[Part, ...]
    sockets: dict[int, CPUSet]
    cores: dict[int, CPUSet]
    uncores: dict[int, CPUSet]
    numa_cpus: dict[int, CPUSet]
    sockets_of_numa: dict[int, tuple[Part, ...]]
    numas_of_socket: dict[int, tuple[Part, ...]]
    cores_of_numa: dict[int, tuple[Part, ...]]
    cores_of_socket: dict[int, tuple[Part, ...]]
    uncores_of_numa: dict[int, tuple[Part, ...]]
    cpus_per_core: int
    cpus_per_socket: int
    cpus_per_uncore: int
    numa_first: bool
    """NUMA nodes are at least as large as sockets, so they come first in packing."""
    capacities: tuple[int, ...]
    """CPUs per NUMA node, largest first."""
    smallest_numa: int
    smallest_socket: int
    smallest_core: int

    @classmethod
    def of(cls, machine: Machine) -> Self:
        """The tables of a machine."""
        numa_cpus = {numa: cpus for numa, cpus in machine.cpus_of_numa.items() if cpus}
        sockets = dict(sorted(machine.cpus_of_socket.items()))
        cores = {min(cpuset.ids(cpus)): cpus for cpus in machine.cpus_of_core.values()}
        cores = dict(sorted(cores.items()))
        uncores: dict[int, CPUSet] = {}
        for cpu in machine.cpus:
            uncore = cpu.socket if cpu.uncore is None else cpu.uncore
            uncores[uncore] = uncores.get(uncore, 0) | 1 << cpu.id
        count = len(machine.cpus)
        return cls(
            machine=machine,
            all_cpus=machine.all_cpus,
            numa_mask=cpuset.of(numa_cpus),
            numas=tuple(sorted(numa_cpus.items())),
            numa_cpus=numa_cpus,
            sockets=sockets,
            cores=cores,
            uncores=uncores,
            sockets_of_numa=_within(numa_cpus, sockets),
            numas_of_socket=_within(sockets, numa_cpus),
            cores_of_numa=_within(numa_cpus, cores),
            cores_of_socket=_within(sockets, cores),
            uncores_of_numa=_within(numa_cpus, uncores),
            cpus_per_core=count // len(cores) if cores else 0,
            cpus_per_socket=count // len(sockets) if sockets else 0,
            cpus_per_uncore=count // len(uncores) if uncores else 0,
            numa_first=len(sockets) >= len(numa_cpus),
            capacities=tuple(sorted((cpus.bit_count() for cpus in numa_cpus.values()), reverse=True)),
            smallest_numa=_smallest(numa_cpus),
            smallest_socket=_smallest(sockets),
            smallest_core=_smallest(cores),
        )

    def fewest_numas(self, cpus: int) -> int:
        """The least number of NUMA nodes that hold so many CPUs, busy or not; all of them if none do."""
        total = 0
        for count, capacity in enumerate(self.capacities, start=1):
            total += capacity
            if total >= cpus:
                return count
        return len(self.capacities)

    def cpus_in(self, numa_mask: int) -> CPUSet:
        """CPUs of the NUMA nodes of a mask."""
        return cpuset.union(cpus for numa, cpus in self.numas if numa_mask >> numa & 1)

    def numas_of(self, cpus: CPUSet) -> int:
        """Mask of the NUMA nodes that CPUs belong to."""
        return cpuset.of(numa for numa, members in self.numas if cpus & members)


def _within(outer: dict[int, CPUSet], inner: dict[int, CPUSet]) -> dict[int, tuple[Part, ...]]:
    """Per outer part the inner parts that share CPUs with it, each with all its CPUs."""
    return {
        key: tuple((part, members) for part, members in sorted(inner.items()) if members & cpus)
        for key, cpus in outer.items()
    }


def _smallest(parts: dict[int, CPUSet]) -> int:
    return min((cpus.bit_count() for cpus in parts.values()), default=0)
