"""Holders of a node's CPUs, memory and devices, in one form for every placement model.

A picture needs less than a decision: the CPUs with their cores, caches and sockets, what each zone has and
has given away, and the pods that hold something exclusively. Each model keeps books of its own, and says
with these values what is in them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple

from numazones import cpuset
from numazones.apimachinery.answer import Named
from numazones.apimachinery.quantity import format_bytes
from numazones.apimachinery.resources import MEMORY
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import CPU


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Devices of one resource."""

    TITLE: ClassVar = "DeviceAmount"
    ANSWER: ClassVar = ("resource", "free", "total")

    resource: Annotated[str, "Its name, as in pods' requests."]
    held: int
    """Of the healthy ones."""
    healthy: int
    total: Annotated[int, "Total number, including unhealthy ones."]
    """Near a zone; a device of several zones counts in each of them."""

    @property
    def free(self) -> Annotated[int, "Healthy devices that no container holds."]:
        """Return how many are still free."""
        return self.healthy - self.held


@dataclass(frozen=True, slots=True)
class ZoneUse:
    """One zone's amounts."""

    numa: int
    cpus: tuple[int, int]
    """(held exclusively, allocatable)."""
    free: int
    """Whole CPUs that could still be given to single pods. Where pods are given shares of a zone's CPUs, too,
    these are fewer than nobody holds exclusively."""
    memory: tuple[tuple[str, int, int], ...] = ()
    """(memory or hugepages-<size>, held, allocatable) in bytes, where somebody keeps books of it."""
    devices: tuple[DeviceUse, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """Devices that somebody holds."""

    resource: Annotated[str, "Its name, as in pods' requests."]
    ids: Annotated[tuple[str, ...], "Ids from the device plugin."]
    near: tuple[CPUSet, ...]
    """Per id, the mask of its NUMA nodes; empty where it is near none in particular."""

    @property
    def numas(self) -> tuple[int, ...]:
        """All NUMA nodes that one of them is near, ascending."""
        return tuple(cpuset.ids(cpuset.union(self.near)))

    def near_numa(self, numa: int) -> "HeldDevices":
        """Return those near a NUMA node."""
        return self._those(lambda mask: bool(mask >> numa & 1))

    @property
    def near_none(self) -> "HeldDevices":
        """Those that are near no NUMA node in particular."""
        return self._those(lambda mask: not mask)

    def _those(self, wanted: Callable[[CPUSet], bool]) -> "HeldDevices":
        pairs = [pair for pair in zip(self.ids, self.near, strict=True) if wanted(pair[1])]
        return HeldDevices(self.resource, tuple(one for one, _ in pairs), tuple(near for _, near in pairs))


class HeldMemory(NamedTuple):
    """Memory that somebody holds."""

    type: Annotated[str, "memory, or hugepages-SIZE."]
    size: Annotated[int, "As a quantity.", format_bytes]
    numas: Annotated[
        tuple[int, ...], "NUMA nodes of the block; if there are several, the size covers all of them."
    ]


@dataclass(frozen=True, slots=True)
class NUMAShare:
    """Resources that a pod holds on one NUMA node."""

    TITLE: ClassVar = "HeldShare"
    numa: Annotated[int | None, "NUMA node; null for devices that are not near any."]
    name: Annotated[str, "NAMESPACE/NAME.", Named("pod")]
    cpus: Annotated[CPUSet, "Exclusive CPUs, as a list.", cpuset.format]
    memory: Annotated[tuple[HeldMemory, ...], "Memory blocks that the memory manager assigned."]
    """What lies on several NUMA nodes is told for each."""
    devices: Annotated[tuple[HeldDevices, ...], "By resource."]
    alignment: Annotated[
        str | None,
        "Alignment of the whole pod, over all its NUMA nodes: aligned, remote or spanning; null: not known.",
    ] = None


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
    devices: tuple[HeldDevices, ...] = ()
    containers: "tuple[Holder, ...]" = ()
    """What each container of it holds, by the container's name; empty where only the whole is known."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A node as it is drawn."""

    policy: str
    """What decides about placement, in one word, as columns show it."""
    summary: str
    """The same in one line, as headings show it."""
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
    distances: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """(NUMA id, NUMA id) → distance (SLIT), where that is known."""
    offline: Mapping[int, CPUSet] = field(default_factory=dict)
    """NUMA id → CPUs that are present but offline, where there are any."""

    @property
    def cpus_of_numa(self) -> dict[int, CPUSet]:
        """NUMA id → CPUs."""
        found: dict[int, CPUSet] = {}
        for cpu in self.cpus:
            found[cpu.numa] = found.get(cpu.numa, 0) | 1 << cpu.id
        return found

    def shares(self) -> Iterator[NUMAShare]:
        """Yield who holds what, NUMA node by NUMA node, pods by name; devices near none come last."""
        by_name = sorted(self.holders, key=lambda holder: holder.name)
        cpus_of_numa = self.cpus_of_numa
        for zone in self.zones:
            here = cpus_of_numa.get(zone.numa, 0)
            for holder in by_name:
                share = NUMAShare(
                    zone.numa,
                    holder.name,
                    holder.cpus & here,
                    tuple(HeldMemory(*part) for part in holder.memory if zone.numa in part[2]),
                    tuple(near for held in holder.devices if (near := held.near_numa(zone.numa)).ids),
                )
                if share.cpus or share.memory or share.devices:
                    yield share
        for holder in by_name:
            anywhere = tuple(one for held in holder.devices if (one := held.near_none).ids)
            if anywhere:
                yield NUMAShare(None, holder.name, 0, (), anywhere)


def zone_uses(
    cpus_of_numa: Mapping[int, CPUSet],
    *,
    held: CPUSet,
    allocatable: CPUSet,
    free: Mapping[int, int],
    memory: Mapping[int, tuple[int, int]] = MappingProxyType({}),
) -> tuple[ZoneUse, ...]:
    """Return each zone's amounts, from those of the whole node.

    ``free``: NUMA id → CPUs that could still be given; ``memory``: NUMA id → (held, allocatable) bytes.
    """
    return tuple(
        ZoneUse(
            numa,
            ((held & cpus).bit_count(), (allocatable & cpus).bit_count()),
            free.get(numa, 0),
            ((MEMORY, *memory[numa]),) if memory.get(numa, (0, 0))[1] else (),
        )
        for numa, cpus in cpus_of_numa.items()
    )


def in_order(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Return those with CPUs first, by the lowest; who holds nothing at all is left out."""
    holding = [holder for holder in holders if holder.cpus or holder.memory or holder.devices]
    return tuple(sorted(holding, key=lambda item: (not item.cpus, item.cpus & -item.cpus, item.name)))
