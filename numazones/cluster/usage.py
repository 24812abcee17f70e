"""Measured use of CPUs and memory, by NUMA node and by container: what is held is known, this is measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from numazones.apimachinery.quantity import format_bytes


@dataclass(frozen=True, slots=True)
class ZoneUsage:
    """Measured use of a NUMA zone."""

    used: Annotated[float | None, "How many of the exclusively held CPUs were busy; null if none are held."]
    shared: Annotated[float | None, "Share of the shared pool that was busy, from 0 to 1."]
    reserved: Annotated[float | None, "Share of the reserved CPUs that was busy, from 0 to 1."]
    memory: Annotated[int | None, "Memory that is not free, as a quantity.", format_bytes]


@dataclass(frozen=True, slots=True)
class NUMAUse:
    """Measured use of a NUMA node's CPUs, by kind, and memory."""

    busy: Mapping[str, float] = field(default_factory=dict)
    """Kind of CPU → share that is busy, where it has any."""
    memory: int | None = None
    """Bytes."""

    def of_zone(self, held: int) -> ZoneUsage:
        """Return the use of a zone with this number of exclusively held CPUs."""
        busy = self.busy.get("exclusive")
        used = None if busy is None or not held else round(busy * held, 3)
        return ZoneUsage(used, self.busy.get("shared"), self.busy.get("reserved"), self.memory)


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """How busy the exclusive CPUs of a container were."""

    namespace: Annotated[str, "Its pod's namespace."]
    pod: Annotated[str, "Its pod."]
    container: Annotated[str, "Its name; empty for a pod that holds CPUs as a whole."]
    node: Annotated[str, "Where it runs."]
    cpus: Annotated[int, "Exclusive CPUs."]
    used: Annotated[float, "CPUs that were busy, on average."]
    seconds: Annotated[float, "For how long that was measured."]

    @property
    def busy(self) -> float:
        """The share that was busy, from 0 to 1."""
        return self.used / self.cpus if self.cpus else 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured use of a cluster, where it is known."""

    numas: Mapping[tuple[str, int], NUMAUse] = field(default_factory=dict)
    """(node, NUMA id) → its use."""
    containers: tuple[MeasuredUse, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Node → why nothing is known of it."""
