"""Carries approved plans out: one at a time, step by step (``steps``), until it has ended.

Before each step that leads to an eviction the API server is asked whether the policy still wants it.
"""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

from numazones.api.rebalance import MovePhase, PlanPhase, RecommendedMove
from numazones.rebalance.policy import Policy
from numazones.rebalance.recommendation import Recommendation
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.rebalance.statuses import Statuses, StatusUpdate
from numazones_operator.rebalance.steps import Steps


@dataclass
class Executor:
    """Advances recommendations that are approved or being carried out."""

    intent: Intent
    steps: Steps
    statuses: Statuses
    _: KW_ONLY
    metrics: RebalanceMetrics
    search_early: Callable[[str], None]
    """Is told the policy of each plan that has ended."""

    async def begin(self, item: Recommendation, policy: PolicyObject) -> None:
        """Start an approved plan, unless another one is being carried out."""
        if any(other.status.phase == PlanPhase.EXECUTING for other in self.intent.in_force()):
            return
        begun = StatusUpdate(item.progress, "starting with the first move", PlanPhase.EXECUTING)
        await self.statuses.write(item, policy, begun)

    async def carry_on(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        """Take the next step of a plan that is being carried out, if there is one to take now."""
        if item.is_about_to_evict:
            if not await self.intent.is_current(policy, item):
                return
            if not policy.allows(item):
                why = f"policy {policy.name} is now in mode {policy.spec.mode}"
                await self.statuses.give_up(item, policy, why)
                return
        advance = await self.steps.step(item, policy, settings, self.statuses.now())
        if advance is None:
            return
        self._count(item, policy, advance)
        written = await self.statuses.write(item, policy, advance)
        if written is not None and advance.evicted == "success":
            self._post_eviction(item, policy, advance)
        if advance.phase:
            self.search_early(policy.name)

    def _count(self, item: Recommendation, policy: PolicyObject, advance: StatusUpdate) -> None:
        mode = policy.spec.mode
        for move, phase in _changed_moves(item, advance):
            if advance.evicted:
                self.metrics.evicted.labels(
                    advance.evicted, mode, policy.name, move.pod.namespace, move.source.node
                ).inc()
            if phase in {MovePhase.VERIFIED, MovePhase.FAILED}:
                result = "executed" if phase == MovePhase.VERIFIED else "failed"
                self.metrics.moves.labels(mode, policy.name, result).inc()
        if advance.phase == PlanPhase.SUCCEEDED:
            self.metrics.gain.labels(mode, policy.name).inc(item.spec.gain.total)

    def _post_eviction(self, item: Recommendation, policy: PolicyObject, advance: StatusUpdate) -> None:
        """Post an event on the pod that was evicted; without a grace period it is gone already."""
        message = (
            f"evicted by RebalanceRecommendation {item.name} (mode {policy.spec.mode}); goal: "
            f"{item.spec.goal}"
        )
        for move, _ in _changed_moves(item, advance):
            self.statuses.post_event(move.pod, reason="Rebalanced", message=message)


def _changed_moves(item: Recommendation, advance: StatusUpdate) -> Iterator[tuple[RecommendedMove, str]]:
    """Yield the moves that a step puts into another phase, with that phase."""
    for (move, before), after in zip(item.moves_with_progress, advance.progress, strict=True):
        if before.phase != after.phase:
            yield move, after.phase
