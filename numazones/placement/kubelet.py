"""The kubelet's placement: its admission and its node, behind the protocol of all models.

Explanations and the checks of bound pods are loaded when they are asked for: who only looks at what is held
needs neither.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, Self, TypeVar

from numazones import cpuset
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cpuset import CPUSet
from numazones.kubelet.admission import Admission, ContainerAllocation, admit, after_start, remove
from numazones.kubelet.amounts import Amounts, amounts_of, follows_from_amounts
from numazones.kubelet.config import SCOPE_POD, SINGLE_NUMA_NODE
from numazones.kubelet.demand import Demand
from numazones.kubelet.machine import Machine, name_numas, numas_of
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.topology_manager import DEFAULT_MAX_NUMA_NODES
from numazones.placement import (
    Decision,
    Given,
    Info,
    Placement,
    Room,
    Shortfall,
    Unknown,
    UnreadableNode,
    fragmentation,
)
from numazones.placement.fragmentation import Shape
from numazones.placement.model import Model, NodeObjects
from numazones.placement.occupancy import (
    DeviceUse,
    HeldDevices,
    Holder,
    Occupancy,
    ZoneUse,
    in_order,
    zone_uses,
)

if TYPE_CHECKING:
    from numazones.kubelet.node_admission import NodeAdmission
    from numazones.kubelet.node_info import PodInfo

KUBELET = "kubelet"
SOURCE = "Kubelet"

_MAX_HOLDERS = 5
_ENDS_WITH_ZONES = re.compile(r"(NUMA nodes? [0-9][-0-9, and]*)(\)?)$")


def _read(objects: NodeObjects) -> "KubeletPlacement":
    if objects.kubelet is None:
        raise UnreadableNode("no readable NUMAZones have been published for the node")
    return KubeletPlacement(objects.kubelet)


KUBELET_MODEL = Model(name=KUBELET, decider="the kubelet", source=SOURCE, read=_read, movable=True)
"""The kubelet, who decides where no other model is shown."""


@dataclass(frozen=True, slots=True)
class KubeletPlacement:
    """A node on which the kubelet alone decides."""

    node: Node
    approximate: bool = False
    _amounts: Amounts | None = field(default=None, init=False, compare=False, repr=False)

    model: ClassVar[Model] = KUBELET_MODEL

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""
        return (KUBELET, self.node.state_key, self.approximate)

    @property
    def amounts(self) -> Amounts:
        """The node's amounts, which decide alike where ``KubeletDecision.follows_from_amounts``."""
        known = self._amounts
        if known is None:
            known = amounts_of(self.node)
            object.__setattr__(self, "_amounts", known)
        return known

    @property
    def kubelet(self) -> Node:
        """Return the node that the kubelet decides from."""
        return self.node

    @property
    def room(self) -> Room:
        """Return what NUMA nodes have left for exclusive use."""
        amounts = fragmentation.room(self.node)
        return Room(amounts, amounts.get(CPU, {}))

    def for_scheduler(self, _name: str) -> Self:
        """Return itself: a kubelet decides about all pods."""
        return self

    def admit(self, pod: Pod) -> "KubeletDecision":
        """Decide on a pod that is new to the node.

        Raises:
            KubeletCrash, KubeletHang: the kubelet would not decide.
        """
        return decision_of(admit(self.node, pod), self)

    def after(self, _pod: Pod, decision: Decision) -> Placement:
        """Return the placement with an admitted pod."""
        return decision.placement

    def admit_bound(self, pod: "PodInfo", info: Info) -> "BoundKubeletDecision":
        """Decide on a pod that is bound to the node, with all of the kubelet's checks.

        Raises:
            KubeletCrash, KubeletHang: the kubelet would not decide.
        """
        from numazones.kubelet.node_admission import admit_to_node  # noqa: PLC0415 - see above

        said = admit_to_node(info(self.node), pod)
        return BoundKubeletDecision(self, said.reason, said.message, checks=said, uid=pod.pod.uid)

    def remove(self, uid: str) -> "KubeletPlacement":
        """Return the placement after a pod ended or was deleted."""
        after = remove(self.node, uid)
        return self if after is self.node else KubeletPlacement(after, self.approximate)

    def started(self, pod: Pod) -> "KubeletPlacement":
        """Return the placement once the containers of a pod it holds have started."""
        after = after_start(self.node, pod)
        return self if after is self.node else KubeletPlacement(after, self.approximate)

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy:
        """Return what each NUMA node has and who holds what."""
        node, kubelet, config = self.node, self.node.kubelet, self.node.config
        options = (*config.cpu_manager_policy_options, *config.topology_manager_policy_options)
        settings = (
            ("Topology Manager", f"{config.topology_manager_policy}, scope {config.topology_manager_scope}"),
            ("CPU Manager", config.cpu_manager_policy),
            ("Memory Manager", config.memory_manager_policy),
            *((name, value) for name, value in options),
        )
        allocatable, assigned = kubelet.cpus.allocatable(), node.cpus.exclusive_cpus()
        available = kubelet.cpus.available(node.cpus) if kubelet.cpus.static else 0
        memory = _memory_by_numa(node)
        zones = tuple(
            ZoneUse(
                numa,
                ((assigned & cpus).bit_count(), (allocatable & cpus).bit_count()),
                (available & cpus).bit_count(),
                memory.get(numa, ()),
                tuple(_devices_of_zone(node, numa)),
            )
            for numa, cpus in node.machine.cpus_of_numa.items()
        )
        return Occupancy(
            config.topology_manager_policy,
            f"{config.topology_manager_policy}, scope {config.topology_manager_scope}, CPU manager "
            f"{config.cpu_manager_policy}, memory manager {config.memory_manager_policy}",
            node.machine.cpus,
            zones,
            ()
            if names is None
            else in_order(_holder(node, uid, names.get(uid, f"uid {uid}")) for uid in node.pods),
            reserved=kubelet.cpus.reserved if kubelet.cpus.static else 0,
            exclusive=kubelet.cpus.static,
            settings=settings,
            total_memory=node.machine.memory_of_numa,
            distances=node.machine.distances,
            offline=node.machine.offline_of_numa,
        )


@dataclass(frozen=True, kw_only=True)
class KubeletDecision(Decision):
    """Decision of the kubelet's resource managers."""

    admission: Admission = field(repr=False)

    @property
    def placement(self) -> KubeletPlacement:
        """Return the placement for the next pod."""
        return KubeletPlacement(self.admission.node, self.before.approximate)

    @property
    def unstarted(self) -> KubeletPlacement:
        """The same as ``placement`` until the pod's containers have started."""
        return KubeletPlacement(self.admission.fresh, self.before.approximate)

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes, ascending, that an admitted pod gets something of."""
        return fragmentation.zones_of(self.admission.node, self.admission.pod.uid)

    @property
    def shares(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return (container, NUMA nodes that it gets something of)."""
        numas = self.admission.node.machine.cpus_of_numa
        given = self.admission.containers.items()
        return tuple((name, tuple(cpuset.ids(_numas(share, numas)))) for name, share in given)

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""
        return self.admission.node.cpus.held_by(self.admission.pod.uid)

    @property
    def follows_from_amounts(self) -> bool:
        """Return whether nodes with equal amounts admit the pod with the same effect and NUMA nodes."""
        return follows_from_amounts(self.admission)

    @property
    def closeness(self) -> float:
        """Tell nodes that nearly fit from those that do not by far, cheaply; the explanation is exact."""
        return _closeness(self.admission.pod, self.admission.before)

    def shortfall(self, node: str) -> Shortfall:
        """Say what is missing on the node of that name, and who holds it."""
        from numazones.kubelet.explanation import explain  # noqa: PLC0415 - see above

        found = explain(self.admission)
        brief = "; ".join(map(str, found.shortages)) or found.shortfall
        sentence = f"{found.shortfall} ({node})"
        if zones := _ENDS_WITH_ZONES.search(found.shortfall):
            sentence = f"{found.shortfall[: zones.end(1)]} of {node}{zones[2]}"
        line = f"{self.reason}: {found.shortfall}"
        return Shortfall(sentence, brief, found.holders[:_MAX_HOLDERS], line)

    def explain(self) -> tuple[str, ...]:
        """Explain the decision: hints, merges, what was missing, the verdict."""
        from numazones.kubelet.explanation import explain  # noqa: PLC0415 - see above

        if self.admitted:
            verdict = f"admitted, on {name_numas(cpuset.of(self.zones))}" if self.zones else "admitted"
        else:
            verdict = f"{self.reason}: {self.message}"
        return (*explain(self.admission).lines(), verdict)


def decision_of(admission: Admission, before: KubeletPlacement | None = None) -> KubeletDecision:
    """Return what a kubelet's resource managers decided as a placement's decision."""
    before = KubeletPlacement(admission.before) if before is None else before
    return KubeletDecision(before, admission.reason, admission.message, admission=admission)


@dataclass(frozen=True, kw_only=True)
class BoundKubeletDecision(Decision):
    """Decision of a kubelet, with all of its checks, about a pod that is bound to its node."""

    checks: "NodeAdmission" = field(repr=False)
    uid: str

    @property
    def by_kubelet(self) -> "NodeAdmission":
        """The decision of the kubelet: itself."""
        return self.checks

    @property
    def holds_nothing(self) -> bool:
        """Return whether the kubelet rejects the pod, so that the node holds nothing for it."""
        return not self.admitted

    @property
    def placement(self) -> KubeletPlacement:
        """Return the placement for the next pod."""
        return KubeletPlacement(self.checks.state)

    @property
    def preempted(self) -> tuple[str, ...]:
        """UIDs of the pods that make room for a critical one."""
        return self.checks.preempted

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes, ascending, that an admitted pod gets something of."""
        return fragmentation.zones_of(self.checks.state, self.uid)

    @property
    def shares(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return (container, NUMA nodes that it gets something of)."""
        managers = self.checks.managers
        return () if managers is None else decision_of(managers).shares

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""
        return self.checks.state.cpus.held_by(self.uid)

    @property
    def spans(self) -> bool:
        """Return whether an admitted pod has a container with resources of several NUMA nodes."""
        managers = self.checks.managers
        if managers is None or not self.admitted:
            return False
        numas = managers.node.machine.cpus_of_numa
        return any(_numas(share, numas).bit_count() > 1 for share in managers.containers.values())

    def explain(self) -> tuple[str, ...]:
        """Explain what the resource managers decided, where the pod came so far."""
        from numazones.kubelet.explanation import explain  # noqa: PLC0415 - see above

        managers = self.checks.managers
        return () if managers is None else tuple(explain(managers).lines())


class _State(Protocol):
    """State that a model decides from."""

    @property
    def state_key(self) -> Hashable:
        """Nodes with equal keys decide alike on pods that are new to them."""


State = TypeVar("State", bound=_State)


@dataclass(frozen=True, slots=True)
class PlacementAboveKubelet(ABC, Generic[State]):
    """A node on which a model places pods, and the kubelet, which leaves that alone, makes its own checks."""

    node: State
    beneath: KubeletPlacement | None = None
    """The node's kubelet; None: not known."""

    model: ClassVar[Model]
    approximate: ClassVar[bool] = False
    kubelet: ClassVar[None] = None

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""
        return (self.model.name, self.node.state_key)

    @property
    @abstractmethod
    def room(self) -> Room:
        """Return what NUMA nodes have left."""

    @abstractmethod
    def without(self, uid: str) -> State:
        """Return the model's state after a pod ended or was deleted; unknown pods change nothing."""

    @abstractmethod
    def admit(self, pod: Pod) -> Decision:
        """Decide on a pod that is new to the node."""

    @abstractmethod
    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; see ``Placement``."""

    def given(self, node: State, cpus: CPUSet = 0, numas: CPUSet = 0) -> Given:
        """Return what a pod is given, by the model's state afterwards."""
        return Given(replace(self, node=node), cpus, numas)

    def occupied(
        self,
        machine: Machine,
        holders: Collection[Holder],
        *,
        reserved: CPUSet,
        allocatable: CPUSet = -1,
        free: Mapping[int, int] | None = None,
        memory: Mapping[int, tuple[int, int]] = MappingProxyType({}),
        placed_by: str = "",
    ) -> Occupancy:
        """Return what each NUMA node has of a machine whose CPUs, and perhaps memory, are given to pods.

        ``free`` as in ``Room.cpus``, where that is by NUMA node; ``memory``: NUMA id → (held, all) bytes.
        """
        zones = zone_uses(
            machine.cpus_of_numa,
            held=cpuset.union(holder.cpus for holder in holders),
            allocatable=allocatable & ~reserved,
            free=self.room.cpus if free is None else free,
            memory=memory,
        )
        return Occupancy(
            self.model.name,
            self.model.decider,
            machine.cpus,
            zones,
            in_order(holders),
            reserved=reserved,
            settings=(("Placement", placed_by or self.model.decider),),
            total_memory=machine.memory_of_numa,
            distances=machine.distances,
            offline=machine.offline_of_numa,
        )

    def for_scheduler(self, _name: str) -> "Placement | Unknown":
        """Return itself: the model places the pods of all schedulers."""
        return self

    def after(self, _pod: Pod, decision: Decision) -> Placement:
        """Return the placement with an admitted pod."""
        return decision.placement

    def admit_bound(self, pod: "PodInfo", info: Info) -> Decision:
        """Decide on a bound pod: the checks of its kubelet, where that is known, then the model's.

        Raises:
            NumazonesError: no verdict is known.
        """
        without = replace(self, node=self.without(pod.pod.uid))
        if self.beneath is not None:
            by_kubelet = self.beneath.admit_bound(pod, info)
            if not by_kubelet.admitted:
                return by_kubelet
        return without.admit(pod.pod)

    def remove(self, uid: str) -> Self:
        """Return the placement after a pod ended or was deleted."""
        beneath = None if self.beneath is None else self.beneath.remove(uid)
        return replace(self, node=self.without(uid), beneath=beneath)


def fitting_by_amounts(node: Node, shape: Shape) -> int | None:
    """Return how many further pods of a shape, of one container, a kubelet admits; None: amounts don't tell.

    They do under single-numa-node, where each pod needs one NUMA node that has enough of everything,
    and takes nothing of the others: as long as whole cores are not asked for in parts, no device is near
    several NUMA nodes, and no NUMA nodes are bound together for memory. They don't show where a kubelet
    would crash or hang, on machines with many NUMA nodes or large ids.
    """
    kubelet, config, machine = node.kubelet, node.config, node.machine
    if (
        config.topology_manager_policy != SINGLE_NUMA_NODE
        or len(machine.numa_nodes) > DEFAULT_MAX_NUMA_NODES
        or machine.unmaskable
        or not kubelet.cpus.static
        or (kubelet.cpus.full_cores_only and shape.cpus % kubelet.cpus.topology.cpus_per_core)
        or any(group.bit_count() > 1 for group in node.memory.groups)
    ):
        return None
    for name, _ in shape.resources:
        resource = kubelet.devices.resources.get(name)
        if name in {CPU, MEMORY}:
            continue
        if resource is None or not resource.registered:
            return None
        if any(mask.bit_count() != 1 for mask in resource.numa_masks):
            return None
    return fragmentation.fragmentation(node, shape).fitting


def _numas(share: ContainerAllocation, numas: Mapping[int, CPUSet]) -> CPUSet:
    """Return the mask of the NUMA nodes that a container's CPUs, memory and devices are on."""
    mask = numas_of(numas, share.cpus)
    mask |= cpuset.union(block.affinity for block in share.memory)
    for near in share.device_numas.values():
        mask |= cpuset.of(numa for numa in near if numa in numas)
    return mask


def _closeness(pod: Pod, node: Node) -> float:
    pod_demand = node.kubelet.demand_of(pod)
    whole: tuple[Demand, ...] = (pod_demand.total,)
    free = fragmentation.room(node)
    shares = [1.0]
    for demand in whole if node.config.topology_manager_scope == SCOPE_POD else pod_demand.demands:
        needs = {**dict(demand.limits), **dict(demand.memory or ()), CPU: demand.cpus}
        bound = [(zones, needs[name]) for name, zones in free.items() if needs.get(name, 0) > 0]
        numas = {numa for zones, _ in bound for numa in zones}
        shares.append(
            max((min(zones.get(numa, 0) / need for zones, need in bound) for numa in numas), default=1.0)
        )
    return min(shares)


# What is held


def _memory_by_numa(node: Node) -> dict[int, tuple[tuple[str, int, int], ...]]:
    """Return NUMA id → (type, held, allocatable) of the memory there is."""
    manager, free = node.kubelet.memory, node.memory.free
    columns = sorted(manager.allocatable.items(), key=lambda item: (item[0] != MEMORY, item[0]))
    return {
        numa: tuple(
            [
                (kind, column[position] - free[kind][position], column[position])
                for kind, column in columns
                if column[position]
            ]
        )
        for position, numa in enumerate(manager.numas)
    }


def _devices_of_zone(node: Node, numa: int) -> Iterator[DeviceUse]:
    for name, resource in node.kubelet.devices.resources.items():
        here = resource.devices_near(1 << numa)
        healthy = here & resource.healthy
        if here:
            held = healthy & node.devices.allocated.get(name, 0)
            yield DeviceUse(name, held.bit_count(), healthy.bit_count(), here.bit_count())


def _holder(node: Node, uid: str, name: str) -> Holder:
    names = dict.fromkeys(
        name
        for held in (node.cpus.assignments, node.memory.assignments, node.devices.assignments)
        for name in held.get(uid, {})
    )
    containers = tuple(_container(node, uid, container) for container in names)
    cpus = cpuset.union((*(one.cpus for one in containers), node.cpus.pods.get(uid, 0)))
    whole = node.memory.pods.get(uid)
    devices: dict[str, int] = {}
    for held in node.devices.assignments.get(uid, {}).values():
        for kind, mask in held.items():
            devices[kind] = devices.get(kind, 0) | mask
    return Holder(
        name,
        uid,
        cpus,
        tuple(part for one in containers for part in one.memory) if whole is None else _memory(whole),
        tuple(_held_devices(node, kind, mask) for kind, mask in devices.items()),
        containers,
    )


def _container(node: Node, uid: str, name: str) -> Holder:
    devices = node.devices.assignments.get(uid, {}).get(name, {})
    return Holder(
        name,
        uid,
        node.cpus.assignments.get(uid, {}).get(name, 0),
        _memory(node.memory.assignments.get(uid, {}).get(name, ())),
        tuple(_held_devices(node, kind, mask) for kind, mask in devices.items()),
    )


def _memory(blocks: Iterable[Block]) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    return tuple(
        (block.type, block.size, tuple(cpuset.ids(block.affinity))) for block in blocks if block.size
    )


def _held_devices(node: Node, name: str, mask: int) -> HeldDevices:
    """Return held devices; NUMA nodes that the machine lacks are left out of what a plugin says."""
    resource, known = node.kubelet.devices.resources[name], node.machine.numa_mask
    return HeldDevices(
        name, resource.ids(mask), tuple(resource.numa_masks[number] & known for number in cpuset.ids(mask))
    )
