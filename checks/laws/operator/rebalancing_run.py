"""A run of rebalancing with marked objects of one sort, next to a plan that is found and executed."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

from numazones.rebalance.budgets import Budget
from numazones_client.resources import REBALANCE_RECOMMENDATIONS
from numazones_operator.faults import ObjectFaults
from numazones_operator.rebalance.metrics import RebalanceGauges
from tests.operator.rebalance.offline_execution import (
    LARGE,
    RUNS,
    Execution,
    move,
    pod_manifest,
    policy_manifest,
)

APART = "n3"
"""Node of pods that nothing else depends on."""


async def _at_once(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Stand in for ``asyncio.to_thread``."""
    return work(*arguments, **named)


class Rebalances:
    """Policy ``p`` has the mover evicted for a large pod."""

    def __init__(self, kind: str, names: list[str]) -> None:
        self.problems: list[str] = []
        self.here = Execution(faults=ObjectFaults(tell=lambda _about, problem: self.problems.append(problem)))
        here = self.here
        here.intent.recommendations.retain(())
        here.server.objects[REBALANCE_RECOMMENDATIONS] = {}
        self.rebalancing = here.rebalancing()
        self.gauges = RebalanceGauges(here.intent)
        self.names = names
        for name in ("fill-0", "fill-2", "fill-3"):
            here.owner(name, gated=True)
        getattr(self, kind)()

    # What is marked

    def running_pod(self) -> None:
        self.here.node(APART, "left", "right", cpu=22)
        for name in self.names:
            self.here.pod(name, cpu=1, node=APART, **RUNS)
            self.here.owner(name, gated=True)

    def waiting_pod(self) -> None:
        for name in self.names:
            self.here.pod(name, cpu=28)
        self.here.put_policy(policy_manifest(goals={"shapes": [LARGE], "pendingPods": False}))
        self.here.put_policy(policy_manifest(name="q", mode="Recommend", goals={"pendingPods": True}))

    def node(self) -> None:
        for number, name in enumerate(self.names):
            self.here.node(name, f"left-{number}", f"right-{number}", cpu=25)

    def budget(self) -> None:
        self.here.node(APART, "left", "right", cpu=22)
        for name in self.names:
            body = pod_manifest(f"of-{name}", cpu=1, node=APART, **RUNS)
            body["metadata"]["namespace"] = "elsewhere"
            self.here.put(body)
            spec = {"selector": {"matchLabels": {"app": f"of-{name}"}}}
            metadata = {"namespace": "elsewhere", "name": name}
            self.here.inputs.budgets.put(Budget.from_api({"metadata": metadata, "spec": spec}))

    def policy(self) -> None:
        for name in self.names:
            self.here.put_policy(policy_manifest(name=name, mode="Recommend"))

    def recommendation(self) -> None:
        self.here.put_policy(policy_manifest(name="q", mode="Approve", goals={"shapes": []}))
        for number, name in enumerate(self.names):
            done = {"phase": "Succeeded", "progress": []} if number % 2 else {"phase": "Proposed"}
            spec = {"policy": "q", "moves": [move(f"of-{name}", APART, APART)]}
            self.here.recommend(spec, {"mode": "Approve", **done}, name=name)

    # Running

    def observe(self) -> dict[str, Any]:
        with mock.patch.object(asyncio, "to_thread", _at_once):
            return asyncio.run(self._observe())

    async def _observe(self) -> dict[str, Any]:
        here = self.here
        seen: dict[str, Any] = {}
        async for _ in here.offline.pipeline.forecasts.renew():
            pass
        for _ in range(8):
            await self.rebalancing.round()
        self.gauges.families()
        found = {item.spec.policy: item for item in here.intent.recommendations if item.spec.policy == "p"}
        conditions = here.wanted.status.get("conditions") or ()
        seen["plan"] = [
            (move.pod.name, move.target.node, one.phase)
            for item in found.values()
            for move, one in item.moves_with_progress
        ]
        seen["evicted"] = here.evicted()
        seen["ready"] = [one["status"] for one in conditions if one["type"] == "Ready"]
        return seen
