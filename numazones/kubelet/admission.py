"""The kubelet's decision about a pod: ``admit(node, pod)`` and ``remove(node, uid)``.

Rules: ``topologymanager/scope*`` of kubelet 1.36 and what surrounds it in the life of a pod. Hint providers
are asked in the order Device, CPU, Memory Manager. An admitted pod's containers are taken as
started, which frees the memory of its ordinary init containers; until then, while these run, the
kubelet keeps it for them (``Admission.fresh``). A rejected pod's partial grants are
freed again; that need not restore the state before (memory groups may be drained differently, and
single threads given out twice come back), so a rejection has a new node as well.

Other admission checks of the kubelet, such as the node-resources check that follows, are not made
here; ``allocatable`` amounts of a node are the scheduler's business.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from numazones.apimachinery.resources import CPU, is_memory
from numazones.cpuset import CPUSet
from numazones.errors import expect
from numazones.kubelet import pod_level
from numazones.kubelet.config import POLICY_NONE
from numazones.kubelet.demand import Container, ContainerKind, Demand, QOSClass
from numazones.kubelet.hints import Hint, ResourceHints, unsatisfiable
from numazones.kubelet.machine_state import Block
from numazones.kubelet.memory_manager import Requests, Reusable, hand_on, shrink_reused
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.pod_level import EmptySharedPool
from numazones.kubelet.rejection import EMPTY_POD_SHARED_POOL, TOPOLOGY_AFFINITY, Rejection

_NO_AFFINITY = Hint(None, preferred=False)
_NO_LOCALITY = "Resources cannot be allocated with Topology locality"
# Of pods with pod-level resources where the kubelet serves them as a whole; the texts are the kubelet's.
_NO_LOCALITY_OF_POD = (
    "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
)
_NO_LOCALITY_OF_CONTAINER = (
    "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
)


class ContainerAllocation(NamedTuple):
    """Resources that a container was given.

    >>> from numazones import build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> given = admit(node, build.pod(cpu=2, memory="1Gi")).containers["main"]
    >>> given.cpus.bit_count()
    2
    """

    cpus: CPUSet
    """Exclusive CPUs, or the pod's that it shares; 0: the container runs in the node's shared set."""
    memory: tuple[Block, ...]
    devices: Mapping[str, tuple[str, ...]]
    """Resource → device ids."""
    device_numas: Mapping[str, tuple[int, ...]]
    """Resource → NUMA ids of the devices, -1 for a device without topology information."""
    affinity: Hint
    """What the Topology Manager stored for the container."""


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """Resources that a pod was given as a whole."""

    cpus: CPUSet
    memory: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about one pod.

    >>> from numazones import build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> decision = admit(node, build.pod(cpu=9, memory="1Gi"))
    >>> decision.admitted, decision.reason
    (False, 'TopologyAffinityError')
    """

    admitted: bool
    reason: str
    """Of a rejection, as in the pod's status; empty if admitted."""
    message: str
    """Of a rejection, as in the pod's status without ``Pod was rejected: ``; empty if admitted."""
    affinities: Mapping[str, Hint]
    """Container name → what the Topology Manager stored for it; empty if rejected."""
    node: Node = field(repr=False)
    """The node afterwards; of an admitted pod, once all its containers have started."""
    pod: Pod = field(repr=False)
    before: Node = field(repr=False)
    """The node decided on."""
    unstarted: Node | None = field(default=None, repr=False)
    """The node until then, where ordinary init containers hold memory of their own; None if rejected."""

    @property
    def fresh(self) -> Node:
        """The node right after the decision, before the pod's containers start."""
        return self.node if self.unstarted is None else self.unstarted

    @property
    def containers(self) -> dict[str, ContainerAllocation]:
        """Container name → what it was given; empty if rejected."""
        node, uid = self.fresh, self.pod.uid
        return {name: _allocation(node, uid, name, affinity) for name, affinity in self.affinities.items()}

    @property
    def whole(self) -> PodAllocation | None:
        """Return what the pod was given as a whole, if it is served so; containers get parts of it."""
        if not self.admitted:  # CPUs whose division failed stay with the pod, see ``CPUState.remove``
            return None
        cpus, memory = self.fresh.cpus.pods.get(self.pod.uid), self.fresh.memory.pods.get(self.pod.uid)
        return None if cpus is None and memory is None else PodAllocation(cpus or 0, memory or ())


Observer = Callable[[str, Sequence[ResourceHints], Hint, bool], None]
"""Told about every merge: container (empty: the pod as a whole), hints, merged hint, admitted."""


def admit(node: Node, pod: Pod) -> Admission:
    """Decide on a pod.

    Args:
        node: the kubelet and what it has assigned so far; it stays as it is.
        pod: one that the node does not know yet; it is identified by its UID.

    Raises:
        KubeletCrash, KubeletHang: the kubelet would not decide.
        WrongType: an argument is something else.

    >>> from numazones import build, cpuset
    >>> node = build.node(build.machine(numa=2, cores=8, threads=1, memory="16Gi"))
    >>> decision = admit(node, build.pod("web", cpu=3, memory="1Gi"))
    >>> decision.admitted, cpuset.format(decision.containers["main"].cpus)
    (True, '1-3')
    """
    expect(node, Node, "use build.node or node_from_zones; for a ClusterNode, pass its state")
    expect(pod, Pod, "use build.pod or Pod.from_api")
    attempt = Attempt(node, pod)
    try:
        attempt.run()
    except Rejection as rejection:
        after = remove(attempt.node(), pod.uid)
        return Admission(False, rejection.reason, rejection.message, {}, after, pod, node)
    granted = attempt.node()
    return Admission(True, "", "", attempt.affinities, after_start(granted, pod), pod, node, granted)


def remove(node: Node, uid: str) -> Node:
    """Return the node after a pod ended or was deleted; an unknown pod changes nothing.

    Args:
        node: as it was before; it stays as it is.
        uid: the pod's.

    >>> from numazones import build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> full = admit(node, build.pod("web", cpu=6, memory="1Gi")).node
    >>> remove(full, "web") == node
    True
    """
    if not node.holds(uid):
        return node
    memory = node.memory
    if uid in memory.assignments:
        memory = node.kubelet.memory.remove(memory, uid, sorted(memory.assignments[uid]))
    return Node(node.kubelet, node.cpus.remove(uid), memory, node.devices.remove(uid))


def after_start(node: Node, pod: Pod) -> Node:
    """Return the node once a pod's containers have all started: its init containers gave memory back."""
    inits = [container.name for container in pod.containers if container.kind is ContainerKind.INIT]
    if not inits or pod.uid not in node.memory.assignments:
        return node
    return Node(
        node.kubelet, node.cpus, node.kubelet.memory.remove(node.memory, pod.uid, inits), node.devices
    )


def _allocation(node: Node, uid: str, container: str, affinity: Hint) -> ContainerAllocation:
    """Return what a container holds on a node."""
    resources = node.kubelet.devices.resources
    held = node.devices.assignments.get(uid, {}).get(container, {})
    return ContainerAllocation(
        cpus=node.cpus.assignments.get(uid, {}).get(container, 0),
        memory=node.memory.assignments.get(uid, {}).get(container, ()),
        devices={kind: resources[kind].ids(devices) for kind, devices in held.items()},
        device_numas={kind: resources[kind].numas(devices) for kind, devices in held.items()},
        affinity=affinity,
    )


class Manager(Enum):
    """The managers that allocate resources to containers."""

    DEVICE = "Device Manager"
    CPU = "CPU Manager"
    MEMORY = "Memory Manager"


class Attempt:
    """One admission in progress: the states as they change from container to container."""

    def __init__(self, node: Node, pod: Pod, observer: Observer | None = None) -> None:
        self.kubelet = node.kubelet
        self.pod = pod
        self.observer = observer
        self.cpus = node.cpus
        self.memory = node.memory
        self.devices = node.devices
        # What ordinary init containers of the pod leave to its later containers.
        self.reusable_cpus: CPUSet = 0
        self.reusable_memory: Reusable = {}
        self.reusable_devices: Mapping[str, int] = {}
        # Ordinary init containers that have got their memory.
        self.inits: list[str] = []
        self.affinities: dict[str, Hint] = {}
        # Who is being served: a container's name, or "" for the pod as a whole.
        self.asking = ""
        self.pod_demand = self.kubelet.demand_of(pod)
        # The pod's containers, each with what it asks for.
        self.members = list(zip(pod.containers, self.pod_demand.demands, strict=True))
        self._demand: Demand | None = None
        self.serving: Manager | None = None
        self.gives_devices = bool(self.kubelet.devices.resources)
        self.pins_cpus = self.pod_demand.served and self.kubelet.cpus.static
        guaranteed = self.pod_demand.qos is QOSClass.GUARANTEED
        self.pins_memory = self.pod_demand.served and self.kubelet.memory.static and guaranteed
        # Why a pod that is served as a whole would leave nothing to the containers that share.
        self.empty_pool: EmptySharedPool | None = None

    @property
    def demand(self) -> Demand:
        """The demand of the container, or of the pod as a whole, that is being served."""
        return self._demand or self.pod_demand.total

    def node(self) -> Node:
        """Return the node with what has been allocated so far."""
        return Node(self.kubelet, self.cpus, self.memory, self.devices)

    def run(self) -> None:
        """Merge and allocate, container by container.

        Raises:
            Rejection: the pod is rejected; grants so far are kept.
            KubeletCrash, KubeletHang: the kubelet would not decide.
        """
        topology = self.kubelet.topology
        topology.check()
        whole = None
        if topology.pod_scope:
            whole = self._merge(self._pod_hints())
            if self.pod_demand.managed:
                self._allocate_whole(whole)
                return
        for container, demand in self.members:
            self.asking, self._demand = container.name, demand
            hint = _NO_AFFINITY
            if whole is not None:
                hint = whole
            elif topology.policy != POLICY_NONE:
                hint = self._merge(self._container_hints(container, demand))
            self.affinities[container.name] = hint
            self._allocate(container, demand, hint)

    def _merge(self, hints: Sequence[ResourceHints]) -> Hint:
        hint, admitted = self.kubelet.topology.merge(hints, self._is_fuller, self._score)
        if self.observer is not None:
            self.observer(self.asking, hints, hint, admitted)
        if not admitted:
            raise Rejection(self._no_locality(), reason=TOPOLOGY_AFFINITY)
        return hint

    def _no_locality(self) -> str:
        if not self.pod_demand.managed:
            return _NO_LOCALITY
        return _NO_LOCALITY_OF_POD if self.kubelet.topology.pod_scope else _NO_LOCALITY_OF_CONTAINER

    def _container_hints(self, container: Container, demand: Demand) -> list[ResourceHints]:
        uid, name = self.pod.uid, container.name
        hints: list[ResourceHints] = []
        if self.gives_devices:
            hints.extend(
                self.kubelet.devices.container_hints(
                    self.devices, uid, name, demand.limits, self.reusable_devices
                )
            )
        if self.pins_cpus and demand.cpus:
            hints.append(
                self.kubelet.cpus.container_hints(self.cpus, uid, name, demand.cpus, self.reusable_cpus)
            )
        if self.pins_memory and demand.memory is not None:
            hints.extend(
                self.kubelet.memory.container_hints(
                    self.memory, uid, name, demand.memory, self.reusable_memory
                )
            )
        return hints

    def _pod_hints(self) -> list[ResourceHints]:
        pod, total = self.pod, self.pod_demand.total
        hints: list[ResourceHints] = []
        if self.gives_devices:
            hints.extend(self.kubelet.devices.pod_hints(self.devices, pod.uid, total.limits))
        if self.pins_cpus and total.cpus:
            hints.append(self._pod_cpu_hints())
        if self.pins_memory and total.memory is not None:
            if self._empty_memory_pool(total.memory):
                hints.extend(unsatisfiable(kind) for kind, _ in total.memory)
            else:
                names = [container.name for container in pod.containers]
                hints.extend(self.kubelet.memory.pod_hints(self.memory, pod.uid, names, total.memory))
        return hints

    def _pod_cpu_hints(self) -> ResourceHints:
        if self._empty_cpu_pool():
            return unsatisfiable("cpu")
        requests = {container.name: demand.cpus for container, demand in self.members}
        return self.kubelet.cpus.pod_hints(
            self.cpus, self.pod.uid, requests, self.pod_demand.total.cpus, self.reusable_cpus
        )

    def _empty_cpu_pool(self) -> EmptySharedPool | None:
        """Return why a pod as a whole leaves no CPUs to containers that share; None if it leaves some."""
        if not self.pod_demand.managed:
            return None
        found = pod_level.empty_cpu_pool(self.members, self.pod_demand.total.cpus)
        self.empty_pool = self.empty_pool or found
        return found

    def _empty_memory_pool(self, total: Requests) -> EmptySharedPool | None:
        """The same for memory."""
        if not self.pod_demand.managed:
            return None
        found = pod_level.empty_memory_pool(self.members, total)
        self.empty_pool = self.empty_pool or found
        return found

    def _allocate_whole(self, hint: Hint) -> None:
        """Give a pod with pod-level resources all its CPUs and memory at once, then divide them.

        The Device Manager does nothing here: devices follow when the containers start.
        """
        total = self.pod_demand.total
        self.affinities = {container.name: hint for container in self.pod.containers}
        if self.pins_cpus and total.cpus:
            self.serving = Manager.CPU
            self._allocate_whole_cpus(total.cpus, hint)
        if self.pins_memory and total.memory is not None:
            self.serving = Manager.MEMORY
            self._allocate_whole_memory(total.memory, hint)

    def _allocate_whole_cpus(self, request: int, hint: Hint) -> None:
        manager, uid = self.kubelet.cpus, self.pod.uid
        if manager.keeps_pods and uid in self.cpus.pods:
            return
        if emptied := self._empty_cpu_pool():
            raise Rejection(emptied.message, reason=EMPTY_POD_SHARED_POOL)
        self.cpus = manager.allocate_pod(self.cpus, uid, request=request, affinity=hint.affinity)
        # Taken before it is divided: where the division fails, the kubelet does not give it back.
        parts = pod_level.divide_cpus(manager.topology, manager.strategy, self.cpus.pods[uid], self.members)
        self.cpus = self.cpus.divide(uid, parts)

    def _allocate_whole_memory(self, total: Requests, hint: Hint) -> None:
        uid = self.pod.uid
        if self.kubelet.memory.keeps_pods and uid in self.memory.pods:
            return
        if emptied := self._empty_memory_pool(total):
            raise Rejection(emptied.message, reason=EMPTY_POD_SHARED_POOL)
        charged, affinity = self.kubelet.memory.allocate_pod(self.memory, requests=total, hint=hint)
        blocks = tuple(Block(affinity, kind, amount) for kind, amount in total)
        self.memory = charged.record_pod(uid, blocks, pod_level.divide_memory(affinity, total, self.members))

    def _allocate(self, container: Container, demand: Demand, hint: Hint) -> None:
        """Let each manager give the container its share; hand on what init containers leave."""
        if self.gives_devices:
            self.serving = Manager.DEVICE
            self._allocate_devices(container, demand, hint)
        if self.pins_cpus and demand.cpus:
            self.serving = Manager.CPU
            self._allocate_cpus(container, demand, hint)
        if self.pins_memory:
            self.serving = Manager.MEMORY
            self._allocate_memory(container, demand, hint)

    def _allocate_devices(self, container: Container, demand: Demand, hint: Hint) -> None:
        uid, name = self.pod.uid, container.name
        self.devices = self.kubelet.devices.allocate(
            self.devices,
            uid,
            name,
            limits=demand.limits,
            affinity=hint.affinity,
            reusable=self.reusable_devices,
            claimed=self.pod.claimed_resources,
        )
        held = self.devices.assignments.get(uid, {}).get(name)
        if held:
            left = dict(self.reusable_devices)
            for resource, devices in held.items():
                own = left.get(resource, 0)
                left[resource] = own | devices if container.kind is ContainerKind.INIT else own & ~devices
            self.reusable_devices = left

    def _allocate_cpus(self, container: Container, demand: Demand, hint: Hint) -> None:
        uid, name = self.pod.uid, container.name
        self.cpus = self.kubelet.cpus.allocate(
            self.cpus, uid, name, request=demand.cpus, affinity=hint.affinity, reusable=self.reusable_cpus
        )
        cpus = self.cpus.assignments[uid][name]
        if container.kind is ContainerKind.INIT:
            self.reusable_cpus |= cpus
        else:
            self.reusable_cpus &= ~cpus

    def _allocate_memory(self, container: Container, demand: Demand, hint: Hint) -> None:
        uid, name = self.pod.uid, container.name
        recorded = name in self.memory.assignments.get(uid, {})
        self.memory = self.kubelet.memory.allocate(
            self.memory, uid, name, requests=demand.memory, hint=hint, reusable=self.reusable_memory
        )
        blocks = self.memory.assignments[uid][name]
        self.reusable_memory = hand_on(
            self.reusable_memory, blocks, init=container.kind is ContainerKind.INIT
        )
        if self.inits and not recorded:
            self.memory = shrink_reused(self.memory, uid, earlier=self.inits, blocks=blocks)
        if container.kind is ContainerKind.INIT:
            self.inits.append(name)

    def _is_fuller(self, one: int, other: int) -> bool:
        """Return whether one NUMA node is fuller (KEP-6007); False if CPUs and memory disagree."""
        votes = 0
        for score in (self._cpu_score, self._memory_score):
            mine, others = score(one), score(other)
            votes += (mine > others) - (mine < others)
        return votes > 0

    def _score(self, resource: str, numa_mask: int) -> int:
        """Return how much of a resource of NUMA nodes is allocated, in percent, at least 1; 0: unknown."""
        if resource == CPU:
            manager = self.kubelet.cpus
            capacity = manager.capacity(numa_mask)
            used = (self.cpus.exclusive_cpus() & manager.topology.cpus_in(numa_mask)).bit_count()
        elif is_memory(resource):
            capacity = self.kubelet.memory.total_allocatable(resource, numa_mask)
            used = self.kubelet.memory.given(self.memory, resource, numa_mask)
        else:
            near = self.kubelet.devices.resources[resource].devices_near(numa_mask)
            capacity = near.bit_count()
            used = (near & self.devices.allocated.get(resource, 0)).bit_count()
        return max(1, _percent(used, capacity)) if capacity else 0

    def _cpu_score(self, numa: int) -> int:
        """Return the exclusive CPUs in percent of the allocatable ones; 0 without the static policy."""
        cpus = self.kubelet.machine.cpus_of_numa[numa]
        return _percent(
            (self.cpus.exclusive_cpus() & cpus).bit_count(),
            (self.kubelet.cpus.allocatable() & cpus).bit_count(),
        )

    def _memory_score(self, numa: int) -> int:
        """Return the assigned memory in percent of the allocatable; 0 without the static policy."""
        manager = self.kubelet.memory
        if not manager.static:
            return 0
        position = manager.numas.index(numa)
        return _percent(self.memory.reserved["memory"][position], manager.allocatable["memory"][position])


def _percent(assigned: int, allocatable: int) -> int:
    return min(assigned, allocatable) * 100 // allocatable if allocatable else 0
