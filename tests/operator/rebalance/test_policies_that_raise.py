"""A policy, a plan or a pod that raises keeps no other from being followed, executed or moved."""

from collections.abc import Mapping

import pytest

from numazones.api.rebalance import PlanPhase
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance import filter as rules
from numazones_client.resources import REBALANCE_RECOMMENDATIONS
from numazones_operator.faults import ObjectFaults
from numazones_operator.rebalance.steps import Steps
from tests.operator.rebalance.offline_execution import Execution


def execution() -> tuple[Execution, list[tuple[str, str, str]]]:
    """The cluster, and each problem with the kind and name of its object."""
    told: list[tuple[str, str, str]] = []

    def tell(about: Mapping[str, str], problem: str) -> None:
        told.append((about["kind"], about["name"], problem))

    return Execution(faults=ObjectFaults(tell=tell)), told


async def test_plan_that_raises_ends_and_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    here, told = execution()
    here.recommend(here.item.spec.to_api(), {"phase": "Approved", "progress": []}, name="p-2")
    step = Steps.step

    async def raise_for_first(self: Steps, item: object, *arguments: object) -> object:
        if getattr(item, "name", "") == "p-1":
            raise ZeroDivisionError("by nothing")
        return await step(self, item, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Steps, "step", raise_for_first)
    rebalancing = here.rebalancing()
    await rebalancing.round()
    assert here.item.status.phase == PlanPhase.SUPERSEDED
    assert (
        here.item.status.message
        == "an error stopped the plan (ZeroDivisionError: by nothing), so no pods are evicted"
    )
    assert told == [("RebalanceRecommendation", "p-1", "ZeroDivisionError: by nothing")]
    await rebalancing.round()
    other = here.intent.recommendations.get("p-2")
    assert other is not None
    assert other.status.phase == PlanPhase.EXECUTING


async def test_policy_says_which_pod_its_search_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here, told = execution()
    here.server.objects[REBALANCE_RECOMMENDATIONS] = {}
    here.intent.recommendations.retain(())
    cost = rules.eviction_cost

    def raise_for_mover(pod: ClusterPod) -> int:
        if pod.name == "mover":
            raise ZeroDivisionError("by nothing")
        return cost(pod)

    monkeypatch.setattr(rules, "eviction_cost", raise_for_mover)
    await here.rebalancing().round()
    left_out = "left out: pod default/mover (ZeroDivisionError: by nothing)"
    assert here.wanted.status["message"] == f"p-1: 1 move, gain 1; {left_out}"
    assert told == [("Pod", "mover", "ZeroDivisionError: by nothing")]
    assert [move.pod.name for item in here.intent.recommendations for move in item.spec.moves] == ["fill-2"]
