"""Objects that rebalancing writes: the status of recommendations and policies, and events on pods.

A recommendation's status is written on the version that was read, so that a step which started from an old
view writes nothing.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

from numazones.api.meta import stamp, transitions
from numazones.api.rebalance import ENDED, MoveProgress, PlanPhase, PodReference
from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance.recommendation import Recommendation
from numazones_client import Client, Conflict, NotFound
from numazones_client.resources import REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from numazones_operator.events import NORMAL, EventPoster
from numazones_operator.faults import of_pod
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject, was_evicted

_MAX_CONDITION_MESSAGE = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """Change of a recommendation's status by one step."""

    progress: tuple[MoveProgress, ...]
    message: str = ""
    phase: PlanPhase | None = None
    """The phase that it enters; None: it stays."""
    count: int | None = None
    """What the goal counts after the last move."""
    evicted: str = ""
    """Result of an eviction that was asked for: success, blocked or error."""


@dataclass
class Statuses:
    """Writes statuses and events, and keeps ``Intent`` up to date with what it wrote."""

    client: Client
    intent: Intent
    _: KW_ONLY
    events: EventPoster
    metrics: RebalanceMetrics
    wall: Callable[[], float] = time.time

    def now(self) -> datetime:
        """Return the time that statuses are written with."""
        return datetime.fromtimestamp(self.wall(), UTC)

    async def write_policy(self, policy: PolicyObject, status: dict[str, Any]) -> None:
        """Write a part of a policy's status, unless the policy is gone."""
        try:
            body = await self.client.patch(
                REBALANCE_POLICIES, policy.name, {"status": status}, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self.intent.take_own_policy(body)

    async def write(
        self, item: Recommendation, policy: PolicyObject | None, advance: StatusUpdate, *, by: str = ""
    ) -> Recommendation | None:
        """Write the status of a recommendation; None if the object has changed meanwhile.

        ``by``: the recommendation that takes its place.
        """
        mode = item.status.mode or (policy.spec.mode if policy is not None else "")
        phase = advance.phase or item.status.phase
        status: dict[str, Any] = {
            "phase": phase,
            "mode": mode,
            "message": advance.message,
            "evictions": sum(map(was_evicted, advance.progress)),
            "progress": [_json_of(one) for one in advance.progress],
            "conditions": [_complete_condition(phase, advance.message, item, self.now())],
        }
        if advance.count is not None:
            status["realized"] = advance.count
        if by:
            status["supersededBy"] = by
        patch = {"metadata": {"resourceVersion": item.version}, "status": status}
        try:
            body = await self.client.patch(REBALANCE_RECOMMENDATIONS, item.name, patch, subresource="status")
        except (Conflict, NotFound):
            return None
        if advance.phase:
            self.metrics.recommendations.labels(mode, item.spec.policy, advance.phase).inc()
            _log.info("%s (mode %s) %s: %s", item.name, mode, advance.phase, advance.message)
        new = Recommendation.from_api(body)
        self.intent.recommendations.put(new)
        return new

    async def give_up(
        self,
        item: Recommendation,
        policy: PolicyObject | None,
        why: str,
        *,
        ended: PlanPhase = PlanPhase.SUPERSEDED,
    ) -> None:
        """End a plan that may go no further, wherever it stands.

        ``ended``: how, if no pod was evicted for it; it has failed if one was.
        """
        phase, none = ended, "no pods are"
        if any(map(was_evicted, item.progress)):
            phase, none = PlanPhase.FAILED, "no more pods are"
        await self.write(item, policy, StatusUpdate(item.progress, f"{why}, so {none} evicted", phase))

    def post_event(self, pod: ClusterPod | PodReference, *, reason: str, message: str) -> None:
        """Post an event on a pod."""
        self.events.post(of_pod(pod), type=NORMAL, reason=reason, message=message)


def _json_of(progress: MoveProgress) -> dict[str, Any]:
    written_out: dict[str, Any] = progress.model_dump(mode="json", by_alias=True, exclude_none=True)
    return written_out


def _complete_condition(phase: str, message: str, item: Recommendation, now: datetime) -> dict[str, Any]:
    """The condition Complete: True once the plan has ended, however it ended."""
    condition = {
        "type": "Complete",
        "status": "True" if phase in ENDED else "False",
        "reason": phase or PlanPhase.PROPOSED,
        "message": message[:_MAX_CONDITION_MESSAGE],
    }
    stamp([condition], transitions(one.to_api() for one in item.status.conditions), timestamp.format(now))
    return condition
