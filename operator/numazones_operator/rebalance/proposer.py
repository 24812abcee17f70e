"""Proposes plans: looks for them when it is time, publishes them, and follows them until they are approved.

Searching takes seconds of computing and is done in a thread; the cluster it works on is a value.
"""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from numazones.api.rebalance import ENDED, Mode, PlanPhase
from numazones.apimachinery import duration, timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.prediction import doubts
from numazones.rebalance.candidates import Situation, candidates
from numazones.rebalance.custom_resources import goals_of, title
from numazones.rebalance.goals import Goal, pending_goals
from numazones.rebalance.history import PRECEDENCE, FreedNode
from numazones.rebalance.moves import PlanFound
from numazones.rebalance.planner import PlanningResult, plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.recommendation import Recommendation, parse_time
from numazones.rebalance.whatif import unmovable_by_rule
from numazones.wording import pluralize
from numazones_client import Client, Conflict, NotFound
from numazones_client.resources import REBALANCE_RECOMMENDATIONS
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.rebalance.conflicts import conflicts_of, last_to_empty
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject, recommendation_body
from numazones_operator.rebalance.rejected_pods import is_next_pod
from numazones_operator.rebalance.statuses import Statuses, StatusUpdate
from numazones_operator.rebalance.steps import Steps

_JUDGEMENT_INTERVAL = timedelta(seconds=10)
"""Proposals are judged no more often than this: on large clusters it takes a while."""
_STUCK_POD_INTERVAL = timedelta(seconds=30)
"""A pod that is newly stuck is searched for after this, however long a policy's interval is."""
_MAX_FINISHED = 20
"""Finished recommendations that are kept per policy, for people and as the history of moves."""
_MAX_MESSAGE = 4096
"""Of a policy's message."""
_NEVER = datetime.min.replace(tzinfo=UTC)

_log = logging.getLogger(__name__)


@dataclass
class _Search:
    """State kept about a policy between rounds; losing it costs one search."""

    last: datetime | None = None
    is_due_early: bool = False
    """Whether something has happened that makes a search before its time worthwhile."""
    edition: tuple[str, int] = ("", 0)
    """UID and generation of the policy that was searched for: another one is searched for at once."""
    stuck: frozenset[str] = frozenset()
    """UIDs of the pods that were stuck then."""
    rivals: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Policies that this one contradicted then → their editions: if one is edited, it is searched at once."""


@dataclass
class Proposer:
    """Finds plans for policies, and decides what becomes of proposals."""

    client: Client
    state: ClusterState
    forecasts: LiveForecasts
    inputs: Inputs
    steps: Steps
    _: KW_ONLY
    statuses: Statuses
    metrics: RebalanceMetrics
    clock: Callable[[], float] = time.monotonic
    _searches: dict[str, _Search] = field(init=False, default_factory=dict)
    _judged: dict[str, datetime] = field(init=False, default_factory=dict)
    """Name of a proposal → when it was judged last."""
    _next_pods: tuple[datetime, dict[str, ClusterPod]] = field(
        init=False, default_factory=lambda: (_NEVER, {})
    )
    """When owners in a loop of rejections were looked for last, and their next pods."""

    def search_early(self, policy: str) -> None:
        """Let the next search for a policy not wait for its time."""
        self._search_of(policy).is_due_early = True

    def _search_of(self, policy: str) -> _Search:
        return self._searches.setdefault(policy, _Search())

    # Searching

    async def search(self, policy: PolicyObject, settings: Policy) -> None:
        """Look for a plan when it is time, and publish it or say why there is none."""
        search, now = self._search_of(policy.name), self.statuses.now()
        edited = search.edition != policy.edition or any(
            self._edition_of(name) != edition for name, edition in search.rivals.items()
        )
        next_pods = self._next_pods_for(policy, settings, now)
        stuck = self._stuck_pods(policy, settings) | next_pods.keys()
        pause = min(policy.interval, _STUCK_POD_INTERVAL) if stuck - search.stuck else policy.interval
        early = search.is_due_early or edited
        if search.last is not None and not early and _is_recent(search.last, now, pause):
            return
        if self._is_busy() or not await self.inputs.intent.is_current(policy) or self._is_busy():
            return
        search.last, search.is_due_early, search.edition, search.stuck = now, False, policy.edition, stuck
        search.rivals = {}
        await self._forget_old(policy)
        if next_pods:  # a plan may just have ended the loop
            next_pods = self._chosen(self.steps.next_pods(now), settings)
        situation = self.inputs.situation(self.state.cluster(), now, policy=policy.name, next_pods=next_pods)
        try:
            await self._search(search, policy, settings, situation, stuck)
        finally:
            self.state.faults.take_all(situation.left_out.found())

    async def _search(
        self,
        search: _Search,
        policy: PolicyObject,
        settings: Policy,
        situation: Situation,
        stuck: frozenset[str],
    ) -> None:
        """Look for a plan for each goal; publish the first one, or say why there is none."""
        now, reasons = self.statuses.now(), []
        undoes: dict[str, FreedNode] = {}
        for goal in _goals(policy, situation, stuck):
            outcome, body = await self._outcome(goal, policy, settings, situation)
            undoes.update(outcome.undoes)
            search.rivals = {emptied.policy: self._edition_of(emptied.policy) for emptied in undoes.values()}
            if outcome.plan is not None:
                await self._propose(outcome.plan, body, policy, undoes, str(situation.left_out))
                return
            reasons.append(f"{title(goal)}: {outcome.reason}")
        counts = await asyncio.to_thread(_counts, situation, settings)
        nothing = "; ".join(reasons) or "none of the policy's goals needs a plan"
        found = {
            "lastSearch": timestamp.format(now),
            "recommendation": None,
            "message": _with(nothing, str(situation.left_out)),
            "conflicts": conflicts_of(undoes),
        }
        await self.statuses.write_policy(policy, {**found, **counts})

    def _edition_of(self, policy: str) -> tuple[str, int]:
        known = self.inputs.intent.policies.get(policy)
        return ("", 0) if known is None else known.edition

    def _is_busy(self) -> bool:
        """Return whether a plan is being executed, which changes the cluster for another one."""
        busy = {PlanPhase.APPROVED, PlanPhase.EXECUTING}
        return any(item.status.phase in busy for item in self.inputs.intent.in_force())

    def _stuck_pods(self, policy: PolicyObject, settings: Policy) -> frozenset[str]:
        """Return the UIDs of the waiting pods that no node would admit and that the policy is about."""
        if not policy.spec.goals.pending_pods:
            return frozenset()

        def is_stuck(pod: ClusterPod) -> bool:
            found = self.forecasts.forecast_of(pod.uid)
            return found is not None and not found.admits_anywhere and pod in settings.beneficiaries

        asked = self.state.faults.over(self.state.pending.values(), is_stuck)
        return frozenset(pod.uid for pod, stuck in asked if stuck)

    def _next_pods_for(self, policy: PolicyObject, settings: Policy, now: datetime) -> dict[str, ClusterPod]:
        """Return the next pods of owners in a loop of rejections that the policy is about."""
        if not policy.spec.goals.pending_pods:
            return {}
        since, known = self._next_pods
        if not _is_recent(since, now, _JUDGEMENT_INTERVAL):
            since, known = self._next_pods = now, self.steps.next_pods(now)
        return self._chosen(known, settings)

    def _chosen(self, pods: Mapping[str, ClusterPod], settings: Policy) -> dict[str, ClusterPod]:
        """Return the next pods that a policy makes room for, by their owners' UIDs."""
        asked = self.state.faults.over(pods.values(), settings.beneficiaries.__contains__)
        return {pod.uid: pod for pod, chosen in asked if chosen}

    async def _outcome(
        self, goal: Goal, policy: PolicyObject, settings: Policy, situation: Situation
    ) -> tuple[PlanningResult, dict[str, Any]]:
        """Return what planning finds, and a plan as the object that publishes it."""
        started = self.clock()
        end = started + duration.parse(policy.spec.search_time).total_seconds()
        stopped = threading.Event()

        def expired() -> bool:
            return stopped.is_set() or self.clock() >= end

        def find(sound: Situation) -> tuple[PlanningResult, dict[str, Any]]:
            outcome = plan(goal, sound, settings, expired=expired)
            made, now = outcome.plan, self.statuses.now()
            if made is None:
                return outcome, {}
            uncertain = doubts.of_nodes(sound.cluster.nodes.values())
            return outcome, recommendation_body(made, goal, policy, now, uncertain)

        # The values that a search makes have no circles; walking through so many holds the loop, too.
        gc.disable()
        try:
            outcome, body = await asyncio.to_thread(situation.isolated, find)
        finally:
            gc.enable()
            stopped.set()  # a thread cannot be cancelled, but it can be told that time is up
        found = "true" if outcome.plan is not None else "false"
        self.metrics.plan_seconds.labels(policy.spec.mode, found).observe(self.clock() - started)
        _log.info(
            "policy %s (mode %s): %s",
            policy.name,
            policy.spec.mode,
            outcome.reason
            or f"found a plan with {pluralize(len(outcome.plan.moves) if outcome.plan else 0, 'move')}",
        )
        return outcome, body

    # Publishing

    async def _propose(
        self,
        made: PlanFound,
        body: dict[str, Any],
        policy: PolicyObject,
        undoes: Mapping[str, FreedNode],
        left_out: str,
    ) -> None:
        """Publish a plan, unless it is the one in force; ``left_out``: who was left out of it."""
        now = self.statuses.now()
        in_force = [
            item
            for item in self.inputs.intent.recommendations
            if item.spec.policy == policy.name and item.status.phase == PlanPhase.PROPOSED
        ]
        found = next((item for item in in_force if item.spec.digest == made.digest), None)
        if found is not None:
            await self._prolong(found, policy, now)
        else:
            found = Recommendation.from_api(await self.client.create(REBALANCE_RECOMMENDATIONS, body))
            self.inputs.intent.recommendations.put(found)
            self.metrics.moves.labels(policy.spec.mode, policy.name, "recommended").inc(len(made.moves))
            self.metrics.expect_evictions(policy.spec.mode, policy.name, found.spec.moves)
            await self._post_on_stuck_pods(made, found.name, policy)
        for item in in_force:
            if item.uid != found.uid:
                better = StatusUpdate(item.progress, "a better plan was found", PlanPhase.SUPERSEDED)
                await self.statuses.write(item, policy, better, by=found.name)
        status = _status_with(made, found.name, now, left_out) | {"conflicts": conflicts_of(undoes)}
        await self.statuses.write_policy(policy, status)

    async def _post_on_stuck_pods(self, made: PlanFound, name: str, policy: PolicyObject) -> None:
        """Name the recommendation on the pods that it makes room for."""
        cure = {
            Mode.APPROVE: f"; to approve it: kubectl numazones approve {name}",
            Mode.AUTO: "; policy {policy.name} is in mode Auto, so the operator runs it without approval",
        }.get(
            Mode(policy.spec.mode),
            f"; policy {policy.name} is in mode Recommend, so the operator does not run it",
        )
        number = f"{len(made.moves)} eviction" + "s" * (len(made.moves) != 1)
        for placement in made.placements:
            with self.state.faults.of(of_pod(placement.pod)):
                if not is_next_pod(placement.pod):  # there is a pod to tell
                    self.statuses.post_event(
                        placement.pod,
                        reason="RebalanceRecommended",
                        message=f"RebalanceRecommendation {name} would make room for this pod with "
                        f"{number}{cure}",
                    )

    async def _prolong(self, item: Recommendation, policy: PolicyObject, now: datetime) -> None:
        """Let a recommendation whose plan was found again expire later."""
        expires = timestamp.format(now + duration.parse(policy.spec.expiry))
        try:
            body = await self.client.patch(
                REBALANCE_RECOMMENDATIONS, item.name, {"spec": {"expires": expires}}
            )
        except (NotFound, Conflict):
            self.search_early(policy.name)  # it has gone, or changed: look at everything anew
            return
        self.inputs.intent.recommendations.put(Recommendation.from_api(body))

    async def _forget_old(self, policy: PolicyObject) -> None:
        """Delete finished recommendations beyond a number, but none that is still needed as history.

        That are those whose moves are within the cooldown, and those whose room other policies leave alone.
        """
        cooldown = duration.parse(policy.spec.cooldown)
        finished = sorted(
            (
                i
                for i in self.inputs.intent.recommendations
                if i.spec.policy == policy.name and i.status.phase in ENDED
            ),
            key=lambda item: (item.created, item.name),
        )
        now, faults = self.statuses.now(), self.state.faults
        needed = last_to_empty(finished, now - PRECEDENCE, faults)

        def is_history(item: Recommendation) -> bool:
            times = [parse_time(one.since) for one in item.progress]
            barred = item.status.phase == PlanPhase.FAILED or item.spec.rejected
            times.append(item.ended if barred else None)
            return any(moment is not None and now - moment < cooldown for moment in times)

        for item, kept in faults.over(finished[: max(0, len(finished) - _MAX_FINISHED)], is_history):
            if kept or item.name in needed:
                continue
            try:
                await self.client.delete(REBALANCE_RECOMMENDATIONS, item.name, uid=item.uid)
                self._judged.pop(item.name, None)
            except NotFound:
                continue

    # What becomes of proposals

    async def consider(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        """Let a proposal expire, be superseded or be approved; a new one is given its status first."""
        now = self.statuses.now()
        if not item.status.mode:
            # Not when it is created: kopf's annotation may come between the two, and so may a crash.
            await self.statuses.write(
                item,
                policy,
                StatusUpdate(item.progress, "a simulation confirmed the plan", PlanPhase.PROPOSED),
            )
            return
        expires = parse_time(item.spec.expires)
        if expires is not None and now > expires:
            self.search_early(policy.name)
            await self.statuses.write(
                item,
                policy,
                StatusUpdate(item.progress, "the plan was not approved in time", PlanPhase.EXPIRED),
            )
            return
        mode = policy.spec.mode
        if not self._is_due(item, now, min(policy.interval, _JUDGEMENT_INTERVAL)):
            return
        judgement = await self.steps.judge(item, policy, settings, now)
        problem = "no moves are needed any more" if judgement.reached else judgement.problem
        if problem and not judgement.holds_if_confined:
            self.search_early(policy.name)
            moved_on = StatusUpdate(
                item.progress, f"the cluster has changed: {problem}", PlanPhase.SUPERSEDED
            )
            await self.statuses.write(item, policy, moved_on)
            return
        if policy.allows(item):
            if problem:
                await self._write_message(item, policy, f"the plan cannot be executed: {problem}")
                return
            await self.statuses.write(
                item, policy, StatusUpdate(item.progress, f"approved in mode {mode}", PlanPhase.APPROVED)
            )
            self.metrics.moves.labels(mode, policy.name, "approved").inc(len(item.spec.moves))

    async def _write_message(self, item: Recommendation, policy: PolicyObject, message: str) -> None:
        if item.status.message != message:
            await self.statuses.write(item, policy, StatusUpdate(item.progress, message))

    def _is_due(self, item: Recommendation, now: datetime, interval: timedelta) -> bool:
        """Return whether a proposal was last judged long enough ago; notes the time if so."""
        if _is_recent(self._judged.get(item.name, _NEVER), now, interval):
            return False
        self._judged[item.name] = now
        return True


def _is_recent(then: datetime, now: datetime, span: timedelta) -> bool:
    """Return whether a moment was recently; future moments were not: the clock was set back since."""
    return timedelta(0) <= now - then < span


def _status_with(made: PlanFound, name: str, now: datetime, left_out: str) -> dict[str, Any]:
    """Return the status of a policy for which a plan was found."""
    number = f"{len(made.moves)} move" + "s" * (len(made.moves) != 1)
    message = f"{name}: {number}, gain {made.gain}"
    return {
        "lastSearch": timestamp.format(now),
        "recommendation": name,
        "message": _with(message, left_out),
        "movable": None,
        "unmovable": None,
    }


def _with(message: str, left_out: str) -> str:
    """Return a policy's message that also says who was left out of a search."""
    return "; ".join(filter(None, (message, left_out)))[:_MAX_MESSAGE]


def _goals(policy: PolicyObject, situation: Situation, stuck: frozenset[str]) -> Iterator[Goal]:
    yield from situation.isolated(
        lambda sound: pending_goals(pod for uid, pod in sound.cluster.pending.items() if uid in stuck)
    )
    yield from goals_of(policy.spec.goals)


def _counts(situation: Situation, settings: Policy) -> dict[str, Any]:
    """Count who could be moved and who not, as a policy's status tells it; it takes a while."""
    rules = sorted(unmovable_by_rule(situation, settings).items(), key=lambda item: (-item[1], item[0]))
    return {
        "movable": len(candidates(situation, settings)),
        "unmovable": [{"rule": rule, "pods": pods} for rule, pods in rules],
    }
