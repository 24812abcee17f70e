"""Runs the operator with a defect put in: ``python -m checks.clusters.chaos.defects DEFECT ARGUMENTS``.

An empty name puts none in. Plans are slow in any case, so that faults hit them between their steps. The
checker of histories is worth something if it catches each. Defects are functions with types, no lambdas, so
that mypy says when one no longer fits what it replaces.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from numazones.rebalance.budgets import BudgetHeadroom
from numazones.rebalance.recommendation import Recommendation
from numazones_client import Client, Resource
from numazones_client.resources import PODS, REBALANCE_RECOMMENDATIONS
from numazones_operator.main import main
from numazones_operator.predictions.live_forecasts import ForecastChange, LiveForecasts
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.rebalance.freshness import Freshness
from numazones_operator.rebalance.statuses import Statuses
from numazones_operator.rebalance.steps import PlanCheck, Steps


def slow() -> None:
    """Wait a moment after each step of a plan, before anything else is done about it.

    The wait comes after the request and not before it, so that it makes no proof older.
    """
    write, evict = Statuses.write, Client.evict

    async def slowly_written(self: Statuses, *arguments: Any, **named: Any) -> Recommendation | None:
        written = await write(self, *arguments, **named)
        await asyncio.sleep(random.uniform(0.3, 1.5))
        return written

    async def slowly_evicted(self: Client, name: str, **named: Any) -> None:
        await evict(self, name, **named)
        await asyncio.sleep(random.uniform(0.3, 1.5))

    Statuses.write = slowly_written  # type: ignore[method-assign]
    Client.evict = slowly_evicted  # type: ignore[method-assign]


def unproven() -> None:
    """Evict what was planned once, whatever has happened since."""

    async def judge(*_: Any, **__: Any) -> PlanCheck:
        return PlanCheck()

    async def problem(*_: Any, **__: Any) -> str:
        return ""

    Steps.judge = judge  # type: ignore[method-assign]
    Freshness.problem = problem  # type: ignore[method-assign]


def open_gate() -> None:
    """Release every pod to nodes that would admit it alone, however many are on their way there."""

    def has_room(*_: Any, **__: Any) -> bool:
        return True

    AdmissionGates._has_room = has_room  # type: ignore[method-assign]


def deaf() -> None:
    """Make each prediction once, and never again when nodes change."""
    renew = LiveForecasts.renew

    def forgetful(self: LiveForecasts) -> AsyncIterator[ForecastChange]:
        self.state.changed_nodes = {}
        return renew(self)

    LiveForecasts.renew = forgetful  # type: ignore[method-assign]


def unbudgeted() -> None:
    """Plan as if there were no budgets, and delete pods instead of asking for their eviction."""

    async def delete(
        self: Client, name: str, *, namespace: str, uid: str = "", resource_version: str = ""
    ) -> None:
        await self.delete(PODS, name, namespace=namespace, uid=uid, resource_version=resource_version)

    def rejection(*_: Any, **__: Any) -> str:
        return ""

    Client.evict = delete  # type: ignore[method-assign]
    BudgetHeadroom.rejection = rejection  # type: ignore[method-assign]


def backward() -> None:
    """Write every fourth status of a plan that begins a move once more after the next one."""
    patch = Client.patch
    kept: list[Any] = []
    numbers = count(1)

    async def late(self: Client, resource: Resource, name: str, body: Any, **options: Any) -> dict[str, Any]:
        written = await patch(self, resource, name, body, **options)
        if resource != REBALANCE_RECOMMENDATIONS or options.get("subresource") != "status":
            return written
        if kept and kept[0] == name:
            written = await patch(self, resource, name, {"status": kept[1]}, **options)
            kept.clear()
        elif next(numbers) % 4 == 0:
            kept[:] = [name, body["status"]]
        return written

    Client.patch = late  # type: ignore[method-assign]


DEFECTS = {
    "unproven": unproven,
    "unbudgeted": unbudgeted,
    "backward": backward,
    "open-gate": open_gate,
    "deaf": deaf,
}


if __name__ == "__main__":
    slow()
    if sys.argv[1]:
        DEFECTS[sys.argv[1]]()
    del sys.argv[1]
    main()
