"""From one observation to the node's zones: pure, deterministic, independent of time.

What was read is joined here into one ``NodeSnapshot``; the figures of the zones, their order and their
snapshot id, which is derived from their content, are ``numazones.api.snapshot``'s part.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import ValidationError

from numazones import cpuset
from numazones.api.fingerprint import fingerprint
from numazones.api.kubelet_settings import kubelet_settings
from numazones.api.meta import Condition
from numazones.api.numazone import KubeletSettings, NUMAZone
from numazones.api.shared_cpus import cpus_exclusive
from numazones.api.snapshot import ContainerHolding, KnownDevice, NodeSnapshot
from numazones.api.zone_building import build_zones
from numazones.apimachinery.resources import MEMORY, hugepage_type
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.cpu_manager import CPUState
from numazones.kubelet.machine import NOWHERE, Machine
from numazones.kubelet.machine_state import MachineState, NUMANodeState
from numazones_exporter.conditions import conditions_of, delays_condition, unexpected_problems
from numazones_exporter.consistency import contradictions, restart_outlook
from numazones_exporter.holdings import Holding, Holdings, holdings_of
from numazones_exporter.observation import DEVICE_CHECKPOINT, DISAGREE, PODRESOURCES, Observation
from numazones_exporter.reserved import (
    STATIC_CPU,
    STATIC_MEMORY,
    cpu_policy,
    memory_policy,
    reserved_cpus,
    reserved_memory,
    with_partitioning,
)
from numazones_node.problems import Problem
from numazones_node.sysfs import Hardware


class IndescribableNode(NumazonesError):
    """A value that was read fits no NUMAZone; the message names the field and quotes the value."""


def snapshot_of(observation: Observation) -> NodeSnapshot | None:
    """Join what was read into one snapshot of the node; None when the hardware could not be read.

    Raises:
        IndescribableNode: something that was read exceeds what NUMAZones may hold.
    """
    observation = _seen_by_kubelet(observation)
    hardware = observation.hardware
    if hardware is None:
        return None
    observation = _in_own_ids(observation, hardware.machine)
    with _invalid_values_named(observation.node_name):
        return _snapshot(with_partitioning(observation), _with_known_memory(observation, hardware))


def _seen_by_kubelet(observation: Observation) -> Observation:
    """Return the observation with the hardware as the node's kubelet sees it."""
    hardware, kubelet = observation.hardware, observation.kubelet
    if hardware is None or kubelet is None:
        return observation
    return replace(observation, hardware=hardware.seen_by(kubelet.release))


def build(snapshot: NodeSnapshot) -> list[NUMAZone]:
    """Describe every NUMA node of the machine, ascending by NUMA id; conditions carry no transition times.

    Raises:
        IndescribableNode: something that was read exceeds what NUMAZones may hold.
    """
    with _invalid_values_named(snapshot.node_name):
        return build_zones(snapshot)


@contextmanager
def _invalid_values_named(node_name: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, (error.title, *first["loc"])))
        raise IndescribableNode(
            f"the NUMAZones of node {node_name} cannot be built: {where}: {first['msg']}, not "
            f"{first['input']!r:.60}; correct the node's files or the kubelet's settings"
        ) from error


def problems_of(observation: Observation) -> tuple[Problem, ...]:
    """Everything that could not be read or contradicts, as the zones' conditions sum it up."""
    observation = _seen_by_kubelet(observation)
    hardware = observation.hardware
    if hardware is None:
        return observation.problems
    observation = _in_own_ids(with_partitioning(observation), hardware.machine)
    return _join(observation, hardware).problems


@dataclass(frozen=True, slots=True)
class PluginDevices:
    """The devices of device plugins: what podresources call allocatable, joined with who holds them.

    podresources and the checkpoint list healthy devices only; an unhealthy one is seen while a container
    holds it, and not otherwise. NUMA nodes come from podresources, and for held devices from the checkpoint.
    A device without topology, or whose NUMA nodes the machine does not have, belongs to no zone: it is listed
    in the node's first zone, and no zone counts it.
    """

    devices: tuple[KnownDevice, ...]
    resources_without_devices: frozenset[str]
    """Resources of plugins that list no healthy device, none of whose devices is held."""
    allocatable_known: bool
    """Whether the healthy devices and their NUMA nodes could be read; else only devices in use are known."""
    problems: tuple[Problem, ...] = ()


class _NodeFacts(NamedTuple):
    """Facts of all sources together."""

    holdings: Holdings
    devices: PluginDevices
    reserved: CPUSet | None
    problems: tuple[Problem, ...]


def _join(observation: Observation, hardware: Hardware) -> _NodeFacts:
    holdings = holdings_of(observation)
    devices = _devices_of(observation, holdings)
    reserved = reserved_cpus(observation, hardware)
    contradicting = (*reserved.problems, *contradictions(observation, hardware))
    stale = any(one.reason == DISAGREE and one.source != DEVICE_CHECKPOINT for one in contradicting)
    # Conditions are bounded: what to do comes first, then what keeps a kubelet from starting.
    problems = (
        *(restart_outlook(observation, hardware) if stale else ()),
        *(one for one in contradicting if one.reason == DISAGREE),
        *unexpected_problems(observation),
        *holdings.problems,
        *devices.problems,
        *(one for one in contradicting if one.reason != DISAGREE),
    )
    return _NodeFacts(holdings, devices, reserved.cpus, problems)


def _snapshot(observation: Observation, hardware: Hardware) -> NodeSnapshot:
    holdings, devices, reserved, problems = _join(observation, hardware)
    assigned = holdings.memory
    default = _default_cpus(observation, holdings, hardware.machine)
    return NodeSnapshot(
        node_name=observation.node_name,
        node_uid=observation.node_uid,
        machine=hardware.machine,
        kubelet=_kubelet(observation),
        reserved_cpus=reserved,
        default_cpus=default,
        exclusive_cpus=holdings.cpus,
        memory_reserved=_memory_reserved(observation, hardware.machine),
        memory_assigned=None if assigned is None else assigned.assigned,
        machine_state=_machine_state(observation, holdings, hardware.machine),
        memory_unknown=hardware.memory_unknown,
        devices=devices.devices,
        resources_without_devices=devices.resources_without_devices,
        devices_complete=devices.allocatable_known,
        holders=tuple(map(_holder, holdings.containers)),
        offline=dict(hardware.offline),
        isolated=hardware.isolated,
        caches=hardware.caches,
        pods_fingerprint=_fingerprint(observation),
        conditions=(
            *conditions_of(observation, problems),
            *_shared_cpus_condition(observation, holdings, default, hardware.machine),
            *delays_condition(observation, hardware.machine, devices.devices),
        ),
    )


def _in_own_ids(observation: Observation, machine: Machine) -> Observation:
    """Return the memory manager's state by our NUMA ids, where the kubelet has others, such as -1."""
    state, ids = observation.memory_manager, machine.kubelet_ids
    if state is None or all(own == numa for numa, own in ids.items()):
        return observation
    strangers = cpuset.of(own for numa, own in ids.items() if numa not in machine.by_numa)
    tables = {
        ids.get(numa, numa): replace(
            table, cells=table.cells & ~(1 << NOWHERE) | (strangers if table.cells >> NOWHERE & 1 else 0)
        )
        for numa, table in state.machine.items()
    }
    return replace(observation, memory_manager=replace(state, machine=tables))


def _with_known_memory(observation: Observation, hardware: Hardware) -> Hardware:
    """Return the hardware with the memory manager's own figure where sysfs lacks a node's memory."""
    state = observation.memory_manager
    if not hardware.memory_unknown or state is None:
        return hardware
    unknown, nodes = hardware.memory_unknown, []
    for node in hardware.machine.numa_nodes:
        known = state.machine.get(node.id)
        table = known.memory.get(MEMORY) if known is not None else None
        if unknown >> node.id & 1 and table is not None:
            unknown &= ~(1 << node.id)
            nodes.append(node._replace(memory=table.total))
        else:
            nodes.append(node)
    machine = Machine(hardware.machine.cpus, tuple(nodes))
    return replace(hardware, machine=machine, memory_unknown=unknown)


def _kubelet(observation: Observation) -> KubeletSettings | None:
    version = observation.kubelet_version or ""
    if observation.kubelet is not None:
        return kubelet_settings(observation.kubelet, version=version)
    return KubeletSettings(version=version) if version else None


def _default_cpus(observation: Observation, holdings: Holdings, machine: Machine) -> CPUSet | None:
    """The default set as it is once the kubelet has released what ended pods held."""
    state = observation.cpu_manager
    if state is None or cpu_policy(observation) != STATIC_CPU:
        return None
    live = {holding.uid for holding in holdings.containers}
    recorded = CPUState(state.default, state.entries, state.pod_entries).exclusive_cpus_by_pod()
    returned = cpuset.union(cpus for uid, cpus in recorded.items() if uid not in live)
    return (state.default | returned) & machine.all_cpus


def _shared_cpus_condition(
    observation: Observation, holdings: Holdings, default: CPUSet | None, machine: Machine
) -> tuple[Condition, ...]:
    """Name the pods that share exclusive CPUs, if any do.

    What the kubelet has on record is what it decides by, so amounts and predictions hold all the same. Nobody
    seems to share between its writes: it takes a CPU out of the shared set before it records who gets it, and
    the other way round when a pod ends (kubelet 1.36, ``policy_static``).
    """
    held: dict[str, CPUSet] = {}
    names: dict[str, str] = {}
    for holding in holdings.containers:
        pod = holding.uid or f"{holding.namespace}/{holding.pod}"
        held[pod] = held.get(pod, 0) | holding.resources.cpus
        names[pod] = f"{holding.namespace}/{holding.pod}" if holding.pod else f"uid {holding.uid}"
    ages = {pod.uid: pod.created for pod in observation.pods or ()}
    return cpus_exclusive(
        default or 0,
        held,
        name=names.__getitem__,
        created=lambda pod: ages.get(pod, ""),
        alike=machine.alike,
    )


def _memory_reserved(observation: Observation, machine: Machine) -> Mapping[tuple[int, str], int] | None:
    """Bytes kept from pods by NUMA id and type; None where nothing tells."""
    amounts: dict[tuple[int, str], int] = {}
    for node in machine.numa_nodes:
        for kind in (MEMORY, *(hugepage_type(size) for size, _ in node.hugepages)):
            amount = reserved_memory(observation, node.id, kind)
            if amount is None:
                return None
            amounts[node.id, kind] = amount
    return amounts


def _machine_state(observation: Observation, holdings: Holdings, machine: Machine) -> MachineState | None:
    if holdings.memory is None or memory_policy(observation) != STATIC_MEMORY:
        return None
    groups, assignments = holdings.memory.groups, holdings.memory.assignments
    return {
        node.id: NUMANodeState(assignments.get(node.id, 0), {}, groups.get(node.id, 1 << node.id))
        for node in machine.numa_nodes
    }


def _holder(holding: Holding) -> ContainerHolding:
    resources = holding.resources
    return ContainerHolding(
        namespace=holding.namespace,
        pod=holding.pod,
        uid=holding.uid,
        container=resources.name,
        cpus=resources.cpus,
        memory=resources.memory,
        devices=resources.device_ids,
        claims=frozenset(resources.claimed),
    )


def _fingerprint(observation: Observation) -> str:
    """Over the pods that the kubelet takes for active, as other exporters compute it; empty where unknown."""
    ended = {(pod.namespace, pod.name) for pod in observation.pods or () if not pod.active}
    if observation.listed_pods is not None:
        names = {(pod.namespace, pod.name) for pod in observation.listed_pods} - ended
    elif observation.pods is not None:
        names = {(pod.namespace, pod.name) for pod in observation.pods if pod.active}
    else:
        return ""
    return fingerprint(sorted(names))


def _devices_of(observation: Observation, holdings: Holdings) -> PluginDevices:
    """Return all devices, by resource and id."""
    numas: dict[tuple[str, str], int] = {}
    registered = {} if observation.devices is None else observation.devices.registered
    offer = observation.podresources
    if offer is None:
        healthy = {(resource, device) for resource, ids in registered.items() for device in ids}
    else:
        numas = {(device.resource, device.id): device.numa for device in offer.allocatable_devices}
        healthy = set(numas)
    for holding in holdings.containers:
        for device in holding.resources.devices:
            numas.setdefault((device.resource, device.id), device.numa)
    return PluginDevices(
        devices=tuple(KnownDevice(*key, numas[key], healthy=key in healthy) for key in sorted(numas)),
        resources_without_devices=frozenset(registered) - {resource for resource, _ in numas}
        if offer is not None
        else frozenset(),
        allocatable_known=offer is not None or observation.devices is None,
        problems=tuple(_unknown_topology_problems(observation)),
    )


def _unknown_topology_problems(observation: Observation) -> list[Problem]:
    """Report that the checkpoint alone does not say on which NUMA nodes free devices are."""
    if observation.podresources is not None or observation.devices is None:
        return []
    if not any(observation.devices.registered.values()):
        return []
    message = (
        f"{DEVICE_CHECKPOINT} does not show the NUMA nodes of free devices; devices are counted as soon as "
        f"podresources can be read"
    )
    return [Problem(PODRESOURCES, "DeviceTopologyUnknown", message)]
