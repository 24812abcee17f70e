"""Predict where a pod would be admitted, why not elsewhere, and which node to prefer.

Two deciders stand between a pod and a node: the scheduler's filters (``numazones.cluster.scheduling``) and
whoever places pods on its NUMA nodes, the node's placement (``numazones.placement``). A node's verdict comes
from asking both; a prediction sums the verdicts up. A node whose placement is unknown gives none, and a
prediction that would hang on such nodes is Unknown: never is the unknown taken for "fits".

``predict`` answers once. ``Forecast`` holds the verdicts of all nodes for one kind of pod and renews those
of the nodes that changed; nodes in equal states are decided once.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from numazones import cpuset
from numazones.api.reasons import Candidate, NodeCounts, Reason
from numazones.apimachinery.resources import CPU, figures, is_memory
from numazones.cluster import scheduling
from numazones.cluster.cluster import UNDECIDED, Cluster, ClusterNode, ClusterPod, why_undecided
from numazones.cluster.other_requests import recounted, whole_cores, with_request
from numazones.cluster.pod_kind import PodKind, newcomer, relevant
from numazones.errors import About, NodeName, NumazonesError, expect
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.machine import name_numas
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import operating_system
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import SMT_ALIGNMENT
from numazones.placement import Decision, Placement, Unknown
from numazones.placement.kubelet import KUBELET, KubeletPlacement
from numazones.prediction import doubts, headline
from numazones.prediction.device_answer import ALIGNMENT_UNKNOWN, DeviceAnswer, Shares, alignment_rank
from numazones.prediction.headline import NodePreference, ReasonGroup, SameVerdict, nearness
from numazones.prediction.joined_verdict import misspelled, with_devices
from numazones.prediction.pod_devices import pod_devices
from numazones.prediction.verdict import SCHEDULER_SOURCE, UNKNOWN_SOURCE, NodeAnswer, NodeVerdict, RoundedPod
from numazones.wording import shorten

__all__ = [
    "ADMISSIBLE",
    "INADMISSIBLE",
    "NO_NODES",
    "SCHEDULER_SOURCE",
    "UNKNOWN",
    "UNKNOWN_SOURCE",
    "UNREADABLE_POD",
    "Candidate",
    "Forecast",
    "NodeAnswer",
    "NodeCounts",
    "NodeVerdict",
    "Placed",
    "PodKind",
    "Prediction",
    "Reason",
    "ask",
    "ask_placement",
    "beside",
    "deciding",
    "newcomer",
    "place_beside",
    "predict",
    "preference",
    "relevant",
    "unreadable",
    "verdict_of",
]

Answer = TypeVar("Answer")

ADMISSIBLE: Final = "Admissible"
INADMISSIBLE: Final = "Inadmissible"
UNKNOWN: Final = "Unknown"

UNREADABLE_POD: Final = "UnreadablePod"
NO_NODES: Final = "NoNodes"

# States of past nodes are remembered up to this many times the number of nodes.
_REMEMBERED = 4
_WHOLE = 100
_EVEN_WHEN_EMPTY = "even when empty"
_SAYS_SO = (_EVEN_WHEN_EMPTY, "on an empty node", "not a multiple of")
"""Words of sentences that make it plain that other pods are not what is in the way."""
_MAX_DEVICES = 512
"""Characters that a candidate has for its devices."""
_MAX_BEHIND = 64
"""The number of closed nodes whose kubelets are asked before a sentence names one of them."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for a pod over all nodes.

    >>> from numazones import build
    >>> predict(ClusterPod.from_api(build.pod_body("web", cpu=2)), []).verdict
    'Unknown'
    """

    verdict: str
    nodes: NodeCounts = field(default_factory=NodeCounts)
    reasons: tuple[Reason, ...] = ()
    """The first is the headline (``numazones.prediction.headline``): what has to change for the pod to run.

    Their counts add up to the nodes that do not admit the pod.
    """
    candidates: tuple[Candidate, ...] = ()
    """Best first."""
    possible: bool = True
    """False: the nodes that are meant for the pod would not take it even if no other pod were there."""
    doubts: tuple[str, ...] = ()
    """What is not certain about it because of the kubelets' releases; each names its nodes."""

    @property
    def model(self) -> str:
        """Return the model that places pods on the node of ``sentence``; empty if unknown."""
        if self.verdict == ADMISSIBLE:
            return self.candidates[0].model
        return self.reasons[0].model if self.reasons else ""

    @property
    def sentence(self) -> str:
        """The prediction in one sentence."""
        if self.verdict == ADMISSIBLE:
            best = self.candidates[0]
            zones = f" on {name_numas(cpuset.of(best.zones))}" if best.zones else ""
            counts = self.nodes
            devices = f": {best.devices}" if best.devices else ""
            return (
                f"{counts.admissible} of {counts.evaluated} nodes would admit it; "
                f"best is {best.node}{zones}{devices}"
            )
        if not self.reasons:
            return "the cluster has no nodes"
        return self.reasons[0].in_words

    def __str__(self) -> str:
        """Return the prediction in one sentence."""
        return self.sentence

    @property
    def reason(self) -> str:
        """Return the obstacle in a word or two that many pods share; empty if there is none."""
        return self.reasons[0].reason if self.reasons else ""

    @property
    def hopeless(self) -> str:
        """That nobody has to be evicted, for nothing would come of it; empty where something might."""
        if self.possible:
            return ""
        return "No eviction can help: the nodes would not admit such a pod even when empty."

    @property
    def brief(self) -> str:
        """Return the obstacle in few words; empty if there is none."""
        if self.verdict == ADMISSIBLE or not self.reasons:
            return ""
        return self.reasons[0].brief or self.reasons[0].reason


def predict(pod: ClusterPod, nodes: Cluster | Iterable[ClusterNode], *, candidates: int = 5) -> Prediction:
    """Say where a pod would be admitted, on the nodes as they are.

    Args:
        pod: as if it were created now; where it is, if it is somewhere, does not matter.
        nodes: a cluster, or nodes with their pods, and their states where these are known.
        candidates: of so many nodes that would admit it more is told, the best first.

    Raises:
        WrongType: an argument is something else.

    >>> from numazones import build
    >>> state = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> node = ClusterNode("worker-1", allocatable={"cpu": 14000, "memory": 15 << 30}).with_state(state)
    >>> print(predict(ClusterPod.from_api(build.pod_body("web", cpu=8, memory="1Gi")), [node]))
    1 of 1 nodes would admit it; best is worker-1 on NUMA node 1
    """
    expect(pod, ClusterPod, "use ClusterPod.from_manifest or ClusterPod.from_api")
    nodes = list(nodes.nodes.values() if isinstance(nodes, Cluster) else nodes)
    for node in nodes:
        expect(node, ClusterNode, "use cluster_from_api or ClusterNode.with_state")
    kind = PodKind.of(pod)
    if kind is None:
        return unreadable(pod)
    forecast = Forecast(kind)
    forecast.renew(nodes)
    return forecast.prediction(candidates=candidates)


def unreadable(pod: ClusterPod) -> Prediction:
    """Return the prediction for a pod that makes no sense."""
    sentence = f"the pod cannot be read: {pod.problem}"
    reason = Reason(UNREADABLE_POD, UNKNOWN_SOURCE, count=0, message=pod.problem, sentence=sentence)
    return Prediction(UNKNOWN, reasons=(reason,))


def ask(kind: PodKind, node: ClusterNode) -> NodeVerdict:
    """Ask the scheduler, and the node's placement model, about one node."""
    forecast = Forecast(kind)
    forecast.renew((node,))
    return forecast.verdicts[node.name]


def is_open(kind: PodKind, node: ClusterNode) -> bool:
    """Return whether nothing but its placement model may object to the pod on a node."""
    info = PodInfo(kind.admission, kind.constraints)
    return _exclusion(kind, node) is None and _foreign(info, node) is None


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
    devices: DeviceAnswer | None = None
    """Devices that the scheduler would allocate; None: it needs none, or the allocator was not called."""


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
    after = node.with_pod(pod.placed(node.name), whole.after(pod.admission, decision))
    found = None
    if node.cluster_devices is not None:
        found = pod_devices(pod, node, decision.zones, decision.shares)
    if found is not None and found.fits:
        after = replace(after, cluster_devices=found.after)
    return Placed(after, decision, found)


def _foreign(pod: PodInfo, node: ClusterNode) -> NodeVerdict | None:
    """The one check of the kubelet that neither the scheduler's filters nor the managers make."""
    objection = operating_system(node.os, pod)
    if objection is None:
        return None
    return NodeVerdict(
        NodeAnswer.REJECTS, obstacles=((objection.reason, objection.message),), sentence=objection.sentence
    )


def ask_placement(pod: Pod, placement: Placement) -> NodeVerdict:
    """Ask a placement alone; the pod must be new to it, and its to place."""
    try:
        decision = placement.admit(pod)
        return verdict_of(decision, decision.shares if len(pod.containers) > 1 and decision.admitted else ())
    except NumazonesError as error:
        return NodeVerdict(
            NodeAnswer.UNKNOWN,
            UNKNOWN_SOURCE,
            ((why_undecided(error), str(error)),),
            approximate=placement.approximate,
            model=placement.model.name,
        )


def verdict_of(decision: Decision, shares: Shares = ()) -> NodeVerdict:
    """Turn a decision into a verdict; ``shares``: those of the decision, where they matter."""
    placement = decision.before
    if not decision.admitted:
        return NodeVerdict(
            NodeAnswer.REJECTS,
            placement.model.source,
            ((decision.reason, decision.message),),
            closeness=decision.closeness,
            rejection=decision,
            approximate=placement.approximate,
            model=placement.model.name,
        )
    effect = decision.effect
    return NodeVerdict(
        NodeAnswer.ADMITS,
        placement.model.source,
        zones=decision.zones,
        shares=shares,
        score=round(_WHOLE * effect.packing),
        free_block=effect.free_block,
        stranding=effect.stranding,
        approximate=placement.approximate,
        model=placement.model.name,
        by_amounts=decision.follows_from_amounts,
    )


def _exclusion(kind: PodKind, node: ClusterNode) -> NodeVerdict | None:
    """Return the scheduler's objection to a node, constraints before amounts; None if it could choose it."""
    reasons = scheduling.placement_obstacles(kind.constraints, node)
    lacks = scheduling.lacks(kind.amounts, node)
    if not reasons and not lacks:
        return None
    lacks = tuple(sorted(lacks, key=lambda lack: (lack.total >= lack.asked, lack.share)))
    return NodeVerdict(
        NodeAnswer.EXCLUDED,
        SCHEDULER_SOURCE,
        tuple((reason, "") for reason in (*reasons, *(lack.reason for lack in lacks))),
        lacks,
        closeness=lacks[0].share if lacks else 1.0,
        sentence="; ".join((*reasons, *map(str, lacks))),
        possible=all(lack.total >= lack.asked for lack in lacks),
        model=None,
    )


def _would_admit(rounded: RoundedPod, node: ClusterNode) -> bool:
    """Return whether the scheduler, too, would take a pod for a node that is open to it."""
    if scheduling.lacks(rounded.kind.amounts, node):
        return False
    return with_devices(rounded.kind, node, rounded.verdict).answer is NodeAnswer.ADMITS


def _unknown(kind: PodKind, unknown: Unknown, verdict: Callable[[Placement], NodeVerdict]) -> NodeVerdict:
    """The verdict of a node of unknown state: what was known of it, and what it refused, is no verdict."""
    last_known = unknown.last_known
    rejects = last_known is not None and verdict(last_known).answer is NodeAnswer.REJECTS
    return NodeVerdict(
        NodeAnswer.UNKNOWN,
        UNKNOWN_SOURCE,
        ((unknown.reason, unknown.message),),
        model=None,
        would_reject=rejects or kind.needs in unknown.refused,
        awaited=unknown.awaited,
        unseen=unknown.unseen,
    )


class Forecast:
    """The verdicts of all nodes on one kind of pod, renewed node by node."""

    def __init__(self, kind: PodKind) -> None:
        self.kind = kind
        self._pod = newcomer(kind.admission)
        self._info = PodInfo(kind.admission, kind.constraints)
        self._verdicts: dict[str, NodeVerdict] = {}
        self._alike: dict[NodeVerdict, SameVerdict] = {}
        self._counts = dict.fromkeys(NodeAnswer, 0)
        self._by_state: dict[Hashable, NodeVerdict] = {}
        self._by_amounts: dict[Hashable, NodeVerdict] = {}
        """Amounts of nodes that admit the pod, where that follows from the amounts → the verdict."""
        self._by_equipment: dict[Hashable, Decision | None] = {}
        """What decides alike on empty nodes → the rejection there, or None."""
        self._excluded: dict[str, ClusterNode] = {}
        """The nodes that the scheduler passes over, which placements have not been asked of."""
        self._rounded: dict[Hashable, Forecast] = {}
        """CPUs rounded up to whole cores → the forecast for that; it keeps no nodes."""
        self._rejecting: dict[str, ClusterNode] = {}
        """The nodes whose placements reject the pod."""

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

    def leave_open(self, name: str, problem: str) -> bool:
        """File that something raises about a node, so that it gets no pod; return whether that is news."""
        for kept in (self._excluded, self._rejecting):
            kept.pop(name, None)
        obstacles = ((UNDECIDED, problem),)
        verdict = NodeVerdict(NodeAnswer.UNKNOWN, UNKNOWN_SOURCE, obstacles, model=None, would_reject=True)
        return self._file(name, verdict)

    def forget(self, name: str) -> bool:
        """Drop a node that is gone; return whether it was known."""
        old = self._verdicts.pop(name, None)
        self._excluded.pop(name, None)
        self._rejecting.pop(name, None)
        if old is None:
            return False
        self._withdraw(name, old)
        return True

    @property
    def admits_anywhere(self) -> bool:
        """Return whether ``admitting`` names any node."""
        return bool(self._counts[NodeAnswer.ADMITS]) or any(one.placement_admits for one in self._alike)

    @property
    def admitting(self) -> tuple[str, ...]:
        """Names of the nodes whose placement would admit the pod, best first.

        Those are among them that may lack devices which the scheduler still has to allocate.
        """
        admitting = [alike for one, alike in self._alike.items() if one.placement_admits]
        found = self._candidates(admitting, len(self._verdicts))
        return tuple(candidate.node for candidate in found)

    def prediction(self, *, candidates: int = 5, ranked: Sequence[str] = ()) -> Prediction:
        """Sum the verdicts up.

        ``candidates``: how many of the best nodes are named; ``ranked``: the best that would admit the pod,
        as somebody else ranks them (``node_choice``); none: by ``preference``.
        """
        counts = self._counts
        asked = sum(counts.values()) - counts[NodeAnswer.EXCLUDED]
        aborted = any(one.devices.aborts for one in self._alike if one.devices is not None)
        if counts[NodeAnswer.ADMITS] and not aborted:
            verdict = ADMISSIBLE
        else:
            verdict = UNKNOWN if aborted or counts[NodeAnswer.UNKNOWN] or not self._verdicts else INADMISSIBLE
        found = headline.groups(self._alike.values(), unknown_first=verdict == UNKNOWN)
        return Prediction(
            verdict,
            NodeCounts(
                asked, counts[NodeAnswer.ADMITS], counts[NodeAnswer.UNKNOWN], counts[NodeAnswer.EXCLUDED]
            ),
            reasons=self._reasons(verdict, found),
            candidates=()
            if aborted
            else self._named(ranked[:candidates])
            if ranked
            else self._best(candidates),
            possible=verdict != INADMISSIBLE or headline.possible(found),
            doubts=self._doubts(),
        )

    def _doubts(self) -> tuple[str, ...]:
        found: dict[str, list[str]] = {}
        for alike in self._alike.values():
            for doubt in alike.verdict.doubts:
                found.setdefault(doubt, []).extend(alike.names)
        problem = misspelled(self.kind)
        return (*doubts.sentences(found), *((problem,) if problem else ()))

    @property
    def nearest(self) -> tuple[str, ...]:
        """Names of the nodes that do not admit the pod, those first that come nearest."""
        ranked = sorted(
            (one for one in self._alike.values() if one.verdict.answer is not NodeAnswer.ADMITS),
            key=lambda one: one.nearness,
        )
        return tuple(name for one in ranked for name in sorted(one.names))

    def _ask(self, node: ClusterNode) -> NodeVerdict:
        excluded = _exclusion(self.kind, node)
        self._rejecting.pop(node.name, None)
        if excluded is None:
            self._excluded.pop(node.name, None)
            verdict = self._decide(node)
            if verdict.rejection is not None:
                self._rejecting[node.name] = node
                if verdict.in_whole_cores is not None and not _would_admit(verdict.in_whole_cores, node):
                    return replace(verdict, in_whole_cores=None)
            return verdict
        self._excluded[node.name] = node
        hopeless = self._rejection_when_empty(node)
        return excluded if hopeless is None else replace(excluded, hopeless=hopeless, possible=False)

    def _decide(self, node: ClusterNode) -> NodeVerdict:
        """Ask the placement of a node, whatever the scheduler says."""
        placement = deciding(self.kind.constraints, node)
        if isinstance(placement, Unknown):
            unknown = _unknown(self.kind, placement, lambda known: self._verdict_of(node, known))
            return with_devices(self.kind, node, unknown)
        verdict = _foreign(self._info, node) or self._verdict_of(node, placement)
        state = placement.kubelet
        if state is not None and state.kubelet.doubts and verdict.answer is not NodeAnswer.UNKNOWN:
            verdict = replace(verdict, doubts=state.kubelet.doubts)
        joined = with_devices(self.kind, node, verdict)
        if joined.devices is None:
            return joined
        # Thousands of verdicts are kept, so none keeps what the cluster would be like afterwards.
        return replace(joined, devices=replace(joined.devices, allocation=None))

    def _verdict_of(self, node: ClusterNode, placement: Placement) -> NodeVerdict:
        if not isinstance(placement, KubeletPlacement):
            return self._verdict_of_state(node, placement)
        amounts = (placement.amounts, placement.approximate)
        known = self._by_amounts.get(amounts)
        if known is None:
            known = self._verdict_of_state(node, placement)
            if known.by_amounts:
                self._remember(self._by_amounts, amounts, known)
        return known

    def _verdict_of_state(self, node: ClusterNode, placement: Placement) -> NodeVerdict:
        key = placement.key
        known = self._by_state.get(key)
        if known is None:
            known = ask_placement(self._pod, placement)
            hopeless = self._rejection_when_empty(node) if known.answer is NodeAnswer.REJECTS else None
            if hopeless is not None:
                known = replace(known, hopeless=hopeless, possible=False)
            if known.rejection is not None and known.rejection.reason == SMT_ALIGNMENT:
                known = replace(known, in_whole_cores=self._in_whole_cores(node, placement))
            self._remember(self._by_state, key, known)
        return known

    def _in_whole_cores(self, node: ClusterNode, placement: Placement) -> RoundedPod | None:
        """Return the pod with its CPUs rounded up to whole cores, if the placement would admit that."""
        state, pod = placement.kubelet, self.kind.admission
        rounded = () if state is None else whole_cores(pod, state)
        if state is None or not rounded:
            return None
        key = (state.kubelet.pod_level, *rounded)
        forecast = self._rounded.get(key)
        if forecast is None:
            after = pod
            for container, _, cpus in rounded:
                after = with_request(after, container, CPU, cpus)
            requests = recounted(self.kind.amounts, pod, after, state.config)
            forecast = self._rounded[key] = Forecast(self.kind.requesting(after, requests))
        verdict = forecast._verdict_of(node, placement)
        return RoundedPod(forecast.kind, verdict) if verdict.answer is NodeAnswer.ADMITS else None

    def _remember(self, answers: dict[Hashable, Answer], key: Hashable, answer: Answer) -> None:
        if len(answers) > _REMEMBERED * max(len(self._verdicts), 64):
            answers.clear()
        answers[key] = answer

    def _rejection_when_empty(self, node: ClusterNode) -> Decision | None:
        """Return the kubelet's rejection on the node without any pod; None: it would admit the pod then."""
        placement = deciding(self.kind.constraints, node)
        state: Node | None = None if isinstance(placement, Unknown) else placement.kubelet
        if state is None:
            return None
        key = state.equipment_key
        if key not in self._by_equipment:
            self._remember(self._by_equipment, key, self._decision_when_empty(state))
        return self._by_equipment[key]

    def _decision_when_empty(self, state: Node) -> Decision | None:
        try:
            decision = KubeletPlacement(state.emptied).admit(self._pod)
        except NumazonesError:
            return None
        return None if decision.admitted else decision

    def _file(self, name: str, new: NodeVerdict) -> bool:
        old = self._verdicts.get(name)
        self._verdicts[name] = new
        if old is not None:
            if old == new:
                return False
            self._withdraw(name, old)
        alike = self._alike.get(new)
        if alike is None:
            alike = self._alike[new] = SameVerdict.of(new, preference(new))
        alike.names[name] = None
        self._counts[new.answer] += 1
        return True

    def _withdraw(self, name: str, old: NodeVerdict) -> None:
        names = self._alike[old].names
        del names[name]
        self._counts[old.answer] -= 1
        if not names:
            del self._alike[old]

    def _best(self, number: int) -> tuple[Candidate, ...]:
        admitting = [alike for one, alike in self._alike.items() if one.answer is NodeAnswer.ADMITS]
        return tuple(self._candidates(admitting, number))

    def _named(self, names: Iterable[str]) -> tuple[Candidate, ...]:
        found = []
        for name in names:
            with About(NodeName(name)):
                found.append(_candidate(name, self._verdicts[name]))
        return tuple(found)

    @staticmethod
    def _candidates(suitable: Iterable[SameVerdict], number: int) -> list[Candidate]:
        ranked = sorted(suitable, key=attrgetter("preference"))
        best: list[Candidate] = []
        for position, alike in enumerate(ranked):
            for name in nsmallest(number, alike.names):
                with About(NodeName(name)):
                    best.append(_candidate(name, alike.verdict))
            following = ranked[position + 1] if position + 1 < len(ranked) else None
            if len(best) >= number and following is not None and following.preference != alike.preference:
                break
        best.sort(key=lambda item: (*preference(item), item.node))
        return best[:number]

    def _reasons(self, verdict: str, found: list[ReasonGroup]) -> tuple[Reason, ...]:
        if not self._verdicts:
            return (Reason(NO_NODES, UNKNOWN_SOURCE, count=0, message="the cluster has no nodes"),)
        behind: NodeVerdict | None = None
        if verdict == INADMISSIBLE and found[0].closed:
            behind = self._look_behind(found[0])
        return tuple(
            self._reason(group, behind if position == 0 else None) for position, group in enumerate(found)
        )

    def _reason(self, group: ReasonGroup, behind: NodeVerdict | None) -> Reason:
        source, reason, model = group.key
        message = next(text for name, text in group.nearest.obstacles if name == reason)
        sentence, brief, holders = self._shortfall_of(group, behind)
        return Reason(
            reason,
            source,
            count=group.count,
            node=group.node,
            model=model or "",
            message=message,
            sentence=sentence,
            brief=brief,
            held_by=holders,
        )

    def _look_behind(self, group: ReasonGroup) -> NodeVerdict | None:
        """Ask the kubelets of closed nodes what they would say, and take a node for the nearest that admits.

        Returns what the nearest node says, where nothing but such constraints keeps the scheduler from it.
        """
        if group.nearest.lacks:
            return None
        alike = (one for one in group.alike if one.nearness == group.nearness)
        said: list[tuple[NodeVerdict, str]] = []
        for name in nsmallest(_MAX_BEHIND, (name for one in alike for name in one.names)):
            # Whole cores alone do not open a closed node.
            said.append((replace(self._decide(self._excluded[name]), in_whole_cores=None), name))
            if said[-1][0].answer is NodeAnswer.ADMITS:
                break
        order = (NodeAnswer.ADMITS, NodeAnswer.UNKNOWN, NodeAnswer.REJECTS)
        behind, name = min(said, key=lambda pair: (order.index(pair[0].answer), nearness(pair[0]), pair[1]))
        group.nearest, group.node = self._verdicts[name], name
        return behind

    def _shortfall_of(
        self, group: ReasonGroup, behind: NodeVerdict | None
    ) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Return what the nearest node lacks in one sentence, in a few words, and who holds it there."""
        one, node = self._verdicts[group.node], group.node
        if one.rejection is not None:
            found = self._own_rejection(node, one.rejection).shortfall(node)
            return _with_empty_node(found.sentence, one, node), found.brief, found.holders
        if one.answer is not NodeAnswer.EXCLUDED:
            return one.sentence, one.sentence, ()
        nowhere = self._lacked_everywhere(group)
        parts = [reason for reason, _ in one.obstacles[: len(one.obstacles) - len(one.lacks)]]
        if nowhere:
            parts += [str(lack) for lack in one.lacks if lack.reason != group.key[1]]
            sentence = "; ".join([*parts, nowhere])
            return sentence, sentence, ()
        sentence = "; ".join([*parts, *map(str, one.lacks)])
        brief = sentence
        if one.lacks:
            nearest = f", the closest of {group.count} nodes" if group.count > 1 else ""
            sentence = self._lacked_now(group, parts) or f"{sentence} on {node}{nearest}"
            if not group.possible:
                sentence = _with_empty_node(sentence, one, node)
        elif behind is not None and behind.answer is NodeAnswer.REJECTS:
            said = behind.sentence if behind.rejection is None else behind.rejection.shortfall(node).sentence
            sentence = f"{sentence}; in addition, {_of('the pod', said)}"
            return _with_empty_node(sentence, behind, node), brief, ()
        return sentence, brief, ()

    def _own_rejection(self, name: str, shared: Decision) -> Decision:
        """Return a node's own rejection: one that equal states share names the pods of another node."""
        node = self._rejecting.get(name)
        placement = None if node is None else deciding(self.kind.constraints, node)
        if placement is None or isinstance(placement, Unknown):
            return shared
        return placement.admit(self._pod)

    def _lacked_now(self, group: ReasonGroup, parts: Sequence[str]) -> str:
        """Say that no node has so much of a resource free; empty where more is in the way, or on one node."""
        lacks = self._verdicts[group.node].lacks
        if parts or len(lacks) > 1 or group.count < len(self._verdicts) or group.count == 1:
            return ""
        asked, free = figures(lacks[0].resource, lacks[0].asked, lacks[0].free)
        return f"No node has {_in_words(lacks[0].resource, asked)} free. Closest: {group.node} ({free} free)"

    def _lacked_everywhere(self, group: ReasonGroup) -> str:
        """Say that no node has so much of a resource, even when empty; empty where some node has."""
        if group.count < len(self._verdicts):
            return ""
        most, asked, node, instead = -1, 0, "", ""
        for one in group.alike:
            lack = next((lack for lack in one.verdict.lacks if lack.reason == group.key[1]), None)
            if lack is None or lack.total >= lack.asked:
                return ""
            first = min(one.names)
            if lack.total > most or (lack.total == most and first < node):
                most, asked, node = lack.total, lack.asked, first
            instead = instead or lack.instead
        resource = "pod slots" if group.key[1] == scheduling.TOO_MANY_PODS else group.key[1].split()[-1]
        if not most:
            return f"no node offers {resource}" + (f"; did you mean {instead}?" if instead else "")
        wanted, largest = figures(resource, asked, most)
        return f"no node has {_in_words(resource, wanted)} at all; the most is {largest}, on {node}"


def _in_words(resource: str, amount: str) -> str:
    """Return an amount with its resource: ``4 CPUs``, ``8Gi of memory``, ``2 vendor.example/nic``."""
    if resource == CPU:
        return f"{amount} CPUs" if amount != "1" else "1 CPU"
    if resource == scheduling.PODS:
        return "a pod slot"
    return f"{amount} of {resource}" if is_memory(resource) else f"{amount} {resource}"


def _with_empty_node(sentence: str, one: NodeVerdict, node: str) -> str:
    """Add what the kubelet would say even if no other pod were there."""
    if one.hopeless is None or any(words in sentence for words in _SAYS_SO):
        return sentence
    if one.rejection is not None:
        return f"{sentence}; the node would not admit it {_EVEN_WHEN_EMPTY}"
    why = one.hopeless.shortfall(node).sentence
    if _EVEN_WHEN_EMPTY in why:
        return f"{sentence}; in addition, {_of('the pod', why)}"
    return f"{sentence}; {_EVEN_WHEN_EMPTY}, the node would not admit the pod: {_of('it', why)}"


def _of(subject: str, sentence: str) -> str:
    """Begin a sentence with its subject, unless it has one of its own."""
    return f"{subject} {sentence}" if sentence.startswith(("needs ", "requests ", "must ")) else sentence


def _candidate(name: str, one: NodeVerdict) -> Candidate:
    return Candidate(
        name,
        one.zones,
        score=one.score,
        free_block=one.free_block,
        approximate=one.approximate,
        model=one.model or KUBELET,
        stranding=one.stranding,
        devices="" if one.devices is None else shorten(one.devices.sentence, _MAX_DEVICES),
        alignment="" if one.devices is None else one.devices.alignment,
    )


def preference(one: NodeVerdict | Candidate) -> NodePreference:
    """Return what nodes that would admit a pod are sorted by, the best first (``NodeChoice.SCARCE``).

    Devices near the CPUs count more than room that is kept.
    """
    alignment = one.alignment if isinstance(one, Candidate) else alignment_of(one)
    return (
        one.approximate,
        alignment_rank(alignment),
        _STRANDING * one.stranding - one.score,
        -one.free_block,
    )


def alignment_of(one: NodeVerdict) -> str:
    """Return whether a pod's devices would be near its CPUs; empty if it needs none."""
    if one.devices is not None:
        return one.devices.alignment
    return "" if one.answer is NodeAnswer.ADMITS else ALIGNMENT_UNKNOWN


_STRANDING = 10
"""Points of a score, of 100, that keeping the surroundings of one kind of idle device is worth."""
