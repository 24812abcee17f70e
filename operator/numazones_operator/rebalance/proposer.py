"""The loop of rebalancing: look for plans when they are due, advance recommendations step by step.

One plan at most is being carried out. Every round starts from the objects as they are, takes at most one
step per recommendation, and writes status on the version that was read, so that a round which started from
an old view writes nothing.
Only the leader runs it. Searching takes seconds of computing and is done in a thread; the cluster it works
on is a value.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from numazones import duration, timestamp
from numazones.api.rebalance import ENDED, MoveProgress
from numazones.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.rebalance.candidates import Situation, candidates
from numazones.rebalance.custom_resources import policy_of, standing_goals, title
from numazones.rebalance.goals import Goal, pending
from numazones.rebalance.moves import Plan
from numazones.rebalance.planner import Outcome, plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import unmovable_by_rule
from numazones.wording import counted
from numazones_client import APIError, Client, Conflict, NotFound
from numazones_client.resources import EVENTS, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.predictions.events import event
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.rebalance.execution import Advance, Execution
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import (
    APPROVE,
    APPROVED,
    AUTO,
    EVICTED,
    EXECUTING,
    EXPIRED,
    FAILED,
    PROPOSED,
    SUCCEEDED,
    SUPERSEDED,
    PolicyObject,
    Recommendation,
    condition,
    read,
    recommendation_body,
    was_evicted,
)
from numazones_operator.rebalance.rejected_pods import is_wish

_JUDGEMENT = timedelta(seconds=10)
"""Proposals are judged no more often than this: on large clusters it takes a while."""
_NEWS = timedelta(seconds=30)
"""A pod that is newly stuck is searched for after this, however long a policy's interval is."""
_KEPT = 20
"""Finished recommendations that are kept per policy, for people and as the history of moves."""

_LONGEST = 4096
"""Of a policy's message."""

_log = logging.getLogger(__name__)


@dataclass
class _Search:
    """What is remembered about a policy between rounds; losing it costs one search."""

    last: datetime | None = None
    wanted: bool = False
    """Whether something has happened that makes a search before its time worthwhile."""
    edition: tuple[str, int] = ("", 0)
    """UID and generation of the policy that was searched for: another one is searched for at once."""
    stuck: frozenset[str] = frozenset()
    """UIDs of the pods that were stuck then."""


@dataclass
class _Book:
    """Which policies were searched for, and which proposals judged, when."""

    searches: dict[str, _Search] = field(default_factory=dict)
    judged: dict[str, datetime] = field(default_factory=dict)
    wanted: tuple[datetime, dict[str, ClusterPod]] = (datetime.min.replace(tzinfo=UTC), {})
    """When owners in a loop were last looked for, and what they wanted."""

    def is_due(self, item: Recommendation, now: datetime, interval: timedelta) -> bool:
        """Whether a proposal was last judged long enough ago; notes the time if so."""
        if now - self.judged.get(item.name, datetime.min.replace(tzinfo=UTC)) < interval:
            return False
        self.judged[item.name] = now
        return True

    def of(self, policy: str) -> _Search:
        return self.searches.setdefault(policy, _Search())


class Rebalancing:
    """Drives plans and recommendations."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        forecasts: LiveForecasts,
        inputs: Inputs,
        *,
        identity: str,
        metrics: RebalanceMetrics,
        gates: bool,
        period: float = 1.0,
        patience: timedelta = timedelta(minutes=5),
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``period``: seconds between rounds; ``patience``: how long one move may take."""
        self._client = client
        self._state = state
        self._forecasts = forecasts
        self._inputs = inputs
        self._intent = inputs.intent
        self._identity = identity
        self._metrics = metrics
        self._period = period
        self._wall = wall
        self._clock = clock
        self._book = _Book()
        self.execution = Execution(client, state, inputs, gates=gates, patience=patience)

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            await self._intent.followed.wait()
            try:
                await self.round()
            except NumazonesError as error:  # the API server's errors among them
                _log.warning("rebalancing pauses: %s", error)
            self._intent.changed.clear()
            try:
                async with asyncio.timeout(self._period):
                    await self._intent.changed.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Take every step that can be taken now."""
        policies = {item.name: item for item in self._intent.policies}
        usable: dict[str, Policy] = {}
        problems: dict[str, str] = {}
        for name, policy in policies.items():
            self._metrics.expect(policy.spec.mode, name)
            settings = await self._settings(policy)
            if isinstance(settings, str):
                problems[name] = settings
            else:
                usable[name] = settings
        for item in sorted(self._intent.recommendations, key=lambda item: (item.created, item.name)):
            name = item.spec.policy
            if not item.active:
                continue
            if name in usable:
                await self._advance(item, policies[name], usable[name])
            else:
                why = f"is invalid ({problems[name]})" if name in problems else "is gone or cannot be read"
                await self._give_up(item, policies.get(name), f"policy {name} {why}")
        for name, settings in usable.items():
            if not policies[name].spec.schedule.suspend:
                await self._search(policies[name], settings)

    # Policies

    async def _settings(self, policy: PolicyObject) -> Policy | str:
        """The settings of a policy; if it makes no sense, the reason, which its status tells, too."""
        try:
            settings = policy_of(policy.spec, self._inputs.classes)
            tuple(standing_goals(policy.spec.goals))
            duration.parse(policy.spec.search_time)
        except (NumazonesError, ValueError) as error:
            await self._report(policy, "False", "InvalidPolicy", str(error))
            return str(error)
        effective = ", ".join(settings.protections.effective) or "none"
        await self._report(policy, "True", "Valid", f"protections in force: {effective}")
        return settings

    async def _report(self, policy: PolicyObject, status: str, reason: str, message: str) -> None:
        """Write the condition Ready where it differs."""
        found = condition(
            policy.status.get("conditions") or (),
            "Ready",
            status=status,
            reason=reason,
            message=message,
            generation=policy.generation,
            now=self._now(),
        )
        if found is None:
            return
        await self._write_policy(policy, {"observedGeneration": policy.generation, "conditions": [found]})

    async def _write_policy(self, policy: PolicyObject, status: dict[str, Any]) -> None:
        try:
            body = await self._client.patch(
                REBALANCE_POLICIES, policy.name, {"status": status}, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._intent.policies.put(PolicyObject.from_api(body))

    # Searching

    async def _search(self, policy: PolicyObject, settings: Policy) -> None:
        book, now = self._book.of(policy.name), self._now()
        edited = book.edition != policy.edition
        wanted = self._wanted(policy, now)
        stuck = self._stuck(policy) | wanted.keys()
        pause = min(policy.interval, _NEWS) if stuck - book.stuck else policy.interval
        if book.last is not None and not (book.wanted or edited) and now - book.last < pause:
            return
        if self._is_busy() or not await self._is_current(policy) or self._is_busy():
            return
        book.last, book.wanted, book.edition, book.stuck = now, False, policy.edition, stuck
        await self._forget_old(policy)
        wanted = self.execution.wanted(now) if wanted else {}  # a plan may just have ended the loop
        situation = self._inputs.situation(self._state.cluster(), now, wanted=wanted)
        reasons = []
        for goal in _goals(policy, situation, stuck):
            outcome = await self._look(goal, policy, settings, situation)
            if outcome.plan is not None:
                await self._propose(outcome, goal, policy)
                return
            reasons.append(f"{title(goal)}: {outcome.reason}")
        counts = await asyncio.to_thread(_counts, situation, settings)
        nothing = "; ".join(reasons) or "no goal of the policy needs a plan now"
        found = {"lastSearch": timestamp.format(now), "recommendation": None, "message": nothing[:_LONGEST]}
        await self._write_policy(policy, {**found, **counts})

    def _is_busy(self) -> bool:
        """Whether a plan is being carried out, which changes the cluster that another would be made for."""
        return any(item.status.phase in {APPROVED, EXECUTING} for item in self._intent.recommendations)

    async def _is_current(self, policy: PolicyObject, item: Recommendation | None = None) -> bool:
        """Whether the API server still has the policy, and the recommendation, as they were looked at.

        Asked before anything is done on their strength: a watch may be behind, and after a 410 kopf's never
        tells of what was deleted meanwhile.
        """
        await self._intent.confirm()
        known = self._intent.policies.get(policy.name)
        if known is None or known.edition != policy.edition:
            return False
        if item is None:
            return True
        found = self._intent.recommendations.get(item.name)
        return found is not None and (found.uid, found.version) == (item.uid, item.version)

    def _stuck(self, policy: PolicyObject) -> frozenset[str]:
        """UIDs of the waiting pods that no node would admit, if the policy is about them."""
        if not policy.spec.goals.pending_pods:
            return frozenset()
        forecasts = ((uid, self._forecasts.forecast_of(uid)) for uid in self._state.pending)
        return frozenset(uid for uid, found in forecasts if found is not None and not found.admitting)

    def _wanted(self, policy: PolicyObject, now: datetime) -> dict[str, ClusterPod]:
        """What owners want whose pods are rejected in a loop, if the policy is about waiting pods."""
        if not policy.spec.goals.pending_pods:
            return {}
        since, known = self._book.wanted
        if now - since >= _JUDGEMENT:
            since, known = self._book.wanted = now, self.execution.wanted(now)
        return known

    async def _look(
        self, goal: Goal, policy: PolicyObject, settings: Policy, situation: Situation
    ) -> Outcome:
        started = self._clock()
        end = started + duration.parse(policy.spec.search_time).total_seconds()
        stopped = threading.Event()

        def expired() -> bool:
            return stopped.is_set() or self._clock() >= end

        try:
            outcome = await asyncio.to_thread(plan, goal, situation, settings, expired=expired)
        finally:
            stopped.set()  # a thread cannot be cancelled, but it can be told that time is up
        found = "true" if outcome.plan is not None else "false"
        self._metrics.plan_seconds.labels(policy.spec.mode, found).observe(self._clock() - started)
        _log.info(
            "policy %s (mode %s): %s",
            policy.name,
            policy.spec.mode,
            outcome.reason
            or f"found a plan of {counted(len(outcome.plan.moves) if outcome.plan else 0, 'move')}",
        )
        return outcome

    async def _propose(self, outcome: Outcome, goal: Goal, policy: PolicyObject) -> None:
        """Publish a plan, unless it is the one in force."""
        made, now = outcome.plan, self._now()
        if made is None:
            return
        in_force = [
            item
            for item in self._intent.recommendations
            if item.spec.policy == policy.name and item.status.phase == PROPOSED
        ]
        found = next((item for item in in_force if item.spec.digest == made.digest), None)
        if found is not None:
            await self._prolong(found, policy, now)
        else:
            body = recommendation_body(made, goal, policy, now)
            found = Recommendation.from_api(await self._client.create(REBALANCE_RECOMMENDATIONS, body))
            self._intent.recommendations.put(found)
            self._metrics.moves.labels(policy.spec.mode, policy.name, "recommended").inc(len(made.moves))
            self._metrics.expect_evictions(policy.spec.mode, policy.name, found.spec.moves)
            await self._tell_stuck_pods(made, found.name, policy)
        for item in in_force:
            if item.uid != found.uid:
                better = Advance(item.progress, "a better plan was found", SUPERSEDED)
                await self._write(item, policy, better, by=found.name)
        await self._write_policy(policy, _found(made, found.name, now))

    async def _tell_stuck_pods(self, made: Plan, name: str, policy: PolicyObject) -> None:
        """Name the recommendation on the pods that it makes room for."""
        cure = {
            APPROVE: f"; approve it: kubectl patch rebalancerecommendation {name} --type=merge "
            """-p '{"spec":{"approved":true}}'""",
            AUTO: "; it is carried out as soon as nothing speaks against it",
        }.get(policy.spec.mode, f"; policy {policy.name} only recommends")
        number = f"{len(made.moves)} eviction" + "s" * (len(made.moves) != 1)
        for placement in made.placements:
            if is_wish(placement.pod):
                continue  # there is no pod to tell
            await self._post(
                placement.pod,
                reason="RebalanceRecommended",
                message=f"{name} would make room for it by {number}{cure}",
            )

    async def _prolong(self, item: Recommendation, policy: PolicyObject, now: datetime) -> None:
        """A plan that was found again holds for longer."""
        expires = timestamp.format(now + duration.parse(policy.spec.expiry))
        try:
            body = await self._client.patch(
                REBALANCE_RECOMMENDATIONS, item.name, {"spec": {"expires": expires}}
            )
        except (NotFound, Conflict):
            return
        self._intent.recommendations.put(Recommendation.from_api(body))

    async def _forget_old(self, policy: PolicyObject) -> None:
        """Delete finished recommendations beyond a number, but none whose moves are within the cooldown."""
        cooldown = duration.parse(policy.spec.cooldown)
        finished = sorted(
            (i for i in self._intent.recommendations if i.spec.policy == policy.name and not i.active),
            key=lambda item: (item.created, item.name),
        )
        for item in finished[: max(0, len(finished) - _KEPT)]:
            times = [read(one.since) for one in item.progress]
            times.append(item.ended if item.status.phase == FAILED else None)
            if any(moment is not None and self._now() - moment < cooldown for moment in times):
                continue
            try:
                await self._client.delete(REBALANCE_RECOMMENDATIONS, item.name, uid=item.uid)
                self._book.judged.pop(item.name, None)
            except NotFound:
                continue

    # Recommendations

    async def _give_up(self, item: Recommendation, policy: PolicyObject | None, why: str) -> None:
        """End a plan that its policy lets go no further, wherever it stands."""
        phase, none = SUPERSEDED, "no pod"
        if any(map(was_evicted, item.progress)):
            phase, none = FAILED, "no further pod"
        await self._write(item, policy, Advance(item.progress, f"{why}: {none} is evicted", phase))

    async def _advance(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        if policy.spec.schedule.suspend:
            return
        match item.status.phase:
            case "Proposed":
                await self._consider(item, policy, settings)
            case "Approved":
                await self._begin(item, policy)
            case _:
                await self._carry_on(item, policy, settings)

    async def _consider(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        """Let a proposal expire, fall, or be approved; a new one is given its status first."""
        now = self._now()
        if not item.status.mode:
            # Not when it is created: kopf's annotation may come between the two, and so may a crash.
            await self._write(item, policy, Advance(item.progress, "proven by simulation", PROPOSED))
            return
        expires = read(item.spec.expires)
        if expires is not None and now > expires:
            self._book.of(policy.name).wanted = True
            await self._write(item, policy, Advance(item.progress, "nobody approved it in time", EXPIRED))
            return
        mode = policy.spec.mode
        wanted = _is_allowed(item, policy)
        if not self._book.is_due(item, now, min(policy.interval, _JUDGEMENT)):
            return
        judgement = await self.execution.judge(item, policy, settings, now)
        problem = "nothing needs to be moved any more" if judgement.reached else judgement.problem
        if problem and not judgement.holds_if_confined:
            self._book.of(policy.name).wanted = True
            moved_on = Advance(item.progress, f"the cluster moved on: {problem}", SUPERSEDED)
            await self._write(item, policy, moved_on)
            return
        if wanted:
            if problem:
                await self._tell(item, policy, f"cannot be carried out: {problem}")
                return
            await self._write(item, policy, Advance(item.progress, f"mode {mode}", APPROVED))
            self._metrics.moves.labels(mode, policy.name, "approved").inc(len(item.spec.moves))

    async def _begin(self, item: Recommendation, policy: PolicyObject) -> None:
        """Start, unless another plan is being carried out."""
        if any(other.status.phase == EXECUTING for other in self._intent.recommendations):
            return
        await self._write(item, policy, Advance(item.progress, "the first move comes next", EXECUTING))

    async def _carry_on(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        if item.is_about_to_evict:
            if not await self._is_current(policy, item):
                return
            if not _is_allowed(item, policy):
                await self._give_up(item, policy, f"policy {policy.name} is in mode {policy.spec.mode} now")
                return
        advance = await self.execution.step(item, policy, settings, self._now())
        if advance is None:
            return
        self._count(item, policy, advance)
        written_item = await self._write(item, policy, advance)
        if written_item is not None and advance.evicted == "success":
            await self._announce(item, written_item, policy)
        if advance.phase:
            self._book.of(policy.name).wanted = True

    async def _tell(self, item: Recommendation, policy: PolicyObject, message: str) -> None:
        if item.status.message != message:
            await self._write(item, policy, Advance(item.progress, message))

    def _count(self, item: Recommendation, policy: PolicyObject, advance: Advance) -> None:
        mode = policy.spec.mode
        for before, after, move in zip(item.progress, advance.progress, item.spec.moves, strict=True):
            if advance.evicted and before != after:
                self._metrics.evicted.labels(
                    advance.evicted, mode, policy.name, move.pod.namespace, move.source.node
                ).inc()
            if before.phase != after.phase and after.phase in {"Verified", "Failed"}:
                result = "executed" if after.phase == "Verified" else "failed"
                self._metrics.moves.labels(mode, policy.name, result).inc()
        if advance.phase == SUCCEEDED:
            self._metrics.gain.labels(mode, policy.name).inc(item.spec.gain.total)

    async def _announce(self, item: Recommendation, after: Recommendation, policy: PolicyObject) -> None:
        """Post an event on the pod that was evicted."""
        for before, now in zip(item.progress, after.progress, strict=True):
            pod = self._state.pods.get(now.pod.uid)
            if before.phase == now.phase or now.phase != EVICTED or pod is None:
                continue
            message = f"evicted to rebalance (mode {policy.spec.mode}, {item.name}): {item.spec.goal}"
            await self._post(pod, reason="Rebalanced", message=message)

    async def _post(self, pod: ClusterPod, *, reason: str, message: str) -> None:
        body = event(pod, kind="Normal", reason=reason, message=message, instance=self._identity)
        try:
            await self._client.create(EVENTS, body, namespace=pod.namespace)
        except APIError as error:
            _log.info("an event was lost: %s", error)

    async def _write(
        self, item: Recommendation, policy: PolicyObject | None, advance: Advance, *, by: str = ""
    ) -> Recommendation | None:
        """Write a status on the version that was read; None if the object has changed meanwhile."""
        mode = item.status.mode or (policy.spec.mode if policy is not None else "")
        phase = advance.phase or item.status.phase
        status: dict[str, Any] = {
            "phase": phase,
            "mode": mode,
            "message": advance.message,
            "evictions": sum(map(was_evicted, advance.progress)),
            "progress": [_plain(one) for one in advance.progress],
            "conditions": [_complete(phase, advance.message, item, self._now())],
        }
        if advance.realized is not None:
            status["realized"] = advance.realized
        if by:
            status["supersededBy"] = by
        patch = {"metadata": {"resourceVersion": item.version}, "status": status}
        try:
            body = await self._client.patch(REBALANCE_RECOMMENDATIONS, item.name, patch, subresource="status")
        except (Conflict, NotFound):
            return None
        if advance.phase:
            self._metrics.recommendations.labels(mode, item.spec.policy, advance.phase).inc()
            _log.info("%s (mode %s) %s: %s", item.name, mode, advance.phase, advance.message)
        new = Recommendation.from_api(body)
        self._intent.recommendations.put(new)
        return new

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._wall(), UTC)


def _is_allowed(item: Recommendation, policy: PolicyObject) -> bool:
    """Whether the policy, as it is now, lets the plan be carried out."""
    return policy.spec.mode == AUTO or (policy.spec.mode == APPROVE and item.spec.approved)


def _found(made: Plan, name: str, now: datetime) -> dict[str, Any]:
    """A policy's status after a plan was found."""
    number = f"{len(made.moves)} move" + "s" * (len(made.moves) != 1)
    message = f"{name}: {number} gain {made.gain}"
    return {
        "lastSearch": timestamp.format(now),
        "recommendation": name,
        "message": message,
        "movable": None,
        "unmovable": None,
    }


def _goals(policy: PolicyObject, situation: Situation, stuck: frozenset[str]) -> Iterator[Goal]:
    waiting = situation.cluster.pending
    yield from pending(pod for uid, pod in waiting.items() if uid in stuck)
    yield from standing_goals(policy.spec.goals)


def _counts(situation: Situation, settings: Policy) -> dict[str, Any]:
    """Count who could be moved and who not, as a policy's status tells it; it takes a while."""
    rules = sorted(unmovable_by_rule(situation, settings).items(), key=lambda item: (-item[1], item[0]))
    return {
        "movable": len(candidates(situation, settings)),
        "unmovable": [{"rule": rule, "pods": pods} for rule, pods in rules],
    }


def _plain(progress: MoveProgress) -> dict[str, Any]:
    written_out: dict[str, Any] = progress.model_dump(mode="json", by_alias=True, exclude_none=True)
    return written_out


def _complete(phase: str, message: str, item: Recommendation, now: datetime) -> dict[str, Any]:
    """The condition Complete: True once the plan has ended, however it ended."""
    ended = phase in ENDED
    status = "True" if ended else "False"
    known = next((one for one in item.status.conditions if one.type == "Complete"), None)
    since = known.last_transition_time if known is not None and known.status == status else None
    return {
        "type": "Complete",
        "status": status,
        "reason": phase or PROPOSED,
        "message": message[:1024],
        "lastTransitionTime": since or timestamp.format(now),
    }
