"""Following approved plans until they have ended, as ``approve --wait`` does."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from kubectl_numazones.plan_decisions import PendingPlan
from numazones.api.rebalance import ENDED, PlanPhase
from numazones_client import Client, NotFound
from numazones_client.errors import Unreachable
from numazones_client.resources import REBALANCE_RECOMMENDATIONS

_INTERVAL = 1.0
"""Seconds from one look at the plans to the next."""


async def progress(client: Client, plans: Sequence[PendingPlan]) -> AsyncIterator[PendingPlan]:
    """Yield a plan each time its phase or message changes, until all have ended or are gone.

    Nothing is said of a plan that is deleted. An API server that does not answer is asked again.
    """
    known = {plan.name: plan for plan in plans}
    for plan in plans:
        if plan.phase != PlanPhase.PROPOSED:
            yield plan
    while following := [plan for plan in known.values() if plan.phase not in ENDED]:
        await asyncio.sleep(_INTERVAL)
        for plan in following:
            try:
                now = PendingPlan.of(await client.get(REBALANCE_RECOMMENDATIONS, plan.name))
            except Unreachable:
                continue
            except NotFound:
                del known[plan.name]
                continue
            known[plan.name] = now
            if (now.phase, now.status.message) != (plan.phase, plan.status.message):
                yield now


def said(plan: PendingPlan) -> str:
    """Say in a line how far a plan is."""
    return f"{plan.name}: {plan.phase}{f' ({plan.status.message})' if plan.status.message else ''}"
