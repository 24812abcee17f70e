"""NodeResourceTopology (topology.node.k8s.io/v1alpha2): the object that scheduler plugins read.

Written from NUMAZones so that existing schedulers work beside this project, and read where another
exporter (node-feature-discovery, resource-topology-exporter) is all a node has. One object per node, named
after it; zones are ``type: Node``, ``name: node-<number>``. The object has amounts only, neither which CPUs
nor who holds what, so a state read from it is an approximation (``node_from_topology``).

Readers take the number in a zone's name for its place in the list (scheduler-plugins 903da7df: Score of
NodeResourceTopologyMatch ends the scheduler's process where a number is missing), so zones are numbered
without gaps, in the order of their NUMA ids, and an attribute keeps the id where it is another.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import Field, ValidationError

from numazones import cpuset
from numazones.api.fingerprint import ALL
from numazones.api.meta import GROUP, APIModel, InvalidResource, ObjectMeta, QuantityText
from numazones.api.numazone import NUMAZone, NUMAZoneStatus, ZoneResource
from numazones.apimachinery import quantity, resources
from numazones.apimachinery.resources import HUGEPAGES, MEMORY, is_device, page_kib
from numazones.kubelet.config import (
    BEST_EFFORT,
    POLICY_NONE,
    RESTRICTED,
    SCOPE_CONTAINER,
    SCOPE_POD,
    SINGLE_NUMA_NODE,
    KubeletConfiguration,
    MemoryReservation,
)
from numazones.kubelet.cpu_manager import NONE as NO_CPUS
from numazones.kubelet.cpu_manager import STATIC as STATIC_CPUS
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.machine_state import MemoryTable, NUMANodeState
from numazones.kubelet.memory_manager import NONE as NO_MEMORY
from numazones.kubelet.memory_manager import STATIC as STATIC_MEMORY
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers as Started
from numazones.kubelet.versions import MAX_ALLOWABLE, PREFER_CLOSEST, PREFER_MOST_ALLOCATED

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"
FINGERPRINT_ANNOTATION = "topology.node.k8s.io/fingerprint"

POLICY = "topologyManagerPolicy"
SCOPE = "topologyManagerScope"
MAX_NUMA_NODES = "topologyManagerMaxNUMANodes"
OPTION = "topologyManagerOption"
FINGERPRINT = "nodeTopologyPodsFingerprint"
FINGERPRINT_METHOD = "nodeTopologyPodsFingerprintMethod"
NUMA_ID = f"{GROUP}/numa-id"
"""Attribute of a zone that Linux numbers otherwise than the zone's name does."""
MAX_ZONES = 64
"""Readers keep zones in 64 bits, as the kubelet keeps NUMA nodes."""

_ZONE_TYPE = "Node"
_ZONE_PREFIX = "node-"
_KIB = 1024
_DEFAULT_MAX_NUMA_NODES = 8
_UNKNOWN_POD = "somebody"
"""Uid and container of whoever holds what is not available."""

_LEGACY_NAMES = {SINGLE_NUMA_NODE: "SingleNUMANode", RESTRICTED: "Restricted", BEST_EFFORT: "BestEffort"}
_LEGACY_SCOPES = {SCOPE_CONTAINER: "ContainerLevel", SCOPE_POD: "PodLevel"}


class Attribute(APIModel):
    """A name and its value."""

    name: str
    value: str


class ZoneDistance(APIModel):
    """Distance to another zone."""

    name: str
    value: int


class ResourceInfo(APIModel):
    """Amounts of one resource in a zone."""

    name: str
    capacity: QuantityText
    allocatable: QuantityText
    available: QuantityText


class TopologyZone(APIModel):
    """One NUMA node."""

    name: str
    type: str
    parent: str = ""
    costs: tuple[ZoneDistance, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ResourceInfo, ...] = ()


class NodeResourceTopology(APIModel):
    """The NUMA nodes of one Kubernetes node, in the vocabulary of scheduler plugins."""

    metadata: ObjectMeta
    topology_policies: tuple[str, ...] = ()
    """Deprecated by ``attributes``, still read by older schedulers."""
    attributes: tuple[Attribute, ...] = ()
    zones: tuple[TopologyZone, ...] = Field(default=())

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read an object as the API server gives it, of v1alpha2 or its predecessor.

        Of zones that are no NUMA nodes (sockets, dies, L3 caches, balloons) only the type is
        kept: what else they say is not needed here, and must not keep the others from being read.

        Raises:
            InvalidObject: it does not have the form of either.
        """
        zones = body.get("zones")
        if isinstance(zones, list):
            body = {**body, "zones": [_without_other_content(zone) for zone in zones]}
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            name = (body.get("metadata") or {}).get("name", "(unnamed)")
            raise InvalidResource(
                f"{KIND} {name}: {where}: {first['msg']}; check the exporter that writes it"
            ) from error

    def to_api(self) -> dict[str, Any]:
        """Return the object as it is sent."""
        return {"apiVersion": API_VERSION, "kind": KIND, "zones": [], **super().to_api()}

    def attribute(self, name: str) -> str:
        """Return the value of an attribute, empty where there is none."""
        return next((entry.value for entry in self.attributes if entry.name == name), "")


def _without_other_content(zone: Any) -> Any:
    kind = zone.get("type") if isinstance(zone, Mapping) else None
    if not isinstance(kind, str) or kind == _ZONE_TYPE:
        return zone
    return {"name": str(zone.get("name") or ""), "type": kind}


def from_zones(zones: Iterable[NUMAZone]) -> NodeResourceTopology:
    """Return the object that says what the zones of one node say, as far as it can.

    Zones that have nothing, such as those of GPUs whose memory is not the system's, are left out: a scheduler
    that weighs combinations of zones would weigh billions. So are those beyond ``MAX_ZONES``, and the
    deprecated ``topologyPolicies``, which scheduler-plugins answer with two lines of log at every look.
    """
    zones = sorted(zones, key=lambda zone: zone.spec.numa_id)
    first = zones[0]
    listed = [zone for zone in zones if _has_anything(zone)][:MAX_ZONES]
    numbers = {zone.spec.numa_id: number for number, zone in enumerate(listed)}
    status = first.status or NUMAZoneStatus()
    annotations = {FINGERPRINT_ANNOTATION: status.pods_fingerprint} if status.pods_fingerprint else {}
    return NodeResourceTopology(
        metadata=ObjectMeta(
            name=first.spec.node_name,
            annotations=annotations,
            owner_references=first.metadata.owner_references,
        ),
        attributes=tuple(_attributes(status, len(listed))),
        zones=tuple(_zone(zone, numbers) for zone in listed),
    )


def _has_anything(zone: NUMAZone) -> bool:
    """Return whether the NUMA node has some of any resource, or may have."""
    rows = zone.status.resources if zone.status is not None else ()
    return not rows or any(row.capacity is None or quantity.parse(row.capacity).nanos for row in rows)


def _zone(zone: NUMAZone, numbers: Mapping[int, int]) -> TopologyZone:
    status = zone.status or NUMAZoneStatus()
    distances = status.topology.distances if status.topology is not None else ()
    numa, number = zone.spec.numa_id, numbers[zone.spec.numa_id]
    return TopologyZone(
        name=f"{_ZONE_PREFIX}{number}",
        type=_ZONE_TYPE,
        costs=tuple(
            ZoneDistance(name=f"{_ZONE_PREFIX}{numbers[entry.numa_id]}", value=entry.distance)
            for entry in distances
            if entry.numa_id in numbers
        ),
        attributes=() if number == numa else (Attribute(name=NUMA_ID, value=str(numa)),),
        resources=tuple(info for row in status.resources if (info := _resource_info(row)) is not None),
    )


def _resource_info(row: ZoneResource) -> ResourceInfo | None:
    """Return the amounts of a row; None for a row that lacks one of them."""
    if row.capacity is None or row.allocatable is None or row.available is None:
        return None
    return ResourceInfo(
        name=row.name, capacity=row.capacity, allocatable=row.allocatable, available=row.available
    )


def _attributes(status: NUMAZoneStatus, zones: int) -> Iterable[Attribute]:
    kubelet = status.kubelet
    if kubelet is not None and kubelet.topology_manager_policy:
        yield Attribute(name=POLICY, value=kubelet.topology_manager_policy)
        yield Attribute(name=SCOPE, value=kubelet.topology_manager_scope)
        options = kubelet.topology_manager_policy_options
        # Readers divide a score by it: fewer than there are zones, as under policy none, makes it negative.
        limit = max(_allowed_numa_nodes(options), zones)
        yield Attribute(name=MAX_NUMA_NODES, value=str(limit))
        for option, value in sorted(options.items()):
            yield Attribute(name=_option_attribute(option), value=value)
    if status.pods_fingerprint:
        yield Attribute(name=FINGERPRINT, value=status.pods_fingerprint)
        yield Attribute(name=FINGERPRINT_METHOD, value=ALL)


def _option_attribute(option: str) -> str:
    return OPTION + "".join(word.capitalize() for word in option.split("-"))


def _allowed_numa_nodes(options: Mapping[str, str]) -> int:
    limit = options.get(MAX_ALLOWABLE, "")
    return int(limit) if limit.isdecimal() else _DEFAULT_MAX_NUMA_NODES


# Reading


def policy_and_scope(topology: NodeResourceTopology) -> tuple[str, str]:
    """Return the topology manager's policy and scope; attributes win over the deprecated names.

    Raises:
        InvalidObject: neither tells the policy.
    """
    if policy := topology.attribute(POLICY):
        return policy, topology.attribute(SCOPE) or SCOPE_CONTAINER
    for text in topology.topology_policies:
        if text == "None":
            return POLICY_NONE, SCOPE_CONTAINER
        for policy, name in _LEGACY_NAMES.items():
            for scope, suffix in _LEGACY_SCOPES.items():
                if text == name + suffix or (text == name and scope == SCOPE_CONTAINER):
                    return policy, scope
    raise InvalidResource(
        f"{KIND} {topology.metadata.name} names no topology manager policy; check the exporter that writes it"
    )


def node_from_topology(body: Mapping[str, Any]) -> Node:
    """Make up an admission state from the amounts in a NodeResourceTopology; an approximation.

    CPUs get made-up numbers, each a core of its own; what is not available is held by somebody; reserved
    is what is not allocatable. The kubelet is taken to be of the newest release known.

    Raises:
        InvalidObject: not of v1alpha2 or v1alpha1, or it tells neither policy nor zones.
        InvalidConfiguration, InvalidQuantity: what it tells cannot be.
    """
    topology = NodeResourceTopology.from_api(body)
    policy, scope = policy_and_scope(topology)
    zones = {
        _numa_id(topology, zone): {info.name: info for info in zone.resources}
        for zone in topology.zones
        if zone.type == _ZONE_TYPE
    }
    if not zones:
        others = ", ".join(sorted({zone.type for zone in topology.zones})) or "none at all"
        raise InvalidResource(
            f"{KIND} {topology.metadata.name} has no zones of type {_ZONE_TYPE} (its types: {others}), so it "
            "does not describe the kubelet's NUMA nodes"
        )
    imagined = _ApproximateState(zones)
    static_memory = any(MEMORY in infos for infos in zones.values())
    config = KubeletConfiguration(
        cpu_manager_policy=STATIC_CPUS if imagined.reserved else NO_CPUS,
        reserved_system_cpus=cpuset.format(imagined.reserved),
        memory_manager_policy=STATIC_MEMORY if static_memory else NO_MEMORY,
        reserved_memory=tuple(imagined.reservations) if static_memory else (),
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        topology_manager_policy_options=_options(topology, len(zones)),
        feature_gates=(("TopologyManagerPolicyAlphaOptions", True),),
    )
    machine = Machine(
        tuple(imagined.cpus),
        tuple(
            NUMANode(numa, imagined.memory[numa], imagined.hugepages[numa], distances)
            for numa, distances in _distances(topology).items()
        ),
    )
    return Node.restore(
        Started.start(config, machine, imagined.devices),
        cpu_assignments={_UNKNOWN_POD: {_UNKNOWN_POD: imagined.held_cpus}} if imagined.held_cpus else {},
        machine_state=imagined.memory_state if static_memory else None,
        device_assignments={_UNKNOWN_POD: {_UNKNOWN_POD: imagined.held_devices}}
        if imagined.held_devices
        else {},
    )


def _numa_id(topology: NodeResourceTopology, zone: TopologyZone) -> int:
    text = zone.name.removeprefix(_ZONE_PREFIX)
    if not text.isdecimal() or len(text) > 5:  # noqa: PLR2004 - far beyond any NUMA id
        raise InvalidResource(
            f"{KIND} {topology.metadata.name}: zone {zone.name!r} is not named {_ZONE_PREFIX}<id>"
        )
    numa = next((entry.value for entry in zone.attributes if entry.name == NUMA_ID), "")
    return int(numa) if numa.isdecimal() and len(numa) <= len("1023") else int(text)


def _options(topology: NodeResourceTopology, zones: int) -> tuple[tuple[str, str], ...]:
    """Return the options in the attributes; exporters differ in how they write NUMA."""
    told = {entry.name.lower(): entry.value for entry in topology.attributes}
    options = {
        option: told[_option_attribute(option).lower()]
        for option in (PREFER_CLOSEST, PREFER_MOST_ALLOCATED)
        if _option_attribute(option).lower() in told
    }
    if zones > _DEFAULT_MAX_NUMA_NODES:  # a kubelet with fewer allowed would not run there
        options[MAX_ALLOWABLE] = str(zones)
    return tuple(sorted(options.items()))


def _distances(topology: NodeResourceTopology) -> dict[int, tuple[int, ...] | None]:
    """Return each NUMA node's distances in the order of ids, which are told for all pairs or not used."""
    zones = {_numa_id(topology, zone): zone for zone in topology.zones if zone.type == _ZONE_TYPE}
    names = [zones[numa].name for numa in sorted(zones)]
    costs = {numa: {cost.name: cost.value for cost in zones[numa].costs} for numa in sorted(zones)}
    complete = all(other in told for told in costs.values() for other in names)
    return {numa: tuple(told[other] for other in names) if complete else None for numa, told in costs.items()}


class _ApproximateState:
    """A machine and its state, made up from amounts."""

    def __init__(self, zones: Mapping[int, Mapping[str, ResourceInfo]]) -> None:
        self.cpus: list[CPU] = []
        self.reserved = 0
        self.held_cpus = 0
        self.memory: dict[int, int] = {}
        self.hugepages: dict[int, tuple[tuple[int, int], ...]] = {}
        self.reservations: list[MemoryReservation] = []
        self.memory_state: dict[int, NUMANodeState] = {}
        self.devices: dict[str, list[Device]] = {}
        self.held_devices: dict[str, list[str]] = {}
        sizes = sorted({name for infos in zones.values() for name in infos if name.startswith(HUGEPAGES)})
        for number, numa in enumerate(sorted(zones)):
            infos = zones[numa]
            # A static policy must reserve something: where nothing is, the first zone gets a little more.
            spare = int(number == 0)
            self._add_cpus(numa, infos.get(resources.CPU), spare=spare)
            self._add_memory(numa, infos, sizes, spare=spare * _KIB)
            for name, info in infos.items():
                if is_device(name):
                    self._add_devices(numa, name, info)

    def _add_cpus(self, numa: int, info: ResourceInfo | None, *, spare: int) -> None:
        capacity, allocatable, available = _amounts(info)
        reserved = max(capacity - allocatable, spare)
        first = len(self.cpus)
        held = first + reserved
        end = held + allocatable
        self.cpus += [CPU(cpu, cpu, numa, 0, numa) for cpu in range(first, end)]
        self.reserved |= cpuset.of(range(first, held))
        self.held_cpus |= cpuset.of(range(held, end - available))

    def _add_memory(
        self, numa: int, infos: Mapping[str, ResourceInfo], sizes: Iterable[str], *, spare: int
    ) -> None:
        capacity, allocatable, available = _amounts(infos.get(MEMORY))
        pages = {name: _amounts(infos.get(name)) for name in sizes}
        hugepages = sum(amounts[1] for amounts in pages.values())
        reserved = max(capacity - allocatable - hugepages, spare)
        self.memory[numa] = allocatable + reserved + hugepages
        self.hugepages[numa] = tuple(
            sorted((page_kib(name), amounts[1] // page_kib(name) // _KIB) for name, amounts in pages.items())
        )
        if reserved:
            limits = ((MEMORY, quantity.parse(str(reserved))),)
            self.reservations.append(MemoryReservation(numa, limits))
        tables = {MEMORY: _table(self.memory[numa], allocatable, available)}
        tables |= {name: _table(*amounts) for name, amounts in pages.items()}
        # Whoever holds memory is taken to hold it here alone, as NUMA nodes mostly are used.
        in_use = any(table.reserved for table in tables.values())
        self.memory_state[numa] = NUMANodeState(int(in_use), tables, cells=1 << numa)

    def _add_devices(self, numa: int, resource: str, info: ResourceInfo) -> None:
        capacity, allocatable, available = _amounts(info)
        ids = [f"{numa}-{number}" for number in range(capacity)]
        self.devices.setdefault(resource, []).extend(
            Device(device, (numa,), healthy=number < allocatable) for number, device in enumerate(ids)
        )
        if held := ids[available:allocatable]:
            self.held_devices.setdefault(resource, []).extend(held)


def _amounts(info: ResourceInfo | None) -> tuple[int, int, int]:
    """Return capacity, allocatable, available in whole units, each no larger than the one before."""
    if info is None:
        return 0, 0, 0
    capacity, allocatable, available = (
        max(0, quantity.parse(text).milli() // 1000)
        for text in (info.capacity, info.allocatable, info.available)
    )
    return capacity, min(capacity, allocatable), min(capacity, allocatable, available)


def _table(total: int, allocatable: int, available: int) -> MemoryTable:
    return MemoryTable(total, total - allocatable, allocatable, allocatable - available, available)
