"""Carrying plans out: one at a time, on what people want at this moment, counted, and told on the pods."""

from typing import Any

import pytest

from numazones_client import Forbidden, TooManyRequests
from numazones_client.errors import Request
from numazones_client.resources import REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS
from tests.operator.rebalance.offline_execution import (
    AT_NOON,
    RUNS,
    Execution,
    move,
    policy_manifest,
)


async def carry_on(here: Execution) -> str:
    """Take the next step, and return what the mover's phase is then."""
    await here.executor.carry_on(here.item, here.wanted, here.settings)
    return here.item.progress[-1].phase


def counted(here: Execution) -> dict[str, float]:
    """Return the nonzero counters of moves, gains and evictions, by their last labels."""
    kinds = (here.metrics.moves, here.metrics.gain, here.metrics.evicted)
    return {
        ",".join((sample.name.removeprefix("numazones_rebalance_"), *sample.labels.values())): sample.value
        for kind in kinds
        for metric in kind.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }


async def test_approved_plan_begins_unless_another_one_is_running() -> None:
    here = Execution()
    approved = here.recommend({"moves": [move("mover")]}, {"phase": "Approved", "mode": ""})
    other = here.recommend({"moves": [move("mover")]}, {}, name="p-0")
    await here.executor.begin(approved, here.wanted)
    assert here.item.status.phase == "Approved"
    here.intent.recommendations.remove(other)
    await here.executor.begin(approved, here.wanted)
    status = here.item.status
    assert (status.phase, status.mode, status.message) == (
        "Executing",
        "Auto",
        "starting with the first move",
    )
    assert here.evicted() == []


async def test_a_plan_is_carried_out_step_by_step() -> None:
    here = Execution()
    here.plan("Verified", "Pending")
    assert await carry_on(here) == "Evicting"
    assert counted(here) == {}
    assert (await carry_on(here), here.evicted()) == ("Evicted", ["mover"])
    assert here.events.posted == [
        ("mover", "Rebalanced", "evicted by RebalanceRecommendation p-1 (mode Auto); goal: shape large x1")
    ]
    evicted = {"pods_evicted_total,success,Auto,p,default,n1": 1.0}
    assert counted(here) == evicted
    assert await carry_on(here) == "Evicted"  # there is no replacement yet
    here.gone("mover")
    here.zones("n1", "fill-0")
    here.pod("new", owner="mover", node="n2", **RUNS)
    assert await carry_on(here) == "Placed"
    here.zones("n2", "fill-2", "fill-3", "new")
    assert here.searched_early == []
    assert await carry_on(here) == "Verified"
    moved = evicted | {"moves_total,Auto,p,executed": 1.0}
    assert counted(here) == moved
    await carry_on(here)
    assert (here.item.status.phase, here.item.status.realized) == ("Succeeded", 1)
    assert counted(here) == moved | {"gain_total,Auto,p": 1.0}
    assert here.searched_early == ["p"]
    assert len(here.events.posted) == 1


@pytest.mark.parametrize(
    ("error", "result", "also"),
    [
        (TooManyRequests(Request("create", "pods/eviction"), "no", code=429), "blocked", {}),
        (
            Forbidden(Request("create", "pods/eviction"), "no", code=403),
            "error",
            {"moves_total,Auto,p,failed": 1.0},
        ),
    ],
)
async def test_rejected_evictions_are_counted_without_an_event(
    error: Any, result: str, also: dict[str, float]
) -> None:
    here = Execution()
    here.plan("Verified", "Evicting")
    here.server.rejection = error
    await carry_on(here)
    assert counted(here) == {f"pods_evicted_total,{result},Auto,p,default,n1": 1.0, **also}
    assert here.events.posted == []
    assert here.searched_early == (["p"] if also else [])


async def test_eviction_of_a_changed_plan_posts_no_event() -> None:
    """The status is not written then, and whoever reads the newer one asks again."""
    here = Execution()
    here.plan("Evicting")
    here.server.conflicts = True
    assert await carry_on(here) == "Evicting"
    assert here.evicted() == ["mover"]
    assert here.events.posted == []


async def test_eviction_event_is_posted_on_its_deleted_pod() -> None:
    """One without a grace period is gone as soon as the eviction is answered."""
    here = Execution()
    here.plan("Evicting")
    here.server.answering = lambda: here.state.pods.discard("uid-mover")
    assert await carry_on(here) == "Evicted"
    assert [name for name, *_ in here.events.posted] == ["mover"]


@pytest.mark.parametrize("phase", ["Pending", "Evicting"])
@pytest.mark.parametrize(
    ("mode", "approved", "why"),
    [
        ("Recommend", True, "policy p is now in mode Recommend, so no pods are evicted"),
        ("Approve", False, "policy p is now in mode Approve, so no pods are evicted"),
        ("Approve", True, ""),
    ],
)
async def test_plan_no_longer_allowed_by_its_policy_evicts_nothing(
    mode: str, phase: str, why: str, *, approved: bool
) -> None:
    here = Execution()
    here.policy(mode=mode)
    here.plan(phase, approved=approved)
    after = await carry_on(here)
    assert after == (phase if why else {"Pending": "Evicting", "Evicting": "Evicted"}[phase])
    if why:
        assert (here.item.status.phase, here.item.status.message) == ("Superseded", why)
        assert here.evicted() == []


@pytest.mark.parametrize(("mode", "phase"), [("Auto", "Executing"), ("Recommend", "Superseded")])
async def test_running_plan_without_a_mode_gets_that_of_its_policy(mode: str, phase: str) -> None:
    here = Execution()
    here.policy(mode=mode)
    here.recommend({"moves": [move("mover")]}, {"mode": ""})
    await carry_on(here)
    assert (here.item.status.phase, here.item.status.mode) == (phase, mode)


@pytest.mark.parametrize("phase", ["Pending", "Evicting"])
async def test_nothing_is_done_for_a_policy_that_was_edited_meanwhile(phase: str) -> None:
    here = Execution()
    here.plan(phase)
    known = here.wanted
    body = policy_manifest(mode="Recommend")
    here.server.put(REBALANCE_POLICIES, body | {"metadata": {**body["metadata"], "generation": 2}})
    await here.executor.carry_on(here.item, known, here.settings)
    assert here.item.progress[-1].phase == phase
    assert here.item.status.phase == "Executing"


async def test_plan_after_eviction_is_followed_regardless_of_its_policy() -> None:
    here = Execution()
    here.policy(mode="Recommend")
    here.gone("mover")
    here.pod("new", owner="mover", node="n2", created=AT_NOON)
    here.plan("Evicted")
    assert await carry_on(here) == "Placed"


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
async def test_nothing_is_done_for_a_plan_that_was_edited_meanwhile(mode: str) -> None:
    here = Execution()
    here.policy(mode=mode)
    known = here.plan("Pending")
    body = here.server.objects[REBALANCE_RECOMMENDATIONS]["p-1"]
    body["metadata"] = {**body["metadata"], "resourceVersion": "8"}
    await here.executor.carry_on(known, here.wanted, here.settings)
    assert here.server.objects[REBALANCE_RECOMMENDATIONS]["p-1"] == body
