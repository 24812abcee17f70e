"""The NUMA zones of a cluster in figures, as ``top`` and ``live`` show them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from numazones.api.numazone import zone_name
from numazones.apimachinery.answer import Named
from numazones.apimachinery.quantity import format_bytes
from numazones.apimachinery.resources import MEMORY
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.usage import ZoneUsage
from numazones.placement.occupancy import DeviceUse


class NodeWithoutFigures(NamedTuple):
    """A node without figures, and why."""

    node: Annotated[str, "Name of the node."]
    message: Annotated[str, "Why the figures are missing."]


class Amount(NamedTuple):
    """Amount in use, and the total."""

    assigned: Annotated[int, "Amount in use."]
    allocatable: Annotated[int, "Total amount."]


class MemoryAmount(NamedTuple):
    """Assigned memory, and the total."""

    assigned: Annotated[int, "Amount in use, as a quantity.", format_bytes]
    allocatable: Annotated[int, "Total amount, as a quantity.", format_bytes]


@dataclass(frozen=True, slots=True)
class ZoneFigures:
    """Figures of one NUMA node."""

    TITLE: ClassVar = "ZoneFigures"
    ANSWER: ClassVar = ("name", "node", "numa", "policy", "cpus", "memory", "devices", "not_aligned", "usage")
    node: Annotated[str, "Name of the node."]
    numa: Annotated[int, "Id of the NUMA node, as Linux numbers it."]
    policy: Annotated[str, "Topology Manager policy, or the placement model that decides instead."]
    cpus: Annotated[Amount | None, "Exclusive CPUs; null if the node allocates none.", Named("cpu")]
    """Of CPUs that are given to pods exclusively, or in shares by somebody's books."""
    memory: Annotated[MemoryAmount | None, "Memory; null if it is not tracked."]
    devices: Annotated[tuple[DeviceUse, ...], "Devices near the NUMA node."]
    not_aligned: Annotated[
        int | None,
        "Number of pods that hold resources of the NUMA node and are not aligned; null if unknown.",
    ] = None
    usage: Annotated[ZoneUsage | None, "Usage, with `--usage`; null if unknown."] = None

    @property
    def name(self) -> Annotated[str, "State of the NUMAZone."]:
        """The name of its NUMAZone."""
        return zone_name(self.node, self.numa)

    @property
    def devices_text(self) -> str:
        """Return the free and total number of devices of each resource."""
        return " ".join(f"{use.resource.rpartition('/')[2]}:{use.free}/{use.total}" for use in self.devices)

    @property
    def load(self) -> float:
        """The part of the CPUs that is held exclusively, from 0 to 1."""
        return share(self.cpus)

    @property
    def free(self) -> int:
        """CPUs that can still be given exclusively."""
        return self.cpus[1] - self.cpus[0] if self.cpus else 0


ORDERS: dict[str, Callable[[ZoneFigures], Any]] = {
    "node": lambda zone: (zone.node, zone.numa),
    "cpu": lambda zone: (-zone.load, zone.node, zone.numa),
    "free": lambda zone: (-zone.free, zone.node, zone.numa),
    "memory": lambda zone: (-share(zone.memory), zone.node, zone.numa),
}
"""Name of an order → what zones are sorted by."""


def zones_of(node: ClusterNode) -> Iterator[ZoneFigures]:
    """Yield the zones of a node; none of one that nothing is known of."""
    occupancy = None if node.known is None else node.known.occupancy(None)
    if occupancy is None:
        return
    for zone in occupancy.zones:
        memory = next((amounts for kind, *amounts in zone.memory if kind == MEMORY), None)
        yield ZoneFigures(
            node.name,
            zone.numa,
            occupancy.policy,
            Amount(zone.cpus[1] - zone.free, zone.cpus[1]) if occupancy.exclusive else None,
            None if memory is None else MemoryAmount(*memory),
            zone.devices,
        )


def why_no_zones(node: ClusterNode) -> str:
    """Say why a node has no zones in figures."""
    if node.unknown is not None:
        return f"unknown: {node.unknown.message}"
    return "its CPUs are unknown"


def share(used: tuple[int, int] | None) -> float:
    """Return the part in use of (used, allocatable), from 0 to 1."""
    return used[0] / used[1] if used and used[1] else 0.0
