"""The devices of a node as its Device object lists them, and how GPUs hang together.

Rules: ``deviceshare/device_cache``, ``numa_topology`` and ``allocator_gpu_helper``.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones_koordinator import annotations as api
from numazones_koordinator.amounts import Amounts
from numazones_koordinator.objects import integer, items, mapping, quantities

GPU = "gpu"
NO_NUMA_NODE = -1
_MAX_MINOR = (1 << 16) - 1
_MAX_SOCKET = (1 << 31) - 1
# The scheduler keeps sets of NUMA nodes in 64 bits.
_MAX_NUMA_ID = 63


@dataclass(frozen=True, slots=True)
class Location:
    """Position where a device is plugged in."""

    socket: int
    numa: int
    """-1: not known."""
    pcie: str


@dataclass(frozen=True, slots=True)
class Device:
    """One device."""

    type: str
    minor: int
    id: str = ""
    healthy: bool = True
    resources: Amounts = field(default_factory=dict)
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """GPUs that are close together: the node's, a NUMA node's, or those of one PCIe switch."""

    minors: tuple[int, ...]
    children: tuple["Scope", ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """All devices of a node."""

    devices: tuple[Device, ...]
    partitioned: bool = False
    """The Device object has a table of GPU partitions."""

    total: Mapping[str, Mapping[int, Amounts]] = field(init=False, repr=False, compare=False)
    """Type → minor → amounts; of unhealthy devices nothing."""
    numa_ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """NUMA nodes with devices, ascending."""
    fingerprint: Hashable = field(init=False, repr=False, compare=False)
    """Equal for inventories of equal devices, whatever these are called."""
    scope: Scope | None = field(init=False, repr=False, compare=False)
    """How the GPUs hang together; None if the place of one is not known."""

    def __post_init__(self) -> None:
        total: dict[str, dict[int, Amounts]] = {}
        for device in self.devices:
            total.setdefault(device.type, {})[device.minor] = device.resources if device.healthy else {}
        numas = {
            device.location.numa
            for device in self.devices
            if device.location is not None and device.location.numa != NO_NUMA_NODE
        }
        alike = tuple(
            (device.type, device.minor, device.healthy, frozenset(device.resources.items()), device.location)
            for device in self.devices
        )
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "fingerprint", (alike, self.partitioned))
        object.__setattr__(self, "numa_ids", tuple(sorted(numas)))
        object.__setattr__(self, "scope", _scope([device for device in self.devices if device.type == GPU]))

    @classmethod
    def read(cls, device: Mapping[str, Any]) -> "Inventory":
        """Read a Device object.

        Raises:
            InvalidNode: the object has not the shape of its kind.
            InvalidQuantity: an amount is no quantity.
        """
        listed = items(mapping(device, "spec"), "devices")
        annotations = mapping(mapping(device, "metadata"), "annotations")
        return cls(tuple(_device(item) for item in listed), partitioned=api.GPU_PARTITIONS in annotations)

    def of(self, type_: str) -> Iterable[Device]:
        """Return the devices of a type."""
        return (device for device in self.devices if device.type == type_)

    def device_counts(self, numas: int) -> Mapping[str, int]:
        """Device type → number of devices, healthy or not, on a set of NUMA nodes; none: not listed."""
        counts: dict[str, int] = {}
        for device in self.devices:
            location = device.location
            if location is not None and location.numa != NO_NUMA_NODE and numas >> location.numa & 1:
                counts[device.type] = counts.get(device.type, 0) + 1
        return counts

    def reachable(self, type_: str, numas: int | None) -> frozenset[int]:
        """Minors of the devices that may serve a set of NUMA nodes; None: all."""
        return frozenset(
            device.minor
            for device in self.of(type_)
            if numas is None
            or (
                device.location is not None
                and (device.location.numa == NO_NUMA_NODE or numas >> device.location.numa & 1)
            )
        )


def _device(item: Mapping[str, Any]) -> Device:
    location = None
    if item.get("topology") is not None:
        place = mapping(item, "topology")
        location = Location(
            socket=integer(place, "socketID", least=-1, most=_MAX_SOCKET, default=0),
            numa=integer(place, "nodeID", least=NO_NUMA_NODE, most=_MAX_NUMA_ID, default=0),
            pcie=str(place.get("pcieID", "")),
        )
    return Device(
        type=str(item.get("type", "")),
        minor=integer(item, "minor", least=0, most=_MAX_MINOR),
        id=str(item.get("id", "")),
        healthy=item.get("health") is True,
        resources=quantities(item, "resources"),
        location=location,
    )


def _scope(gpus: list[Device]) -> Scope | None:
    places: dict[int, dict[str, set[int]]] = {}
    for gpu in gpus:
        if gpu.location is None:
            return None
        places.setdefault(gpu.location.numa, {}).setdefault(gpu.location.pcie, set()).add(gpu.minor)
    if not places:
        return None
    numas = []
    for _, switches in sorted(places.items()):
        children = tuple(Scope(tuple(sorted(minors))) for _, minors in sorted(switches.items()))
        numas.append(Scope(_all(children), children))
    return Scope(_all(numas), tuple(numas))


def _all(scopes: Iterable[Scope]) -> tuple[int, ...]:
    return tuple(sorted({minor for scope in scopes for minor in scope.minors}))
