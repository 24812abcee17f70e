"""The search by itself: what it finds first, what it leaves out, and what it remembers."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import ClusterNode
from numazones.placement import Unknown
from numazones.placement.fragmentation import Shape
from numazones.rebalance.candidates import EvictionCandidate, Situation, candidates
from numazones.rebalance.goals import FitMore, Goal, Vacate, Wanted
from numazones.rebalance.limits import PlannedEvictions, RemainingEvictions
from numazones.rebalance.moves import Disruption, evict, place, relocation
from numazones.rebalance.policy import Policy, ReplacementTarget
from numazones.rebalance.search import Breadth, Found, NodeState, Search, SearchState, state_key
from tests.laws import examples


def shape(cpus: int) -> FitMore:
    return FitMore((Wanted.shape("big", Shape.parse(f"cpu={cpus},memory=1Gi")),))


def search(situation: Situation, goal: Goal, **settings_: Any) -> Search:
    settings_ = {"target": ReplacementTarget.ANY, "expired": lambda: False, **settings_}
    return Search(situation.cluster, goal, candidates(situation, Policy()), **settings_)


def allowance(situation: Situation, limits: EvictionLimits | None = None) -> RemainingEvictions:
    return RemainingEvictions(PlannedEvictions(limits or EvictionLimits(), situation.context.replicas))


def steps(found: Found | None) -> list[tuple[str, str]]:
    assert found is not None
    return [(step.candidate.pod.name, step.node) for step in found.steps]


@pytest.fixture
def broken(build: Any) -> Situation:
    """Zones of n1 have 0 and 3 of 4 CPUs free, n2 has 1: with b there, n1 has 4 together."""
    first = build.put(build.node("n1"), build.pod("a", 3), build.pod("b", 1))
    second = build.put(build.node("n2", zones=1, cpus=6), build.pod("filler", 4))
    found: Situation = build.situation([first, second])
    return found


def test_fewest_evictions_come_first_and_are_proven_minimal(broken: Situation) -> None:
    sought = search(broken, shape(4))
    found = sought.find(sought.total + 1, allowance(broken), at_most=5)
    assert steps(found) == [("b", "n2")]
    assert found is not None
    assert found.minimal


@pytest.mark.parametrize(
    ("changes", "limits", "most"),
    [
        ({"target": ReplacementTarget.SAME}, None, 5),
        ({"expired": lambda: True}, None, 5),
        ({}, EvictionLimits(total=0), 5),
        ({}, None, 0),
    ],
)
def test_nothing_is_found_beyond_target_time_limits_and_number(
    broken: Situation, changes: dict[str, Any], limits: EvictionLimits | None, most: int
) -> None:
    sought = search(broken, shape(4), **changes)
    assert sought.find(sought.total + 1, allowance(broken, limits), at_most=most) is None


def test_without_any_node_nothing_fits_and_nothing_is_found(build: Any) -> None:
    empty = build.situation([])
    sought = search(empty, shape(4))
    assert sought.total == 0
    assert sought.find(1, allowance(empty), at_most=3) is None


def test_a_barred_move_is_in_no_plan(broken: Situation) -> None:
    sought = search(broken, shape(4))
    found = sought.find(sought.total + 1, allowance(broken), at_most=1)
    assert found is not None
    barred = {relocation(step.candidate.pod, step.node) for step in found.steps}
    again = search(broken, shape(4), forbidden=barred)
    assert again.find(again.total + 1, allowance(broken), at_most=1) is None


def test_of_equally_many_evictions_the_gentlest_are_chosen(build: Any) -> None:
    """Either of two pods may go; the one of lower priority does."""
    first = build.put(build.node("n1", zones=1), build.pod("dear", 1, priority=1000), build.pod("cheap", 1))
    situation = build.situation([first, build.node("n2", zones=1, cpus=2)])
    sought = search(situation, shape(2))
    assert steps(sought.find(sought.total + 1, allowance(situation), at_most=1)) == [("cheap", "n2")]


def test_goal_with_one_gain_per_eviction_skips_smaller_searches(build: Any) -> None:
    first = build.put(build.node("n1", zones=1), build.pod("a", 1), build.pod("b", 1))
    situation = build.situation([first, build.node("n2", zones=1)])
    sought = search(situation, Vacate("n1"))
    assert sought.total == -2
    assert sought.find(0, allowance(situation), at_most=1) is None
    assert sorted(steps(sought.find(0, allowance(situation), at_most=2))) == [("a", "n2"), ("b", "n2")]


def test_pending_pod_may_take_its_place_before_the_last_replacement(build: Any) -> None:
    """Restarted first, p would take zone 0 again, the only one where big fits."""
    node = build.put(build.node("n1", reservedSystemCPUs="4"), build.pod("p", 1))
    big = replace(build.pod("big", 4), phase="Pending")
    situation = build.situation([node])
    goal = FitMore((Wanted("big", big, 1, (big,)),))
    alone = search(situation, goal)
    assert alone.find(1, allowance(situation), at_most=1) is None
    sought = search(situation, goal, pending=EvictionCandidate(big, Disruption(), -1))
    found = sought.find(1, allowance(situation), at_most=1)
    assert steps(found) == [("p", "n1")]
    assert found is not None
    assert found.steps[0].after_pending


def node_state(node: ClusterNode, goal: Goal) -> NodeState:
    return NodeState(node, goal, state_key(node))


def test_states_of_a_node_differ_by_what_pods_hold(build: Any) -> None:
    empty = build.node("n1")
    a, b = build.pod("a", 1), build.pod("b", 1)
    both, other_order = build.put(empty, a, b), build.put(empty, b, a)
    assert state_key(evict(both, b)) == state_key(build.put(empty, a))
    assert state_key(both) != state_key(other_order)
    blind = both.with_placement(Unknown("Stale", "old"))
    assert state_key(blind) == frozenset({"a", "b"})


def test_what_follows_from_a_state_is_worked_out_once(broken: Situation) -> None:
    node = broken.cluster.nodes["n1"]
    state = node_state(node, shape(4))
    (moved,) = (each for each in candidates(broken, Policy()) if each.pod.name == "b")
    assert state.without(moved) is state.without(moved)
    assert state.without(moved).with_replacement(moved) is state.without(moved).with_replacement(moved)
    assert (state.worth, state.without(moved).worth) == ((0,), (1,))
    assert (state.free_block, state.without(moved).free_block) == (3, 4)


def test_a_replacement_that_does_not_fit_leaves_no_state(build: Any) -> None:
    full = build.put(build.node("n2", zones=1), build.pod("filler", 3))
    running = build.pod("a", 3)
    state = node_state(full, shape(1))
    assert state.with_replacement(EvictionCandidate(running, Disruption(), 0)) is None


def test_a_view_counts_on_from_what_changed(broken: Situation) -> None:
    goal = shape(4)
    states = {name: node_state(node, goal) for name, node in broken.cluster.nodes.items()}
    view = SearchState(states, {}, (0,))
    (moved,) = (each for each in candidates(broken, Policy()) if each.pod.name == "b")
    freed = view.with_state("n1", states["n1"].without(moved))
    assert freed.counts == (1,)
    assert freed["n1"] is not states["n1"]
    assert freed["n2"] is states["n2"]


def test_view_keys_depend_only_on_state(broken: Situation) -> None:
    goal = shape(4)
    sought = search(broken, goal)
    start = SearchState(sought.states, {}, (0,))
    moved, *_ = candidates(broken, Policy())
    name, other = moved.pod.node, next(name for name in sought.states if name != moved.pod.node)
    freed = sought.states[name].without(moved)
    again = NodeState(freed.node, goal, freed.key)
    there = start.with_state(name, freed)
    assert sought._key(there) == sought._key(start.with_state(name, again)) != sought._key(start)
    both = there.with_state(other, sought.states[other])
    assert sought._key(both) == sought._key(
        start.with_state(other, sought.states[other]).with_state(name, freed)
    )
    assert sought._key(both) != sought._key(there)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10_000))
def test_steps_found_reach_the_target_in_confined_searches_too(
    build: Any, random_cluster: Callable[[random.Random], list[ClusterNode]], seed: int
) -> None:
    situation = build.situation(random_cluster(random.Random(seed)))
    goal = shape(3)
    sought = search(situation, goal)
    want = sought.total + 1
    whole = sought.find(want, allowance(situation), at_most=2)
    confined = sought.find(want, allowance(situation), at_most=2, breadth=Breadth(2, 2))
    for found in (whole, confined):
        if found is None:
            continue
        cluster = situation.cluster
        for step in found.steps:
            cluster = cluster.with_node(evict(cluster.nodes[step.candidate.pod.node], step.candidate.pod))
            placed = place(cluster.nodes[step.node], step.candidate.replacement)
            assert placed.node is not None
            cluster = cluster.with_node(placed.node)
        assert search(replace(situation, cluster=cluster), goal).total >= want
    if confined is not None:
        assert whole is not None
        assert len(whole.steps) <= len(confined.steps)


def test_search_reuses_states_of_unchanged_nodes(broken: Situation, build: Any) -> None:
    earlier = search(broken, shape(4))
    earlier.find(earlier.total + 1, allowance(broken), at_most=5)
    changed = broken.cluster.with_node(build.put(build.node("n1"), build.pod("a", 3)))
    later = search(replace(broken, cluster=changed), shape(4), known=earlier.states)
    assert later.states["n2"] is earlier.states["n2"]
    assert later.states["n1"].node is changed.nodes["n1"]


def test_results_of_moves_can_be_forgotten_and_recomputed(broken: Situation) -> None:
    sought = search(broken, shape(4))
    found = sought.find(sought.total + 1, allowance(broken), at_most=5)
    for state in sought.states.values():
        state.forget_moves()
    assert sought.find(sought.total + 1, allowance(broken), at_most=5) == found
