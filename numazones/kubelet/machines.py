"""Builds machines of the shapes that are common in clusters, from a short description.

Linux numbers CPUs in one of two common ways, and both are here, since the CPU manager's packing depends on
it: *contiguous* (NUMA node by NUMA node, as on most servers) and *interleaved* (ids alternate between NUMA
nodes, as on some two-socket machines). In both, the second threads of all cores follow the first threads.
"""

from dataclasses import dataclass

from numazones.kubelet.machine import CPU, Machine, NUMANode

_GIB = 1 << 30
_LOCAL, _SAME_SOCKET, _REMOTE = 10, 12, 21


@dataclass(frozen=True, slots=True)
class MachineShape:
    """The shape of a machine: how many of each part; all NUMA nodes are alike."""

    sockets: int = 2
    numa_per_socket: int = 1
    cores_per_numa: int = 16
    threads_per_core: int = 2
    memory_per_numa: int = 64 * _GIB
    """Bytes, hugepages included."""
    hugepages_per_numa: tuple[tuple[int, int], ...] = ((2048, 0), (1048576, 0))
    """(page size in KiB, pages)."""
    cores_per_uncore_cache: int | None = None
    """Cores that share an uncore cache; None: one cache per NUMA node."""
    interleaved: bool = False
    """CPU ids alternate between NUMA nodes."""


def build(shape: MachineShape) -> Machine:
    """Return a machine of the shape; ids start at 0 and have no gaps."""
    numas = shape.sockets * shape.numa_per_socket
    cores = numas * shape.cores_per_numa
    cpus: list[CPU] = []
    for numa in range(numas):
        for index in range(shape.cores_per_numa):
            first = index * numas + numa if shape.interleaved else numa * shape.cores_per_numa + index
            cpus.extend(
                CPU(
                    id=first + thread * cores,
                    core=numa % shape.numa_per_socket * shape.cores_per_numa + index,
                    socket=numa // shape.numa_per_socket,
                    die=0,
                    numa=numa,
                    uncore_cache=_cache(shape, numa=numa, core=index),
                )
                for thread in range(shape.threads_per_core)
            )
    return Machine(
        cpus=tuple(cpus), numa_nodes=tuple(_numa_node(shape, numa, numas) for numa in range(numas))
    )


def _cache(shape: MachineShape, *, numa: int, core: int) -> int | None:
    size = shape.cores_per_uncore_cache
    if size is None or size >= shape.cores_per_numa:
        return None
    return numa * -(-shape.cores_per_numa // size) + core // size


def _numa_node(shape: MachineShape, numa: int, numas: int) -> NUMANode:
    socket = numa // shape.numa_per_socket
    distances = tuple(
        _LOCAL if other == numa else _SAME_SOCKET if other // shape.numa_per_socket == socket else _REMOTE
        for other in range(numas)
    )
    return NUMANode(numa, shape.memory_per_numa, shape.hugepages_per_numa, distances)
