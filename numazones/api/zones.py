"""Read from the NUMAZones of a node the exact state from which its kubelet decides.

``node_from_zones`` gives the ``Node`` that admits the next pod as the kubelet would. Zones that are
missing, disagree, or say themselves that they are not complete are rejected by name, so that nobody
predicts from half a node. ``numazones.api.zones_from_node`` is the way back; who only reads zones does not
import it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import NoReturn, Protocol, TypeVar

from numazones import cpuset
from numazones.api.kubelet_settings import keeps_reserved_apart
from numazones.api.numazone import (
    READY,
    Assignment,
    KubeletSettings,
    NUMAZone,
    NUMAZoneStatus,
    Topology,
    ZoneResource,
)
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import HUGEPAGES, MEMORY, is_device, is_memory, page_kib
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration, MemoryReservation, reserved_in_all
from numazones.kubelet.cpu_manager import STATIC as STATIC_CPUS
from numazones.kubelet.device_manager import Device
from numazones.kubelet.kept_memory import KeptMemory
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.machine_state import Block, MemoryTable, NUMANodeState
from numazones.kubelet.memory_manager import STATIC as STATIC_MEMORY
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers as Started
from numazones.kubelet.versions import release
from numazones.wording import pluralize

_KIB = 1024
_Value = TypeVar("_Value")


class Remember(Protocol):
    """Returns the value that was made for an equal key before, or makes it."""

    def __call__(self, key: Hashable, make: Callable[[], _Value], /) -> _Value:
        """Return the value of the key."""


def _make(_key: Hashable, make: Callable[[], _Value]) -> _Value:
    return make()


class IncompleteZones(NumazonesError):
    """Zones of a node are missing or were written at different moments; the next cycle usually helps."""


class ZonesNotReady(NumazonesError):
    """The node's state is not known: its zones say so, or leave out what is needed."""


class OptionUnknown(NumazonesError):
    """A running kubelet has a policy option that is not modelled for its release."""


def node_from_zones(
    zones: Iterable[NUMAZone], *, remember: Remember = _make, despite: Collection[str] = ()
) -> Node:
    """Return the admission state that the zones of one node describe.

    Args:
        zones: all of the node, in any order.
        remember: makes a machine or a kubelet by a key. Nodes of one model have equal ones; who reads many
            nodes passes a function that makes those once.
        despite: reasons for which zones are not ready, and are taken all the same: what they say is then not
            what the kubelet decides from.

    Raises:
        IncompleteZones: a zone is missing, comes twice, or belongs to another node or moment.
        ZonesNotReady: the exporter could not read something; the message says what.
        OptionUnknown: the kubelet has an option that is not modelled.
        InvalidConfiguration, InvalidNodeState, InvalidMachine, InvalidQuantity, InvalidCPUSet,
        UnsupportedVersion: what the zones describe cannot be, or is not modelled.

    >>> from numazones import build, zones_from_node
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> zones = zones_from_node(node, node_name="worker-1", pods={})
    >>> node_from_zones(zones).cpus == node.cpus
    True
    """
    statuses = _statuses_by_numa(zones)
    settings = _ready(statuses, despite)

    def start() -> Started:
        machine = remember(_machine_key(statuses), lambda: _machine(statuses))
        config = _configuration(settings, statuses)
        for option in config.unknown_options:
            raise OptionUnknown(
                f"its kubelet {settings.version} runs with policy option {option}, which numazones "
                f"does not know for kubelet {config.release.unread or config.release}, so the kubelet's "
                "decisions are unknown"
            )
        return Started.start(config, machine, _devices(statuses))

    kubelet = remember(_kubelet_key(statuses, settings), start)
    holders = _Holders(statuses)
    static_memory = settings.memory_manager_policy == STATIC_MEMORY
    static_cpus = settings.cpu_manager_policy == STATIC_CPUS
    return Node.restore(
        kubelet,
        default_cpus=_default_cpus(settings, statuses) if static_cpus else None,
        cpu_assignments=holders.cpus,
        cpu_pods=holders.cpu_pods,
        machine_state=_machine_state(statuses) if static_memory else None,
        memory_assignments=holders.memory,
        memory_pods=holders.memory_pods,
        device_assignments=holders.devices,
    )


def _statuses_by_numa(zones: Iterable[NUMAZone]) -> dict[int, NUMAZoneStatus]:
    """Return NUMA id → status, once all zones of one node and moment are there."""
    zones = sorted(zones, key=lambda zone: zone.spec.numa_id)
    if not zones:
        raise IncompleteZones("there are no NUMAZones; check that the exporter is running on the node")
    name = zones[0].spec.node_name
    if any(zone.spec.node_name != name for zone in zones):
        raise IncompleteZones(f"node {name}: the NUMAZones belong to several nodes; select those of one node")
    statuses = {zone.spec.numa_id: zone.status for zone in zones}
    if len(statuses) != len(zones):
        raise IncompleteZones(
            f"node {name}: two NUMAZones describe the same NUMA node; list the NUMAZones again"
        )
    known: dict[int, NUMAZoneStatus] = {}
    for numa, status in statuses.items():
        if status is None or not status.snapshot:
            raise IncompleteZones(
                f"node {name}: the NUMAZone of NUMA node {numa} has no status yet; wait for the exporter"
            )
        known[numa] = status
    first = known[zones[0].spec.numa_id]
    if any(status.snapshot != first.snapshot for status in known.values()):
        raise IncompleteZones(
            f"node {name}: its NUMAZones were written at different times; wait for the rest"
        )
    if first.zones != len(known):
        raise IncompleteZones(
            f"node {name}: {len(known)} of {pluralize(first.zones, 'NUMAZone')} published so far; wait "
            "for the rest"
        )
    return known


def _ready(statuses: Mapping[int, NUMAZoneStatus], despite: Collection[str]) -> KubeletSettings:
    """Return the kubelet's settings once every zone says that it is complete."""
    kubelets = []
    for numa, status in statuses.items():
        ready = next((condition for condition in status.conditions if condition.type == READY), None)
        if ready is None or (ready.status != "True" and ready.reason not in despite):
            said = "no Ready condition" if ready is None else f"{ready.reason}: {ready.message}"
            raise ZonesNotReady(f"NUMA node {numa} is not ready ({said}); check the exporter on the node")
        if status.kubelet is None or status.topology is None:
            raise ZonesNotReady(
                f"NUMA node {numa}: its topology or the kubelet's settings are missing; check the exporter"
            )
        kubelets.append(status.kubelet)
    if any(kubelet != kubelets[0] for kubelet in kubelets[1:]):
        raise IncompleteZones(
            "the NUMAZones of the node contradict each other about the kubelet's settings; wait for the "
            "exporter"
        )
    return kubelets[0]


# The machine


def _machine_key(statuses: Mapping[int, NUMAZoneStatus]) -> Hashable:
    """Return what ``_machine`` reads; texts are compared much faster than models."""
    return tuple(
        (
            numa,
            None if status.topology is None else status.topology.model_dump_json(),
            tuple((row.name, row.capacity) for row in status.resources),
        )
        for numa, status in statuses.items()
    )


def _machine(statuses: Mapping[int, NUMAZoneStatus]) -> Machine:
    cpus: list[CPU] = []
    nodes: list[NUMANode] = []
    counted = None
    for numa, status in statuses.items():
        topology = status.topology or Topology()
        cpus += _cpus(numa, topology)
        distances = {entry.numa_id: entry.distance for entry in topology.distances}
        if distances and set(distances) != set(statuses):
            raise ZonesNotReady(
                f"NUMA node {numa}: the distances do not match the machine's NUMA nodes; check the exporter"
            )
        nodes.append(
            NUMANode(
                id=numa,
                memory=_amount(numa, _row(status, MEMORY), "capacity"),
                hugepages=tuple(
                    (page_kib(row.name), _amount(numa, row, "capacity") // page_kib(row.name) // _KIB)
                    for row in status.resources
                    if row.name.startswith(HUGEPAGES)
                ),
                distances=tuple(distances[other] for other in sorted(statuses)) if distances else None,
                kubelet_id=topology.kubelet_id,
                offline=cpuset.parse(topology.offline),
            )
        )
        counted = topology.counted_cpus
    return Machine(tuple(cpus), tuple(nodes), counted)


def _cpus(numa: int, topology: Topology) -> list[CPU]:
    """Return the zone's CPUs; a core is in one socket, die and cache, and is known by its lowest thread."""
    sockets = _members((group.id, group.cpus) for group in topology.sockets)
    dies = _members((group.id, group.cpus) for group in topology.dies)
    uncore_caches = _members((cache.id, cache.cpus) for cache in topology.caches if cache.uncore)
    missing = cpuset.parse(topology.cpus)
    cpus = []
    for text in topology.cores:
        threads = list(cpuset.ids(cpuset.parse(text) & missing))
        if not threads:
            continue
        core = threads[0]
        socket, die, uncore_cache = _of(sockets, core) or 0, _of(dies, core) or 0, _of(uncore_caches, core)
        for cpu in threads:
            cpus.append(CPU(cpu, core, socket, die, numa, uncore_cache))
            missing &= ~(1 << cpu)
    if missing:
        raise ZonesNotReady(
            f"NUMA node {numa}: CPUs {cpuset.format(missing)} belong to no core; check the exporter"
        )
    return cpus


def _members(groups: Iterable[tuple[int, str | None]]) -> list[tuple[int, CPUSet]]:
    """Return (id, CPUs); a group that names no CPUs has all of the zone."""
    return [(key, -1 if cpus is None else cpuset.parse(cpus)) for key, cpus in groups]


def _of(groups: Iterable[tuple[int, CPUSet]], cpu: int) -> int | None:
    return next((key for key, cpus in groups if cpus >> cpu & 1), None)


def _row(status: NUMAZoneStatus, name: str) -> ZoneResource:
    return next((row for row in status.resources if row.name == name), ZoneResource(name=name))


def _amount(numa: int, row: ZoneResource, which: str) -> int:
    return quantity.parse(_amount_text(numa, row, which)).value()


def _amount_text(numa: int, row: ZoneResource, which: str) -> str:
    text: str | None = getattr(row, which)
    if text is None:
        raise ZonesNotReady(f"NUMA node {numa}: the {which} of {row.name} is missing; check the exporter")
    return text


# The kubelet


def _kubelet_key(statuses: Mapping[int, NUMAZoneStatus], settings: KubeletSettings) -> Hashable:
    """Return what a kubelet starts from: all that ``_configuration``, ``_machine`` and ``_devices`` read."""
    return (
        settings.model_dump_json(),
        _machine_key(statuses),
        tuple(
            (
                None if status.cpus is None else status.cpus.reserved,
                tuple(row.reserved for row in status.resources),
                tuple(
                    (
                        device.resource,
                        device.id,
                        device.count,
                        device.registered,
                        device.healthy,
                        device.numa_ids,
                    )
                    for device in status.devices
                ),
            )
            for status in statuses.values()
        ),
    )


def _configuration(kubelet: KubeletSettings, statuses: Mapping[int, NUMAZoneStatus]) -> KubeletConfiguration:
    if not kubelet.version:
        raise ZonesNotReady("the NUMAZones lack the kubelet's version; check the exporter on the node")
    static_memory = kubelet.memory_manager_policy == STATIC_MEMORY
    reservations = tuple(_reservations(statuses)) if static_memory else ()
    return KubeletConfiguration(
        release=release(kubelet.version),
        cpu_manager_policy=kubelet.cpu_manager_policy,
        cpu_manager_policy_options=tuple(sorted(kubelet.cpu_manager_policy_options.items())),
        reserved_system_cpus=cpuset.format(_reserved_cpus(statuses))
        if kubelet.cpu_manager_policy == STATIC_CPUS
        else "",
        memory_manager_policy=kubelet.memory_manager_policy,
        reserved_memory=reservations,
        kept_memory=KeptMemory(reserved_in_all(reservations)) if static_memory else None,
        topology_manager_policy=kubelet.topology_manager_policy,
        topology_manager_scope=kubelet.topology_manager_scope,
        topology_manager_policy_options=tuple(sorted(kubelet.topology_manager_policy_options.items())),
        feature_gates=tuple(sorted(kubelet.feature_gates.items())),
        workload_partitioning=kubelet.workload_partitioning,
    )


def _reserved_cpus(statuses: Mapping[int, NUMAZoneStatus]) -> CPUSet:
    reserved = 0
    for numa, status in statuses.items():
        if status.cpus is None:
            raise ZonesNotReady(
                f"NUMA node {numa}: its NUMAZone does not show how its CPUs are used; check the exporter"
            )
        reserved |= cpuset.parse(status.cpus.reserved)
    return reserved


def _reservations(statuses: Mapping[int, NUMAZoneStatus]) -> Iterable[MemoryReservation]:
    for numa, status in statuses.items():
        limits = tuple(
            (row.name, quantity.parse(row.reserved))
            for row in status.resources
            if is_memory(row.name) and row.reserved is not None and quantity.parse(row.reserved)
        )
        if limits:
            known = status.topology.kubelet_id if status.topology is not None else None
            yield MemoryReservation(
                numa if known is None else known, tuple(sorted(limits, key=lambda limit: limit[0]))
            )


# What is assigned


def _default_cpus(kubelet: KubeletSettings, statuses: Mapping[int, NUMAZoneStatus]) -> CPUSet:
    default = 0
    for status in statuses.values():
        if status.cpus is None:
            continue  # rejected by _reserved_cpus
        if status.cpus.default is not None:
            default |= cpuset.parse(status.cpus.default)
            continue
        default |= cpuset.parse(status.cpus.shared)
        if not keeps_reserved_apart(kubelet):
            default |= cpuset.parse(status.cpus.reserved)
    return default


def _machine_state(statuses: Mapping[int, NUMAZoneStatus]) -> dict[int, NUMANodeState]:
    states = {}
    for numa, status in statuses.items():
        if status.memory_assignments is None or not status.memory_group:
            raise ZonesNotReady(
                f"NUMA node {numa}: the memory manager's state is missing; check the exporter"
            )
        rows = [row for row in status.resources if is_memory(row.name)]
        hugepages = sum(_amount(numa, row, "capacity") for row in rows if row.name != MEMORY)
        tables = {
            row.name: _table(
                _amount_text(numa, row, "capacity"),
                _amount_text(numa, row, "reserved"),
                _amount_text(numa, row, "assigned"),
                hugepages if row.name == MEMORY else 0,
            )
            for row in rows
        }
        states[numa] = NUMANodeState(status.memory_assignments, tables, cpuset.of(status.memory_group))
    return states


@lru_cache(maxsize=4096)  # the same few amounts come again and again, with every node of a model
def _table(capacity: str, reserved: str, assigned: str, hugepages: int) -> MemoryTable:
    total, kept, held = (quantity.parse(text).value() for text in (capacity, reserved, assigned))
    allocatable = total - kept - hugepages
    return MemoryTable(total, kept, allocatable, reserved=held, free=allocatable - held)


def _devices(statuses: Mapping[int, NUMAZoneStatus]) -> dict[str, list[Device]]:
    """Return resource → devices that its plugin announces; the list is empty where the plugin has none."""
    found: dict[str, dict[str, Device]] = {}
    listed: set[str] = set()
    for numa, status in statuses.items():
        for device in status.devices:
            listed.add(device.resource)
            if device.registered:
                numas = (numa,) if device.numa_ids is None else tuple(sorted(device.numa_ids))
                known = found.setdefault(device.resource, {})
                for name in device.ids:
                    known[name] = Device(name, numas, device.healthy)
    without = {
        row.name for status in statuses.values() for row in status.resources if is_device(row.name)
    } - listed
    return {name: list(devices.values()) for name, devices in found.items()} | {name: [] for name in without}


class _Holders:
    """Resources that each container holds, joined from the zones it touches."""

    def __init__(self, statuses: Mapping[int, NUMAZoneStatus]) -> None:
        self.cpus: dict[str, dict[str, CPUSet]] = {}
        self.memory: dict[str, dict[str, list[Block]]] = {}
        self.cpu_pods: dict[str, CPUSet] = {}
        self.memory_pods: dict[str, list[Block]] = {}
        self.devices: dict[str, dict[str, dict[str, set[str]]]] = {}
        known = set(statuses)
        for numa, status in statuses.items():
            for assignment in status.assignments:
                self._add(numa, assignment, first_of=known)
            self._add_devices(status)

    def _add(self, numa: int, assignment: Assignment, *, first_of: set[int]) -> None:
        uid, container = assignment.uid, assignment.container
        if not uid:
            _reject(assignment, "its pod's UID is unknown; allow the exporter to read the node's pods")
        if assignment.cpus:
            parsed = cpuset.parse(assignment.cpus)
            if container:
                cpus = self.cpus.setdefault(uid, {})
                cpus[container] = cpus.get(container, 0) | parsed
            else:  # of the pod as a whole
                self.cpu_pods[uid] = self.cpu_pods.get(uid, 0) | parsed
        for block in assignment.memory:
            if block.numa_ids is None:
                affinity = 1 << numa
            elif numa == min(first_of.intersection(block.numa_ids), default=min(first_of)):
                affinity = cpuset.of(block.numa_ids)
            else:
                continue  # listed in each of its zones, it counts in the first
            if container:
                blocks = self.memory.setdefault(uid, {}).setdefault(container, [])
            else:
                blocks = self.memory_pods.setdefault(uid, [])
            blocks.append(Block(affinity, block.type, block.bytes))

    def _add_devices(self, status: NUMAZoneStatus) -> None:
        by_name = {(item.namespace, item.pod, item.container): item for item in status.assignments}
        listed = {(device.resource, device.id): device.ids for device in status.devices}
        for device in status.devices:
            if device.assigned_to is None:
                continue
            names = device.assigned_to
            holder = by_name.get((names.namespace, names.pod, names.container))
            if holder is None:
                raise ZonesNotReady(
                    f"device {device.resource} {device.id} is assigned to {names.namespace}/{names.pod}, "
                    "which holds nothing according to the NUMAZone's assignments; check the exporter"
                )
            self._hold(holder, device.resource, listed[device.resource, device.id])
        for holder in status.assignments:
            for devices in holder.devices:
                for device_id in devices.ids:
                    # What is not among the zone's devices was claimed through DRA, which admission ignores.
                    if (devices.resource, device_id) in listed:
                        self._hold(holder, devices.resource, listed[devices.resource, device_id])

    def _hold(self, holder: Assignment, resource: str, devices: Iterable[str]) -> None:
        containers = self.devices.setdefault(holder.uid, {})
        containers.setdefault(holder.container, {}).setdefault(resource, set()).update(devices)


def _reject(assignment: Assignment, why: str) -> NoReturn:
    who = (
        f"{assignment.namespace}/{assignment.pod}"
        if assignment.pod
        else f"pod {assignment.uid or '(unknown)'}"
    )
    raise ZonesNotReady(f"container {assignment.container or '(pod level)'} of {who}: {why}")
