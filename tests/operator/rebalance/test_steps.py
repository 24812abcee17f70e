"""Each step of carrying a plan out: what it waits for, what it does, and what it makes of what it finds."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from numazones.api.rebalance import PlanPhase
from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance.budgets import Budget
from numazones_client import APIError, Conflict, Forbidden, NotFound, TooManyRequests
from numazones_client.errors import Request, ServerError
from numazones_client.resources import PODS, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS, REPLICA_SETS
from numazones_operator.rebalance.inputs import OwnerTemplate
from numazones_operator.rebalance.statuses import StatusUpdate
from numazones_operator.rebalance.steps import PlanCheck
from tests.operator.rebalance.offline_execution import (
    AT_NOON,
    LARGE,
    NOON,
    PATIENCE,
    RUNS,
    Execution,
    move,
    placement,
    pod_manifest,
    policy_manifest,
)

SECOND = timedelta(seconds=1)
REJECTED = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
BLOCKED = "blocked by PodDisruptionBudget default/b: needs 2 healthy pods, has 1"


def last(advance: StatusUpdate | None) -> dict[str, Any]:
    """Return what is known of the mover now, without empty values."""
    assert advance is not None
    return advance.progress[-1].model_dump(mode="json", exclude={"pod"}, exclude_defaults=True)


def budget(allowed: int) -> Budget:
    return Budget.from_api(
        {
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {"selector": {"matchLabels": {"app": "mover"}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 2},
        }
    )


# One move changes at a time


@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ({"expires": "2026-01-31T11:59:59Z"}, {"phase": "Pending"}),
        ({}, {"phase": "Failed", "message": "the replacement is gone", "since": AT_NOON}),
    ],
)
async def test_ended_plan_keeps_the_progress_of_later_moves(
    spec: dict[str, Any], first: dict[str, Any]
) -> None:
    here = Execution()
    moves = [move("mover"), move("later", "n2", "n1"), move("last", "n2", "n1")]
    if not spec:
        here.gone("mover")
    phase = "Evicting" if spec else "Placed"
    phases = [(phase, {"since": AT_NOON}), ("Pending", {}), ("Pending", {})]
    progress = [
        {"pod": one["pod"], "phase": phase, **since}
        for one, (phase, since) in zip(moves, phases, strict=True)
    ]
    item = here.recommend({"moves": moves, **spec}, {"progress": progress})
    advance = await here.step()
    assert advance is not None
    assert advance.progress[0].model_dump(mode="json", exclude={"pod"}, exclude_defaults=True) == first
    assert advance.progress[1:] == item.progress[1:]


# Announcing an eviction


async def test_an_eviction_is_announced_before_it_is_asked_for() -> None:
    here = Execution()
    before = here.plan("Verified", "Pending")
    advance = await here.step()
    assert last(advance) == {"phase": "Evicting", "since": AT_NOON}
    assert advance is not None
    assert advance.progress[:-1] == before.progress[:-1]
    assert advance == StatusUpdate(advance.progress, "move 2 of 2, pod default/mover: Evicting")
    assert here.evicted() == []


async def test_a_move_waits_for_its_budget_and_says_so_once() -> None:
    here = Execution()
    here.inputs.budgets.put(budget(0))
    advance = await here.step()
    assert last(advance) == {"phase": "Pending", "message": f"waiting: {BLOCKED}"}
    assert advance is not None
    assert advance.message == f"move 1 of 1, pod default/mover: Pending, waiting: {BLOCKED}"
    here.plan({"phase": "Pending", "message": f"waiting: {BLOCKED}"})
    assert await here.step() is None
    here.inputs.budgets.put(budget(1))
    assert last(await here.step()) == {"phase": "Evicting", "since": AT_NOON}


def reached(here: Execution) -> None:
    here.gone("mover")
    here.zones("n1", "fill-0")


def replaced(here: Execution) -> None:
    here.gone("mover")
    here.pod("intruder", node="n1", **RUNS)
    here.zones("n1", "fill-0", "intruder")


def full(here: Execution) -> None:
    here.pod("intruder", node="n2", **RUNS)
    here.zones("n2", "fill-2", "fill-3", "intruder")


def expired(here: Execution) -> None:
    here.plan(*(one.model_dump() for one in here.item.progress), expires="2026-01-31T11:59:59Z")


def expired_waiting(here: Execution) -> None:
    *before, mover = (one.model_dump() for one in here.item.progress)
    here.plan(*before, {**mover, "message": "waiting: b"}, expires="2026-01-31T11:59:59Z")


DIFFERS = "the cluster no longer matches the plan: "
ENDS = [
    (reached, "Superseded", "Succeeded", "the goal has been reached, so no more moves are needed"),
    (replaced, "Superseded", "Failed", f"{DIFFERS}pod default/mover is no longer on node n1"),
    (full, "Superseded", "Failed", f"{DIFFERS}no node that the scheduler could choose is left for .*"),
    (expired, "Expired", "Failed", "the plan expired because the next move could not be made in time"),
    (expired_waiting, "Expired", "Failed", "the plan expired while waiting: b"),
]


@pytest.mark.parametrize(("change", "unbegun", "begun", "message"), ENDS)
@pytest.mark.parametrize("phase", ["Pending", "Evicting"])
async def test_unneeded_or_disproved_plan_ends_before_its_next_eviction(
    phase: str, change: Callable[[Execution], None], unbegun: str, begun: str, message: str
) -> None:
    for before, ended in (((), unbegun), (("Verified",), begun)):
        here = Execution()
        here.plan(*before, phase)
        change(here)
        if phase == "Evicting" and "mover" not in {pod.name for pod in here.state.pods}:
            continue  # there is nobody to evict, see below
        advance = await here.step()
        assert advance is not None
        assert advance.phase == ended
        assert re.fullmatch(message, advance.message), advance.message
        assert here.evicted() == []
        # What was announced is taken back, so that nobody counts it as an eviction.
        withdrawn = here.item.progress[-1].model_copy(update={"phase": "Pending", "since": None})
        assert advance.progress == (*here.item.progress[:-1], withdrawn)


@pytest.mark.parametrize("phase", ["Pending", "Evicting"])
async def test_plan_continues_until_the_second_of_its_expiry(phase: str) -> None:
    for expires in ("2026-01-31T12:00:00Z", None):
        here = Execution()
        here.plan(phase, expires=expires)
        advance = await here.step()
        assert advance is not None
        assert advance.phase is None


# Evicting


async def test_the_very_pod_of_the_move_is_evicted() -> None:
    here = Execution()
    here.plan("Verified", {"phase": "Evicting", "message": "waiting: b"})
    advance = await here.step()
    assert here.server.evictions == [("default", "mover", "uid-mover")]
    assert last(advance) == {"phase": "Evicted", "since": AT_NOON}
    assert advance is not None
    assert (advance.message, advance.evicted) == ("move 2 of 2, pod default/mover: Evicted", "success")


@pytest.mark.parametrize("state", ["gone", "deleting", "ended"])
async def test_pod_that_ended_or_is_terminating_is_not_evicted(state: str) -> None:
    here = Execution()
    here.plan({"phase": "Evicting", "message": "waiting: b"})
    if state == "gone":
        here.gone("mover")
    else:
        ended = {"phase": "Succeeded"} if state == "ended" else RUNS
        here.pod("mover", node="n1", deleting=state == "deleting", **ended)
    advance = await here.step()
    assert last(advance) == {"phase": "Evicted", "since": AT_NOON}
    assert advance is not None
    assert (here.evicted(), advance.evicted) == ([], "")


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
async def test_no_eviction_while_a_node_of_the_plan_is_outdated(node: str) -> None:
    here = Execution()
    here.node("n3", "fill-4", "fill-5")
    here.pod("stuck", gated=True)
    placements = [placement("stuck", "n1"), placement("fill-4", "n3")]  # the other one is there already
    here.plan("Evicting", placements=placements, gain={"before": 0, "after": 2, "total": 2})
    here.server.put(PODS, pod_manifest("unseen", node=node, **RUNS))
    advance = await here.step()
    waits = f"waiting: the operator's view of node {node} is older than the API server's"
    assert last(advance) == {"phase": "Evicting", "since": AT_NOON, "message": waits}
    assert here.evicted() == []


def edit_policy(here: Execution) -> None:
    body = policy_manifest()
    here.server.put(REBALANCE_POLICIES, body | {"metadata": {**body["metadata"], "generation": 2}})


def edit_plan(here: Execution) -> None:
    body = here.server.objects[REBALANCE_RECOMMENDATIONS]["p-1"]
    body["metadata"] = {**body["metadata"], "resourceVersion": "8"}


def lose_the_lease(here: Execution) -> None:
    here.leads = False


@pytest.mark.parametrize("change", [edit_policy, edit_plan, lose_the_lease])
async def test_no_eviction_is_based_on_outdated_facts(
    change: Callable[[Execution], None],
) -> None:
    here = Execution()
    here.plan("Evicting")
    change(here)
    assert await here.step() is None
    assert here.evicted() == []


def refused(kind: type[APIError], message: str, code: int) -> APIError:
    return kind(Request("create", "pods/eviction default/mover"), message, code=code)


CURE = "apply manifests/components/operator-eviction, or set the policy to mode Recommend"


@pytest.mark.parametrize(
    ("error", "phase", "message", "counted"),
    [
        (refused(NotFound, "no such pod", 404), "Evicted", "the pod was already gone", ""),
        (refused(Conflict, "the UID is another one", 409), "Evicted", "the pod was already gone", ""),
        (refused(TooManyRequests, "cannot evict", 429), "Pending", "waiting: {error}", "blocked"),
        (refused(Forbidden, "cannot create", 403), "Failed", f"{{error}}; {CURE}", "error"),
        (refused(ServerError, "more than one PodDisruptionBudget", 500), "Failed", "{error}", "error"),
    ],
)
async def test_what_follows_from_a_rejected_eviction(
    error: APIError, phase: str, message: str, counted: str
) -> None:
    here = Execution()
    here.plan("Verified", "Evicting")
    here.server.rejection = error
    advance = await here.step()
    assert advance is not None
    why = message.format(error=error)
    since = {"since": AT_NOON} if phase == "Evicted" else {}  # otherwise nobody was evicted
    assert last(advance) == {"phase": phase, "message": why} | since
    ends = phase == "Failed"
    assert (advance.phase, advance.evicted) == (PlanPhase.FAILED if ends else None, counted)
    assert advance.message == (
        f"the plan failed at move 2, pod default/mover: {why}"
        if ends
        else f"move 2 of 2, pod default/mover: {phase}, {why}"
    )


async def test_eviction_that_failed_on_the_server_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = Execution()
    here.plan("Evicting")
    here.server.rejection = error = refused(ServerError, "etcd is away", 500)
    assert await here.step() is None
    assert caplog.messages == [f"p-1 (mode Auto): could not evict pod default/mover: {error}"]
    here.server.rejection = None
    assert last(await here.step())["phase"] == "Evicted"
    assert here.evicted() == ["mover", "mover"]


# Waiting for the replacement

LATE = NOON + PATIENCE + SECOND


def placed(name: str) -> dict[str, Any]:
    reference = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    return {"phase": "Placed", "since": AT_NOON, "replacement": reference, "node": "n2"}


@pytest.mark.parametrize(
    ("pods", "replacement", "missing"),
    [
        ([], "", "was not created by ReplicaSet mover"),
        ([{}], "", "was not scheduled"),
        ([{"node": "n2"}], "new-0", ""),
        ([{"node": "n2", "created": "2026-01-31T11:59:59Z"}], "new-0", ""),  # times have whole seconds
        ([{"node": "n2", "created": "2026-01-31T11:59:58Z"}], "", "was not created by ReplicaSet mover"),
        ([{"node": "n2", "deleting": True}], "", "was not created by ReplicaSet mover"),
        ([{"node": "n2", "owner": "other"}], "", "was not created by ReplicaSet mover"),
        ([{"node": "n2", "created": "2026-01-31T12:00:02Z"}, {"node": "n2"}], "new-1", ""),  # the older one
        ([{"node": "n2"}, {"node": "n2"}], "new-0", ""),
        ([{}, {"node": "n2"}], "", "was not scheduled"),  # one at a time
        ([{"node": "n2", "phase": "Failed"}, {"node": "n2", "created": "2026-01-31T12:00:02Z"}], "new-1", ""),
    ],
)
async def test_replacement_is_the_owners_new_pod_with_a_node(
    pods: list[dict[str, Any]], replacement: str, missing: str
) -> None:
    here = Execution()
    here.gone("mover")
    for number, parts in enumerate(pods):
        here.pod(f"new-{number}", **{"owner": "mover", **parts})
    here.plan("Verified", {"phase": "Evicted", "message": "the pod was already gone"})
    if replacement:
        advance = await here.step(LATE)
        assert last(advance) == placed(replacement)
        return
    assert await here.step(NOON + PATIENCE) is None
    advance = await here.step(LATE)
    why = f"the replacement {missing} within 5m"
    assert last(advance) == {"phase": "Failed", "since": AT_NOON, "message": why}
    assert advance is not None
    assert (advance.phase, advance.message) == (
        "Failed",
        f"the plan failed at move 2, pod default/mover: {why}",
    )


async def test_evicted_pod_and_other_moves_replacement_are_no_replacement() -> None:
    here = Execution()
    here.pod("new", owner="mover", node="n2")
    here.plan({**placed("new"), "phase": "Verified"}, "Evicted")
    assert await here.step() is None  # the evicted pod is on its way, the other one is taken


async def test_a_pod_without_an_owner_has_no_replacement() -> None:
    here = Execution()
    here.gone("mover")
    here.pod("new", owner="mover", node="n2")
    without = {key: value for key, value in move("mover").items() if key != "owner"}
    progress = {"pod": without["pod"], "phase": "Evicted", "since": AT_NOON}
    here.recommend({"moves": [without]}, {"progress": [progress]})
    assert await here.step() is None
    assert last(await here.step(LATE))["message"] == (
        "the replacement was not created by its owner within 5m"
    )


@pytest.mark.parametrize(
    ("status", "why"),
    [(REJECTED, "TopologyAffinityError: Pod was rejected: no"), ({"phase": "Failed"}, "Failed: ")],
)
@pytest.mark.parametrize("phase", ["Evicted", "Placed"])
async def test_a_replacement_that_ends_ends_the_plan(phase: str, status: dict[str, Any], why: str) -> None:
    here = Execution()
    here.gone("mover")
    here.pod("new", owner="mover", node="n2", **status)
    here.plan("Evicted" if phase == "Evicted" else placed("new"))
    advance = await here.step()
    assert advance is not None
    assert advance.phase == "Failed"
    assert last(advance)["message"] == f"the replacement new ended with {why}"


# Until zones show it


@pytest.mark.parametrize("replacement", [placed("new"), {"phase": "Placed"}])
async def test_a_replacement_that_vanishes_ends_the_plan(replacement: dict[str, Any]) -> None:
    here = Execution()
    here.gone("mover")
    here.plan(replacement)
    assert last(await here.step())["message"] == "the replacement is gone"


@pytest.mark.parametrize(
    ("n1", "n2", "shown"),
    [
        (("fill-0",), ("fill-2", "fill-3", "new"), True),
        (("fill-0", "mover"), ("fill-2", "fill-3", "new"), False),
        (("fill-0",), ("fill-2", "fill-3"), False),
        (None, ("fill-2", "fill-3", "new"), True),  # its old node is gone
        (("fill-0",), None, False),
    ],
)
async def test_a_move_is_made_when_zones_show_it(
    n1: tuple[str, ...] | None, n2: tuple[str, ...] | None, *, shown: bool
) -> None:
    here = Execution()
    here.gone("mover")
    here.pod("new", owner="mover", node="n2", **RUNS)
    here.plan("Verified", placed("new"))
    for node, names in (("n1", n1), ("n2", n2)):
        if names is None:
            here.lose(node)
        else:
            here.zones(node, *names)
    if shown:
        advance = await here.step(LATE)
        assert last(advance) == {**placed("new"), "phase": "Verified", "message": "runs on NUMA node 0 of n2"}
        return
    assert await here.step(NOON + PATIENCE) is None
    said = last(await here.step(LATE))["message"]
    assert said == "the NUMAZones did not show the replacement within 5m"


@pytest.mark.parametrize(("status", "arrived"), [(RUNS, True), ({"phase": "Pending"}, False)])
async def test_replacement_missing_from_zones_has_arrived_once_running(
    status: dict[str, Any], *, arrived: bool
) -> None:
    """As of pods that share CPUs."""
    here = Execution()
    here.gone("mover")
    here.zones("n1", "fill-0")
    body = pod_manifest("new", owner="mover", node="n2", **status)
    amounts = {"cpu": "500m", "memory": "1Gi"}
    body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    here.put(body)
    here.plan(placed("new"))
    advance = await here.step()
    assert (advance is not None) is arrived
    if arrived:
        assert last(advance)["message"] == "runs on n2"


# The end


async def test_a_plan_has_succeeded_when_zones_show_its_gain() -> None:
    here = Execution()
    reached(here)
    here.node("n3")
    here.policy(goals={"shapes": [{**LARGE, "count": 5}]})
    item = here.plan("Verified", "Verified", gain={"before": 2, "after": 3, "total": 1})
    confirmed = StatusUpdate(item.progress, "the NUMAZones confirm a gain of 1", PlanPhase.SUCCEEDED, count=3)
    assert await here.step() == confirmed
    item = here.plan("Verified", "Verified", gain={"before": 1, "after": 2, "total": 1})
    more = StatusUpdate(item.progress, "the NUMAZones confirm a gain of 2", PlanPhase.SUCCEEDED, count=3)
    assert await here.step() == more


async def test_plan_for_a_waiting_pod_succeeds_once_it_is_placed() -> None:
    here = for_stuck_pod()
    plan_for_stuck_pod(here, "Verified")
    assert await here.step() is None
    here.pod("stuck", node="n1", **RUNS)
    confirmed = StatusUpdate(
        here.item.progress, "the NUMAZones confirm a gain of 1", PlanPhase.SUCCEEDED, count=1
    )
    assert await here.step() == confirmed


async def test_gain_missing_from_zones_is_awaited_like_the_last_move() -> None:
    here = Execution()
    replaced(here)
    here.node("n3")
    here.policy(goals={"shapes": [{**LARGE, "count": 5}]})
    later = {"phase": "Verified", "since": "2026-01-31T12:01:00Z"}
    item = here.plan("Verified", later, gain={"before": 1, "after": 3, "total": 2})
    assert await here.step(LATE) is None
    missed = "the NUMAZones confirm a gain of 1, but the plan promised 2"
    late = LATE + timedelta(minutes=1)
    assert await here.step(late) == StatusUpdate(item.progress, missed, PlanPhase.FAILED, count=2)


# Whether a plan holds


@pytest.mark.parametrize(
    "parts", [{"gated": False}, {"gates": False}, {"opted_in": False}, {"owner": "unknown"}], ids=str
)
async def test_plan_that_confines_a_replacement_needs_the_gate_on_it(parts: dict[str, Any]) -> None:
    known = {key: value for key, value in parts.items() if key != "owner"}
    here = Execution(**known)
    assert await Execution().judge() == PlanCheck()
    if parts != known:
        here.inputs.templates[REPLICA_SETS].discard("rs-mover")
    cure = f"add the scheduling gate {GATE} or the plan's node affinity to the pod templates"
    problem = f"the goal would reach 0, not 1; {cure}"
    assert await here.judge() == PlanCheck(problem=problem, holds_if_confined=True)
    full(here)
    other = await here.judge()
    assert not other.holds_if_confined
    assert other.problem.startswith("no node that the scheduler could choose is left for")


async def test_plan_needs_no_gate_if_the_template_confines_the_replacement() -> None:
    here = Execution()
    body = pod_manifest("mover")
    chosen = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [chosen]}}
    body["spec"]["affinity"] = {"nodeAffinity": required}
    metadata = {"namespace": "default", "name": "mover", "uid": "rs-mover"}
    here.inputs.templates[REPLICA_SETS].put(
        OwnerTemplate.from_api({"metadata": metadata, "spec": {"template": {"spec": body["spec"]}}})
    )
    assert await here.judge() == PlanCheck()


async def test_plan_does_not_hold_for_a_pod_that_lost_its_owner() -> None:
    here = Execution()
    body = pod_manifest("mover", node="n1", **RUNS)
    del body["metadata"]["ownerReferences"]
    here.put(body)
    problem = "pod default/mover may not be moved: nothing would recreate it"
    assert await here.judge() == PlanCheck(problem=problem)


async def test_a_plan_holds_once_its_pods_are_old_enough() -> None:
    here = Execution()
    here.policy(protections={"minPodAge": "1h"})
    here.pod("mover", node="n1", startTime="2026-01-31T11:10:00Z", **RUNS)
    young = await here.judge()
    assert young.problem.startswith("pod default/mover may not be moved: ")
    old = NOON + timedelta(minutes=10)
    assert await here.judge(old) == PlanCheck()
    for now, phase in ((old - SECOND, "Superseded"), (old, None)):
        advance = await here.step(now)
        assert advance is not None
        assert advance.phase == phase


async def test_moves_of_a_plan_do_not_block_its_later_ones() -> None:
    here = Execution()
    earlier = move("earlier", "n2", "n1") | {"owner": move("mover")["owner"]}
    progress = [{"pod": earlier["pod"], "phase": "Verified", "since": AT_NOON}]
    here.recommend({"moves": [earlier, move("mover")]}, {"progress": progress})
    assert await here.judge() == PlanCheck()


async def test_plan_is_valid_once_failed_moves_passed_their_cooldown() -> None:
    here = Execution()
    failed = {"type": "Complete", "status": "True", "reason": "Failed", "lastTransitionTime": AT_NOON}
    progress = [{"pod": move("mover")["pod"], "phase": "Failed", "since": AT_NOON}]
    status = {"phase": "Failed", "progress": progress, "conditions": [failed]}
    here.recommend({"moves": [move("mover")]}, status, name="p-0")
    assert (await here.judge(NOON + timedelta(minutes=59))).problem.endswith("within the cooldown")
    assert await here.judge(NOON + timedelta(minutes=60)) == PlanCheck()


async def test_plan_for_a_rejection_loop_ends_with_the_loop() -> None:
    here = for_stuck_pod()
    here.gone("stuck")
    here.owner("stuck", gated=False)
    here.pod("stuck-1", owner="stuck", node="n3", **REJECTED)
    pod = {"namespace": "default", "name": "stuck", "uid": "rs-stuck"}
    here.recommend({"moves": [move("mover")], "placements": [{**placement("stuck", "n1"), "pod": pod}]}, {})
    over = PlanCheck(problem="pod default/stuck is no longer waiting")
    assert await here.judge(NOON + timedelta(minutes=10)) == over
    assert await here.judge(NOON + timedelta(minutes=10) - SECOND) != over


# Plans for a pod that waits: n1 takes it once the mover is gone, n3 never does, whatever the scheduler thinks


def for_stuck_pod(*, stuck_gated: bool = True, after_pending: bool = False, **parts: Any) -> Execution:
    here = Execution(**parts)
    here.node("n3", "fill-4", "fill-5")
    here.pod("stuck", gated=stuck_gated)
    plan_for_stuck_pod(here, "Pending", after_pending=after_pending)
    return here


def plan_for_stuck_pod(here: Execution, phase: str, *, after_pending: bool = False) -> None:
    moves = [move("earlier"), move("mover") | {"afterPending": after_pending}]
    progress = [
        {"pod": moves[0]["pod"], "phase": "Verified", "since": AT_NOON},
        {"pod": moves[1]["pod"], "phase": phase} | ({} if phase == "Pending" else {"since": AT_NOON}),
    ]
    spec = {"moves": moves, "placements": [placement("stuck", "n1")]}
    here.recommend(spec, {"progress": progress})


async def test_plan_for_a_waiting_pod_needs_its_gate() -> None:
    assert await for_stuck_pod().judge() == PlanCheck()
    cure = f"add the scheduling gate {GATE} or the plan's node affinity to the pod templates"
    found = await for_stuck_pod(stuck_gated=False).judge()
    assert found.problem.startswith(
        "pod default/stuck may be scheduled to node n3, which would not admit it: "
    )
    assert found.problem.endswith(f"; {cure}")
    assert found.holds_if_confined


@pytest.mark.parametrize(
    ("gated", "problem"),
    [
        (True, ""),
        (
            False,
            (
                "the replacement of pod default/mover must be scheduled after the pending pods, but nothing "
                f"makes it wait; add the scheduling gate {GATE} to the pod templates"
            ),
        ),
    ],
)
async def test_a_replacement_that_must_wait_for_others_needs_the_gate(*, gated: bool, problem: str) -> None:
    here = for_stuck_pod(gated=gated, after_pending=True)
    assert await here.judge() == PlanCheck(problem=problem, holds_if_confined=not gated)
    full(here)
    found = await here.judge()
    assert found.problem.startswith("no node that the scheduler could choose is left for ")
    assert not found.holds_if_confined


async def test_replacement_cannot_wait_for_pods_of_a_rejection_loop() -> None:
    here = for_stuck_pod(after_pending=True)
    here.gone("stuck")
    here.owner("stuck", gated=False)
    here.pod("stuck-1", owner="stuck", node="n3", **REJECTED)
    pod = {"namespace": "default", "name": "stuck-1", "uid": "rs-stuck"}
    moves = [move("mover") | {"afterPending": True}]
    here.recommend({"moves": moves, "placements": [{**placement("stuck", "n1"), "pod": pod}]}, {})
    assert list(here.steps.next_pods(NOON)) == ["rs-stuck"]
    found = await here.judge()
    assert found.problem == (
        "each new pod of ReplicaSet default/stuck is bound and rejected at once, because nothing makes it "
        f"wait until there is room; add the scheduling gate {GATE} to the pod templates"
    )


# Where gated pods may go meanwhile


@pytest.mark.parametrize(
    ("phase", "nodes"),
    [("Executing", {"n3"}), ("Approved", {"n1", "n2", "n3"}), ("Succeeded", {"n1", "n2", "n3"})],
)
def test_pods_outside_a_running_plan_avoid_its_nodes(phase: str, nodes: set[str]) -> None:
    here = Execution()
    here.node("n3")
    here.recommend({"moves": [move("mover")]}, {"phase": "Failed"}, name="p-0")
    here.recommend({"moves": [move("mover")]}, {"phase": phase})
    assert may_go(here, here.pod("other", gated=True)) == nodes


def may_go(here: Execution, pod: ClusterPod) -> set[str]:
    return {node for node in ("n1", "n2", "n3") if here.steps.may_go(pod, node)}


@pytest.mark.parametrize(
    ("phase", "affinity", "nodes"),
    [
        ("Pending", ["n2"], {"n3"}),  # it is not a replacement yet
        ("Evicting", ["n2"], {"n3"}),
        ("Evicted", ["n2"], {"n2"}),
        ("Evicted", [], {"n1", "n2", "n3"}),
        ("Verified", ["n2"], {"n3"}),
    ],
)
def test_a_replacement_goes_where_the_plan_says(phase: str, affinity: list[str], nodes: set[str]) -> None:
    here = Execution()
    here.node("n3")
    one = move("mover") | {"affinity": affinity}
    here.recommend({"moves": [one]}, {"progress": [{"pod": one["pod"], "phase": phase, "since": AT_NOON}]})
    assert may_go(here, here.pod("new", owner="mover", gated=True)) == nodes


@pytest.mark.parametrize(
    ("phase", "after_pending", "stuck", "replacement"),
    [
        ("Pending", False, set(), {"n3"}),
        ("Evicted", False, set(), {"n2"}),
        ("Verified", False, {"n1"}, {"n3"}),
        ("Pending", True, set(), {"n3"}),
        ("Evicted", True, {"n1"}, set()),
        ("Verified", True, {"n1"}, {"n3"}),
    ],
)
def test_waiting_pod_goes_to_the_plans_node_in_its_turn(
    phase: str, *, after_pending: bool, stuck: set[str], replacement: set[str]
) -> None:
    here = for_stuck_pod(after_pending=after_pending)
    plan_for_stuck_pod(here, phase, after_pending=after_pending)
    known = here.state.pods.get("uid-stuck")
    assert known is not None
    new = here.pod("new", owner="mover", gated=True)
    assert (may_go(here, known), may_go(here, new)) == (stuck, replacement)
    if after_pending and phase == "Evicted":
        here.pod("stuck", node="n1", **RUNS)
        assert may_go(here, new) == {"n2"}  # whoever was waited for has a node
