"""Changes after which a pod would run, each tried on a copy before it is given.

A rejection says what is missing; people ask what to do. Four things can be changed: what keeps the scheduler
from a node, who else is on it, what the pod asks for, and how the node's Topology Manager is set. A change is
named only if the changed pod passes all checks of the scheduler and of the kubelet on the changed node;
nothing is guessed from amounts. What costs its reader least comes first: pods are moved before alignment is
given up, and what no plan would move comes last, with the reason.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Annotated, ClassVar

from numazones.apimachinery.resources import CPU, is_memory
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.other_requests import (
    amount_in_words,
    amount_with_resource,
    managed_amounts,
    round_down,
    whole_cores,
    with_requests,
)
from numazones.cluster.pod_kind import ALIGNMENT
from numazones.cluster.scheduling import Lack
from numazones.cluster.unblocked_node import unblocked
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import (
    BEST_EFFORT,
    RESTRICTED,
    SCOPE_CONTAINER,
    SCOPE_POD,
    SINGLE_NUMA_NODE,
)
from numazones.kubelet.demand import Container
from numazones.kubelet.explanation import Explanation, explain
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.pod import Pod
from numazones.prediction.forecast import NodeAnswer, PodKind, ask, newcomer
from numazones.rebalance.moves import Move
from numazones.rebalance.single_move import Destinations

_MILLI = 1000
# Policies by how much they let through, strictest first.
_LOOSER = {SINGLE_NUMA_NODE: (RESTRICTED, BEST_EFFORT), RESTRICTED: (BEST_EFFORT,)}
MAX_EVICTIONS = 3
_LITTLE = 0.25
"""The share of a request that people part with more easily than with another pod's place."""


class Change(StrEnum):
    """Change to a cluster."""

    REQUEST = "request"
    SETTING = "setting"
    EVICTION = "eviction"
    PLACEMENT = "placement"


class ChangeCost(IntEnum):
    """Cost of a change to the reader, the least first."""

    MISSPELLED = 0
    ROUNDING = 1
    CONSTRAINT = 2
    """On the devices of a claim."""
    PLACEMENT = 3
    LITTLE_LESS = 4
    MOVE = 5
    MUCH_LESS = 6
    REMOVAL = 7
    """Of a pod whose replacement no node would take."""
    TAINT = 8
    SCOPE = 9
    ALIGNMENT = 10
    PROTECTED = 11
    """Removal of a pod that no plan moves."""


_CHEAP_ENOUGH = {ChangeCost.MISSPELLED, ChangeCost.ROUNDING, ChangeCost.MOVE, ChangeCost.REMOVAL}
"""Changes next to which no pod is named that no plan moves."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change after which the pod would be admitted."""

    TITLE: ClassVar = "Change"
    ANSWER: ClassVar = ("node", "change", "sentence")
    change: Annotated[Change, "What is changed: request, placement, eviction or setting."]
    cost: ChangeCost
    node: Annotated[str, "Node that the change is for."]
    sentence: Annotated[str, "What to do, in words."]
    loss: float = 0.0
    """Of a smaller request: the share of what was asked that is given up."""

    @property
    def line(self) -> str:
        """The sentence with its node, as lists of advice have it."""
        return self.sentence if self.node in self.sentence else f"{self.sentence} ({self.node})"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Facts around a node that matter for a pod besides the node itself."""

    destinations: Destinations = field(default_factory=Destinations)
    """Where pods that are moved could go."""
    objection: Callable[[ClusterPod], str] = lambda _pod: ""
    """Why no plan moves a pod; empty: nothing keeps it."""


def advise_on(pod: ClusterPod, node: ClusterNode, around: NodeContext | None = None) -> tuple[Advice, ...]:
    """Return the changes after which a pod would run on a node, the cheapest first.

    Nothing where it would run as things are, or where its kubelet does not decide alone or is not known.
    """
    state = node.state
    if pod.admission is None or state is None:
        return ()
    asked = newcomer(pod.admission)
    wanted = replace(pod, admission=asked, uid="", node="", phase="Pending")
    if _runs(wanted, node):
        return ()
    if scheduling.placement_obstacles(wanted.constraints, node):
        return tuple(_lift_constraints(wanted, node))
    found = (
        *_other_requests(wanted, asked, node, state),
        *_evictions(wanted, node, state, around or NodeContext()),
        *_other_settings(wanted, node, state),
    )
    return in_order(found)


def in_order(found: Iterable[Advice]) -> tuple[Advice, ...]:
    """Sort by what a change costs; what no plan moves is left out where something cheap helps."""
    listed = sorted(found, key=lambda item: (item.cost, item.loss))
    if any(item.cost in _CHEAP_ENOUGH for item in listed):
        listed = [item for item in listed if item.cost is not ChangeCost.PROTECTED]
    return tuple(listed)


def _runs(pod: ClusterPod, node: ClusterNode) -> bool:
    """Return whether scheduler and kubelet would both let a new pod onto the node."""
    if node.state is None or pod.admission is None:
        return False
    if scheduling.placement_obstacles(pod.constraints, node) or scheduling.lacks(pod.requests, node):
        return False
    info = PodInfo(pod.admission, pod.constraints, pod.requests)
    try:
        verdict = admit_to_node(node.info(node.state, beside=pod.uid), info)
    except NumazonesError:
        return False
    return verdict.admitted and not verdict.preempted and _gets_devices(pod, node)


def _decision(state: Node, pod: Pod) -> Admission | None:
    """Return the kubelet's decision; None where it would crash or hang."""
    try:
        return admit(state, pod)
    except NumazonesError:
        return None


def _gets_devices(pod: ClusterPod, node: ClusterNode) -> bool:
    """Return whether the pod would get the devices that it claims, and the alignment that it requires."""
    required = pod.annotations.get(ALIGNMENT)
    if not (pod.resource_claims or required or scheduling.unallocated(pod.requests, node)):
        return True
    kind = PodKind.of(pod)
    return kind is not None and ask(kind, node).answer is NodeAnswer.ADMITS


# What keeps the scheduler away


def _lift_constraints(pod: ClusterPod, node: ClusterNode) -> Iterator[Advice]:
    """Yield what has to be done about labels, taints and a cordon, if nothing else is in the way."""
    found = unblocked(pod, node)
    if found is not None and _runs(found.pod, found.node):
        cost = ChangeCost.TAINT if found.tainted else ChangeCost.PLACEMENT
        sentence = f"{node.name} would admit it, but {'; '.join(found.cures)}"
        yield Advice(Change.PLACEMENT, cost, node.name, sentence)


# What the pod asks for


def _other_requests(pod: ClusterPod, asked: Pod, node: ClusterNode, state: Node) -> Iterator[Advice]:
    """Yield, per resource, the nearest request that would be admitted; then smaller ones for several."""
    rounding = tuple(_whole_cores(pod, asked, node, state))
    yield from rounding
    lacks = {lack.resource: lack for lack in scheduling.lacks(pod.requests, node)}
    decision = _decision(state, asked)
    explanation = None if decision is None or decision.admitted else explain(decision)
    only = None if explanation is None or lacks else explanation.rejected_container
    found = bool(rounding)
    demands = state.kubelet.demand_of(asked).demands
    for container, demand in zip(asked.containers, demands, strict=True):
        if only not in {None, "", container.name}:
            continue
        for resource, amount in managed_amounts(demand):
            if rounding and resource == CPU:
                continue
            lack = lacks.get(resource)
            if lack is not None and lack.instead:
                yield from _meant(pod, node, container.name, lack)
                continue
            for other in _candidates(node, state, resource, amount, lack):
                if _runs(with_requests(pod, state, container.name, {resource: other}), node):
                    found = True
                    yield _request_advice(node, container, resource, other, amount)
                    break
    if not found and explanation is not None and not lacks:
        yield from _several_smaller(pod, node, state, explanation)


def _whole_cores(pod: ClusterPod, asked: Pod, node: ClusterNode, state: Node) -> Iterator[Advice]:
    """Yield the next whole cores for all containers that request a part of one, if the pod runs with them."""
    changed, changes = pod, []
    for container, before, cpus in whole_cores(asked, state):
        changed = with_requests(changed, state, container, {CPU: cpus})
        changes.append(_other_amount(CPU, cpus, before, container))
    if changes and _runs(changed, node):
        yield Advice(Change.REQUEST, ChangeCost.ROUNDING, node.name, f"request {' and '.join(changes)}")


def _meant(pod: ClusterPod, node: ClusterNode, container: str, lack: Lack) -> Iterator[Advice]:
    """Yield the resource whose name was misspelled, if the pod runs with that, and has no request for it."""
    if lack.instead in pod.requests:
        return
    changed = with_requests(pod, node.state, container, {}, names={lack.resource: lack.instead})
    if _runs(changed, node):
        sentence = f"request {lack.instead} instead of {lack.resource} in container {container}"
        yield Advice(Change.REQUEST, ChangeCost.MISSPELLED, node.name, sentence)


def _several_smaller(
    pod: ClusterPod, node: ClusterNode, state: Node, explanation: Explanation
) -> Iterator[Advice]:
    """Yield what the nearest NUMA nodes offer of everything they lack."""
    offers = {
        short.resource: round_down(short.resource, short.offered)
        for short in explanation.shortages
        if short.offered > 0
    }
    name = explanation.rejected_container
    if not name or len(offers) < 2 or not all(offers.values()):  # noqa: PLR2004 - several
        return
    if _runs(with_requests(pod, state, name, offers), node):
        amounts = " and ".join(amount_with_resource(*offer) for offer in offers.items())
        sentence = f"request {amounts} in container {name}"
        yield Advice(Change.REQUEST, ChangeCost.MUCH_LESS, node.name, sentence)


def _candidates(
    node: ClusterNode, state: Node, resource: str, amount: int, lack: Lack | None
) -> Iterator[int]:
    """Yield smaller amounts worth trying, the largest first."""
    most = amount - 1 if lack is None else lack.free // (_MILLI if resource == CPU else 1)
    if is_memory(resource):
        left = node.allocatable.get(resource, 0) - node.requested.get(resource, 0)
        free = {round_down(resource, min(size, left)) for size in state.memory.free.get(resource, (left,))}
        free.add(round_down(resource, most))
        yield from sorted((size for size in free if 0 < size < amount), reverse=True)
        return
    yield from range(min(most, amount - 1), 0, -1)


def _request_advice(
    node: ClusterNode, container: Container, resource: str, amount: int, before: int
) -> Advice:
    sentence = f"request {_other_amount(resource, amount, before, container.name)}"
    cost = ChangeCost.LITTLE_LESS if before - amount <= _LITTLE * before else ChangeCost.MUCH_LESS
    return Advice(Change.REQUEST, cost, node.name, sentence, 1 - amount / before)


def _other_amount(resource: str, amount: int, before: int, container: str) -> str:
    instead = f"instead of {amount_in_words(resource, before)} in container {container}"
    return f"{amount_with_resource(resource, amount)} {instead}"


# Who else is there


def _evictions(pod: ClusterPod, node: ClusterNode, state: Node, around: NodeContext) -> Iterator[Advice]:
    """Yield the pods of which one alone would have to go: of the same namespace first, then the smallest."""
    if not _runs(pod, node.with_pods(()).with_state(state.emptied)):
        return
    sizes = {other.uid: _size(other, state) for other in node.pods.values()}
    others = sorted(
        node.pods.values(),
        key=lambda other: (other.namespace != pod.namespace, sizes[other.uid], other.full_name),
    )
    given: dict[ChangeCost, int] = {}
    for other in others:
        left = node.without_pod(other.uid).with_state(remove(state, other.kubelet_uid))
        if given.get(ChangeCost.MOVE, 0) == MAX_EVICTIONS:
            return
        if not _runs(pod, left):
            continue
        advice = _without(pod, other, node, state, around)
        if given.get(advice.cost, 0) < MAX_EVICTIONS:
            given[advice.cost] = given.get(advice.cost, 0) + 1
            yield advice


def _without(
    pod: ClusterPod, other: ClusterPod, node: ClusterNode, state: Node, around: NodeContext
) -> Advice:
    """Return the advice to have a pod go from the node."""
    held = _held(other, node, state, pod)
    name = f"{other.full_name}{f', which holds {held}' if held else ''}"
    objection = around.objection(other)
    if objection:
        sentence = f"remove {name} (no plan does this: {objection})"
        return Advice(Change.EVICTION, ChangeCost.PROTECTED, node.name, sentence)
    move = around.destinations.single_move(pod, other, node)
    if move is None:
        sentence = f"remove {name} (no node would then admit its replacement)"
        return Advice(Change.EVICTION, ChangeCost.REMOVAL, node.name, sentence)
    comma = "," if held else ""
    where = f"to {move.node}" if move.node != node.name else f"within {node.name}{_way_back(move)}"
    return Advice(Change.EVICTION, ChangeCost.MOVE, node.name, f"move {name}{comma} {where}")


def _way_back(move: Move) -> str:
    """Say how a pod that is deleted gets a better place on the node that it leaves."""
    if move.after_pending:
        return " (delete it; its replacement still fits once the waiting pod is placed)"
    return " (delete it; its replacement gets a better placement there)"


def _size(other: ClusterPod, state: Node) -> tuple[int, int]:
    return state.cpus.held_by(other.kubelet_uid).bit_count(), other.requests.get(CPU, 0)


def _held(other: ClusterPod, node: ClusterNode, state: Node, pod: ClusterPod) -> str:
    """Say what a pod holds or has asked for of what the other one lacks: that first which is missing."""
    decision = None if pod.admission is None else _decision(state, pod.admission)
    if decision is not None and not decision.admitted:
        found = explain(decision)
        held = dict(found.holders).get(other.kubelet_uid)
        if held is not None:
            return held.replace("exclusive ", "")
        if found.shortages and found.shortages[0].resource != CPU:
            return ""
    else:  # what the node as a whole has too little of
        missing = next((lack.resource for lack in scheduling.lacks(pod.requests, node)), CPU)
        if missing != CPU:
            asked = other.requests.get(missing, 0)
            return amount_with_resource(missing, asked) if asked else ""
    cpus = state.cpus.held_by(other.kubelet_uid).bit_count()
    return amount_with_resource(CPU, cpus) if cpus else ""


# How the node is set


def _other_settings(pod: ClusterPod, node: ClusterNode, state: Node) -> Iterator[Advice]:
    """Yield Topology Manager settings under which the node would take the pod, as it is and when drained."""
    config = state.config
    other = SCOPE_POD if config.topology_manager_scope == SCOPE_CONTAINER else SCOPE_CONTAINER
    looser = _LOOSER.get(config.topology_manager_policy, ())
    changes = [
        (ChangeCost.SCOPE, "scope", other),
        *((ChangeCost.ALIGNMENT, "policy", policy) for policy in looser),
    ]
    for cost, setting, value in changes:
        try:
            set_so = state.with_topology_settings(**{setting: value})
        except NumazonesError:
            continue  # options of the node that go with one policy only
        drained = node.with_pods(()).with_state(set_so.emptied)
        if _runs(pod, node.with_state(set_so)) and _runs(pod, drained):
            means = ", which gives up alignment for all pods there" if cost is ChangeCost.ALIGNMENT else ""
            name = f"topologyManager{setting.capitalize()}"
            sentence = f"set {name}: {value} on {node.name}{means} (on a drained node)"
            yield Advice(Change.SETTING, cost, node.name, sentence)
            if cost is ChangeCost.ALIGNMENT:
                return
