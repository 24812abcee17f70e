"""The proof by itself: a plan is believed only as far as every course of events bears it out."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import Cluster, ClusterPod
from numazones.placement.fragmentation import Shape
from numazones.rebalance.budgets import Budget, BudgetHeadroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.goals import FitMore, Vacate, Wanted, pending_goals
from numazones.rebalance.history import FreedNode, MoveHistory
from numazones.rebalance.moves import Move, PlacedPod, PlanFound, evict, relocation, replacement
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy, ReplacementTarget
from numazones.rebalance.proof import Proof, choices, prove


def never() -> bool:
    return False


def shape(cpus: int) -> FitMore:
    return FitMore((Wanted.shape("big", Shape.parse(f"cpu={cpus},memory=1Gi")),))


@pytest.fixture
def two_ways(build: Any) -> Any:
    """A pod in zone 1 of n1 could restart into zone 0, or go to n2; either frees zone 1."""
    first = build.put(build.node("n1", cpus=4), build.pod("x", 3), build.pod("y", 1))
    return [evict(first, first.pods["x"]), build.node("n2", zones=1, cpus=3)]


@pytest.fixture
def made(build: Any, two_ways: Any) -> tuple[PlanFound, Any]:
    situation = build.situation(two_ways)
    found = plan(shape(4), situation, Policy(), expired=never).plan
    assert found is not None
    return found, situation


def test_a_proof_does_not_believe_the_plan(made: tuple[PlanFound, Any], build: Any) -> None:
    good, situation = made
    goal, policy = shape(4), Policy()
    assert prove(good, goal, situation, policy).holds
    more = prove(replace(good, after=good.after + 1), goal, situation, policy)
    assert more.reason == f"the goal would reach {good.after}, not {good.after + 1}"
    (move,) = good.moves
    elsewhere = prove(replace(good, moves=(replace(move, affinity=("n3",)),)), goal, situation, policy)
    assert elsewhere.reason == "no node that the scheduler could choose is left for default/y"
    wrong = prove(good, goal, situation, Policy(target=ReplacementTarget.SAME))
    assert "but the policy's target is Same" in wrong.reason
    gone = replace(situation, cluster=Cluster({"n2": situation.cluster.nodes["n2"]}))
    assert prove(good, goal, gone, policy).reason == "pod default/y is no longer on node n1"
    protected = Policy(limits=EvictionLimits(total=0))
    assert "per a descheduling cycle reached" in prove(good, goal, situation, protected).reason


def test_replacement_open_to_any_node_is_proven_for_each(build: Any) -> None:
    nodes = [build.put(build.node("n1", zones=1, cpus=6), build.pod("p", 1))]
    nodes += [build.node(f"n{index}", zones=1, cpus=3) for index in range(2, 5)]
    situation = build.situation(nodes)
    template = build.pod(
        "t",
        1,
        spec={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
                        ]
                    }
                }
            }
        },
    )
    situation = replace(situation, templates={"p-rs": template})
    outcome = plan(shape(5), situation, Policy(), expired=never)
    assert outcome.plan is not None
    assert outcome.plan.moves[0].affinity == ()
    assert prove(outcome.plan, shape(5), situation, Policy()).sequences == 3


def moved(pod: ClusterPod, node: str, **parts: Any) -> Move:
    """A move as nobody has checked it."""
    return Move(pod=pod, replacement=replacement(pod, {}), node=node, **parts)


def holds(situation: Situation, *moves: Move, before: int = -1, after: int = 0) -> str:
    """Return why a plan that must free n1 does not hold; empty if it does."""
    proof = prove(PlanFound(moves, before, after), Vacate("n1"), situation, Policy())
    assert proof.holds == (not proof.reason)
    return proof.reason


def test_pod_must_still_be_where_the_plan_takes_it_from(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    situation = build.situation([first, build.node("n2")])
    pod = first.pods["p"]
    confined = moved(pod, "n2", affinity=("n2",))
    assert holds(situation, confined) == ""
    gone = replace(situation, cluster=situation.cluster.without_pod(pod))
    assert holds(gone, confined) == "pod default/p is no longer on node n1"
    assert holds(situation, confined, confined) == "pod default/p would be moved twice"


def test_pod_that_became_unmovable_ends_the_proof(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    leaving = replace(first.pods["p"], deleting=True)
    situation = build.situation([first.with_pod(leaving), build.node("n2")])
    assert holds(situation, moved(leaving, "n2")) == "pod default/p may not be moved: pod is terminating"


def test_a_free_choice_must_hold_wherever_it_leads(build: Any) -> None:
    """Left to the scheduler, the replacement may go back to n1; confined to n2 it may not."""
    first = build.put(build.node("n1"), build.pod("p", 1))
    situation = build.situation([first, build.node("n2")])
    pod = first.pods["p"]
    assert holds(situation, moved(pod, "n2")) == "the goal would reach -1, not 0"
    assert holds(situation, moved(pod, "n2", affinity=("n2",))) == ""


def test_a_free_choice_must_not_include_a_node_left_out(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    situation = build.situation([first, build.node("n2")])
    situation.left_out.nodes["n3"] = "ZeroDivisionError: division by zero"
    pod = first.pods["p"]
    assert holds(situation, moved(pod, "n2")) == (
        "the scheduler could choose node n3 for default/p, and the state of that node is unknown"
    )
    assert holds(situation, moved(pod, "n2", affinity=("n2",))) == ""


def test_node_that_would_reject_the_replacement_disproves_a_free_choice(build: Any) -> None:
    """n2 has two CPUs free by the scheduler's sums, but in two zones."""
    first = build.put(build.node("n1"), build.pod("p", 2))
    split = build.put(build.node("n2", reservedSystemCPUs="0"), build.pod("a", 2), build.pod("b", 3))
    situation = build.situation([first, split])
    reason = holds(situation, moved(first.pods["p"], "n2", affinity=("n2",)))
    assert reason.startswith(
        "the replacement of default/p may be scheduled to node n2, which would not admit it: "
    )
    assert "TopologyAffinityError" in reason


def test_every_allowed_node_must_admit_the_pending_pod(build: Any, two_ways: Any) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    situation = build.situation(two_ways)
    (goal,) = pending_goals([big])
    made = plan(goal, situation, Policy(), expired=never).plan
    assert made is not None
    assert prove(made, goal, situation, Policy()).holds
    (placement,) = made.placements
    astray = replace(placement, affinity=("n9",))
    reason = prove(replace(made, placements=(astray,)), goal, situation, Policy()).reason
    assert reason == "no node that the scheduler could choose is left for default/big"
    larger = replace(build.pod("larger", 5), phase="Pending")
    misled = replace(made, placements=(replace(placement, pod=larger, affinity=("n1",)),))
    reason = prove(misled, goal, situation, Policy()).reason
    assert reason.startswith("pod default/larger may be scheduled to node n1, which would not admit it: ")


def test_the_pending_pod_that_goes_first_must_find_its_node(build: Any) -> None:
    node = build.put(build.node("n1", reservedSystemCPUs="4"), build.pod("p", 1))
    big = replace(build.pod("big", 4), phase="Pending")
    situation = build.situation([node])
    (goal,) = pending_goals([big])
    made = plan(goal, situation, Policy(), expired=never).plan
    assert made is not None
    assert made.moves[0].after_pending
    assert prove(made, goal, situation, Policy()).holds
    other = build.put(build.node("n2", zones=1, cpus=6), build.pod("q", 3))
    wider = build.situation([node, other])
    (placement,) = made.placements
    elsewhere = replace(made, placements=(replace(placement, node="n2"),))
    reason = prove(elsewhere, goal, wider, Policy()).reason
    assert reason == "no node that the scheduler could choose is left for default/big"


def test_pod_arriving_anytime_must_leave_room_for_every_replacement(build: Any, two_ways: Any) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    restless = replace(build.situation(two_ways), at_any_time=frozenset({"big"}))
    (goal,) = pending_goals([big])
    made = plan(goal, restless, Policy(), expired=never).plan
    assert made is not None
    assert prove(made, goal, restless, Policy()).holds

    first = build.put(build.node("n1"), build.pod("a", 2), build.pod("p", 2))
    smaller = replace(build.pod("big", 3), phase="Pending")
    (goal,) = pending_goals([smaller])
    move = moved(first.pods["p"], "n1", affinity=("n1",))
    useless = PlanFound((move,), 0, 0, (PlacedPod(smaller, "n1"),))
    last = prove(useless, goal, build.situation([first]), Policy()).reason
    assert last.startswith("pod default/big may be scheduled to node n1, which would not admit it: ")
    early = replace(build.situation([first]), at_any_time=frozenset({"big"}))
    reason = prove(useless, goal, early, Policy()).reason
    assert reason.startswith(
        "a pending pod may be scheduled before the replacement of default/p; node n1 would then not admit "
        "the replacement: "
    )


def test_pod_coming_before_the_eviction_must_leave_room_too(build: Any) -> None:
    """Covers a pod that spans NUMA nodes: its own CPUs alone could not hold its replacement."""
    lenient = build.put(build.node("n1", policy="best-effort"), build.pod("a", 1), build.pod("c", 2))
    lenient = build.put(lenient, build.pod("b", 2))
    lenient = build.put(evict(lenient, lenient.pods["c"]), build.pod("p", 4))
    for name in ("a", "b"):
        lenient = evict(lenient, lenient.pods[name])
    strict = lenient.with_state(replace(lenient.state, kubelet=build.node("n1").state.kubelet))
    big = replace(build.pod("big", 2), phase="Pending")
    (goal,) = pending_goals([big])
    move = moved(strict.pods["p"], "n1", affinity=("n1",))
    found = PlanFound((move,), 0, 1, (PlacedPod(big, "n1"),))
    assert prove(found, goal, build.situation([strict]), Policy()).holds
    early = replace(build.situation([strict]), at_any_time=frozenset({"big"}))
    reason = prove(found, goal, early, Policy()).reason
    assert reason.startswith("a pending pod may be scheduled before the replacement of default/p; ")


def test_no_pod_makes_room_for_a_less_important_one(build: Any, two_ways: Any) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    (goal,) = pending_goals([big])
    made = plan(goal, build.situation(two_ways), Policy(), expired=never).plan
    assert made is not None
    first = two_ways[0].with_pod(replace(two_ways[0].pods["y"], priority=10))
    reason = prove(made, goal, build.situation([first, two_ways[1]]), Policy()).reason
    assert reason == (
        "pod default/y may not be moved: its priority 10 is above 0, the priority of the pod that would "
        "get its room"
    )
    unplaced = prove(replace(made, placements=()), goal, build.situation([first, two_ways[1]]), Policy())
    assert unplaced.reason == reason


def test_more_courses_than_can_be_played_through_prove_nothing(build: Any) -> None:
    nodes = [build.put(build.node("n1"), *(build.pod(f"p{index}", 1) for index in range(5)))]
    nodes += [build.node(f"n{index}") for index in range(2, 9)]
    situation = build.situation(nodes)
    moves = tuple(moved(pod, "n2") for pod in nodes[0].pods.values())
    proof = prove(PlanFound(moves, -5, -9), Vacate("n1"), situation, Policy())
    assert proof == Proof(holds=False, reason="more than 256 sequences of events are possible", sequences=257)


def test_more_nodes_than_can_be_played_through_prove_nothing(build: Any) -> None:
    first = build.put(build.node("n1", zones=1), build.pod("p", 1))
    empty = build.node("n2", zones=1)
    nodes = [first, *(replace(empty, name=f"n{index}") for index in range(2, 260))]
    reason = holds(build.situation(nodes), moved(first.pods["p"], "n2"))
    assert reason == "the scheduler could choose any of 259 nodes for default/p"


def test_choices_are_what_the_scheduler_could_choose_within_the_affinity(build: Any) -> None:
    cordoned = replace(build.node("n2"), unschedulable=True)
    cluster = Cluster({"n1": build.node("n1"), "n2": cordoned, "n3": build.node("n3")})
    pod = build.pod("p", 1)
    assert [node.name for node in choices(pod, cluster)] == ["n1", "n3"]
    assert [node.name for node in choices(pod, cluster, ("n3", "n2", "n9"))] == ["n3"]


def test_moves_count_together_against_the_limits(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1), build.pod("q", 1))
    situation = build.situation([first, build.node("n2")])
    moves = tuple(moved(pod, "n2", affinity=("n2",)) for pod in first.pods.values())
    both, goal = PlanFound(moves, -2, 0), Vacate("n1")
    assert prove(both, goal, situation, Policy(limits=EvictionLimits(total=2))).holds
    reason = prove(both, goal, situation, Policy(limits=EvictionLimits(total=1))).reason
    assert reason.startswith("pod default/q may not be moved: ")
    assert "per a descheduling cycle reached" in reason


def test_moves_count_together_against_a_disruption_budget(build: Any) -> None:
    labelled = {"metadata": {"labels": {"app": "web"}}}
    first = build.put(build.node("n1"), build.pod("p", 1, **labelled), build.pod("q", 1, **labelled))
    for allowed in (2, 1):
        budget = Budget.from_api(
            {
                "metadata": {"namespace": "default", "name": "web", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
            }
        )
        situation = build.situation([first, build.node("n2")], headroom=BudgetHeadroom.of([budget]))
        moves = tuple(moved(pod, "n2", affinity=("n2",)) for pod in first.pods.values())
        proof = prove(
            PlanFound(moves, -2, 0), Vacate("n1"), situation, Policy(limits=EvictionLimits(total=5))
        )
        assert proof.holds is (allowed == len(moves))
        assert proof.holds or proof.reason.startswith("pod default/q may not be moved: ")


def test_target_other_rejects_replacements_on_the_same_node(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    situation = build.situation([first])
    stay = PlanFound((moved(first.pods["p"], "n1", affinity=("n1",)),), -1, -1)
    assert prove(stay, Vacate("n1"), situation, Policy(target=ReplacementTarget.SAME)).holds
    assert prove(stay, Vacate("n1"), situation, Policy(target=ReplacementTarget.OTHER)).reason == (
        "the replacement of default/p may be scheduled to node n1, but the policy's target is Other"
    )


def test_a_move_that_failed_is_not_repeated_within_the_cooldown(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    pod, policy = first.pods["p"], Policy(cooldown=timedelta(hours=1))
    same = relocation(pod, "n2")
    assert same is not None
    away = PlanFound((moved(pod, "n2", affinity=("n2",)),), -1, 0)
    for age, reason in (
        (59, "moved a pod of the same owner from n1 to that node failed or was rejected within the cooldown"),
        (60, ""),
    ):
        failed = MoveHistory(failed={same: build.now - timedelta(minutes=age)})
        situation = replace(build.situation([first, build.node("n2")]), history=failed)
        proof = prove(away, Vacate("n1"), situation, policy)
        assert (proof.holds, proof.reason.endswith(reason)) == (not reason, True)


def test_room_of_another_policy_is_only_for_waiting_pods(build: Any, two_ways: Any) -> None:
    made_room = MoveHistory(emptied={"n2": FreedNode("other", build.now - timedelta(hours=23))})
    first = build.put(build.node("n1"), build.pod("p", 1))
    closed = replace(build.situation([first, build.node("n2")]), history=made_room)
    assert holds(closed, moved(first.pods["p"], "n2", affinity=("n2",))) == (
        "the replacement of default/p may be scheduled to node n2, where a plan of policy other made room; "
        "until 2026-01-31T13:00:00Z only plans for pending pods may use it"
    )
    older = MoveHistory(emptied={"n2": FreedNode("other", build.now - timedelta(hours=24))})
    open_again = replace(closed, history=older)
    assert holds(open_again, moved(first.pods["p"], "n2", affinity=("n2",))) == ""
    big = replace(build.pod("big", 4), phase="Pending")
    (goal,) = pending_goals([big])
    waited_for = replace(build.situation(two_ways), history=made_room)
    found = plan(goal, waited_for, Policy(), expired=never).plan
    assert found is not None
    assert found.moves[0].node == "n2"
    assert prove(found, goal, waited_for, Policy()).holds


def test_a_replacement_whose_node_cannot_be_foreseen_proves_nothing(build: Any) -> None:
    first = build.put(build.node("n1"), build.pod("p", 1))
    situation = build.situation([first, build.node("n2")])
    move = moved(first.pods["p"], "n2", affinity=("n2",))
    unclear = replace(move.replacement, constraints=replace(move.replacement.constraints, beyond=("a", "b")))
    assert holds(situation, replace(move, replacement=unclear)) == (
        "where default/p will run cannot be predicted: a, b"
    )


def test_so_many_nodes_as_can_be_played_through_are(build: Any) -> None:
    first = replace(build.put(build.node("n1", zones=1), build.pod("p", 1)), unschedulable=True)
    empty = build.node("n2", zones=1)
    nodes = [first, *(replace(empty, name=f"n{index}") for index in range(2, 258))]
    assert holds(build.situation(nodes), moved(first.pods["p"], "n2")) == ""
