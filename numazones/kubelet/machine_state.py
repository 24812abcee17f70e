"""The Memory Manager's machine state: a table per NUMA node and type, and the blocks given to containers.

Types of ``memorymanager/state`` of kubelet 1.36, by their names there; the state file holds them, and a
snapshot of a node is restored from them. NUMA node lists are masks, amounts are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Block(NamedTuple):
    """Memory of one type given to a container."""

    affinity: int
    """Mask of the NUMA nodes it may come from."""
    type: str
    """memory or hugepages-<size>."""
    size: int
    """Bytes, over all its NUMA nodes together."""


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One type of memory on one NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    """Given to containers."""
    free: int


@dataclass(frozen=True, slots=True)
class NUMANodeState:
    """The memory of one NUMA node."""

    assignments: int
    """Number of blocks that count on the node."""
    memory: Mapping[str, MemoryTable]
    """Type → amounts."""
    cells: int
    """Mask of the NUMA nodes bound together with this one, itself included."""


MachineState: TypeAlias = Mapping[int, NUMANodeState]
"""NUMA id → state."""
