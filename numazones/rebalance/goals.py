"""Goals of plans, and how their gain is counted.

Three goals: that more pods of some kinds fit (pods that no node admits now, or the shapes a policy wants to
keep room for), that one node or one NUMA zone of it becomes free, and that pods that lie across NUMA nodes
become aligned. All are sums over nodes, so that a move changes the count of two nodes at most. A kind fits as
often as scheduler and kubelet would take it one after the other; nodes whose state is unknown or only
approximate count as offering nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from numazones.alignment import pod_alignment as alignment
from numazones.alignment.pod_alignment import PodAlignment
from numazones.apimachinery.resources import CPU, is_memory
from numazones.cluster import scheduling
from numazones.cluster.cluster import MIRROR, Cluster, ClusterNode, ClusterPod
from numazones.errors import About, NumazonesError, Passing
from numazones.kubelet.admission import admit
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement import fragmentation
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import PodKind
from numazones.prediction.pod_devices import device_answer
from numazones.prediction.room import pod_of_shape

Counts = tuple[int, ...]
_MAX_COUNTED = 256


class InvalidGoal(NumazonesError, Passing):
    """A goal is not valid; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kind of pod that is to fit, and how often."""

    name: str
    """Of the shape, or namespace/name of a pending pod."""
    example: ClusterPod
    count: int | None = None
    """None: as often as possible."""
    pods: tuple[ClusterPod, ...] = ()
    """The pending pods of this kind; empty for a shape."""

    @classmethod
    def shape(cls, name: str, shape: Shape, *, count: int | None = None) -> "Wanted":
        """Return the kind of Guaranteed pods of one container that have a shape."""
        return cls(name, pod_of_shape(shape, name), count)


class Goal(ABC):
    """Goal as the search uses it; without other rules it counts pods that are to be none, each below zero."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> str:
        """Return the key that distinguishes this goal from the others of a policy."""

    @abstractmethod
    def worth(self, node: ClusterNode) -> Counts:
        """Return what one node contributes."""

    def upper_bound(self, node: ClusterNode) -> Counts:
        """Return the most that one node could contribute, by amounts alone."""
        return self.worth(node)

    def concerns(self, node: str) -> bool:
        """Return whether a node can contribute at all."""
        return bool(node)

    def total(self, counts: Counts) -> int:
        """Turn the sum of all contributions into the number that is to grow; no counts: no nodes."""
        return sum(counts)

    @property
    def aim(self) -> int | None:
        """The number at which the goal is reached; None: the more the better."""
        return 0

    @property
    def gain_per_eviction(self) -> int | None:
        """The most that one eviction can gain; None where there is no bound."""
        return 1


@dataclass(frozen=True, slots=True)
class FitMore(Goal):
    """More pods of some kinds fit."""

    wanted: tuple[Wanted, ...]
    _copies: tuple[tuple[Pod, ...], ...] = field(init=False, repr=False, compare=False)
    """Per kind, pods that differ in their UID alone, to be admitted one after the other."""

    def __post_init__(self) -> None:
        for wanted in self.wanted:
            if wanted.example.admission is None:
                raise InvalidGoal(f"{wanted.name} cannot be read: {wanted.example.problem}")
        object.__setattr__(self, "_copies", tuple(map(_copies, self.wanted)))

    @property
    def key(self) -> str:
        """By the name of its shape, or of the first of its pods."""
        wanted = self.wanted[0]
        return f"pods/{wanted.name}" if wanted.pods else f"shape/{wanted.name}"

    @property
    def aim(self) -> int | None:
        """All counts together, None if one of them is open."""
        counts = [wanted.count for wanted in self.wanted]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def gain_per_eviction(self) -> int | None:
        """No bound: one large pod may make room for many small ones."""
        return None

    def total(self, counts: Counts) -> int:
        """Return how many fit, of each kind at most as many as are wanted."""
        return sum(
            number if wanted.count is None else min(number, wanted.count)
            for wanted, number in zip(self.wanted, counts or (0,) * len(self.wanted), strict=True)
        )

    def worth(self, node: ClusterNode) -> Counts:
        """Return how many of each kind the node would take, each kind for itself."""
        if not is_known(node):
            return (0,) * len(self.wanted)
        room = None if node.state is None else fragmentation.room(node.state)
        counts = []
        for wanted, pods in zip(self.wanted, self._copies, strict=True):
            with About(*wanted.pods[:1], node):
                most = _upper_bound(node, wanted.example, room)
                counts.append(_count_that_fits(node, wanted.example, pods, most))
        return tuple(counts)

    def upper_bound(self, node: ClusterNode) -> Counts:
        """Return how many of each kind the node's free resources allow by amount alone."""
        if not is_known(node):
            return (0,) * len(self.wanted)
        room = None if node.state is None else fragmentation.room(node.state)
        bounds = []
        for wanted in self.wanted:
            with About(*wanted.pods[:1], node):
                bounds.append(_upper_bound(node, wanted.example, room))
        return tuple(bounds)


@dataclass(frozen=True, slots=True)
class Vacate(Goal):
    """A node, or one NUMA zone of it, holds no pods any more that could run elsewhere."""

    node: str
    zone: int | None = None

    @property
    def key(self) -> str:
        """By the node, and by the zone if it is about one."""
        return f"free/{self.node}" + ("" if self.zone is None else f"/{self.zone}")

    def concerns(self, node: str) -> bool:
        """Return whether it is the node that is to become free."""
        return node == self.node

    def worth(self, node: ClusterNode) -> Counts:
        """Return minus the number of pods that are still there."""
        return (-len(self.occupants(node)) if node.name == self.node else 0,)

    def occupants(self, node: ClusterNode) -> list[ClusterPod]:
        """Return the pods in the way: in the zone, or anywhere on the node but those bound to it."""
        if self.zone is None:
            return [pod for pod in node.pods.values() if not _belongs_to_node(pod)]
        state = node.state
        if state is None:
            return []
        return [
            pod for pod in node.pods.values() if self.zone in fragmentation.zones_of(state, pod.kubelet_uid)
        ]


@dataclass(frozen=True, slots=True)
class Align(Goal):
    """Pods whose CPUs, memory or devices are on several NUMA nodes become aligned.

    Only such pods are evicted, each for its own replacement: where that would end no better, none is.
    """

    only: frozenset[str] = frozenset()
    """UIDs of the pods that may be evicted for it; empty: all."""

    @property
    def key(self) -> str:
        """There is but one such goal."""
        return "align"

    def worth(self, node: ClusterNode) -> Counts:
        """Return minus the number of pods that are not aligned."""
        return (-len(self.misaligned(node)),)

    def misaligned(self, node: ClusterNode) -> dict[str, PodAlignment]:
        """Return UID → how it lies, of the pods that are not aligned; none where the node is not known."""
        if not is_known(node):
            return {}
        foreseen = node.cluster_devices is not None
        lying = alignment.of_node(node, claims=foreseen) or ()
        return {pod.uid: found for pod, found in lying if not found.aligned}


def pending_goals(pods: Iterable[ClusterPod]) -> tuple[FitMore, ...]:
    """Return the goals that make pending pods fit, one per kind and priority, in the scheduler's order.

    Raises:
        InvalidGoal: a pod cannot be read.
    """
    groups: dict[tuple[int, PodKind], list[ClusterPod]] = {}
    for pod in sorted(pods, key=lambda pod: (-(pod.priority or 0), pod.created, pod.namespace, pod.name)):
        with About(pod):
            kind = PodKind.of(pod)
        if kind is None:
            raise InvalidGoal(f"pod {pod.full_name} cannot be read: {pod.problem}")
        groups.setdefault((pod.priority or 0, kind), []).append(pod)
    goals = []
    for group in groups.values():
        with About(group[0]):
            goals.append(FitMore((Wanted(group[0].full_name, group[0], len(group), tuple(group)),)))
    return tuple(goals)


def ungated_pods(pods: Iterable[ClusterPod]) -> tuple[ClusterPod, ...]:
    """Return one of each kind of the pods that the scheduler may bind as soon as there is room.

    A pod that a gate holds back is none: who takes the gate away looks at plans.
    """
    found: dict[PodKind, ClusterPod] = {}
    for pod in pods:
        if pod.deleting or pod.terminal or pod.constraints.scheduling_gates:
            continue
        with About(pod):
            kind = PodKind.of(pod)
        if kind is not None:
            found.setdefault(kind, pod)
    return tuple(found.values())


def waiting_pods(goal: Goal) -> tuple[ClusterPod, ...]:
    """Return the pods that wait for what the goal is about; none for a shape, or a node to free."""
    return tuple(pod for wanted in goal.wanted for pod in wanted.pods) if isinstance(goal, FitMore) else ()


def without_pods(goal: Goal, uids: Collection[str]) -> Goal:
    """Return the goal without some of the pods that wait for it."""
    if not isinstance(goal, FitMore) or not any(pod.uid in uids for pod in waiting_pods(goal)):
        return goal
    wanted = []
    for item in goal.wanted:
        left = tuple(pod for pod in item.pods if pod.uid not in uids)
        count = None if item.count is None else item.count - (len(item.pods) - len(left))
        example = left[0] if left else item.example
        wanted.append(replace(item, example=example, pods=left, count=count))
    return FitMore(tuple(wanted))


def measure(goal: Goal, cluster: Cluster) -> int:
    """Return the number that a cluster reaches for a goal."""
    columns = []
    for node in cluster.nodes.values():
        with About(node):
            columns.append(goal.worth(node))
    return goal.total(tuple(map(sum, zip(*columns, strict=True))))


def is_known(node: ClusterNode) -> bool:
    """Return whether answers about the node can be relied on."""
    return node.ready and node.movable


def _belongs_to_node(pod: ClusterPod) -> bool:
    return MIRROR in pod.annotations or any(owner.kind in {"DaemonSet", "Node"} for owner in pod.owners)


def _copies(wanted: Wanted) -> tuple[Pod, ...]:
    admission = wanted.example.admission
    if admission is None:
        return ()
    number = _MAX_COUNTED if wanted.count is None else min(wanted.count, _MAX_COUNTED)
    return tuple(replace(admission, uid=f"{admission.uid}#{index}") for index in range(number))


def _count_that_fits(node: ClusterNode, example: ClusterPod, pods: tuple[Pod, ...], most: int) -> int:
    if most <= 0 or node.state is None or scheduling.placement_obstacles(example.constraints, node):
        return 0
    state, kind = node.state, PodKind.of(example) if example.resource_claims else None
    for number, pod in enumerate(pods[:most]):
        devices = None if kind is None else device_answer(kind, node, ())
        if devices is not None and not devices.fits:
            return number
        if devices is not None:
            node = replace(node, cluster_devices=devices.after)
        try:
            admission = admit(state, pod)
        except NumazonesError:  # the kubelet would get to no verdict: nothing to rely on
            return number
        if not admission.admitted:
            return number
        state = admission.node
    return min(most, len(pods))


def _upper_bound(node: ClusterNode, example: ClusterPod, room: Mapping[str, Mapping[int, int]] | None) -> int:
    """Return the most that could fit, by the scheduler's sums and by what zones could give exclusively."""
    most = node.pod_slots - node.pod_count
    for resource, amount in example.requests.items():
        if amount > 0:
            free = node.allocatable.get(resource, 0) - node.requested.get(resource, 0)
            most = min(most, free // amount)
    if most <= 0 or node.state is None or room is None or example.admission is None:
        return max(most, 0)
    return max(0, min(most, _upper_bound_of_zones(node.state, example.admission, room)))


def _upper_bound_of_zones(state: Node, pod: Pod, room: Mapping[str, Mapping[int, int]]) -> int:
    demand = state.kubelet.demand_of(pod)
    whole = demand.total
    memory = (whole.memory or ()) if demand.qos is QOSClass.GUARANTEED else ()
    devices = [(name, count) for name, count in whole.limits if not _is_plain(name)]
    needs = [
        (room[name], amount)
        for name, amount in (("cpu", whole.cpus), *memory, *devices)
        if amount > 0 and name in room
    ]
    if not needs or not demand.served or demand.managed:
        return _MAX_COUNTED
    if state.config.topology_manager_policy == SINGLE_NUMA_NODE and len(pod.containers) == 1:
        numas = {numa for zones, _ in needs for numa in zones}
        return sum(min(zones.get(numa, 0) // amount for zones, amount in needs) for numa in numas)
    return min(sum(zones.values()) // amount for zones, amount in needs)


def _is_plain(resource: str) -> bool:
    return resource == CPU or is_memory(resource)
