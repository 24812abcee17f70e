"""Who holds what of a node's CPUs, memory and devices, told alike for every placement model.

A picture needs less than a decision: the CPUs with their cores, caches and sockets, what each zone has and
has given away, and the pods that hold something exclusively. Each model keeps books of its own, and says
with these values what is in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from numazones.cpuset import CPUSet
from numazones.machine import CPU, Machine


@dataclass(frozen=True, slots=True)
class ZoneUse:
    """One zone's amounts, each as (held, allocatable)."""

    numa: int
    cpus: tuple[int, int]
    memory: tuple[tuple[str, int, int], ...] = ()
    """(memory or hugepages-<size>, held, allocatable) in bytes, where somebody keeps books of it."""
    devices: tuple[tuple[str, int, int], ...] = ()
    """(resource, held, healthy)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that holds something exclusively."""

    name: str
    """NAMESPACE/NAME, or its UID where nobody knows the name."""
    uid: str = ""
    """As the kubelet knows it."""
    cpus: CPUSet = 0
    memory: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """(memory or hugepages-<size>, bytes, NUMA nodes)."""
    devices: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = ()
    """(resource, ids, NUMA nodes)."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A node as it is drawn."""

    cpus: tuple[CPU, ...]
    zones: tuple[ZoneUse, ...]
    holders: tuple[Holder, ...]
    """Ordered by their lowest CPU, those without CPUs last."""
    reserved: CPUSet = 0
    """CPUs that no pod gets exclusively."""
    exclusive: bool = True
    """Whether CPUs are given to containers exclusively at all."""
    settings: tuple[tuple[str, str], ...] = ()
    """What decides about placement, as (name, value)."""
    total_memory: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → bytes that the hardware has, where that is known."""


def memory_of(machine: Machine) -> dict[int, int]:
    """Return NUMA id → bytes that the hardware has."""
    return {node.id: node.memory for node in machine.numa_nodes}


def in_order(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Return those with CPUs first, by the lowest; who holds nothing at all is left out."""
    holding = [holder for holder in holders if holder.cpus or holder.memory or holder.devices]
    return tuple(sorted(holding, key=lambda item: (not item.cpus, item.cpus & -item.cpus, item.name)))
