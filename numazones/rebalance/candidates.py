"""The pods that a plan may move, and why the others stay.

To the rules of ``filter`` come those that a plan needs: the pod runs on a node whose state is known, an
owner will replace it, its replacement can be foreseen, and it has not been moved just before. Budgets and
limits that forbid even a first eviction are among them; what they allow beside a plan's other moves, the
search asks move by move.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import merge
from operator import itemgetter
from typing import TypeVar

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import OTHER_MODEL, Cluster, ClusterPod
from numazones.errors import ObjectFault
from numazones.rebalance import filter as rules
from numazones.rebalance.filter import EvictionContext, Objection
from numazones.rebalance.goals import is_known
from numazones.rebalance.history import MoveHistory
from numazones.rebalance.left_out import UNDECIDED, LeftOut, sound
from numazones.rebalance.limits import ONLY_REPLICA, PlannedEvictions
from numazones.rebalance.moves import Disruption, replacement, why_not_known
from numazones.rebalance.policy import Policy, ReplacementTarget

_T = TypeVar("_T")

_MOST_TIMES = 100
"""Times that work is begun again for pods or nodes that raise in the middle of it."""
_SORTED_AT_ONCE = 4096
"""Sorting is one step, in which no other thread has its turn: of so many pods it takes a few milliseconds."""


@dataclass(frozen=True)
class EvictionCandidate:
    """A pod that may be evicted, or the one that waits."""

    pod: ClusterPod
    disruption: Disruption
    index: int
    """Position in the order of candidates."""
    weight: int = 0
    """What plans that disturb equally are compared by, summed up: less is better."""
    templates: Mapping[str, ClusterPod] | None = field(default=None, compare=False, repr=False)
    """Owner UID → a pod made from the owner's template; None: the pod itself is to be placed."""

    @cached_property
    def replacement(self) -> ClusterPod:
        """The pod to place; made when it is asked for, which for most of many thousands it never is."""
        return self.pod if self.templates is None else replacement(self.pod, self.templates)


@dataclass(frozen=True, slots=True)
class Situation:
    """The cluster, and everything else that the rules look at."""

    cluster: Cluster
    context: EvictionContext
    templates: Mapping[str, ClusterPod] = field(default_factory=dict)
    """Owner UID → a pod made from the owner's template."""
    history: MoveHistory = field(default_factory=MoveHistory)
    at_any_time: frozenset[str] = frozenset()
    """UIDs of pending pods that may be bound at any time, also before there is room for them."""
    left_out: LeftOut = field(default_factory=LeftOut, compare=False, repr=False)
    """Pods and nodes about which something has raised so far."""

    def isolated(self, work: Callable[["Situation"], _T]) -> _T:
        """Do some work again and again, until it raises about no pod or node that is not left out.

        Raises:
            ObjectFault: leaving out pods and nodes does not help.
        """
        for _ in range(_MOST_TIMES):
            known = len(self.left_out)
            try:
                return work(self.sound())
            except ObjectFault as fault:
                # It may be about one that was left out while the work went on.
                if not self.left_out.take(fault) and len(self.left_out) == known:
                    raise
        return work(self.sound())

    def sound(self) -> "Situation":
        """Return the situation without the nodes that are left out; such pods do not wait."""
        left_out, cluster = self.left_out, self.cluster
        for name in left_out.nodes.keys() & cluster.nodes.keys():
            cluster = cluster.without_node(name)
        pending = {pod.uid: pod for pod in sound(cluster.pending.values(), left_out)}
        if len(pending) < len(cluster.pending):
            cluster = replace(cluster, pending=pending)
        return self if cluster is self.cluster else replace(self, cluster=cluster)


def candidates(situation: Situation, policy: Policy) -> tuple[EvictionCandidate, ...]:
    """Return the pods that no rule keeps, in the order in which they are best evicted."""
    decide = situation.left_out.decide
    pods: list[_Ordered] = []
    for node in situation.cluster.nodes.values():
        for pod in node.pods.values():
            pods += decide(pod, partial(_ordered, pod, situation, policy), lambda _problem: ())
    return tuple(
        EvictionCandidate(
            pod,
            disruption,
            index,
            weight=pod.requests.get("cpu", 0),
            templates=situation.templates,
        )
        for index, (_, disruption, pod) in enumerate(_in_order(pods))
    )


_Ordered = tuple[tuple[object, ...], Disruption, ClusterPod]


def _ordered(pod: ClusterPod, situation: Situation, policy: Policy) -> tuple[_Ordered, ...]:
    """Return a pod with what it is sorted by; nothing for one that some rule keeps."""
    if why_not(pod, situation, policy):
        return ()
    return ((rules.order(pod), Disruption.of(pod), pod),)


def _in_order(pods: Sequence[_Ordered]) -> Iterator[_Ordered]:
    """Yield pods in the order in which they are best evicted."""
    parts = (pods[start : start + _SORTED_AT_ONCE] for start in range(0, len(pods), _SORTED_AT_ONCE))
    return merge(*(sorted(part, key=itemgetter(0)) for part in parts), key=itemgetter(0))


def why_not(pod: ClusterPod, situation: Situation, policy: Policy) -> tuple[Objection, ...]:
    """Return every objection to moving a pod, those from its node and its past included.

    One about which something raises that no rule foresees is left out.
    """
    return situation.left_out.decide(
        pod,
        lambda: _objections(pod, situation, policy),
        lambda problem: (Objection(UNDECIDED, f"it is unknown whether the pod may be moved: {problem}"),),
    )


def _objections(pod: ClusterPod, situation: Situation, policy: Policy) -> tuple[Objection, ...]:
    found = rules.objections(pod, policy.protections, situation.context, cluster=situation.cluster)
    return (
        *found,
        *_unknown_state(pod, situation),
        *_unforeseeable(pod, situation, policy),
        *_recent_move(pod, situation, policy),
        *_limit_objections(pod, situation, policy),
    )


def _unforeseeable(pod: ClusterPod, situation: Situation, policy: Policy) -> Iterator[Objection]:
    """Yield the objection that the scheduler looks at other pods or at volumes to place the replacement."""
    owner = pod.controller
    model = pod if owner is None else situation.templates.get(owner.uid, pod)
    if model.constraints.beyond:
        rules_ = ", ".join(model.constraints.beyond)
        yield Objection("Unforeseeable", f"where its replacement will run cannot be predicted: {rules_}")
    if pod.volume_claims and policy.target is not ReplacementTarget.SAME:
        claims = ", ".join(pod.volume_claims)
        yield Objection(
            "Unforeseeable", f"its volumes may tie it to certain nodes (PVC {claims}); use target Same"
        )


def _unknown_state(pod: ClusterPod, situation: Situation) -> Iterator[Objection]:
    if pod.phase != "Running":
        yield Objection("Phase", f"pod is {pod.phase}, not Running")
    node = situation.cluster.nodes.get(pod.node)
    if node is None:
        yield Objection("NodeState", f"the state of node {pod.node or '(none)'} is not known for certain")
    elif not is_known(node):
        why = node.why_no_state
        yield Objection(
            "NodeState" if why is None or why.reason != OTHER_MODEL else OTHER_MODEL, why_not_known(node)
        )
    owner = pod.controller
    if pod.owners and owner is None:
        yield Objection("Replacement", "no owner of the pod is its controller, so nothing would replace it")
    if pod.admission is None:
        yield Objection("Replacement", f"pod cannot be read: {pod.problem}")
    elif owner is not None and situation.templates.get(owner.uid, pod).admission is None:
        problem = situation.templates[owner.uid].problem
        yield Objection("Replacement", f"template of {owner.kind} {owner.name} cannot be read: {problem}")


def _limit_objections(pod: ClusterPod, situation: Situation, policy: Policy) -> Iterator[Objection]:
    """Yield the limits that allow no eviction of the pod, even without any other."""
    context = situation.context
    rejection = PlannedEvictions(policy.limits, context.replicas).rejection(pod)
    if rejection:
        cure = "; to allow its eviction, set limits.evictSingleReplicas" if rejection == ONLY_REPLICA else ""
        yield Objection("Limits", f"{rejection}{cure}")
    rejection = context.headroom.rejection(pod)
    if rejection:
        yield Objection("PodDisruptionBudget", rejection)


def _recent_move(pod: ClusterPod, situation: Situation, policy: Policy) -> Iterator[Objection]:
    until = situation.history.cooling_until(pod, policy.cooldown)
    if until is not None and situation.context.now < until:
        yield Objection(
            "Cooldown",
            f"a pod of the same owner was moved from or to node {pod.node}; "
            f"its pods there stay until {timestamp.format(until)}",
        )
