"""Following approved plans until their pods have a node, as ``approve --wait`` does."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from kubectl_numazones.plans.decisions import PendingPlan
from numazones.api.rebalance import ENDED, PlanPhase
from numazones.cluster.admission_gate import GATE
from numazones_client import Client, Forbidden, NotFound
from numazones_client.errors import Unreachable
from numazones_client.resources import PODS, REBALANCE_RECOMMENDATIONS

_INTERVAL = 1.0
"""Seconds from one look at the plans to the next."""


async def changes(client: Client, plans: Sequence[PendingPlan]) -> AsyncIterator[PendingPlan]:
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


async def arrivals(client: Client, plans: Iterable[PendingPlan]) -> AsyncIterator[str]:
    """Say what the pods that plans made room for still wait for, and when each has a node, until all have.

    Nothing is said of pods that are deleted, that had a node before, or that the user may not read.
    """
    waiting = {
        (placement.pod.namespace, placement.pod.name): ""
        for plan in plans
        if plan.phase == PlanPhase.SUCCEEDED
        for placement in plan.spec.placements
    }
    while waiting:
        for (namespace, name), before in list(waiting.items()):
            try:
                pod = await client.get(PODS, name, namespace=namespace)
            except Unreachable:
                continue
            except (NotFound, Forbidden):
                del waiting[namespace, name]
                continue
            now = _waits_for(pod)
            if now and now != before:
                yield f"{namespace}/{name}: {now}"
            elif before and not now:
                yield f"{namespace}/{name}: scheduled to {pod['spec'].get('nodeName')}"
            waiting[namespace, name] = now
            if not now:
                del waiting[namespace, name]
        if waiting:
            await asyncio.sleep(_INTERVAL)


def _waits_for(pod: dict[str, Any]) -> str:
    """Return what a pod without a node waits for next; empty if it has one."""
    if pod["spec"].get("nodeName"):
        return ""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    if GATE in gates:
        return "waiting for the operator to remove its gate"
    return f"waiting for its gate {gates[0]}" if gates else "waiting for its scheduler"


def line_of(plan: PendingPlan) -> str:
    """Say in a line how far a plan is."""
    return f"{plan.name}: {plan.phase}{f' ({plan.status.message})' if plan.status.message else ''}"
