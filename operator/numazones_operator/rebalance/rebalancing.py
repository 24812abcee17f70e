"""The loop of rebalancing: advance recommendations, then look for plans where it is time.

Every round starts from the objects as they are, takes at most one step per recommendation, and writes status
on the version that was read. Only the leader runs it.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from numazones.api.rebalance import PlanPhase
from numazones.errors import NumazonesError
from numazones.rebalance.policy import InvalidPolicy, Policy
from numazones.rebalance.recommendation import Recommendation
from numazones_client import APIError
from numazones_operator.faults import ObjectFaults, of_subject
from numazones_operator.rebalance.executor import Executor
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.metrics import RebalanceMetrics
from numazones_operator.rebalance.objects import PolicyObject
from numazones_operator.rebalance.proposer import Proposer
from numazones_operator.rebalance.readiness import Readiness
from numazones_operator.rebalance.statuses import Statuses

_log = logging.getLogger(__name__)


@dataclass
class Rebalancing:
    """Drives plans and recommendations."""

    intent: Intent
    readiness: Readiness
    proposer: Proposer
    executor: Executor
    _: KW_ONLY
    statuses: Statuses
    metrics: RebalanceMetrics
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    period: float = 1.0
    """Seconds between rounds."""

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            await self.intent.followed.wait()
            try:
                await self.round()
            except NumazonesError as error:  # the API server's errors among them
                _log.warning("rebalancing failed and will be retried: %s", error)
            self.intent.changed.clear()
            try:
                async with asyncio.timeout(self.period):
                    await self.intent.changed.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Take every step that can be taken now."""
        await self.readiness.publish_again()
        policies = {item.name: item for item in self.intent.policies}
        usable: dict[str, Policy] = {}
        problems: dict[str, str] = {}
        for name, policy in policies.items():
            try:
                self.metrics.expect(policy.spec.mode, name)
                usable[name] = self.readiness.settings(policy)
            except InvalidPolicy as error:
                problems[name] = str(error)
            except Exception as error:  # noqa: BLE001 - it concerns this policy alone
                problems[name] = self.faults.take(of_subject(policy), error)
        for item in sorted(self.intent.in_force(), key=lambda item: (item.created, item.name)):
            try:
                await self._step(item, policies.get(item.spec.policy), usable, problems)
            except APIError:
                raise
            except Exception as error:  # noqa: BLE001 - it concerns this plan alone
                problem = self.faults.take(of_subject(item), error)
                await self._end(item, policies.get(item.spec.policy), problem)
        for name, settings in usable.items():
            with self.faults.of(of_subject(policies[name])):
                if not policies[name].spec.schedule.suspend:
                    await self.proposer.search(policies[name], settings)

    async def _step(
        self,
        item: Recommendation,
        policy: PolicyObject | None,
        usable: Mapping[str, Policy],
        problems: Mapping[str, str],
    ) -> None:
        """Take the next step of a recommendation, or end it where its policy cannot be followed."""
        name = item.spec.policy
        if policy is not None and name in usable:
            await self._advance(item, policy, usable[name])
            return
        why = f"is invalid ({problems[name]})" if name in problems else "does not exist or cannot be read"
        await self.statuses.give_up(item, policy, f"policy {name} {why}")

    async def _end(self, item: Recommendation, policy: PolicyObject | None, problem: str) -> None:
        """End a plan about which something raised: it would keep all others from being executed."""
        self.intent.disregard(item)
        with self.faults.of(of_subject(item)):
            await self.statuses.give_up(item, policy, f"an error stopped the plan ({problem})")

    async def _advance(self, item: Recommendation, policy: PolicyObject, settings: Policy) -> None:
        """Take the next step of a recommendation that has not ended."""
        if item.spec.rejected and (item.status.phase != PlanPhase.EXECUTING or item.is_about_to_evict):
            await self.statuses.give_up(item, policy, "the plan was rejected", ended=PlanPhase.REJECTED)
            self.proposer.search_early(policy.name)
            return
        if policy.spec.schedule.suspend:
            return
        match item.status.phase:
            case PlanPhase.PROPOSED:
                await self.proposer.consider(item, policy, settings)
            case PlanPhase.APPROVED:
                await self.executor.begin(item, policy)
            case _:
                await self.executor.carry_on(item, policy, settings)
