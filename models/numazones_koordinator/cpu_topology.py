"""The CPUs of a node as Koordinator knows them: (socket, core id), NUMA node and socket of each.

Rules: ``nodenumaresource/cpu_topology``. A core is told by socket and core id alone; sizes of cores,
NUMA nodes and sockets are the machine's averages, rounded down, also where the parts are uneven.

Questions about cores are asked for every set of NUMA nodes of every candidate. On machines whose second
threads all have the same distance from the first ones, shifting a set answers them at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from numazones import cpuset
from numazones.cpuset import CPUSet

_SOCKET_SHIFT = 16


class CPUInfo(NamedTuple):
    """One CPU as the NodeResourceTopology's annotation lists it."""

    id: int
    core: int
    socket: int
    numa: int


@dataclass(frozen=True, slots=True)
class CPUTopology:
    """All CPUs of a node; without any the topology is invalid and nothing is recorded on the node."""

    cpus: tuple[CPUInfo, ...]

    all: CPUSet = field(init=False, repr=False, compare=False)
    per_core: int = field(init=False, repr=False, compare=False)
    per_numa: int = field(init=False, repr=False, compare=False)
    per_socket: int = field(init=False, repr=False, compare=False)
    cores: tuple[tuple[int, CPUSet], ...] = field(init=False, repr=False, compare=False)
    """(core, its CPUs), by core."""
    numas: dict[int, CPUSet] = field(init=False, repr=False, compare=False)
    sockets: dict[int, CPUSet] = field(init=False, repr=False, compare=False)
    core_of: dict[int, int] = field(init=False, repr=False, compare=False)
    """CPU → core (socket and core id in one number)."""
    numa_of: dict[int, int] = field(init=False, repr=False, compare=False)
    socket_of: dict[int, int] = field(init=False, repr=False, compare=False)
    nested: bool = field(init=False, repr=False, compare=False)
    """No core has CPUs on two NUMA nodes or sockets."""
    regular: bool = field(init=False, repr=False, compare=False)
    """Moreover no NUMA node has CPUs on two sockets."""
    first_threads: CPUSet = field(init=False, repr=False, compare=False)
    """The lowest CPU of every core, where second threads have one distance; else 0."""
    distance: int = field(init=False, repr=False, compare=False)
    """From first threads to second ones; 0: cores of one thread."""
    ascending: bool = field(init=False, repr=False, compare=False)
    """Cores are numbered as their first threads are."""

    def __post_init__(self) -> None:
        # Of a CPU listed twice the last entry counts, though all entries count as parts of the machine.
        known = {cpu.id: cpu for cpu in self.cpus}
        cores = cpuset.sets_by_key((_core(cpu), cpu.id) for cpu in known.values())
        listed_cores = {(cpu.socket, cpu.numa, _core(cpu)) for cpu in self.cpus}
        listed_numas = {(cpu.socket, cpu.numa) for cpu in self.cpus}
        listed_sockets = {cpu.socket for cpu in self.cpus}
        numas = cpuset.sets_by_key((cpu.numa, cpu.id) for cpu in known.values())
        nested = len({(_core(cpu), cpu.numa) for cpu in known.values()}) == len(cores)
        in_order = tuple(sorted(cores.items()))
        per_core = len(known) // max(1, len(listed_cores))
        first_threads, distance = _regular([core for _, core in in_order], per_core)
        starts = [core & -core for _, core in in_order]
        derived = {
            "all": cpuset.of(known),
            "per_core": per_core,
            "per_numa": len(known) // max(1, len(listed_numas)),
            "per_socket": len(known) // max(1, len(listed_sockets)),
            "cores": in_order,
            "numas": numas,
            "sockets": cpuset.sets_by_key((cpu.socket, cpu.id) for cpu in known.values()),
            "core_of": {cpu.id: _core(cpu) for cpu in known.values()},
            "numa_of": {cpu.id: cpu.numa for cpu in known.values()},
            "socket_of": {cpu.id: cpu.socket for cpu in known.values()},
            "nested": nested,
            "regular": nested and len({(cpu.numa, cpu.socket) for cpu in known.values()}) == len(numas),
            "first_threads": first_threads,
            "distance": distance,
            "ascending": starts == sorted(starts),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash((self.all, len(self.cores), self.per_numa))

    @property
    def valid(self) -> bool:
        """Return whether there are CPUs."""
        return bool(self.cpus)

    def whole_cores(self, cpus: CPUSet) -> CPUSet:
        """Return those of the CPUs whose whole core is among them."""
        if self.first_threads:
            first = cpus & cpus >> self.distance & self.first_threads
            return first | first << self.distance
        size = self.per_core
        return sum(inside for _, core in self.cores if (inside := core & cpus).bit_count() == size)

    def one_per_core(self, cpus: CPUSet) -> CPUSet:
        """Return the lowest of the CPUs in each core."""
        if self.first_threads:
            first = cpus & self.first_threads
            return first | cpus & ~self.first_threads & ~(first << self.distance)
        return sum(inside & -inside for _, core in self.cores if (inside := core & cpus))

    def cores_touched(self, cpus: CPUSet) -> int:
        """Return the number of cores that the CPUs belong to."""
        if self.first_threads:
            return ((cpus | cpus >> self.distance) & self.first_threads).bit_count()
        return sum(1 for _, core in self.cores if core & cpus)

    def by_core(self, cpus: CPUSet) -> Iterator[CPUSet]:
        """The CPUs core by core, in the order of cores."""
        if not (self.first_threads and self.ascending):
            yield from (inside for _, core in self.cores if (inside := core & cpus))
            return
        starts = (cpus | cpus >> self.distance) & self.first_threads
        while starts:
            start = starts & -starts
            starts ^= start
            yield cpus & (start | start << self.distance)

    def first_by_core(self, cpus: CPUSet, count: int) -> CPUSet:
        """Return so many of the CPUs: core by core, in each the lowest first."""
        taken: CPUSet = 0
        for inside in self.by_core(cpus):
            if count <= inside.bit_count():
                return taken | lowest(inside, count)
            taken |= inside
            count -= inside.bit_count()
        return taken

    def numas_touched(self, cpus: CPUSet) -> frozenset[int]:
        """NUMA nodes that the CPUs belong to; a CPU that the topology does not know counts as of node 0."""
        touched = {numa for numa, inside in self.numas.items() if inside & cpus}
        return frozenset(touched | {0} if cpus & ~self.all else touched)

    def in_numa(self, cpus: CPUSet, numa: int) -> int:
        """Number of the CPUs in a NUMA node; a CPU that the topology does not know counts as of node 0."""
        count = (cpus & self.numas.get(numa, 0)).bit_count()
        return count + (cpus & ~self.all).bit_count() if numa == 0 else count


def lowest(cpus: CPUSet, count: int) -> CPUSet:
    """Return so many of the CPUs, with the lowest ids."""
    rest = cpus
    for _ in range(min(count, cpus.bit_count())):
        rest &= rest - 1
    return cpus ^ rest


def _core(cpu: CPUInfo) -> int:
    return cpu.socket << _SOCKET_SHIFT | cpu.core


def _regular(cores: list[CPUSet], per_core: int) -> tuple[CPUSet, int]:
    """(first threads, distance to the second ones) where all cores are built alike; else 0, 0."""
    distances = {core.bit_length() - (core & -core).bit_length() for core in cores}
    if {core.bit_count() for core in cores} == {per_core} and per_core in {1, 2} and len(distances) == 1:
        return sum(core & -core for core in cores), distances.pop()
    return 0, 0
