"""One move that makes room: advice and planner mean the same one."""

import random
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.advice.changes import Advice, Change, ChangeCost, NodeContext, advise_on
from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.rebalance.candidates import Situation, why_not
from numazones.rebalance.goals import pending_goals
from numazones.rebalance.moves import Move, PlacedPod, PlanFound, evict
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.proof import prove
from numazones.rebalance.single_move import Destinations
from tests.laws import examples
from tests.numazones.rebalance.conftest import Builders

ONE = Policy(limits=EvictionLimits(total=1))


def waiting(build: Builders, cpus: int) -> ClusterPod:
    return replace(build.pod("wanted", cpus), phase="Pending")


def advised(wanted: ClusterPod, node: ClusterNode, situation: Situation) -> tuple[Advice, ...]:
    """Return the advice on the pods of a node, with the rules that keep pods from moving."""

    def objection(pod: ClusterPod) -> str:
        return next((one.message for one in why_not(pod, situation, ONE)), "")

    around = NodeContext(Destinations(situation.cluster.nodes.values(), situation.templates), objection)
    return tuple(one for one in advise_on(wanted, node, around) if one.change is Change.EVICTION)


def planned(wanted: ClusterPod, situation: Situation) -> tuple[Move, ...]:
    """The moves of the planner's plan of at most one eviction."""
    made = plan(pending_goals([wanted])[0], situation, ONE, expired=lambda: False).plan
    return () if made is None else made.moves


def test_pod_moves_within_its_node_if_its_replacement_fits_better(build: Builders) -> None:
    """NUMA node 0 was full when ``lying`` came; now it could leave NUMA node 1 to a pod that needs it."""
    first = build.pod("first", 3)
    node = evict(build.put(build.node("n"), first, build.pod("lying", 3)), first)
    situation, wanted = build.situation([node]), waiting(build, 4)
    assert [one.sentence for one in advised(wanted, node, situation)] == [
        (
            "move default/lying, which holds 3 CPUs, within n (delete it; its replacement gets a better "
            "placement there)"
        )
    ]
    (move,) = planned(wanted, situation)
    assert (move.pod.name, move.node, move.after_pending) == ("lying", "n", False)


def test_pod_returns_if_its_replacement_fits_with_the_waiting_pod(build: Builders) -> None:
    node = build.put(build.node("n"), build.pod("small", 2), build.pod("other", 2), build.pod("third", 2))
    node = evict(node, node.pods["third"])
    situation, wanted = build.situation([node]), waiting(build, 3)
    assert [one.sentence for one in advised(wanted, node, situation)] == [
        (
            "move default/small, which holds 2 CPUs, within n "
            "(delete it; its replacement still fits once the waiting pod is placed)"
        ),
        "remove default/other, which holds 2 CPUs (no node would then admit its replacement)",
    ]
    (move,) = planned(wanted, situation)
    assert (move.pod.name, move.node, move.after_pending) == ("small", "n", True)


def test_a_pod_whose_replacement_no_node_takes_is_only_removed(build: Builders) -> None:
    node = build.put(build.node("n"), build.pod("a", 3), build.pod("b", 4))
    full = build.put(build.node("m"), build.pod("c", 3), build.pod("d", 4))
    situation, wanted = build.situation([node, full]), waiting(build, 4)
    (found,) = advised(wanted, node, situation)
    assert found.cost is ChangeCost.REMOVAL
    assert planned(wanted, situation) == ()


def test_the_template_decides_where_a_replacement_fits(build: Builders) -> None:
    """The owner asks for more than its running pod does, so that no other node takes the next one."""
    held = build.pod("held", 3)
    node = build.put(build.node("n"), held, build.pod("more", 4))
    free = build.put(build.node("m"), build.pod("d", 4))
    situation, wanted = build.situation([node, free]), waiting(build, 3)
    assert advised(wanted, node, situation)[0].sentence == "move default/held, which holds 3 CPUs, to m"
    larger = replace(situation, templates={"held-rs": build.pod("held", 4)})
    assert all(one.cost is ChangeCost.REMOVAL for one in advised(wanted, node, larger))


@given(seed=st.integers(0, 10**6), cpus=st.integers(2, 6))
@settings(max_examples=examples(60), deadline=None)
def test_advised_moves_exist_exactly_where_plans_do(
    seed: int, cpus: int, build: Builders, random_cluster: Callable[[random.Random], list[ClusterNode]]
) -> None:
    """The law, on small clusters, which the planner searches in full."""
    situation, wanted = build.situation(random_cluster(random.Random(seed))), waiting(build, cpus)
    nodes = situation.cluster.nodes
    goal = pending_goals([wanted])[0]
    found = [(node, one) for node in nodes.values() for one in advised(wanted, node, situation)]
    moves = [(node, one) for node, one in found if one.cost is ChangeCost.MOVE]
    if any(goal.total(goal.worth(node)) for node in nodes.values()):
        return  # it fits as things are
    assert bool(moves) == bool(planned(wanted, situation))
    destinations = Destinations(nodes.values())
    for node, one in moves:
        pod = next(pod for pod in node.pods.values() if f" {pod.full_name}," in one.sentence)
        move = destinations.single_move(wanted, pod, node)
        assert move is not None
        draft = PlanFound(
            (replace(move, affinity=(move.node,)),), 0, 1, (PlacedPod(wanted, node.name, (), (node.name,)),)
        )
        proof = prove(draft, goal, situation, ONE)
        assert proof.holds, (one.sentence, proof.reason)
        assert f" {'within' if move.node == node.name else 'to'} {move.node}" in one.sentence
