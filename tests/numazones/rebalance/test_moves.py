"""The two halves of a move, and what plans are compared by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterNode
from numazones.placement import Unknown
from numazones.rebalance.moves import Disruption, Move, PlanFound, evict, place, replacement, zones_of
from tests.numazones.rebalance.uncertain_nodes import approximate, not_ready


def test_pod_is_evicted_and_placed_again_with_what_it_held(build: Any) -> None:
    pod = build.pod("p", 2)
    node = build.put(build.node("n1"), pod)
    assert zones_of(node, node.pods["p"]) == (0,)
    empty = evict(node, node.pods["p"])
    assert dict(empty.pods) == {}
    assert empty.requested == {"cpu": 0, "memory": 0}
    assert place(empty, replacement(pod, {})).node is not None


def test_node_without_state_only_loses_the_pod(build: Any) -> None:
    node = build.put(build.node("n1"), build.pod("p", 2)).with_placement(Unknown("Stale", "old"))
    assert zones_of(node, node.pods["p"]) == ()
    assert dict(evict(node, node.pods["p"]).pods) == {}


@pytest.mark.parametrize(
    ("change", "rejection"),
    [
        (not_ready, "the state of node n1 is not known for certain"),
        (approximate, "the state of node n1 is not known for certain"),
        (lambda node: replace(node, unschedulable=True), "node(s) were unschedulable"),
        (lambda node: replace(node, pod_slots=0), "Too many pods"),
        (lambda node: node, "TopologyAffinityError: Resources cannot be allocated with Topology locality"),
    ],
)
def test_whoever_stands_in_the_way_is_named(
    build: Any, change: Callable[[ClusterNode], ClusterNode], rejection: str
) -> None:
    placed = place(change(build.node("n1")), build.pod("p", 5))
    assert placed.node is None
    assert placed.rejections == (rejection,)


def test_a_pod_that_cannot_be_read_is_placed_nowhere(build: Any) -> None:
    pod = replace(build.pod("p", 1), admission=None, problem="no containers")
    assert place(build.node("n1"), pod).rejections == ("no containers",)
    assert place(build.node("n1"), replace(pod, problem="")).rejections == ("the pod cannot be read",)


def test_a_replacement_is_made_from_the_owners_template(build: Any) -> None:
    running = replace(build.pod("p", 1), node="n1", started="2026-01-31T10:00:00Z", message="up")
    made = replacement(running, {"p-rs": build.pod("template", 3)})
    assert (made.name, made.uid, made.node, made.phase, made.started) == ("p", "p~", "", "Pending", "")
    assert made.requests["cpu"] == 3000
    assert made.owners == running.owners
    assert replacement(replace(running, owners=()), {}).requests["cpu"] == 1000
    assert replacement(replace(running, admission=None), {}).admission is None


def test_disruption_of_a_plan_is_that_of_its_evictions_together(build: Any) -> None:
    annotations = {
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
        "scheduling.koordinator.sh/eviction-cost": "7",
    }
    dear = build.pod("dear", 2, priority=100, annotations=annotations)
    plain = build.pod("plain", 1)
    moves = tuple(Move(pod, replacement(pod, {}), "n2") for pod in (dear, plain))
    made = PlanFound(moves, before=1, after=3)
    assert made.disruption == Disruption(priority=100, qos=4, reluctant=1, cost=7)
    assert (made.gain, made.cpus) == (2, 3000)


def test_plans_that_would_do_the_same_have_the_same_digest(build: Any) -> None:
    pod = build.pod("p", 1)
    first = PlanFound((Move(pod, replacement(pod, {}), "n2", why="a"),), 0, 1)
    second = PlanFound((Move(pod, replacement(pod, {}), "n2", why="b"),), 0, 9)
    other = PlanFound((Move(pod, replacement(pod, {}), "n3"),), 0, 1)
    assert first.digest == second.digest
    assert first.digest != other.digest
