"""The steps of carrying one recommendation out, one small step at a time, each of them safe to repeat.

Per move: prove what is left of the plan; write "Evicting"; prove it again, on what the API server says of the
nodes at this moment, and evict that very pod (by UID); wait for the replacement, confined to its node if the
plan says so; wait until the zones published for the nodes show it; go on. Between announcement and eviction
may lie a crash and hours, so neither relies on the other. What has been done is in the object's status before
the next step begins, so whoever takes over after a crash continues where it stands. An eviction names the
pod's UID, so it can be asked for twice but never happens to a second pod. Rejections by budgets (429) are
waited for; anything else that differs from the plan ends it as Failed, with the reason.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from numazones import cpuset
from numazones.api.rebalance import MovePhase, MoveProgress, PlanPhase, PodReference, RecommendedMove
from numazones.apimachinery import timestamp
from numazones.apimachinery.duration import human_duration
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.machine import name_numas
from numazones.placement.fragmentation import zones_of
from numazones.rebalance.budgets import BudgetHeadroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.moves import PlanFound
from numazones.rebalance.policy import Policy
from numazones.rebalance.recommendation import Recommendation, parse_time
from numazones_client import APIError, Client, Conflict, Forbidden, NotFound, TooManyRequests
from numazones_operator.faults import of_subject
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.rebalance.freshness import Freshness
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.objects import GONE, PolicyObject
from numazones_operator.rebalance.rejected_pods import is_next_pod, next_pods
from numazones_operator.rebalance.remaining_plan import (
    RemainingPlan,
    current_count,
    goal_of,
    objection,
    pod_to_move,
    remaining_plan,
    waiting_pods,
)
from numazones_operator.rebalance.statuses import StatusUpdate

_log = logging.getLogger(__name__)

# metav1.Time has whole seconds, so a replacement may seem a second older than the eviction.
_TIME_RESOLUTION = timedelta(seconds=1)
_REACHED = "the goal has been reached, so no more moves are needed"
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """Answer whether a plan can be executed now, and why not."""

    reached: bool = False
    """Whether what the plan promised is there already, so that nothing needs to be moved."""
    problem: str = ""
    """Empty: nothing."""
    holds_if_confined: bool = False
    """Whether the only trouble is that pods cannot be confined to the nodes that the plan names."""


@dataclass
class Steps:
    """Takes the next step of any recommendation."""

    client: Client
    state: ClusterState
    inputs: Inputs
    _: KW_ONLY
    gates: bool
    """True if the operator releases pods from the admission gate."""
    patience: timedelta
    """How long one move may take."""
    leads: Callable[[], bool] = lambda: True
    """Returns whether no other replica can lead at this moment; asked right before an eviction."""
    _freshness: Freshness = field(init=False)

    def __post_init__(self) -> None:
        self._freshness = Freshness(self.client, self.state)

    def next_pods(self, now: datetime) -> dict[str, ClusterPod]:
        """Return the next pods of owners whose pods are rejected in a loop, by the owners' UIDs."""
        return next_pods(self.state.pods, self.inputs.template, now, self.state.faults)

    async def judge(
        self, item: Recommendation, policy: PolicyObject, settings: Policy, now: datetime
    ) -> PlanCheck:
        """Return whether what is left of a plan is needed and holds now; a thread computes it."""
        situation = self.inputs.situation(
            self.state.cluster(),
            now,
            policy=policy.name,
            during=item.name,
            next_pods=self.next_pods(now),
        )
        try:
            return await self._judge(item, policy, situation, settings)
        finally:
            self.state.faults.take_all(situation.left_out.found())

    async def _judge(
        self, item: Recommendation, policy: PolicyObject, situation: Situation, settings: Policy
    ) -> PlanCheck:
        rest = remaining_plan(item, policy, situation, settings)

        def own_fault() -> str:
            pods = filter(None, map(situation.left_out.pods.get, _pods_in(item)))
            nodes = filter(None, map(situation.left_out.nodes.get, sorted(_nodes_in(item))))
            return next(chain(pods, nodes), "")

        def is_reached(sound: Situation) -> bool:
            unknown = own_fault() or situation.left_out.nodes
            return not unknown and current_count(item, rest.goal, sound.cluster) >= item.spec.gain.after

        async def problem_of(rest: RemainingPlan) -> str:
            def find(sound: Situation) -> str:
                return own_fault() or objection(rest, sound, settings)

            return await asyncio.to_thread(situation.isolated, find)

        if await asyncio.to_thread(situation.isolated, is_reached):
            return PlanCheck(reached=True)
        if rest.plan is None:
            return PlanCheck(problem=rest.problem)
        enforceable = self._enforceable(rest.plan)
        ungated = self._ungated_pods(rest.plan)
        problem = ungated or await problem_of(replace(rest, plan=enforceable))
        if not problem or (enforceable == rest.plan and not ungated):
            return PlanCheck(problem=problem)
        other = await problem_of(rest)
        if other:
            return PlanCheck(problem=other)
        cure = "" if ungated else " or the plan's node affinity"
        cure = f"add the scheduling gate {GATE}{cure} to the pod templates"
        return PlanCheck(problem=f"{problem}; {cure}", holds_if_confined=True)

    def _ungated_pods(self, made: PlanFound) -> str:
        """Return which pods that must be held back are not: they may come before it is their turn."""
        late = [move for move in made.moves if move.after_pending]
        for placement in made.placements if late else ():
            owner = placement.pod.controller
            if owner is not None and is_next_pod(placement.pod):
                return (
                    f"each new pod of {owner.kind} {placement.pod.namespace}/{owner.name} is bound and "
                    "rejected at once, because nothing makes it wait until there is room"
                )
        for move in late:
            if not self._is_steerable(move.pod):
                pod = move.pod.full_name
                return (
                    f"the replacement of pod {pod} must be scheduled after the pending pods, but nothing "
                    "makes it wait"
                )
        return ""

    def _enforceable(self, made: PlanFound) -> PlanFound:
        """The plan without the affinities that this operator has no means to bring about."""
        moves = (move if self._is_steerable(move.pod) else replace(move, affinity=()) for move in made.moves)
        placements = (
            placement if self._is_gated(placement.pod) else replace(placement, affinity=())
            for placement in made.placements
        )
        return replace(made, moves=tuple(moves), placements=tuple(placements))

    def may_go(self, pod: ClusterPod, node: str) -> bool:
        """Return whether a gated pod may be released to a node, as far as plans in execution are concerned.

        Pods of a plan go where the plan says, when it is their turn; others keep off the nodes it is about.
        """
        executing = (one for one in self.inputs.intent.in_force() if one.status.phase == PlanPhase.EXECUTING)
        for item in executing:
            place = None
            with self.state.faults.of(of_subject(item)):
                place = self._place_of(pod, item)
            if place is None:
                if node in _nodes_in(item):
                    return False
            elif node not in place:
                return False
        return True

    def _place_of(self, pod: ClusterPod, item: Recommendation) -> tuple[str, ...] | None:
        """The nodes that a plan has for a pod at this moment; None for a pod that it knows nothing of."""
        for placement in item.spec.placements:
            if placement.pod.uid == pod.uid:
                return (placement.target.node,) if self._may_be_placed(item) else ()
        for move, progress in item.moves_with_progress:
            if progress.phase == MovePhase.EVICTED and self._replaces(pod, move, progress, item):
                if move.after_pending and waiting_pods(item, self.state.cluster()):
                    return ()
                return move.affinity or tuple(node.name for node in self.state.all_nodes())
        return None

    async def step(
        self, item: Recommendation, policy: PolicyObject, settings: Policy, now: datetime
    ) -> StatusUpdate | None:
        """Take the next step of a recommendation that is being carried out; None while there is none."""
        index = next((i for i, one in enumerate(item.progress) if one.phase != MovePhase.VERIFIED), None)
        if index is None:
            return self._compare_gain(item, policy, now)
        match item.progress[index].phase:
            case MovePhase.PENDING:
                return await self._announce_eviction(item, index, policy, settings, now)
            case MovePhase.EVICTING:
                return await self._evict(item, index, policy, settings, now)
            case MovePhase.EVICTED:
                return self._find_replacement(item, index, now)
            case _:
                return self._confirm_placement(item, index, now)

    async def _announce_eviction(
        self, item: Recommendation, index: int, policy: PolicyObject, settings: Policy, now: datetime
    ) -> StatusUpdate | None:
        """Prove what is left once more; the eviction is only announced here."""
        end = await self._premature_end(item, index, policy, settings, now)
        if end is not None:
            return end
        pod = pod_to_move(self.state.cluster(), item.spec.moves[index])
        rejection = "" if pod is None else BudgetHeadroom.of(self.inputs.budgets).rejection(pod)
        if rejection:
            return self._advance(item, index, message=f"waiting: {rejection}")
        return self._advance(item, index, phase=MovePhase.EVICTING, since=timestamp.format(now), message="")

    async def _premature_end(
        self, item: Recommendation, index: int, policy: PolicyObject, settings: Policy, now: datetime
    ) -> StatusUpdate | None:
        """Return how a plan ends that need not, cannot or may no longer be carried on; None if it can."""
        begun = any(one.phase in GONE for one in item.progress)
        judgement = await self.judge(item, policy, settings, now)
        if judgement.reached:
            return StatusUpdate(
                item.progress, _REACHED, PlanPhase.SUCCEEDED if begun else PlanPhase.SUPERSEDED
            )
        if judgement.problem:
            why = f"the cluster no longer matches the plan: {judgement.problem}"
            return StatusUpdate(item.progress, why, PlanPhase.FAILED if begun else PlanPhase.SUPERSEDED)
        expires = parse_time(item.spec.expires)
        if expires is not None and now > expires:
            waiting = item.progress[index].message
            why = f"while {waiting}" if waiting else "because the next move could not be made in time"
            phase = PlanPhase.FAILED if begun else PlanPhase.EXPIRED
            return StatusUpdate(item.progress, f"the plan expired {why}", phase)
        return None

    async def _evict(
        self, item: Recommendation, index: int, policy: PolicyObject, settings: Policy, now: datetime
    ) -> StatusUpdate | None:
        """Ask for the eviction of a pod that is still there, if it is useful at this moment.

        It was announced in the status before, perhaps by a replica that is gone, and perhaps long ago.
        """
        move = item.spec.moves[index]
        pod = self.state.pods.get(move.pod.uid)
        if pod is None or pod.deleting or pod.terminal:
            return self._advance(item, index, phase=MovePhase.EVICTED, message="")
        proven_for = self._freshness.known(_nodes_in(item))
        end = await self._premature_end(item, index, policy, settings, now)
        if end is not None:
            return replace(end, progress=_with_move(item, index, phase=MovePhase.PENDING, since=None))
        behind = await self._freshness.problem(proven_for)
        if behind:
            return self._advance(item, index, message=f"waiting: {behind}")
        if not await self.inputs.intent.is_current(policy, item) or not self.leads():
            return None
        try:
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except APIError as error:
            return self._after_rejected_eviction(item, index, error)
        return self._advance(item, index, evicted="success", phase=MovePhase.EVICTED, message="")

    def _after_rejected_eviction(
        self, item: Recommendation, index: int, error: APIError
    ) -> StatusUpdate | None:
        """Return what follows a rejected eviction: none was needed, wait, give up, or retry."""
        pod = item.spec.moves[index].pod
        if isinstance(error, NotFound | Conflict):
            return self._advance(item, index, phase=MovePhase.EVICTED, message="the pod was already gone")
        if isinstance(error, TooManyRequests):
            why = f"waiting: {error}"
            return self._advance(
                item, index, evicted="blocked", phase=MovePhase.PENDING, since=None, message=why
            )
        why = str(error)
        if isinstance(error, Forbidden):
            why += "; apply manifests/components/operator-eviction, or set the policy to mode Recommend"
        elif _SEVERAL_BUDGETS not in why:
            _log.warning(
                "%s (mode %s): could not evict pod %s/%s: %s",
                item.name,
                item.status.mode,
                pod.namespace,
                pod.name,
                error,
            )
            return None
        return self._failure(item, index, why, evicted="error", since=None)

    def _find_replacement(self, item: Recommendation, index: int, now: datetime) -> StatusUpdate | None:
        """Wait until the owner has made another pod and it has a node."""
        move, progress = item.spec.moves[index], item.progress[index]
        asked = self.state.faults.over(self.state.pods, lambda pod: self._replaces(pod, move, progress, item))
        candidates = [pod for pod, replaces in asked if replaces]
        for pod in sorted(candidates, key=lambda pod: (pod.terminal, pod.created, pod.name)):
            where = PodReference(namespace=pod.namespace, name=pod.name, uid=pod.uid)
            if pod.terminal:
                return self._failure(item, index, f"the replacement {_end(pod)}")
            if pod.node:
                return self._advance(
                    item, index, phase=MovePhase.PLACED, replacement=where, node=pod.node, message=""
                )
            break
        if self._is_overdue(progress, now):
            owner = "its owner" if move.owner is None else f"{move.owner.kind} {move.owner.name}"
            what = "was not scheduled" if candidates else f"was not created by {owner}"
            return self._failure(item, index, f"the replacement {what} within {self._time_limit}")
        return None

    def _confirm_placement(self, item: Recommendation, index: int, now: datetime) -> StatusUpdate | None:
        """Wait until zones show that the pod is where it is now, and no more where it was."""
        move, progress = item.spec.moves[index], item.progress[index]
        known = None if progress.replacement is None else self.state.pods.get(progress.replacement.uid)
        if known is None or known.terminal:
            return self._failure(item, index, f"the replacement {_end(known)}")
        source, target = self.state.record(move.source.node), self.state.record(progress.node)
        left = source is None or source.state is None or not source.state.holds(move.pod.uid)
        if left and target is not None and target.state is not None:
            arrived = target.state.holds(known.kubelet_uid) if _pins(known) else known.phase == "Running"
            if arrived:
                zones = zones_of(target.state, known.kubelet_uid)
                where = f"{name_numas(cpuset.of(zones))} of {progress.node}" if zones else progress.node
                message = f"runs on {where}"
                return self._advance(item, index, phase=MovePhase.VERIFIED, message=message)
        if self._is_overdue(progress, now):
            return self._failure(
                item,
                index,
                f"the NUMAZones did not show the replacement within {self._time_limit}",
            )
        return None

    def _compare_gain(self, item: Recommendation, policy: PolicyObject, now: datetime) -> StatusUpdate | None:
        """Compare what zones say with what the plan promised."""
        cluster = self.state.cluster()
        goal = goal_of(item, policy, waiting_pods(item, cluster))
        count = current_count(item, goal, cluster)
        gained, promised = count - item.spec.gain.before, item.spec.gain.total
        if count >= item.spec.gain.after:
            return StatusUpdate(
                item.progress, f"the NUMAZones confirm a gain of {gained}", PlanPhase.SUCCEEDED, count=count
            )
        if all(self._is_overdue(one, now) for one in item.progress):
            return StatusUpdate(
                item.progress,
                f"the NUMAZones confirm a gain of {gained}, but the plan promised {promised}",
                PlanPhase.FAILED,
                count=count,
            )
        return None

    # Small questions

    @property
    def _time_limit(self) -> str:
        return human_duration(self.patience.total_seconds())

    def _replaces(
        self, pod: ClusterPod, move: RecommendedMove, progress: MoveProgress, item: Recommendation
    ) -> bool:
        """Return whether a pod is the owner's replacement for the evicted one."""
        owner, since, created = pod.controller, parse_time(progress.since), parse_time(pod.created)
        if owner is None or move.owner is None or owner.uid != move.owner.uid or pod.uid == move.pod.uid:
            return False
        claimed = {one.replacement.uid for one in item.progress if one.replacement is not None}
        if since is None or created is None or pod.uid in claimed or pod.deleting:
            return False
        return created >= since - _TIME_RESOLUTION

    def _may_be_placed(self, item: Recommendation) -> bool:
        """Return whether it is the pending pods' turn: all moves are made, or the last one waits for them."""
        return all(
            one.phase == MovePhase.VERIFIED or (move.after_pending and one.phase == MovePhase.EVICTED)
            for move, one in item.moves_with_progress
        )

    def _is_steerable(self, pod: ClusterPod) -> bool:
        """Return whether the replacement will have a gate that this operator releases."""
        owner = pod.controller
        template = None if owner is None else self.inputs.template(owner.uid)
        return template is not None and self._is_gated(template)

    def _is_gated(self, pod: ClusterPod) -> bool:
        namespace = self.inputs.intent.namespaces.get(pod.namespace)
        opted_in = namespace is not None and namespace.labels.get(OPT_IN[0]) == OPT_IN[1]
        return self.gates and opted_in and GATE in pod.constraints.scheduling_gates

    def _is_overdue(self, progress: MoveProgress, now: datetime) -> bool:
        since = parse_time(progress.since)
        return since is not None and now - since > self.patience

    def _advance(
        self, item: Recommendation, index: int, *, evicted: str = "", **changes: Any
    ) -> StatusUpdate | None:
        """The advance that changes one move's progress; None if it would change nothing."""
        progress = _with_move(item, index, **changes)
        if progress == item.progress:
            return None
        pod, after = item.spec.moves[index].pod, progress[index]
        text = f"move {index + 1} of {len(item.spec.moves)}, pod {pod.full_name}: {after.phase}"
        return StatusUpdate(progress, f"{text}, {after.message}" if after.message else text, evicted=evicted)

    def _failure(
        self, item: Recommendation, index: int, why: str, *, evicted: str = "", **changes: Any
    ) -> StatusUpdate:
        pod = item.spec.moves[index].pod
        return StatusUpdate(
            _with_move(item, index, phase=MovePhase.FAILED, message=why, **changes),
            f"the plan failed at move {index + 1}, pod {pod.full_name}: {why}",
            PlanPhase.FAILED,
            evicted=evicted,
        )


def _nodes_in(item: Recommendation) -> set[str]:
    """The nodes whose room a plan counts on."""
    places = [placement.target for placement in item.spec.placements]
    places += [place for move in item.spec.moves for place in (move.source, move.target)]
    return {place.node for place in places}


def _pods_in(item: Recommendation) -> Iterator[str]:
    """Yield the UIDs of the pods that a plan moves or places."""
    yield from (move.pod.uid for move in item.spec.moves)
    yield from (placement.pod.uid for placement in item.spec.placements)


def _with_move(item: Recommendation, index: int, **changes: Any) -> tuple[MoveProgress, ...]:
    """The progress of a plan's moves after one of them has changed."""
    after = item.progress[index].model_copy(update=changes)
    return (*item.progress[:index], after, *item.progress[index + 1 :])


def _end(pod: ClusterPod | None) -> str:
    return "is gone" if pod is None else f"{pod.name} ended with {pod.reason or pod.phase}: {pod.message}"


def _pins(pod: ClusterPod) -> bool:
    """Return whether kubelets hold something for the pod that zones show."""
    admission = pod.admission
    if admission is None:
        return False
    demand = admission.demand()
    return demand.served and demand.qos is QOSClass.GUARANTEED and demand.total.cpus > 0
