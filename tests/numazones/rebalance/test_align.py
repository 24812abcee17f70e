"""The goal ``align``: pods that lie across NUMA nodes are evicted only where their replacements will not."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.alignment import pod_alignment as alignment
from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import ClusterNode
from numazones.rebalance.candidates import Situation
from numazones.rebalance.goals import Align, measure
from numazones.rebalance.moves import Move, PlanFound, evict, place, replacement
from numazones.rebalance.planner import PlanningResult, plan
from numazones.rebalance.policy import Policy, ReplacementTarget
from numazones.rebalance.proof import prove
from tests.laws import examples
from tests.numazones.rebalance.uncertain_nodes import not_ready

GATED = {"schedulingGates": [{"name": "numazones.io/admission"}]}


def never() -> bool:
    return False


def found(situation: Situation, policy: Policy | None = None) -> PlanningResult:
    return plan(Align(), situation, policy or Policy(), expired=never)


def moves(outcome: PlanningResult) -> list[tuple[str, str, str, tuple[int, ...]]]:
    assert outcome.plan is not None, outcome.reason
    return [(move.pod.name, move.pod.node, move.node, move.target_zones) for move in outcome.plan.moves]


def spread(build: Any, name: str = "n1", *pods: tuple[str, int]) -> ClusterNode:
    """A best-effort node of two NUMA nodes, 3 and 4 CPUs, with pods that came in this order."""
    node: ClusterNode = build.node(name, policy="best-effort")
    return build.put(node, *(build.pod(pod, cpus) for pod, cpus in pods))  # type: ignore[no-any-return]


def without(node: ClusterNode, *names: str) -> ClusterNode:
    for pod in [pod for pod in node.pods.values() if pod.name in names]:
        node = evict(node, pod)
    return node


def test_pod_with_freed_room_is_restarted_on_its_node(build: Any) -> None:
    node = without(spread(build, "n1", ("a", 2), ("gone", 3), ("wide", 2)), "gone")
    (outcome,) = [found(build.situation([node]))]
    assert moves(outcome) == [("wide", "n1", "n1", (1,))]
    assert outcome.plan is not None
    assert (outcome.plan.before, outcome.plan.after, outcome.plan.minimal) == (-1, 0, True)
    assert outcome.plan.moves[0].why == "spanning 2 NUMA nodes; its replacement will be aligned"


def test_or_on_another_node_and_nowhere_else(build: Any) -> None:
    node = spread(build, "n1", ("a", 2), ("b", 3), ("wide", 2))
    outcome = found(build.situation([node, build.node("n2")]))
    assert [move[:3] for move in moves(outcome)] == [("wide", "n1", "n2")]
    assert outcome.plan is not None
    assert outcome.plan.moves[0].affinity == ("n2",)  # on n1 it would span again


def waiting(situation: Situation, *pods: Any) -> Situation:
    """The situation while pods wait for a node."""
    cluster = situation.cluster
    for pod in pods:
        cluster = cluster.with_pod(replace(pod, node=""))
    return replace(situation, cluster=cluster)


def test_no_eviction_if_a_waiting_pod_would_take_the_room(build: Any) -> None:
    """The scheduler may bind it before the replacement has been made, which then finds no room itself."""
    node = without(spread(build, "n1", ("a", 2), ("gone", 3), ("wide", 2)), "gone")
    here = build.situation([node])
    outcome = found(waiting(here, build.pod("eager", 5)))
    assert outcome.plan is None
    assert outcome.reason == (
        "the plan that was found did not pass the proof: pending pod default/eager may take the "
        "room that evicting default/wide frees on node n1 before the replacement gets there; the replacement "
        "would then not be aligned"
    )
    assert found(waiting(here, build.pod("larger", 6), build.pod("eager", 5))).plan is None
    bound_elsewhere = build.pod("pinned", 5, spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    for harmless in (build.pod("larger", 6), build.pod("held", 5, spec=GATED), bound_elsewhere):
        assert moves(found(waiting(here, harmless))) == [("wide", "n1", "n1", (1,))]
    elsewhere = found(waiting(build.situation([node, build.node("n2")]), build.pod("eager", 5)))
    assert [move[:3] for move in moves(elsewhere)] == [("wide", "n1", "n2")]


def test_pod_is_aligned_elsewhere_if_its_room_would_be_taken(build: Any) -> None:
    one, two = (
        without(spread(build, name, (f"a-{name}", 2), ("gone", 3), (f"wide-{name}", 2)), "gone")
        for name in ("n1", "n2")
    )
    pinned = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    here = waiting(build.situation([one, two]), build.pod("eager", 5, spec=pinned))
    assert {(name, target) for name, _, target, _ in moves(found(here))} == {
        ("wide-n1", "n2"),
        ("wide-n2", "n2"),
    }


def test_nobody_is_evicted_where_the_replacement_would_end_no_better(build: Any) -> None:
    full = spread(build, "n1", ("a", 2), ("b", 3), ("wide", 2))
    outcome = found(build.situation([full]))
    assert outcome.plan is None
    assert outcome.reason == "no plan with up to 5 evictions helps"
    assert outcome.before == -1


def test_a_pod_larger_than_every_numa_node_stays(build: Any) -> None:
    outcome = found(build.situation([spread(build, "n1", ("wide", 5)), build.node("n2")]))
    assert outcome.plan is None


def test_aligned_pods_are_never_moved_to_make_room(build: Any) -> None:
    """Were a moved to n2, wide would fit: but a is well where it is."""
    node = spread(build, "n1", ("a", 2), ("b", 3), ("wide", 2))
    small = build.node("n2", zones=1, cpus=2, policy="single-numa-node")
    assert found(build.situation([node, small])).plan is None


def test_no_pod_is_misaligned_to_align_another(build: Any) -> None:
    """Once little lay across the NUMA nodes of n2, large would be aligned: the first gains nothing itself."""
    node = spread(build, "n1", ("a", 1), ("g", 1), ("gone", 1), ("b", 1), ("h", 2))
    node = build.put(without(node, "gone"), build.pod("little", 2))
    node = build.put(without(node, "g", "h"), build.pod("large", 3))
    other = spread(build, "n2", ("c", 2), ("d", 3))
    here = build.situation([node, other])
    assert measure(Align(), here.cluster) == -2
    outcome = found(here)
    assert (outcome.plan, outcome.reason) == (None, "no plan with up to 5 evictions helps")
    proof = prove(in_vain(here, "little", "large"), Align(), here, Policy())
    assert (proof.holds, proof.reason) == (
        False,
        "the replacement of default/little may be scheduled to node n2, where it would not be aligned",
    )


def in_vain(situation: Situation, first: str, then: str) -> PlanFound:
    """The plan that moves a pod from n1 to n2 and then makes another anew where it is."""
    pods = {pod.name: pod for pod in situation.cluster.nodes["n1"].pods.values()}
    made = [
        Move(pods[name], replacement(pods[name], {}), to, affinity=(to,))
        for name, to in ((first, "n2"), (then, "n1"))
    ]
    return PlanFound(tuple(made), -2, -1)


def test_the_most_remote_cpus_come_first(build: Any) -> None:
    one = without(spread(build, "n1", ("a", 2), ("gone", 3), ("little", 2)), "gone")
    other = without(
        build.put(
            build.node("n2", cpus=8, policy="best-effort"),
            *(build.pod(name, cpus) for name, cpus in (("c", 4), ("leaves", 5), ("much", 6))),
        ),
        "leaves",
    )
    outcome = found(build.situation([one, other]), Policy(limits=EvictionLimits(total=1)))
    assert [move[0] for move in moves(outcome)] == ["much"]


def test_where_all_are_aligned_the_goal_is_reached(build: Any) -> None:
    outcome = found(build.situation([spread(build, "n1", ("a", 2), ("b", 3))]))
    assert outcome.plan is None
    assert outcome.reason == "there is nothing to do: the goal is reached"


def test_alignment_ignores_nodes_that_are_not_certain(build: Any) -> None:
    node = without(spread(build, "n1", ("a", 2), ("gone", 3), ("wide", 2)), "gone")
    assert measure(Align(), build.situation([not_ready(node)]).cluster) == 0


def drawn(draw: random.Random, build: Any) -> list[ClusterNode]:
    nodes = [
        build.node(f"n{number}", cpus=draw.choice([4, 6]), policy=draw.choice(["none", "best-effort"]))
        for number in range(draw.randint(1, 3))
    ]
    for number in range(draw.randint(4, 16)):
        position = draw.randrange(len(nodes))
        placed = place(nodes[position], build.pod(f"p{number}", draw.choice([1, 2, 2, 3, 4])))
        if placed.node is not None:
            nodes[position] = placed.node
        if draw.random() < 0.4 and nodes[position].pods:
            nodes[position] = evict(nodes[position], draw.choice(list(nodes[position].pods.values())))
    return nodes


def misaligned(node: ClusterNode) -> set[str]:
    """An own idea of it: CPUs of more than one NUMA node."""
    assert node.state is not None
    zones = node.state.machine.cpus_of_numa.values()
    return {
        uid
        for uid, held in node.state.cpus.assignments.items()
        if sum(any(cpus & mask for cpus in held.values()) for mask in zones) > 1
    }


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(list(ReplacementTarget)))
def test_every_eviction_aligns_a_pod_and_none_is_missed(
    build: Any, seed: int, target: ReplacementTarget
) -> None:
    nodes = {node.name: node for node in drawn(random.Random(seed), build)}
    policy = Policy(limits=EvictionLimits(total=4), target=target)
    outcome = found(build.situation(list(nodes.values())), policy)
    before = set().union(*map(misaligned, nodes.values()))
    assert outcome.before == -len(before)
    if outcome.plan is None:
        for node in nodes.values():
            for pod in [pod for pod in node.pods.values() if pod.uid in misaligned(node)]:
                for to in nodes.values():
                    if target is (ReplacementTarget.SAME if to is not node else ReplacementTarget.OTHER):
                        continue
                    freed = evict(node, pod)
                    placed = place(freed if to is node else to, pod).node
                    assert placed is None or pod.uid in misaligned(placed), (pod.name, to.name)
        return
    for move in outcome.plan.moves:
        assert move.pod.uid in before
        nodes[move.pod.node] = evict(nodes[move.pod.node], move.pod)
        placed = place(nodes[move.node], move.replacement).node
        assert placed is not None
        nodes[move.node] = placed
        assert move.replacement.uid not in misaligned(placed)
    after = set().union(*map(misaligned, nodes.values()))
    assert len(before) - len(after) == len(outcome.plan.moves) == outcome.plan.gain
    held = [
        found for node in nodes.values() for _, found in alignment.of_node(node) or () if not found.aligned
    ]
    assert len(held) == len(after)
