"""A policy or a recommendation that raises keeps no other from being followed."""

from types import SimpleNamespace
from typing import Any

from numazones.api.rebalance import PlanPhase
from numazones_operator.faults import Faults
from numazones_operator.rebalance.rebalancing import Rebalancing


class Named:
    """Stands in for a policy, or a recommendation of it."""

    def __init__(self, name: str) -> None:
        self.name = self.uid = self.created = name
        self.edition = (name, 1)
        self.active = True
        schedule = SimpleNamespace(suspend=False)
        self.spec = SimpleNamespace(mode="Auto", schedule=schedule, policy=name, rejected=False)
        self.status = SimpleNamespace(phase=PlanPhase.PROPOSED)


async def test_a_policy_or_recommendation_that_raises_stops_no_other() -> None:
    done: list[str] = []
    told: list[tuple[str, str, str]] = []

    async def step(item: Named, *_: Any) -> None:
        if item.name == "bad":
            raise ZeroDivisionError("by nothing")
        done.append(item.name)

    async def nothing() -> None:
        return

    both: Any = [Named("bad"), Named("good")]
    parts: Any = SimpleNamespace(
        policies=both,
        recommendations=both,
        publish_again=nothing,
        settings=lambda policy: policy,
        consider=step,
        search=step,
        expect=lambda *_: None,
    )
    faults = Faults(tell=lambda about, problem: told.append((about["kind"], about["name"], problem)))
    rebalancing = Rebalancing(parts, parts, parts, parts, statuses=parts, metrics=parts, faults=faults)
    await rebalancing.round()
    assert done == ["good", "good"]
    problem = "ZeroDivisionError: by nothing"
    assert told == [("RebalanceRecommendation", "bad", problem), ("RebalancePolicy", "bad", problem)]
