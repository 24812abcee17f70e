"""The loop of rebalancing: advance recommendations, then look for plans where it is time.

Every round starts from the objects as they are, takes at most one step per recommendation, and writes status
on the version that was read. Only the leader runs it.
"""

import asyncio
import logging

from numazones.api.meta import API_VERSION
from numazones.api.rebalance import PlanPhase
from numazones.errors import NumazonesError
from numazones.rebalance.policy import InvalidPolicy, Policy
from numazones.rebalance.recommendation import Recommendation
from numazones_operator.faults import Faults
from numazones_operator.rebalance.executor import Executor
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.rebalance.proposer import Proposer
from numazones_operator.rebalance.readiness import Readiness
from numazones_operator.rebalance.statuses import Statuses

_log = logging.getLogger(__name__)


class Rebalancing:
    """Drives plans and recommendations."""

    def __init__(
        self,
        intent: Intent,
        readiness: Readiness,
        proposer: Proposer,
        executor: Executor,
        *,
        statuses: Statuses,
        metrics: RebalanceMetrics,
        faults: Faults | None = None,
        period: float = 1.0,
    ) -> None:
        """``period``: seconds between rounds."""
        self._intent = intent
        self._readiness = readiness
        self._proposer = proposer
        self._executor = executor
        self.statuses = statuses
        self._metrics = metrics
        self._faults = faults or Faults()
        self._period = period

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
        await self._readiness.publish_again()
        policies = {item.name: item for item in self._intent.policies}
        usable: dict[str, Policy] = {}
        problems: dict[str, str] = {}
        for name, policy in policies.items():
            self._metrics.expect(policy.spec.mode, name)
            try:
                usable[name] = self._readiness.settings(policy)
            except InvalidPolicy as error:
                problems[name] = str(error)
        for item in sorted(self._intent.recommendations, key=lambda item: (item.created, item.name)):
            name = item.spec.policy
            if not item.active:
                continue
            if name in usable:
                about = {"kind": "RebalanceRecommendation", "name": item.name, "uid": item.uid}
                with self._faults.of({"apiVersion": API_VERSION, **about}):
                    await self._advance(item, policies[name], usable[name])
            else:
                why = f"is invalid ({problems[name]})" if name in problems else "is gone or cannot be read"
                await self.statuses.give_up(item, policies.get(name), f"policy {name} {why}")
        for name, settings in usable.items():
            if not policies[name].spec.schedule.suspend:
                about = {"kind": "RebalancePolicy", "name": name, "uid": policies[name].edition[0]}
                with self._faults.of({"apiVersion": API_VERSION, **about}):
                    await self._proposer.search(policies[name], settings)

    async def _advance(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        """Take the next step of a recommendation that has not ended."""
        if item.spec.rejected and (item.status.phase != PlanPhase.EXECUTING or item.is_about_to_evict):
            await self.statuses.give_up(item, policy, "rejected", ended=PlanPhase.REJECTED)
            self._proposer.search_early(policy.name)
            return
        if policy.spec.schedule.suspend:
            return
        match item.status.phase:
            case PlanPhase.PROPOSED:
                await self._proposer.consider(item, policy, settings)
            case PlanPhase.APPROVED:
                await self._executor.begin(item, policy)
            case _:
                await self._executor.carry_on(item, policy, settings)
