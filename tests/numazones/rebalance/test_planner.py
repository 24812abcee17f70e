"""Tests of plans: vectors of the specification, targets, affinity, order, limits, hysteresis."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import Cluster
from numazones.placement import Unknown, fragmentation
from numazones.placement.fragmentation import Shape
from numazones.rebalance.budgets import Budget, BudgetHeadroom
from numazones.rebalance.candidates import why_not
from numazones.rebalance.goals import FitMore, InvalidGoal, Vacate, Wanted, measure, pending_goals
from numazones.rebalance.history import FreedNode, MoveHistory, Relocation
from numazones.rebalance.moves import evict, relocation
from numazones.rebalance.planner import PlanningResult, plan
from numazones.rebalance.policy import InvalidPolicy, Policy, ReplacementTarget
from numazones.rebalance.proof import prove
from numazones.rebalance.whatif import Effort, situation_after
from tests.numazones.rebalance.uncertain_nodes import approximate, not_ready


def never() -> bool:
    return False


def shape(cpus: int, count: int | None = None) -> FitMore:
    return FitMore((Wanted.shape("big", Shape.parse(f"cpu={cpus},memory=1Gi"), count=count),))


def moves(outcome: PlanningResult) -> list[tuple[str, str, str]]:
    assert outcome.plan is not None, outcome.reason
    return [(move.pod.name, move.pod.node, move.node) for move in outcome.plan.moves]


@pytest.fixture
def broken(build: Any) -> Callable[..., Any]:
    """A node whose zones have 0 and 3 of 4 CPUs free, beside one with ``free`` CPUs in its zone."""

    def make(*, free: int = 1, other_cpus: int = 6) -> Any:
        first = build.put(
            build.node("n1", cpus=4, reservedSystemCPUs="0"), build.pod("a", 3), build.pod("b", 1)
        )
        filler = build.pod("filler", other_cpus - 1)
        second = build.node("n2", zones=1, cpus=other_cpus)
        if other_cpus - 1 - free > 0:
            filler = build.pod("filler", other_cpus - 1 - free)
            second = build.put(second, filler)
        return [first, second]

    return make


# Vector 10 of the specification, as far as plans go


def test_pod_that_fragments_a_zone_is_moved_where_it_fits(build: Any, broken: Callable[..., Any]) -> None:
    """n1 has 0 + 3 free; without b zone 1 has 4. n2 has room for one CPU."""
    big = replace(build.pod("big", 4), phase="Pending")
    situation = build.situation(broken())
    outcome = plan(pending_goals([big])[0], situation, Policy(), expired=never)
    assert moves(outcome) == [("b", "n1", "n2")]
    assert outcome.plan is not None
    assert outcome.plan.gain == 1
    assert outcome.plan.minimal
    (placement,) = outcome.plan.placements
    assert (placement.node, placement.zones) == ("n1", (1,))
    assert outcome.plan.moves[0].why == "free CPUs on one NUMA node of n1 grow from 3 to 4"


def test_pending_pod_is_confined_if_another_node_would_reject_it(
    build: Any, broken: Callable[..., Any]
) -> None:
    """The scheduler would send 4 CPUs to n3, too, which has 2 + 3 free."""
    big = replace(build.pod("big", 4), phase="Pending")
    apart = build.put(build.node("n3", cpus=6), build.pod("c", 3), build.pod("d", 3))
    for others, affinity in (([], ()), ([apart], ("n1",))):
        outcome = plan(
            pending_goals([big])[0], build.situation([*broken(), *others]), Policy(), expired=never
        )
        assert moves(outcome) == [("b", "n1", "n2")]
        assert outcome.plan is not None
        assert [(one.node, one.affinity) for one in outcome.plan.placements] == [("n1", affinity)]


def test_pending_pods_that_fit_are_placed_next_to_the_others(build: Any, broken: Callable[..., Any]) -> None:
    waiting = [replace(build.pod(f"big-{at}", 4, owner="big"), phase="Pending") for at in range(2)]
    (goal,) = pending_goals(waiting)
    outcome = plan(
        goal, build.situation([*broken(), build.node("n3", zones=1, cpus=5)]), Policy(), expired=never
    )
    assert outcome.plan is not None
    assert (outcome.plan.before, outcome.plan.after) == (1, 2)
    assert sorted(one.node for one in outcome.plan.placements) == ["n1", "n3"]


def test_nothing_is_moved_for_a_pod_that_fits_elsewhere(build: Any, broken: Callable[..., Any]) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    outcome = plan(pending_goals([big])[0], build.situation(broken(free=4)), Policy(), expired=never)
    assert (outcome.plan, outcome.reason) == (None, "there is nothing to do: the goal is reached")


def test_the_same_move_again_is_suppressed_by_the_cooldown(build: Any, broken: Callable[..., Any]) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    goal, policy = pending_goals([big])[0], Policy(cooldown=timedelta(hours=1))
    situation = build.situation(broken())
    first = plan(goal, situation, policy, expired=never).plan
    assert first is not None
    moved = first.moves[0]
    history = MoveHistory().after_move(moved.pod, moved.node, build.now - timedelta(minutes=59))
    again = plan(goal, replace(situation, history=history), policy, expired=never)
    assert (again.plan, again.reason) == (
        None,
        "no plan with up to 5 evictions helps; 1 pod stays: cooldown until 2026-01-31T12:01:00Z",
    )
    objections = why_not(moved.pod, replace(situation, history=history), policy)
    (objection,) = objections
    assert objection.message == (
        "a pod of the same owner was moved from or to node n1; its pods there stay until 2026-01-31T12:01:00Z"
    )
    later = MoveHistory().after_move(moved.pod, moved.node, build.now - timedelta(minutes=61))
    assert plan(goal, replace(situation, history=later), policy, expired=never).plan is not None


# Vector 8: what has been promised to one pod is not promised to the next


def test_ten_pods_never_fit_into_one_slot(build: Any) -> None:
    """Ten nodes with one pod of 8 of their 11 CPUs each; only one other node has 8 free."""
    nodes = [
        build.put(build.node(f"n{index:02}", zones=1, cpus=12), build.pod(f"p{index}", 8))
        for index in range(10)
    ]
    nodes.append(build.node("slot", zones=1, cpus=9))
    situation = build.situation(nodes)
    policy = Policy(limits=EvictionLimits(total=10))
    outcome = plan(shape(11), situation, policy, expired=Effort(20_000))
    assert outcome.plan is not None
    assert len(outcome.plan.moves) == 1
    assert outcome.plan.gain == 1
    assert outcome.plan.moves[0].node == "slot"


# Vector 9: budgets over the whole plan


def test_a_budget_of_one_lets_a_plan_evict_one(build: Any) -> None:
    nodes = [
        build.put(build.node(f"n{index}", zones=1, cpus=6), build.pod(f"p{index}", 2)) for index in range(2)
    ]
    nodes.append(build.node("free", zones=1, cpus=5))
    labelled = [
        build.put(
            build.node(each.name, zones=1, cpus=6),
            *(replace(p, labels={"app": "x"}, node="") for p in each.pods.values()),
        )
        for each in nodes[:2]
    ]
    budget = Budget.from_api(
        {
            "metadata": {"namespace": "default", "name": "x"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1},
        }
    )
    situation = build.situation([*labelled, nodes[2]], headroom=BudgetHeadroom.of([budget]))
    goal = shape(5, count=2)
    outcome = plan(goal, situation, Policy(), expired=never)
    assert outcome.plan is not None
    assert (len(outcome.plan.moves), outcome.plan.after) == (1, 1)
    both = plan(goal, build.situation([*labelled, nodes[2]]), Policy(), expired=never).plan
    assert both is not None
    assert (len(both.moves), both.after) == (2, 2)
    verdict = prove(both, goal, situation, Policy())
    assert not verdict.holds
    assert verdict.reason.endswith(
        "blocked by PodDisruptionBudget default/x: the plan already uses the 1 eviction that it allows"
    )


def test_a_total_of_one_is_kept_to(build: Any) -> None:
    nodes = [
        build.put(build.node(f"n{index}", zones=1, cpus=6), build.pod(f"p{index}", 2)) for index in range(2)
    ]
    nodes.append(build.node("free", zones=1, cpus=5))
    outcome = plan(
        shape(5, count=2), build.situation(nodes), Policy(limits=EvictionLimits(total=1)), expired=never
    )
    assert outcome.plan is not None
    assert len(outcome.plan.moves) == 1
    none = plan(
        shape(5, count=2), build.situation(nodes), Policy(limits=EvictionLimits(total=0)), expired=never
    )
    assert none.plan is None


# Targets


@pytest.fixture
def two_ways(build: Any) -> Any:
    """A pod in zone 1 of n1 could restart into zone 0, or go to n2; either frees zone 1."""
    first = build.put(build.node("n1", cpus=4), build.pod("x", 3), build.pod("y", 1))
    first = _without(first, "x")
    return [first, build.node("n2", zones=1, cpus=3)]


def _without(node: Any, uid: str) -> Any:
    return evict(node, node.pods[uid])


@pytest.mark.parametrize(
    ("target", "node"),
    [(ReplacementTarget.SAME, "n1"), (ReplacementTarget.OTHER, "n2"), (ReplacementTarget.ANY, "n2")],
)
def test_replacements_go_where_the_policy_lets_them(
    build: Any, two_ways: Any, target: ReplacementTarget, node: str
) -> None:
    outcome = plan(shape(4), build.situation(two_ways), Policy(target=target), expired=never)
    assert moves(outcome) == [("y", "n1", node)]


def test_a_single_node_can_be_realigned(build: Any, two_ways: Any) -> None:
    """The descheduler does nothing with one node; a restart needs no other."""
    outcome = plan(shape(4), build.situation(two_ways[:1]), Policy(), expired=never)
    assert moves(outcome) == [("y", "n1", "n1")]
    assert outcome.plan is not None
    assert outcome.plan.moves[0].affinity == ()
    assert (outcome.plan.moves[0].zones, outcome.plan.moves[0].target_zones) == ((1,), (0,))


# Predictable destinations


def test_affinity_is_named_only_where_the_scheduler_could_choose_wrongly(build: Any) -> None:
    """Without p, zone 0 of n1 has 5. p fits on n1 again, which would gain nothing: it must go to n2."""
    nodes = [
        build.put(build.node("n1", zones=1, cpus=6), build.pod("p", 1)),
        build.node("n2", zones=1, cpus=3),
    ]
    outcome = plan(shape(5), build.situation(nodes), Policy(), expired=never)
    assert moves(outcome) == [("p", "n1", "n2")]
    assert outcome.plan is not None
    assert outcome.plan.moves[0].affinity == ("n2",)
    template = build.pod("t", 1, spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    situation = replace(build.situation(nodes), templates={"p-rs": template})
    bound = plan(shape(5), situation, Policy(), expired=never).plan
    assert bound is not None
    assert bound.moves[0].affinity == ()


def test_the_owners_template_counts_not_the_running_pod(build: Any) -> None:
    nodes = [
        build.put(build.node("n1", zones=1, cpus=6), build.pod("p", 1)),
        build.node("n2", zones=1, cpus=3),
    ]
    grown = build.pod("t", 3)
    situation = replace(build.situation(nodes), templates={"p-rs": grown})
    assert plan(shape(5), situation, Policy(), expired=never).reason == "no plan with up to 5 evictions helps"


def test_pending_pod_may_have_to_be_placed_before_the_replacement(build: Any) -> None:
    """One node: p sits in zone 0, where big would fit; restarted first, p would take zone 0 again."""
    node = build.put(build.node("n1", cpus=4, reservedSystemCPUs="4"), build.pod("p", 1))
    big = replace(build.pod("big", 4), phase="Pending")
    outcome = plan(pending_goals([big])[0], build.situation([node]), Policy(), expired=never)
    assert outcome.plan is not None
    (move,) = outcome.plan.moves
    assert move.after_pending
    assert (move.zones, move.target_zones) == ((0,), (1,))
    assert outcome.plan.placements[0].zones == (0,)


# Goals


def test_a_zone_is_freed(build: Any) -> None:
    node = build.put(build.node("n1", cpus=4), build.pod("a", 2), build.pod("b", 2), build.pod("c", 1))
    situation = build.situation([node, build.node("n2", zones=1, cpus=4)])
    goal = Vacate("n1", 1)
    occupants = sorted(pod.name for pod in goal.occupants(node))
    outcome = plan(goal, situation, Policy(), expired=never)
    assert sorted(name for name, *_ in moves(outcome)) == occupants
    assert outcome.plan is not None
    assert (outcome.plan.after, outcome.plan.minimal) == (0, True)
    after = situation_after(outcome.plan, situation)
    assert goal.occupants(after.cluster.nodes["n1"]) == []


def test_node_is_freed_of_all_but_what_belongs_to_it(build: Any) -> None:
    daemon = build.pod("agent", 1)
    (owner,) = daemon.owners
    daemon = replace(daemon, owners=(owner._replace(kind="DaemonSet"),))
    node = build.put(build.node("n1", cpus=4), build.pod("a", 2), daemon)
    situation = build.situation([node, build.node("n2", zones=1, cpus=4)])
    outcome = plan(Vacate("n1"), situation, Policy(target=ReplacementTarget.OTHER), expired=never)
    assert moves(outcome) == [("a", "n1", "n2")]


def test_pending_pods_of_one_kind_are_one_goal(build: Any) -> None:
    pods = [replace(build.pod(f"big-{index}", 4), phase="Pending") for index in range(3)]
    other = replace(build.pod("urgent", 2), phase="Pending", priority=10)
    first, second = pending_goals([*pods, other])
    assert [wanted.name for goal in (first, second) for wanted in goal.wanted] == [
        "default/urgent",
        "default/big-0",
    ]
    assert second.aim == 3


def test_a_pod_that_cannot_be_read_is_no_goal(build: Any) -> None:
    broken = replace(build.pod("odd", 1), admission=None, problem="no containers")
    with pytest.raises(InvalidGoal, match=r"pod default/odd cannot be read: no containers"):
        pending_goals([broken])


# Hysteresis


def test_a_plan_that_gains_too_little_is_not_made(build: Any, two_ways: Any) -> None:
    outcome = plan(shape(4), build.situation(two_ways), Policy(min_gain=2), expired=never)
    assert (outcome.plan, outcome.reason) == (None, "the best plan gains 1, less than minGain of 2")


def test_a_minimum_gain_of_nothing_makes_no_sense() -> None:
    with pytest.raises(InvalidPolicy, match="minGain 0 would allow plans that gain nothing"):
        Policy(min_gain=0)


def test_failed_moves_are_in_no_plan_during_the_cooldown(build: Any, two_ways: Any) -> None:
    situation, policy = build.situation(two_ways), Policy(cooldown=timedelta(hours=1))
    failed: set[Relocation] = set()
    while True:
        history = MoveHistory(failed=dict.fromkeys(failed, build.now - timedelta(minutes=59)))
        outcome = plan(shape(4), replace(situation, history=history), policy, expired=never)
        if outcome.plan is None:
            break
        made = {relocation(move.pod, move.node) for move in outcome.plan.moves}
        assert not made & failed
        failed |= {move for move in made if move is not None}
        assert len(failed) < 50
    assert len(failed) >= 2
    assert (
        f"excluded until the cooldown ends: {len(failed)} moves of plans that failed or were rejected"
        in outcome.reason
    )
    over = MoveHistory(failed=dict.fromkeys(failed, build.now - timedelta(minutes=60)))
    assert plan(shape(4), replace(situation, history=over), policy, expired=never).plan is not None


@pytest.mark.parametrize(("minutes", "move"), [(59, ("b", "n1", "n3")), (60, ("b", "n1", "n2"))])
def test_failed_move_is_barred_but_other_nodes_stay_open(
    build: Any, broken: Callable[..., Any], minutes: int, move: tuple[str, str, str]
) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    goal, policy = pending_goals([big])[0], Policy(cooldown=timedelta(hours=1))
    situation = build.situation([*broken(), build.node("n3", zones=1, cpus=3)])
    first = plan(goal, situation, policy, expired=never).plan
    assert first is not None
    owner = first.moves[0].pod.controller
    assert owner is not None
    history = MoveHistory(failed={(owner.uid, "n1", "n2"): build.now - timedelta(minutes=minutes)})
    situation = replace(situation, history=history)
    assert moves(plan(goal, situation, policy, expired=never)) == [move]
    proof = prove(first, goal, situation, policy)
    assert proof.holds is (minutes == 60)
    if not proof.holds:
        assert "a plan that moved a pod of the same owner from n1 to that node failed" in proof.reason


def test_failed_move_within_a_node_is_not_retried_later(build: Any) -> None:
    node = build.put(build.node("n1", cpus=4, reservedSystemCPUs="4"), build.pod("p", 1))
    goal = pending_goals([replace(build.pod("big", 4), phase="Pending")])[0]
    failed = {("p-rs", "n1", "n1"): build.now}
    situation = replace(build.situation([node]), history=MoveHistory(failed=failed))
    assert plan(goal, situation, Policy(), expired=never).plan is None


@pytest.mark.parametrize(("hours", "made"), [(23, False), (24, True)])
def test_room_of_another_policys_plan_is_kept_for_a_day(
    build: Any,
    broken: Callable[..., Any],
    hours: int,
    made: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    emptied = {"n2": FreedNode("other", build.now - timedelta(hours=hours))}
    situation = replace(build.situation(broken()), history=MoveHistory(emptied=emptied))
    careless = plan(shape(4), build.situation(broken()), Policy(), expired=never)
    assert moves(careless) == [("b", "n1", "n2")]
    outcome = plan(shape(4), situation, Policy(), expired=never)
    assert (outcome.plan is not None) is made
    assert careless.plan is not None
    proof = prove(careless.plan, shape(4), situation, Policy())
    assert proof.holds is made
    if not made:
        assert outcome.undoes == emptied
        assert outcome.reason == (
            "the only plan found would fill n2, where plans of policy other made room; this policy "
            "waits until 2026-01-31T13:00:00Z"
        )
        assert "node n2, where a plan of policy other made room; until" in proof.reason


def test_plan_avoids_room_that_another_policys_plan_made(build: Any, broken: Callable[..., Any]) -> None:
    nodes = [*broken(), build.node("n3", zones=1, cpus=3)]
    situation = replace(
        build.situation(nodes), history=MoveHistory(emptied={"n2": FreedNode("other", build.now)})
    )
    outcome = plan(shape(4), situation, Policy(), expired=never)
    assert moves(outcome) == [("b", "n1", "n3")]
    assert outcome.undoes == {}


def test_waiting_pod_may_use_room_of_another_policys_plan(build: Any, broken: Callable[..., Any]) -> None:
    goal = pending_goals([replace(build.pod("big", 4), phase="Pending")])[0]
    situation = replace(
        build.situation(broken()), history=MoveHistory(emptied={"n2": FreedNode("other", build.now)})
    )
    assert moves(plan(goal, situation, Policy(), expired=never)) == [("b", "n1", "n2")]


def test_a_goal_that_no_plan_reaches_anyhow_contradicts_nobody(
    build: Any, broken: Callable[..., Any]
) -> None:
    emptied = {"n2": FreedNode("other", build.now)}
    situation = replace(build.situation(broken()), history=MoveHistory(emptied=emptied))
    outcome = plan(shape(40), situation, Policy(), expired=never)
    assert (outcome.plan, outcome.undoes) == (None, {})
    assert "policy other" not in outcome.reason


# What is unknown is never relied on


@pytest.mark.parametrize(
    "blind",
    [
        lambda node: node.with_placement(Unknown("LeaseExpired", "stale")),
        approximate,
        not_ready,
    ],
    ids=["unknown", "approximate", "not ready"],
)
def test_uncertain_nodes_are_in_no_plan(build: Any, blind: Any) -> None:
    nodes = [
        build.put(build.node("n1", zones=1, cpus=6), build.pod("p", 1)),
        build.node("n2", zones=1, cpus=3),
    ]
    situation = build.situation([nodes[0], blind(nodes[1])])
    assert plan(shape(5), situation, Policy(target=ReplacementTarget.OTHER), expired=never).plan is None
    situation = build.situation([blind(nodes[0]), nodes[1]])
    objections = why_not(nodes[0].pods["p"], situation, Policy())
    assert [objection.rule for objection in objections] == ["NodeState"]


def test_time_that_is_up_ends_the_search(build: Any, two_ways: Any) -> None:
    outcome = plan(shape(4), build.situation(two_ways), Policy(), expired=lambda: True)
    assert outcome.reason == "no plan with up to 5 evictions was found before time ran out"


def test_measuring_counts_what_fits_on_all_nodes(build: Any, two_ways: Any) -> None:
    cluster = build.situation(two_ways).cluster
    assert measure(shape(3), cluster) == 2
    assert measure(shape(3, count=1), cluster) == 1
    assert measure(shape(1), Cluster()) == 0


ANTI_AFFINITY = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
        }
    }
}
SPREAD = {
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
}
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
FORESEEN = "where its replacement will run cannot be predicted: "


@pytest.mark.parametrize(
    ("spec", "target", "message"),
    [
        (ANTI_AFFINITY, ReplacementTarget.ANY, f"{FORESEEN}podAntiAffinity"),
        (SPREAD, ReplacementTarget.ANY, f"{FORESEEN}topologySpreadConstraints"),
        (CLAIM, ReplacementTarget.ANY, "its volumes may tie it to certain nodes (PVC data); use target Same"),
        (CLAIM, ReplacementTarget.SAME, ""),
    ],
)
def test_pods_stay_where_nobody_can_say_where_they_would_land(
    build: Any, spec: dict[str, Any], target: ReplacementTarget, message: str
) -> None:
    """Inter-pod rules and volumes are beyond the filters that plans are proven with."""
    node = build.put(build.node("n1"), build.pod("p", 1, spec=spec))
    found = why_not(node.pods["p"], build.situation([node]), Policy(target=target))
    assert [objection.message for objection in found] == ([message] if message else [])


def test_a_pending_pod_that_nobody_can_foresee_gets_no_plan(build: Any, two_ways: Any) -> None:
    big = replace(build.pod("big", 4, spec=ANTI_AFFINITY), phase="Pending")
    outcome = plan(pending_goals([big])[0], build.situation(two_ways), Policy(), expired=never)
    assert outcome.reason == (
        "the plan that was found did not pass the proof: where default/big will run cannot be "
        "predicted: podAntiAffinity"
    )


def test_three_and_three_free_cpus_become_four(build: Any) -> None:
    """Vector 10 to the letter: 3 + 3 free, a pod of 4 waits, one pod of 1 CPU is moved off NUMA node 0."""
    node = build.put(build.node("n1", cpus=5), build.pod("a", 1), build.pod("x", 3), build.pod("c", 2))
    node = _without(node, "x")
    assert node.state is not None
    assert fragmentation.room(node.state)["cpu"] == {0: 3, 1: 3}
    nodes = [node, build.put(build.node("n2", zones=1, cpus=4), build.pod("d", 2))]
    big = replace(build.pod("big", 4), phase="Pending")
    outcome = plan(
        pending_goals([big])[0], build.situation(nodes), Policy(target=ReplacementTarget.OTHER), expired=never
    )
    assert moves(outcome) == [("a", "n1", "n2")]
    assert outcome.plan is not None
    assert outcome.plan.moves[0].zones == (0,)
    assert outcome.plan.placements[0].zones == (0,)
