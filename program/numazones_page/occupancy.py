"""Who holds what of a node's CPUs, memory and devices, told alike for every placement model.

A picture needs less than a decision: the CPUs with their cores, caches and sockets, what each zone has and
has given away, and the pods that hold something exclusively. Each model keeps books of its own; here they
are read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from numazones import cpuset
from numazones.cluster import ClusterNode
from numazones.cpuset import CPUSet
from numazones.kubelet.node import Node as KubeletNode
from numazones.machine import CPU, Machine
from numazones.resources import MEMORY
from numazones_koordinator.amounts import milli
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_topology_aware.node import Node as TopologyAwareNode

_MILLI = 1000


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


def occupancy_of(node: ClusterNode) -> Occupancy | None:
    """Read a node's books; None where its state is not known, or where nothing tells which CPUs it has."""
    if node.state is not None:
        return _kubelet(node.state, node.pod_names)
    match node.policy_state:
        case KoordinatorNode() as state if state.host.topology is not None:
            return _koordinator(state)
        case TopologyAwareNode() as state:
            return _topology_aware(state)
        case _:
            return None


def _kubelet(state: KubeletNode, names: Mapping[str, str]) -> Occupancy:
    kubelet, config = state.kubelet, state.config
    options = (*config.cpu_manager_policy_options, *config.topology_manager_policy_options)
    settings = (
        ("Topology Manager", f"{config.topology_manager_policy}, scope {config.topology_manager_scope}"),
        ("CPU Manager", config.cpu_manager_policy),
        ("Memory Manager", config.memory_manager_policy),
        *((name, value) for name, value in options),
    )
    allocatable, assigned = kubelet.cpus.allocatable(), state.cpus.exclusive_cpus()
    zones = tuple(
        ZoneUse(
            numa,
            ((assigned & cpus).bit_count(), (allocatable & cpus).bit_count()),
            tuple(_memory_of_zone(state, numa)),
            tuple(_devices_of_zone(state, numa)),
        )
        for numa, cpus in state.machine.cpus_of_numa.items()
    )
    return Occupancy(
        state.machine.cpus,
        zones,
        _ordered(_kubelet_holder(state, uid, names.get(uid, f"uid {uid}")) for uid in state.pods),
        reserved=kubelet.cpus.reserved if kubelet.cpus.static else 0,
        exclusive=kubelet.cpus.static,
        settings=settings,
        total_memory=_memory_of(state.machine),
    )


def _memory_of_zone(state: KubeletNode, numa: int) -> Iterator[tuple[str, int, int]]:
    manager = state.kubelet.memory
    for kind, column in sorted(manager.allocatable.items(), key=lambda item: (item[0] != MEMORY, item[0])):
        position = manager.numas.index(numa)
        if column[position]:
            yield kind, column[position] - state.memory.free[kind][position], column[position]


def _devices_of_zone(state: KubeletNode, numa: int) -> Iterator[tuple[str, int, int]]:
    for name, resource in state.kubelet.devices.resources.items():
        here = resource.devices_near(1 << numa) & resource.healthy
        if here:
            yield name, (here & state.devices.allocated.get(name, 0)).bit_count(), here.bit_count()


def _kubelet_holder(state: KubeletNode, uid: str, name: str) -> Holder:
    cpus = cpuset.union((*state.cpus.assignments.get(uid, {}).values(), state.cpus.pods.get(uid, 0)))
    whole = state.memory.pods.get(uid)
    parts = state.memory.assignments.get(uid, {}).values()
    blocks = whole if whole is not None else [block for held in parts for block in held]
    devices: dict[str, int] = {}
    for held in state.devices.assignments.get(uid, {}).values():
        for kind, mask in held.items():
            devices[kind] = devices.get(kind, 0) | mask
    resources = state.kubelet.devices.resources
    return Holder(
        name,
        cpus,
        tuple((block.type, block.size, tuple(cpuset.ids(block.affinity))) for block in blocks if block.size),
        tuple(
            (kind, resources[kind].ids(mask), tuple(sorted({*resources[kind].numas(mask)} - {-1})))
            for kind, mask in devices.items()
        ),
    )


def _koordinator(state: KoordinatorNode) -> Occupancy:
    host = state.host
    topology = host.topology
    assert topology is not None  # noqa: S101 - the caller looked
    names = {uid: "/".join(member.key) for uid, member in state.members.items()}
    zones = []
    for numa, cpus in sorted(topology.numas.items()):
        whole = milli(host.zone_of.get(numa, {}).get(MEMORY, 0)) // _MILLI
        held = milli((state.allocated_amounts(numa) or {}).get(MEMORY, 0)) // _MILLI
        zones.append(
            ZoneUse(
                numa,
                ((state.used_cpus & cpus).bit_count(), (cpus & ~host.reserved).bit_count()),
                ((MEMORY, held, whole),) if whole else (),
            )
        )
    return Occupancy(
        tuple(CPU(cpu.id, cpu.core, cpu.socket, 0, cpu.numa) for cpu in topology.cpus),
        tuple(zones),
        _ordered(Holder(names.get(uid, f"uid {uid}"), given.cpus) for uid, given in state.books.pods.items()),
        reserved=host.reserved,
        settings=(
            ("Placement", "Koordinator's scheduler"),
            ("NUMA policy", host.topology_policy or "none"),
            ("CPU bind policy", host.bind_policy.value),
        ),
    )


def _topology_aware(state: TopologyAwareNode) -> Occupancy:
    policy = state.policy
    machine = policy.topology.hardware.machine
    given: dict[str, CPUSet] = {}
    memory: dict[str, list[tuple[str, int, tuple[int, ...]]]] = {}
    for name, grant in state.grants.items():
        sandbox = state.containers[name].sandbox
        pod = f"{sandbox.namespace}/{sandbox.name}"
        given[pod] = given.get(pod, 0) | grant.exclusive
        if grant.memory:
            memory.setdefault(pod, []).append((MEMORY, grant.memory, tuple(cpuset.ids(grant.zone))))
    held = cpuset.union(given.values())
    zones = []
    for numa, cpus in machine.cpus_of_numa.items():
        whole = machine.by_numa[numa].memory
        used = sum(size for parts in memory.values() for _, size, numas in parts if numas == (numa,))
        allocatable = policy.available & ~policy.reserved & cpus
        zones.append(
            ZoneUse(
                numa,
                ((held & cpus).bit_count(), allocatable.bit_count()),
                ((MEMORY, min(used, whole), whole),) if whole else (),
            )
        )
    return Occupancy(
        machine.cpus,
        tuple(zones),
        _ordered(Holder(pod, cpus, tuple(memory.get(pod, ()))) for pod, cpus in given.items()),
        reserved=policy.reserved,
        settings=(("Placement", "NRI topology-aware policy"),),
        total_memory=_memory_of(machine),
    )


def _memory_of(machine: Machine) -> dict[int, int]:
    return {node.id: node.memory for node in machine.numa_nodes}


def _ordered(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """Those with CPUs first, by the lowest; who holds nothing at all is left out."""
    holding = [holder for holder in holders if holder.cpus or holder.memory or holder.devices]
    return tuple(sorted(holding, key=lambda item: (not item.cpus, item.cpus & -item.cpus, item.name)))
