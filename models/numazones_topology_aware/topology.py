"""Topology that the plugin derives from the hardware: packages, dies, clusters, memory nodes.

Types of memory are guessed (``pkg/sysfs``): a NUMA node with CPUs is DRAM; one without is HBM if it is
smaller than the average DRAM node and PMEM otherwise, so that CXL memory shows up as either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.errors import UnmodelledFeature
from numazones_topology_aware.hardware import Cache, Hardware
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM
from numazones_topology_aware.rejection import StartFailed

_L3 = 3
# Up to so many NUMA nodes there is but one way to go.
_FEW = 2


@dataclass(frozen=True, slots=True)
class Die:
    """One die of a package."""

    id: int
    cpus: CPUSet
    numas: tuple[int, ...]
    clusters: Mapping[int, CPUSet]
    """Cluster id → CPUs, as the kernel groups them."""
    logical_clusters: Mapping[int, CPUSet]
    """Clusters that CPUs are picked by: those of one core each count together as one."""


@dataclass(frozen=True, slots=True)
class Package:
    """One socket."""

    id: int
    cpus: CPUSet
    numas: tuple[int, ...]
    dies: tuple[Die, ...]
    l3: tuple[tuple[int, CPUSet], ...]
    """(id, CPUs) of its L3 caches."""


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """One NUMA node as a place of memory."""

    id: int
    cpus: CPUSet
    capacity: int
    """Bytes."""
    kind: int
    """DRAM, PMEM or HBM."""
    normal: bool
    """Has memory in a normal zone, which the kernel can use for itself."""
    distances: Mapping[int, int]
    """NUMA id → distance."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The machine as the policy sees it."""

    hardware: Hardware
    online: CPUSet
    offline: CPUSet
    isolated: CPUSet
    performance: CPUSet
    """P-cores; on a machine that is not hybrid, all online CPUs."""
    efficient: CPUSet
    packages: tuple[Package, ...]
    package_of: Mapping[int, Package]
    """CPU → package."""
    die_of: Mapping[int, Die]
    threads: Mapping[int, CPUSet]
    """CPU → online CPUs of its core, itself included."""
    caches_of: Mapping[int, tuple[Cache, ...]]
    """CPU → its caches by level."""
    memory_nodes: Mapping[int, MemoryNode]
    """NUMA id → node, ascending."""

    @classmethod
    def discover(cls, hardware: Hardware) -> "Topology":
        """Derive the topology.

        Raises:
            StartFailed: codes ``memory-type`` and ``distance-to-self``.
            UnmodelledFeature: the distances between more than two NUMA nodes are not known.
        """
        machine = hardware.machine
        packages = tuple(_packages(hardware))
        return cls(
            hardware=hardware,
            online=machine.all_cpus,
            offline=hardware.present & ~machine.all_cpus,
            isolated=hardware.isolated,
            performance=machine.all_cpus & ~hardware.efficient,
            efficient=hardware.efficient & machine.all_cpus,
            packages=packages,
            package_of={cpu: package for package in packages for cpu in cpuset.ids(package.cpus)},
            die_of={cpu: die for package in packages for die in package.dies for cpu in cpuset.ids(die.cpus)},
            threads={cpu.id: machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core] for cpu in machine.cpus},
            caches_of=_caches_of(hardware),
            memory_nodes=_memory_nodes(hardware),
        )

    @property
    def hybrid(self) -> bool:
        """Return whether there are both P-cores and E-cores."""
        return bool(self.efficient and self.performance)

    @property
    def memory_capacity(self) -> int:
        """Bytes of all NUMA nodes."""
        return sum(node.capacity for node in self.memory_nodes.values())

    def cpus_of_numas(self, numas: Iterable[int]) -> CPUSet:
        """Online CPUs of NUMA nodes; ids that do not exist have none."""
        cpus = 0
        for numa in numas:
            cpus |= self.hardware.machine.cpus_of_numa.get(numa, 0)
        return cpus

    def shared_cache(self, cpu: int, level: int) -> CPUSet:
        """CPUs that share a CPU's caches of a level; its core's CPUs where no caches are known."""
        caches = self.caches_of[cpu]
        if not caches:
            return self.threads[cpu]
        cpus = 0
        for cache in caches:
            if cache.level == level:
                cpus |= cache.cpus
        return cpus

    def one_thread_per_core(self, cpus: CPUSet) -> CPUSet:
        """The lowest CPU of every core in a set."""
        kept = 0
        left = cpus
        while left:
            lowest = left & -left
            kept |= lowest
            left &= ~(lowest | self.threads[lowest.bit_length() - 1])
        return kept


def _packages(hardware: Hardware) -> Iterable[Package]:
    machine = hardware.machine
    for number, cpus in sorted(machine.cpus_of_socket.items()):
        members = [machine.by_cpu[cpu] for cpu in cpuset.ids(cpus)]
        dies = sorted({cpu.die for cpu in members})
        yield Package(
            id=number,
            cpus=cpus,
            numas=tuple(sorted({cpu.numa for cpu in members})),
            dies=tuple(
                _die(hardware, die, cpuset.of(cpu.id for cpu in members if cpu.die == die)) for die in dies
            ),
            l3=_l3_caches(hardware, cpus),
        )


def _die(hardware: Hardware, number: int, cpus: CPUSet) -> Die:
    clusters: dict[int, CPUSet] = {}
    for cpu in cpuset.ids(cpus):
        details = hardware.details.get(cpu)
        cluster = details.cluster if details is not None else 0
        clusters[cluster] = clusters.get(cluster, 0) | 1 << cpu
    numas = {hardware.machine.by_cpu[cpu].numa for cpu in cpuset.ids(cpus)}
    return Die(number, cpus, tuple(sorted(numas)), clusters, _logical_clusters(hardware, clusters))


def _logical_clusters(hardware: Hardware, clusters: Mapping[int, CPUSet]) -> dict[int, CPUSet]:
    logical: dict[int, CPUSet] = {}
    cores = set(hardware.machine.cpus_of_core.values())
    single = {number: cpus for number, cpus in clusters.items() if cpus in cores}
    logical.update((number, cpus) for number, cpus in clusters.items() if number not in single)
    if single:
        merged = 0
        for cpus in single.values():
            merged |= cpus
        named_after = min(single, key=lambda number: single[number] & -single[number])
        logical[named_after] = merged
    return dict(sorted(logical.items()))


def _l3_caches(hardware: Hardware, cpus: CPUSet) -> tuple[tuple[int, CPUSet], ...]:
    found = {cache.id: cache.cpus for cache in hardware.caches if cache.level == _L3 and cache.cpus & cpus}
    return tuple(sorted(found.items()))


def _caches_of(hardware: Hardware) -> dict[int, tuple[Cache, ...]]:
    caches: dict[int, list[Cache]] = {cpu.id: [] for cpu in hardware.machine.cpus}
    for cache in sorted(hardware.caches, key=lambda cache: cache.level):
        for cpu in cpuset.ids(cache.cpus & hardware.machine.all_cpus):
            caches[cpu].append(cache)
    return {cpu: tuple(found) for cpu, found in caches.items()}


def _memory_nodes(hardware: Hardware) -> dict[int, MemoryNode]:
    machine = hardware.machine
    average = _average_dram(hardware)
    distances = _distances(hardware)
    nodes = {}
    for node in machine.numa_nodes:
        cpus = machine.cpus_of_numa[node.id]
        if not cpus and not node.memory:
            raise StartFailed(f"NUMA node {node.id} has neither CPUs nor memory", code="memory-type")
        kind = DRAM if cpus else (HBM if node.memory < average else PMEM)
        normal = not hardware.movable >> node.id & 1 and node.memory > 0
        nodes[node.id] = MemoryNode(node.id, cpus, node.memory, kind, normal, distances[node.id])
    for node_id, others in distances.items():
        nearest = min(others.values())
        if [other for other, distance in others.items() if distance == nearest] != [node_id]:
            raise StartFailed(
                f"another NUMA node is at least as near to NUMA node {node_id} as that node is to itself",
                code="distance-to-self",
            )
    return nodes


def _average_dram(hardware: Hardware) -> int:
    """Average size of a DRAM node, in bytes; 0 where no memory lies apart from CPUs."""
    machine = hardware.machine
    with_cpus = [node for node in machine.numa_nodes if machine.cpus_of_numa[node.id]]
    if len(with_cpus) == len(machine.numa_nodes):
        return 0
    empty = sum(node.memory == 0 for node in machine.numa_nodes)
    total = sum(node.memory for node in with_cpus)
    if not any(node.memory and not machine.cpus_of_numa[node.id] for node in machine.numa_nodes):
        return 0
    if len(with_cpus) == empty or not total // (len(with_cpus) - empty):
        raise StartFailed(
            "some NUMA nodes have memory but no CPUs, and no DRAM exists to compare with", code="memory-type"
        )
    return total // (len(with_cpus) - empty)


def _distances(hardware: Hardware) -> dict[int, dict[int, int]]:
    """NUMA id → id → distance; pairs that differ by direction are averaged."""
    nodes = hardware.machine.numa_nodes
    if len(nodes) > _FEW and any(node.distances is None for node in nodes):
        raise UnmodelledFeature(
            "the distances between the machine's NUMA nodes are not known, but the policy needs them "
            "to widen memory zones; give NUMANode(distances=…)"
        )
    table = {}
    for node in nodes:
        known = node.distances or tuple(10 if other.id == node.id else 20 for other in nodes)
        table[node.id] = {other.id: known[index] for index, other in enumerate(nodes)}
    for first, second in combinations(table, 2):
        average = (table[first][second] + table[second][first]) // 2
        table[first][second] = table[second][first] = average
    return table
