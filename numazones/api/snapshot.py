"""All that is known about a node at one moment, as plain values, before it becomes NUMAZones.

The exporter fills a ``NodeSnapshot`` from what it has read, ``numazones.api.zones_from_node`` from an
admission state. Masks and byte counts as everywhere in the library; what is not known is None, never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones.api.meta import Condition
from numazones.api.numazone import KubeletSettings
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import Machine
from numazones.kubelet.machine_state import Block, MachineState


@dataclass(frozen=True, slots=True)
class KnownCache:
    """A last-level cache of the hardware and all CPUs that share it; not every one is an uncore cache."""

    level: int
    id: int
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """A device that a plugin announces, or that a container still holds."""

    resource: str
    id: str
    numa: int
    """Mask of NUMA nodes, 0 where the plugin reports none."""
    healthy: bool = True
    registered: bool = True
    """False: its resource has no plugin (any more)."""
    count: int = 1
    """Of how many equal devices it is a group."""


@dataclass(frozen=True, slots=True)
class ContainerHolding:
    """Resources that one container holds; a whole pod where ``container`` is empty."""

    namespace: str
    pod: str
    uid: str
    container: str
    cpus: CPUSet = 0
    memory: tuple[Block, ...] = ()
    devices: frozenset[tuple[str, str]] = frozenset()
    """(resource, device id)"""
    claims: frozenset[tuple[str, str]] = frozenset()
    """Dynamic resources, (driver, ``pool/device``); nobody tells their NUMA nodes."""


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """All that is known about a node at one moment; None means not known."""

    node_name: str
    machine: Machine
    node_uid: str | None = None
    """metadata.uid of the Node, which becomes the zones' owner."""
    kubelet: KubeletSettings | None = None
    reserved_cpus: CPUSet | None = None
    """CPUs kept from pods; empty under policy none."""
    default_cpus: CPUSet | None = None
    """The CPU manager's default set, None also under policy none."""
    exclusive_cpus: CPUSet | None = None
    """All exclusively held CPUs."""
    memory_reserved: Mapping[tuple[int, str], int] | None = None
    """(NUMA id, type) → bytes kept from pods; absent keys are 0."""
    memory_assigned: Mapping[tuple[int, str], int] | None = None
    """(NUMA id, type) → bytes given to containers; absent keys are 0."""
    machine_state: MachineState | None = None
    """The memory manager's under policy Static; of its tables, ``memory_assigned`` is what counts here."""
    memory_unknown: int = 0
    """Mask of the NUMA nodes whose memory size is not known."""
    devices: tuple[KnownDevice, ...] = ()
    devices_complete: bool = True
    """False: only the devices that containers hold are known, so that nothing else of them can be counted."""
    resources_without_devices: frozenset[str] = frozenset()
    """Resources of plugins that announce no device at all."""
    holders: tuple[ContainerHolding, ...] = ()
    offline: Mapping[int, CPUSet] = field(default_factory=dict)
    """NUMA id → CPUs that are there but offline."""
    isolated: CPUSet = 0
    caches: tuple[KnownCache, ...] = ()
    pods_fingerprint: str = ""
    conditions: tuple[Condition, ...] = ()
