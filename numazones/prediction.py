"""Where a pod would be admitted, why not elsewhere, and which node to prefer.

Two deciders stand between a pod and a node: the scheduler's filters (``numazones.scheduling``) and whoever
places pods on its NUMA nodes, the node's placement (``numazones.placement``). A node's verdict comes from
asking both; a prediction sums the verdicts up. A node whose placement is unknown gives none, and a prediction
that would hang on such nodes is Unknown: never is the unknown taken for "fits".

``predict`` answers once. ``Forecast`` holds the verdicts of all nodes for one kind of pod and renews those
of the nodes that changed; nodes in equal states are decided once.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from numazones import cpuset, scheduling
from numazones.cluster import UNDECIDED, ClusterNode, ClusterPod
from numazones.constraints import Constraints
from numazones.demand import PodLevel, QOSClass
from numazones.errors import NumazonesError
from numazones.kubelet.node_admission import OS_LABEL, operating_system
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.shortfall import name_numas
from numazones.placement import Decision, Placement, Unknown, models
from numazones.placement.kubelet import KUBELET, SOURCE
from numazones.pod import Pod

ADMISSIBLE: Final = "Admissible"
INADMISSIBLE: Final = "Inadmissible"
UNKNOWN: Final = "Unknown"

UNREADABLE_POD: Final = "UnreadablePod"
NO_NODES: Final = "NoNodes"
SCHEDULER_SOURCE: Final = "Scheduler"
UNKNOWN_SOURCE: Final = "Unknown"
"""Who stands in the way, where it is no placement model; a model says its own (``Decision.source``)."""

CLAIMS_UNALLOCATED: Final = (
    f"it claims devices by resourceClaims, which its kubelet does not look at: {scheduling.ALLOCATOR_DECIDES}"
)
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
# States of past nodes are remembered up to this many times the number of nodes.
_REMEMBERED = 4
_WHOLE = 100
# Stands for every pod of a kind, also beside pods of the kind that a node holds already.
_NEWCOMER = "newcomer"


class Standing(Enum):
    """What a node says to a pod."""

    ADMITS = "admits"
    REJECTS = "rejects"
    UNKNOWN = "unknown"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """One node's verdict; the same for all nodes in the same position."""

    standing: Standing
    source: str = SOURCE
    """Who says so: the scheduler, a placement model, or nobody knows."""
    obstacles: tuple[tuple[str, str], ...] = ()
    """(reason, message); messages are empty where the reason says it all."""
    closeness: float = 0.0
    """Of a rejection: the share of what is needed that one NUMA node offers, of the scarcest resource."""
    rejection: Decision | None = field(default=None, compare=False, repr=False)
    zones: tuple[int, ...] = ()
    """NUMA nodes the pod would get something of."""
    score: int = 0
    free_block: int = 0
    """The most exclusive CPUs that one NUMA node could still give afterwards."""
    approximate: bool = False
    sentence: str = ""
    """Of a rejection by the node as a whole, or of amounts that are lacking: the same in plain words."""
    model: str | None = KUBELET
    """Who places pods on the node; None where that is not known or was not asked."""

    @property
    def placement_admits(self) -> bool:
        """Whether placement has nothing against the pod, though devices may still have to be allocated."""
        return self.standing is Standing.ADMITS or self.obstacles[0][0] == scheduling.NOT_ALLOCATED


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some nodes do not take the pod."""

    reason: str
    """The scheduler's words, or the reason that the kubelet would write into the pod's status."""
    source: str
    count: int
    node: str
    """An example: the node that comes nearest, else the first by name."""
    message: str = ""
    """What the kubelet would say, or why the node is unknown."""
    sentence: str = ""
    """The same in plain words."""
    brief: str = ""
    """The same in few words."""
    holders: tuple[tuple[str, str], ...] = ()
    """(UID as the kubelet knows it, amount) of the pods that hold there what is missing, most first."""
    model: str | None = None
    """Who places pods on these nodes; None where that is not known or was not asked."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would admit the pod."""

    node: str
    zones: tuple[int, ...]
    score: int
    """0 to 100: how little usable room the placement costs."""
    free_block: int
    approximate: bool = False
    model: str = KUBELET
    """Who would place the pod there."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is known about a pod on all nodes together.

    >>> from numazones import build
    >>> predict(ClusterPod.from_api(build.pod_body("web", cpu=2)), []).verdict
    'Unknown'
    """

    verdict: str
    evaluated: int = 0
    """Nodes that the scheduler could choose."""
    admissible: int = 0
    stale: int = 0
    """Nodes that the scheduler could choose but whose state is unknown."""
    excluded: int = 0
    """Nodes that the scheduler passes over."""
    reasons: tuple[Reason, ...] = ()
    """What placement says, what is lacking, where the pod may not go; of each, most frequent first.

    Their counts add up to the nodes that do not admit the pod.
    """
    candidates: tuple[Candidate, ...] = ()
    """Best first."""

    @property
    def model(self) -> str | None:
        """Who places pods on the node that ``sentence`` is about; None where that is not known."""
        if self.verdict == ADMISSIBLE:
            return self.candidates[0].model
        return self.reasons[0].model if self.reasons else None

    @property
    def sentence(self) -> str:
        """The prediction in one sentence."""
        if self.verdict == ADMISSIBLE:
            best = self.candidates[0]
            zones = f" on {name_numas(cpuset.of(best.zones))}" if best.zones else ""
            return f"{self.admissible} of {self.evaluated} nodes would admit it; best is {best.node}{zones}"
        if not self.reasons:
            return "the cluster has no nodes"
        first = self.reasons[0]
        return first.sentence or first.message or first.reason

    @property
    def brief(self) -> str:
        """What stands in the way, in few words; empty where nothing does."""
        if self.verdict == ADMISSIBLE or not self.reasons:
            return ""
        return self.reasons[0].brief or self.reasons[0].reason


@dataclass(frozen=True, slots=True)
class Kind:
    """Everything about a pod that verdicts depend on: pods of one template are of one kind."""

    admission: Pod = field(compare=False)
    constraints: Constraints
    requests: tuple[tuple[str, int], ...]
    containers: tuple[Any, ...]
    """What tells apart admission's view of two pods, their names aside."""
    marks: tuple[Any, ...] = ()
    """What the other placement models read beside: their labels and annotations, priority and namespace."""
    claims: bool = False
    """Whether it claims devices through dynamic resource allocation."""
    allocated: bool = False
    """Whether the scheduler has said of the nodes in question that they have the devices it claims."""

    @classmethod
    def of(cls, pod: ClusterPod, *, by_namespace: bool = False, allocated: bool = False) -> "Kind | None":
        """Return the kind of a pod, or None if the pod cannot be read.

        ``by_namespace``: tell pods of different namespaces and priorities apart, as some placement models do
        (``Model.tells_namespaces_apart``); needed where verdicts of their nodes are to be shared.
        ``allocated``: take the devices that it claims for allocated, as after the scheduler's own filters.
        """
        admission = pod.admission
        if admission is None:
            return None
        return cls(
            admission,
            pod.constraints,
            tuple(sorted(pod.requests.items())),
            (
                admission.containers,
                admission.resources,
                admission.qos_class,
                dict(admission.labels).get(OS_LABEL),
                admission.claimed_resources,
            ),
            _marks(admission, by_namespace=by_namespace),
            claims=pod.resource_claims,
            allocated=allocated,
        )


def _marks(pod: Pod, *, by_namespace: bool) -> tuple[Any, ...]:
    """Nothing for pods without a mark, so that pods of equal templates stay of one kind."""
    marks = _model_marks(pod)
    return (pod.priority, pod.namespace, *sorted(marks)) if marks or by_namespace else ()


def _model_marks(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Labels and annotations that placement models other than the kubelet read."""
    return tuple(
        pair
        for pair in (*pod.labels, *pod.annotations)
        if any(mark in pair[0] for mark in models.pod_marks())
    )


def relevant(pod: ClusterPod) -> bool:
    """Whether NUMA placement concerns the pod: Guaranteed, or asking for hugepages or devices.

    Guaranteed to some kubelet is enough, since releases read pod-level resources differently.

    A pod that cannot be read is relevant, so that somebody hears of it; and one that carries a label or an
    annotation that another placement model reads, which may place other pods, too.
    """
    admission = pod.admission
    if admission is None or _model_marks(admission):
        return True
    if any(admission.reading(level).qos is QOSClass.GUARANTEED for level in PodLevel):
        return True
    asked = (*admission.containers, *(() if admission.resources is None else (admission.resources,)))
    return any(
        name not in _PLAIN and amount.nanos > 0
        for resources in asked
        for name, amount in (*resources.requests, *resources.limits)
    )


def predict(pod: ClusterPod, nodes: Iterable[ClusterNode], *, candidates: int = 5) -> Prediction:
    """Say where a pod would be admitted, on the nodes as they are.

    >>> from numazones import build
    >>> state = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> node = ClusterNode("worker-1", allocatable={"cpu": 14000, "memory": 15 << 30}).with_state(state)
    >>> predict(ClusterPod.from_api(build.pod_body("web", cpu=8, memory="1Gi")), [node]).sentence
    '1 of 1 nodes would admit it; best is worker-1 on NUMA node 1'
    """
    kind = Kind.of(pod)
    if kind is None:
        return unreadable(pod)
    forecast = Forecast(kind)
    forecast.renew(nodes)
    return forecast.prediction(candidates=candidates)


def unreadable(pod: ClusterPod) -> Prediction:
    """Return the prediction for a pod that makes no sense."""
    reason = Reason(
        UNREADABLE_POD, UNKNOWN_SOURCE, 0, "", pod.problem, f"the pod cannot be read: {pod.problem}"
    )
    return Prediction(UNKNOWN, reasons=(reason,))


def ask(kind: Kind, node: ClusterNode) -> NodeVerdict:
    """Ask the scheduler, and the node's placement model, about one node."""
    excluded = _exclusion(kind.constraints, dict(kind.requests), node)
    if excluded is not None:
        return excluded
    placement = deciding(kind.constraints, node)
    if isinstance(placement, Unknown):
        return _unknown(placement)
    verdict = _foreign(PodInfo(kind.admission, kind.constraints), node) or ask_placement(
        newcomer(kind.admission), placement
    )
    return _allocating(kind, dict(kind.requests), node, verdict)


def deciding(constraints: Constraints, node: ClusterNode) -> Placement | Unknown:
    """Return what decides on a node about pods of these constraints, or why that is not known."""
    placement = node.placement
    return (
        placement if isinstance(placement, Unknown) else placement.for_scheduler(constraints.scheduler_name)
    )


class Placed(NamedTuple):
    """A node with one pod more."""

    node: ClusterNode
    decision: Decision


def beside(pod: ClusterPod, node: ClusterNode) -> ClusterNode | None:
    """Return the node with a pod that whoever decides there admits; None where it does not, or is not known.

    The scheduler is not asked.
    """
    placed = place_beside(pod, node)
    return None if placed is None else placed.node


def place_beside(pod: ClusterPod, node: ClusterNode) -> Placed | None:
    """Return the same as ``beside``, with the decision."""
    whole = node.known
    placement = deciding(pod.constraints, node)
    if whole is None or isinstance(placement, Unknown) or pod.admission is None:
        return None
    try:
        decision = placement.admit(pod.admission)
    except NumazonesError:
        return None
    if not decision.admitted:
        return None
    after = node.with_pod(pod.placed(node.name)).with_placement(whole.after(pod.admission, decision))
    return Placed(after, decision)


def _foreign(pod: PodInfo, node: ClusterNode) -> NodeVerdict | None:
    """The one check of the kubelet that neither the scheduler's filters nor the managers make."""
    objection = operating_system(node.os, pod)
    if objection is None:
        return None
    return NodeVerdict(
        Standing.REJECTS, obstacles=((objection.reason, objection.message),), sentence=objection.sentence
    )


def newcomer(pod: Pod) -> Pod:
    """Return a pod like this one that no node knows yet."""
    return replace(pod, uid=_NEWCOMER)


def ask_placement(pod: Pod, placement: Placement) -> NodeVerdict:
    """Ask a placement alone; the pod must be new to it, and its to place."""
    try:
        return verdict_of(placement.admit(pod))
    except NumazonesError as error:
        return NodeVerdict(
            Standing.UNKNOWN,
            UNKNOWN_SOURCE,
            ((UNDECIDED, str(error)),),
            approximate=placement.approximate,
            model=placement.model,
        )


def verdict_of(decision: Decision) -> NodeVerdict:
    """Turn a decision into a verdict."""
    if not decision.admitted:
        return NodeVerdict(
            Standing.REJECTS,
            decision.source,
            ((decision.reason, decision.message),),
            closeness=decision.closeness,
            rejection=decision,
            approximate=decision.approximate,
            model=decision.model,
        )
    effect = decision.effect
    return NodeVerdict(
        Standing.ADMITS,
        decision.source,
        zones=decision.zones,
        score=round(_WHOLE * effect.packing),
        free_block=effect.free_block,
        approximate=decision.approximate,
        model=decision.model,
    )


def _exclusion(
    constraints: Constraints, requests: Mapping[str, int], node: ClusterNode
) -> NodeVerdict | None:
    """What the scheduler has against a node, the scarcest resource first; None where it could choose it."""
    reasons = scheduling.placement_obstacles(constraints, node)
    lacks = scheduling.lacks(requests, node) if not reasons else ()
    if not reasons and not lacks:
        return None
    lacks = tuple(sorted(lacks, key=lambda lack: lack.share))
    return NodeVerdict(
        Standing.EXCLUDED,
        SCHEDULER_SOURCE,
        tuple((reason, "") for reason in (*reasons, *(lack.reason for lack in lacks))),
        closeness=lacks[0].share if lacks else 0.0,
        sentence="; ".join(map(str, lacks)),
        model=None,
    )


def _allocating(
    kind: Kind, requests: Mapping[str, int], node: ClusterNode, verdict: NodeVerdict
) -> NodeVerdict:
    """Take back "admits" where devices are still to be allocated, of which nothing is known here."""
    if verdict.standing is not Standing.ADMITS or kind.allocated:
        return verdict
    why = CLAIMS_UNALLOCATED if kind.claims else scheduling.unallocated(requests, node)
    if not why:
        return verdict
    return replace(
        verdict,
        standing=Standing.UNKNOWN,
        source=UNKNOWN_SOURCE,
        obstacles=((scheduling.NOT_ALLOCATED, why),),
    )


def _unknown(unknown: Unknown) -> NodeVerdict:
    return NodeVerdict(Standing.UNKNOWN, UNKNOWN_SOURCE, ((unknown.reason, unknown.message),), model=None)


class Forecast:
    """The verdicts of all nodes on one kind of pod, renewed node by node."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._pod = newcomer(kind.admission)
        self._info = PodInfo(kind.admission, kind.constraints)
        self._requests = dict(kind.requests)
        self._verdicts: dict[str, NodeVerdict] = {}
        self._nodes: dict[NodeVerdict, dict[str, None]] = {}
        """Verdict → the nodes that give it."""
        self._by_state: dict[Any, NodeVerdict] = {}

    @property
    def verdicts(self) -> Mapping[str, NodeVerdict]:
        """Name of a node → its verdict."""
        return self._verdicts

    def renew(self, nodes: Iterable[ClusterNode]) -> bool:
        """Ask nodes that are new or have changed; return whether any verdict differs from before."""
        changed = False
        for node in nodes:
            changed |= self._file(node.name, self._ask(node))
        return changed

    def forget(self, name: str) -> bool:
        """Drop a node that is gone; return whether it was known."""
        old = self._verdicts.pop(name, None)
        if old is None:
            return False
        self._withdraw(name, old)
        return True

    @property
    def admitting(self) -> tuple[str, ...]:
        """Names of the nodes whose placement would admit the pod, best first.

        Those are among them that may lack devices which the scheduler still has to allocate.
        """
        number = len(self._verdicts)
        found = self._candidates(number, lambda one: one.placement_admits)
        return tuple(candidate.node for candidate in found)

    def prediction(self, *, candidates: int = 5) -> Prediction:
        """Sum the verdicts up."""
        counts = dict.fromkeys(Standing, 0)
        for one, names in self._nodes.items():
            counts[one.standing] += len(names)
        asked = sum(counts.values()) - counts[Standing.EXCLUDED]
        if counts[Standing.ADMITS]:
            verdict = ADMISSIBLE
        else:
            verdict = UNKNOWN if counts[Standing.UNKNOWN] or not self._verdicts else INADMISSIBLE
        return Prediction(
            verdict,
            evaluated=asked,
            admissible=counts[Standing.ADMITS],
            stale=counts[Standing.UNKNOWN],
            excluded=counts[Standing.EXCLUDED],
            reasons=self._reasons(),
            candidates=tuple(self._candidates(candidates, lambda one: one.standing is Standing.ADMITS)),
        )

    def _ask(self, node: ClusterNode) -> NodeVerdict:
        excluded = _exclusion(self.kind.constraints, self._requests, node)
        if excluded is not None:
            return excluded
        placement = deciding(self.kind.constraints, node)
        if isinstance(placement, Unknown):
            return _unknown(placement)
        key = placement.key
        known = self._by_state.get(key)
        if known is None:
            if len(self._by_state) > _REMEMBERED * max(len(self._verdicts), 64):
                self._by_state.clear()
            known = self._by_state[key] = ask_placement(self._pod, placement)
        return _allocating(self.kind, self._requests, node, _foreign(self._info, node) or known)

    def _file(self, name: str, new: NodeVerdict) -> bool:
        old = self._verdicts.get(name)
        self._verdicts[name] = new
        if old == new:
            return False
        if old is not None:
            self._withdraw(name, old)
        self._nodes.setdefault(new, {})[name] = None
        return True

    def _withdraw(self, name: str, old: NodeVerdict) -> None:
        names = self._nodes[old]
        del names[name]
        if not names:
            del self._nodes[old]

    def _candidates(self, number: int, suits: Callable[[NodeVerdict], bool]) -> list[Candidate]:
        ranked = sorted(
            (one for one in self._nodes if suits(one)),
            key=lambda one: (*preference(one), one.zones),
        )
        best: list[Candidate] = []
        for position, one in enumerate(ranked):
            names = nsmallest(number, self._nodes[one])
            best.extend(
                Candidate(name, one.zones, one.score, one.free_block, one.approximate, one.model or KUBELET)
                for name in names
            )
            following = ranked[position + 1] if position + 1 < len(ranked) else None
            if len(best) >= number and following is not None and preference(following) != preference(one):
                break
        best.sort(key=lambda item: (*preference(item), item.node))
        return best[:number]

    def _reasons(self) -> tuple[Reason, ...]:
        groups: dict[tuple[str, str, str | None], _Group] = {}
        for one, names in self._nodes.items():
            # A node counts once, by what stands in the way first.
            for reason, message in one.obstacles[:1]:
                groups.setdefault((one.source, reason, one.model), _Group()).add(one, message, names)
        if not self._verdicts:
            return (Reason(NO_NODES, UNKNOWN_SOURCE, 0, "", "the cluster has no nodes"),)
        return tuple(
            Reason(
                reason,
                source,
                group.count,
                group.node,
                group.message,
                *_shortfall_of(self._verdicts[group.node], group),
                model,
            )
            for (source, reason, model), group in sorted(groups.items(), key=_importance)
        )


# What placement says is what people ask this project for; then what keeps it from saying anything. Of a pod
# for few nodes, what these lack is news; that it does not select the others is its own wish, however many.
_ORDER = {UNKNOWN_SOURCE: 1, SCHEDULER_SOURCE: 2}
_BARRED = {scheduling.UNSCHEDULABLE: 1, scheduling.UNTOLERATED: 1, scheduling.NOT_SELECTED: 2}


def preference(one: NodeVerdict | Candidate) -> tuple[bool, int, int]:
    """Return what nodes that would admit a pod are sorted by, the best first."""
    return (one.approximate, -one.score, -one.free_block)


@dataclass(slots=True)
class _Group:
    """Nodes that share a reason, while they are being counted."""

    count: int = 0
    closeness: float = -math.inf
    node: str = ""
    message: str = ""

    def add(self, one: NodeVerdict, message: str, names: Mapping[str, None]) -> None:
        first = min(names)
        if one.closeness > self.closeness or (one.closeness == self.closeness and first < self.node):
            self.closeness, self.node, self.message = one.closeness, first, message
        self.count += len(names)


def _importance(item: tuple[tuple[str, str, str | None], _Group]) -> tuple[Any, ...]:
    """What reasons are sorted by: who says so, for how many nodes, and how near one of them comes."""
    (source, reason, model), group = item
    barred = _BARRED.get(reason, 0) if source == SCHEDULER_SOURCE else 0
    order = _ORDER.get(source, 0)
    return order, barred, -group.count, -group.closeness, source != SOURCE, source, reason, model or ""


def _shortfall_of(one: NodeVerdict, group: _Group) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return what the nearest node lacks in one sentence, in a few words, and who holds it there."""
    node = group.node
    if one.rejection is not None:
        found = one.rejection.shortfall(node)
        return found.sentence, found.brief, found.holders
    if one.standing is Standing.EXCLUDED and one.sentence:
        nearest = f", the nearest of {group.count} nodes" if group.count > 1 else ""
        return f"{one.sentence} on {node}{nearest}", one.sentence, ()
    return one.sentence, one.sentence, ()
