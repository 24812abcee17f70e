"""A node of the agent's behind the protocol of placement models, and what follows it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.placement import (
    ADMITTED,
    BoundDecision,
    Decision,
    Effect,
    Info,
    Placement,
    Shortfall,
    UnreadableNode,
    fragmentation,
)
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.kubelet import KubeletPlacement, admit_bound_above
from numazones.placement.models import NodeObjects, Object, PodEvent, check_kubelet, readable
from numazones.placement.occupancy import Holder, Occupancy, ZoneUse, in_order, memory_of
from pinned_model.identity import DECIDER, NAME, NODES, SOURCE
from pinned_model.rules import Node, choose_cpus, needed_cpus


@dataclass(frozen=True, slots=True)
class PinnedPlacement:
    """A node on which the agent gives all pods their CPUs."""

    node: Node
    beneath: KubeletPlacement | None = None
    """The node's kubelet, which makes its own checks; None: not known."""

    model: ClassVar[str] = NAME
    decider: ClassVar[str] = DECIDER
    approximate: ClassVar[bool] = False
    movable: ClassVar[bool] = False
    filtered_by_scheduler: ClassVar[bool] = False
    kubelet: ClassVar[None] = None

    @property
    def key(self) -> Hashable:
        return (NAME, self.node.state_key)

    @property
    def cpus_of_numa(self) -> Mapping[int, CPUSet]:
        return self.node.machine.cpus_of_numa

    @property
    def largest_free_block(self) -> int:
        return max(self.room()[CPU].values(), default=0)

    @property
    def free_cpus(self) -> int:
        return sum(self.room()[CPU].values())

    def room(self) -> dict[str, dict[int, int]]:
        """CPU → NUMA id → how many are left."""
        return {CPU: {numa: cpus.bit_count() for numa, cpus in self.node.free.items()}}

    def for_scheduler(self, _name: str) -> Self:
        return self

    def admit(self, pod: Pod) -> "PinnedDecision":
        return PinnedDecision(self, pod.uid, needed_cpus(pod), choose_cpus(self.node, needed_cpus(pod)))

    def after(self, _pod: Pod, decision: Decision) -> Placement:
        return decision.placement

    def admit_bound(self, pod: PodInfo, info: Info) -> BoundDecision:
        return admit_bound_above(self.beneath, pod, info, lambda: self.remove(pod.pod.uid).admit(pod.pod))

    def remove(self, uid: str) -> "PinnedPlacement":
        beneath = None if self.beneath is None else self.beneath.remove(uid)
        return PinnedPlacement(self.node.without_pod(uid), beneath)

    def fragmentation(self, shape: Shape) -> Fragmentation:
        room = self.room()
        fitting = fragmentation.fitting_in(room, room[CPU], shape)
        return Fragmentation(self.free_cpus, fitting * shape.cpus, fitting)

    def fitting_by_amounts(self, _shape: Shape) -> None:
        return None

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy:
        node, free = self.node, self.room()[CPU]
        held = cpuset.union(node.given.values())
        zones = [
            ZoneUse(numa, ((held & cpus).bit_count(), (cpus & ~node.reserved).bit_count()), free[numa])
            for numa, cpus in self.cpus_of_numa.items()
        ]
        return Occupancy(
            NAME,
            DECIDER,
            node.machine.cpus,
            tuple(zones),
            ()
            if names is None
            else in_order(Holder(names.get(uid, uid), uid, cpus) for uid, cpus in node.given.items()),
            reserved=node.reserved,
            settings=(("Placement", DECIDER),),
            total_memory=memory_of(node.machine),
        )


@dataclass(frozen=True, slots=True)
class PinnedDecision:
    """What the agent decides about a pod."""

    before: PinnedPlacement
    uid: str
    needed: int
    cpus: CPUSet | None
    """None: no NUMA node has enough."""

    model: ClassVar[str] = NAME
    source: ClassVar[str] = SOURCE
    approximate: ClassVar[bool] = False

    @property
    def admitted(self) -> bool:
        return self.cpus is not None

    @property
    def reason(self) -> str:
        return "" if self.admitted else CREATE_CONTAINER_ERROR

    @property
    def message(self) -> str:
        if self.admitted:
            return ""
        return f"needs {self.needed} CPUs of one NUMA node; the most free ones are {self._most}"

    @property
    def _most(self) -> int:
        return self.before.largest_free_block

    @property
    def placement(self) -> PinnedPlacement:
        if self.cpus is None:
            return self.before
        return replace(self.before, node=self.before.node.with_pod(self.uid, self.cpus))

    @property
    def zones(self) -> tuple[int, ...]:
        return tuple(numa for numa, cpus in self.before.cpus_of_numa.items() if cpus & self.exclusive)

    @property
    def exclusive(self) -> CPUSet:
        return self.cpus or 0

    @property
    def effect(self) -> Effect:
        after = self.placement
        return Effect.of(self.before.room(), after.room(), after.largest_free_block)

    @property
    def closeness(self) -> float:
        return self._most / self.needed if self.needed else 1.0

    @property
    def outcome(self) -> str:
        return self.reason or ADMITTED

    def shortfall(self, _node: str) -> Shortfall:
        sentence = f"{DECIDER} says: {self.message}"
        return Shortfall(sentence, self.message, line=sentence)

    def explain(self) -> tuple[str, ...]:
        free = ", ".join(f"{count} of NUMA node {numa}" for numa, count in self.before.room()[CPU].items())
        verdict = (
            f"gets CPUs {cpuset.format(self.exclusive)}" if self.admitted else f"rejected: {self.message}"
        )
        return (f"free CPUs: {free}", verdict)


class Follower:
    """What the agent has published, and the pods that have come and gone since."""

    def __init__(self, objects: NodeObjects) -> None:
        self._published = published_node(objects)
        self._read_from = _sources(objects)

    def outdated(self, objects: NodeObjects) -> bool:
        return _sources(objects) != self._read_from

    def take(self, event: PodEvent) -> None:
        """The pods that are there, and what is published of them, tell all."""

    def agrees(self, _topology: Object, _now: float) -> bool:
        return True

    def contradicted_since(self, now: float) -> float:
        return now

    def placement(self, pods: Mapping[str, Pod], kubelet: KubeletPlacement | None) -> PinnedPlacement:
        return PinnedPlacement(with_pods(self._published, pods), kubelet)

    def record(self) -> None:
        return None


def read(objects: NodeObjects) -> PinnedPlacement:
    pods = {pod.uid: pod for pod in readable(objects.pods)}
    kubelet = None if objects.kubelet is None else KubeletPlacement(objects.kubelet)
    return PinnedPlacement(with_pods(published_node(objects), pods), kubelet)


def published_node(objects: NodeObjects) -> Node:
    """Return the node with what the agent has given as it says itself."""
    check_kubelet(objects.kubelet, DECIDER)
    own = next(iter(objects.others.get(NODES.kind, ())), None)
    if objects.kubelet is None or own is None:
        raise UnreadableNode("the node has no PinnedNode or no NUMAZones; see whether agent and exporter run")
    spec = own["spec"]
    given = {uid: cpuset.parse(cpus) for uid, cpus in (spec.get("given") or {}).items()}
    return Node(objects.kubelet.machine, cpuset.parse(spec["reserved"]), given)


def with_pods(node: Node, pods: Mapping[str, Pod]) -> Node:
    """Return a node with exactly these pods: those that it does not show come to it in order of creation."""
    for uid in node.given.keys() - pods.keys():
        node = node.without_pod(uid)
    for uid, pod in sorted(pods.items(), key=lambda item: item[1].created):
        if uid not in node.given:
            cpus = choose_cpus(node, needed_cpus(pod))
            node = node if cpus is None else node.with_pod(uid, cpus)
    return node


def _sources(objects: NodeObjects) -> tuple[Any, ...]:
    machine = None if objects.kubelet is None else objects.kubelet.kubelet
    return (objects.node, machine, tuple(objects.others.get(NODES.kind, ())))
