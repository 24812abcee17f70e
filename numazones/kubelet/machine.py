"""The hardware of a node as the kubelet sees it: CPUs, cores, uncore caches, sockets, NUMA nodes.

The facts are those that cAdvisor reads from sysfs and hands to the kubelet (``MachineInfo``). NUMA
ids may have gaps, NUMA nodes may lack CPUs or memory, and core ids may be unique only within a
socket: a physical core is identified by (numa, socket, core). Masks are integers, see ``cpuset``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError


class InvalidMachine(NumazonesError):
    """A description of a machine contradicts itself; the message names the CPU or NUMA node."""


class CPU(NamedTuple):
    """One online logical CPU.

    >>> CPU(id=9, core=1, socket=0, die=0, numa=0).core
    1
    """

    id: int
    core: int
    """Core id as the system reports it; the physical core is (numa, socket, core)."""
    socket: int
    die: int
    numa: int
    uncore_cache: int | None = None
    """Id of the uncore cache that the kubelet sees for the core, or None where it sees none."""


class NUMANode(NamedTuple):
    """One NUMA node and its memory.

    >>> NUMANode(id=0, memory=64 << 30, hugepages=((2048, 512),), distances=(10, 21)).memory >> 30
    64
    """

    id: int
    memory: int
    """Total memory in bytes, preallocated hugepages included."""
    hugepages: tuple[tuple[int, int], ...] = ()
    """(page size in KiB, number of preallocated pages), by size."""
    distances: tuple[int, ...] | None = None
    """Distance to every NUMA node in the order of ``Machine.numa_nodes``; None where unknown."""
    kubelet_id: int | None = None
    """The kubelet's id, where it is another: on a kernel without NUMA nodes, a socket's, such as -1."""
    offline: CPUSet = 0
    """CPUs that are present but offline."""


NOWHERE = cpuset.MAX_ID
"""Stands for every id of a NUMA node that no machine can have, such as the -1 of virtual machines."""
_LARGEST_MASKABLE = 63


@dataclass(frozen=True)
class Machine:
    """CPUs (ascending) and NUMA nodes (ascending) of one node.

    Raises:
        InvalidMachine: ids appear twice, a CPU names a NUMA node that is not there, or distances
            do not cover the NUMA nodes.

    >>> made = Machine((CPU(0, 0, 0, 0, 0), CPU(1, 1, 0, 0, 0)), (NUMANode(0, 8 << 30),))
    >>> cpuset.format(made.all_cpus)
    '0-1'
    """

    cpus: tuple[CPU, ...]
    numa_nodes: tuple[NUMANode, ...]
    counted_cpus: int | None = None
    """How many CPUs the kubelet counts where that includes others than ``cpus``, such as offline ones."""

    def __post_init__(self) -> None:
        order = sorted(range(len(self.numa_nodes)), key=lambda index: self.numa_nodes[index].id)
        nodes = tuple([_in_order_of_ids(self.numa_nodes[index], order) for index in order])
        object.__setattr__(self, "cpus", tuple(sorted(self.cpus, key=attrgetter("id"))))
        object.__setattr__(self, "numa_nodes", nodes)
        self._check()

    @cached_property
    def by_cpu(self) -> dict[int, CPU]:
        """CPU id → CPU."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def by_numa(self) -> dict[int, NUMANode]:
        """NUMA id → NUMA node."""
        return {node.id: node for node in self.numa_nodes}

    @cached_property
    def all_cpus(self) -> CPUSet:
        """All online CPUs."""
        return cpuset.union(self.cpus_of_numa.values())

    @cached_property
    def memory(self) -> int:
        """Bytes of memory of all NUMA nodes."""
        return sum(node.memory for node in self.numa_nodes)

    @cached_property
    def alike(self) -> bool:
        """Whether all cores have the same number of CPUs, and so have all sockets."""
        parts = self.cpus_of_core.values(), self.cpus_of_socket.values()
        return all(len({cpus.bit_count() for cpus in found}) == 1 for found in parts)

    @cached_property
    def numa_mask(self) -> int:
        """All NUMA node ids as a mask."""
        return cpuset.of(self.by_numa)

    @cached_property
    def cpu_count(self) -> int:
        """How many CPUs the kubelet counts."""
        return len(self.cpus) if self.counted_cpus is None else self.counted_cpus

    @cached_property
    def kubelet_ids(self) -> dict[int, int]:
        """The kubelet's ids of the NUMA nodes → NUMA ids."""
        return {node.id if node.kubelet_id is None else node.kubelet_id: node.id for node in self.numa_nodes}

    @cached_property
    def unmaskable(self) -> tuple[int, ...]:
        """The kubelet's ids of NUMA nodes that its sets, of 64 bits, cannot hold."""
        return tuple(numa for numa in self.kubelet_ids if not 0 <= numa <= _LARGEST_MASKABLE)

    @cached_property
    def cpus_of_numa(self) -> dict[int, CPUSet]:
        """NUMA id → its CPUs, for every NUMA node, CPU-less ones included."""
        return dict.fromkeys(self.by_numa, 0) | cpuset.sets_by_key((cpu.numa, cpu.id) for cpu in self.cpus)

    @cached_property
    def memory_of_numa(self) -> dict[int, int]:
        """NUMA id → bytes of memory."""
        return {node.id: node.memory for node in self.numa_nodes}

    @cached_property
    def offline_of_numa(self) -> dict[int, CPUSet]:
        """NUMA id → CPUs that are present but offline, where there are any."""
        return {node.id: node.offline for node in self.numa_nodes if node.offline}

    @cached_property
    def distances(self) -> dict[tuple[int, int], int]:
        """(NUMA id, NUMA id) → distance, where it is known."""
        return {
            (node.id, other.id): distance
            for node in self.numa_nodes
            for other, distance in zip(self.numa_nodes, node.distances or (), strict=False)
        }

    @cached_property
    def cpus_of_socket(self) -> dict[int, CPUSet]:
        """Socket id → its CPUs."""
        return cpuset.sets_by_key((cpu.socket, cpu.id) for cpu in self.cpus)

    @cached_property
    def cpus_of_core(self) -> dict[tuple[int, int, int], CPUSet]:
        """(numa, socket, core) → its CPUs."""
        return cpuset.sets_by_key(((cpu.numa, cpu.socket, cpu.core), cpu.id) for cpu in self.cpus)

    @cached_property
    def cpus_of_uncore_cache(self) -> dict[int, CPUSet]:
        """Uncore cache id → its CPUs, for the CPUs that have one."""
        return cpuset.sets_by_key(
            (cpu.uncore_cache, cpu.id) for cpu in self.cpus if cpu.uncore_cache is not None
        )

    def __hash__(self) -> int:
        return hash((self.all_cpus, self.numa_mask, tuple(node.memory for node in self.numa_nodes)))

    def _check(self) -> None:
        if self.counted_cpus is not None and self.counted_cpus < len(self.cpus):
            raise InvalidMachine(f"the machine lists {len(self.cpus)} CPUs but counts {self.counted_cpus}")
        if any(item.id < 0 for items in (self.cpus[:1], self.numa_nodes[:1]) for item in items):
            raise InvalidMachine("ids of CPUs and NUMA nodes must not be negative")
        if self.all_cpus.bit_count() != len(self.cpus):
            raise InvalidMachine("a CPU id appears twice in the machine; list each logical CPU once")
        if not len(self.by_numa) == len(self.kubelet_ids) == len(self.numa_nodes):
            raise InvalidMachine("a NUMA id appears twice in the machine; list each NUMA node once")
        for numa, cpus in self.cpus_of_numa.items():
            if numa not in self.by_numa:
                cpu = next(cpuset.ids(cpus))
                raise InvalidMachine(
                    f"CPU {cpu} belongs to NUMA node {numa}, which the machine does not list"
                )
        for node in self.numa_nodes:
            if node.distances is not None and len(node.distances) != len(self.numa_nodes):
                raise InvalidMachine(
                    f"NUMA node {node.id}: {len(node.distances)} distances, {len(self.numa_nodes)} NUMA nodes"
                )
            if node.memory < 0 or any(pages < 0 for _, pages in node.hugepages):
                raise InvalidMachine(f"NUMA node {node.id} has a negative amount of memory or hugepages")


def mask_of(numas: Iterable[int]) -> int:
    """Return NUMA nodes as a mask; ids that no machine can have become ``NOWHERE``.

    >>> mask_of([0, 2, -1]) == 0b101 | 1 << NOWHERE
    True
    """
    return cpuset.of(numa if 0 <= numa < NOWHERE else NOWHERE for numa in numas)


def name_numas(mask: int) -> str:
    """``NUMA node 1``, ``NUMA nodes 0-1``; ``an unknown NUMA node`` for ids that no machine has."""
    if mask >> NOWHERE & 1:
        known = mask & ~(1 << NOWHERE)
        return f"{name_numas(known)} and an unknown one" if known else "an unknown NUMA node"
    return ("NUMA node " if mask.bit_count() == 1 else "NUMA nodes ") + cpuset.format(mask)


def numas_of(cpus_of_numa: Mapping[int, CPUSet], cpus: CPUSet) -> CPUSet:
    """Return the mask of the NUMA nodes that some of these CPUs are on."""
    return cpuset.of(numa for numa, members in cpus_of_numa.items() if members & cpus)


def _in_order_of_ids(node: NUMANode, order: list[int]) -> NUMANode:
    """Return the node with distances (and hugepages) in ascending order, as the machine keeps them."""
    distances = node.distances
    if distances is not None and len(distances) == len(order):
        distances = tuple(distances[index] for index in order)
    return node._replace(hugepages=tuple(sorted(node.hugepages)), distances=distances)
