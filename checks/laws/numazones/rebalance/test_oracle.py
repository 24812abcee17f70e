"""The planner against an exhaustive search, on random small clusters.

The oracle knows nothing of the planner: it tries every pod on every node, level by level, with the kubelet's
admission alone, and looks whether the goal is reached. Where it finds a way the planner must find one as
short; and every plan is played through here once more, move by move.
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.placement.fragmentation import Shape, zones_of
from numazones.rebalance.goals import FitMore, Goal, Vacate, Wanted, measure, pending_goals
from numazones.rebalance.moves import PlanFound
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy, ReplacementTarget

CLUSTERS = 260
# Each share of them is a test of its own, so that none takes long on a busy machine.
SHARES = 5
MOST = 3
"""Evictions that a plan may hold: so deep does the oracle search."""

Nodes = tuple[ClusterNode, ...]


def key_of(node: ClusterNode) -> Hashable:
    assert node.state is not None
    held = node.state.cpus.assignments
    return (
        node.name,
        tuple(sorted(node.pods)),
        tuple(sorted((uid, tuple(held[uid].values())) for uid in held)),
    )


@dataclass(frozen=True)
class Spot:
    """A node and its key, worked out once."""

    node: ClusterNode
    key: Hashable


Spots = tuple[Spot, ...]


class Oracle:
    """Breadth-first search over all moves; each pod is moved at most once."""

    def __init__(self, target: ReplacementTarget, work: "Task") -> None:
        self.target = target
        self.work = work
        self.cache: dict[Hashable, Spot | None] = {}
        self.worth: dict[Hashable, int] = {}
        self.replacements: dict[str, ClusterPod] = {}

    def fewest(self, nodes: Nodes) -> int | None:
        """The fewest evictions that reach the goal; None where none do."""
        start = tuple(Spot(node, key_of(node)) for node in nodes)
        level: dict[Hashable, Spots] = {self.key(start): start}
        seen = set(level)
        for evictions in range(1, MOST + 1):
            following: dict[Hashable, Spots] = {}
            for state in level.values():
                for freed, index, pod in self.evictions(state):
                    if self.fits_after(freed[index], pod):
                        return evictions
                    for moved in self.placings(freed, index, pod):
                        key = self.key(moved)
                        if key not in seen:
                            seen.add(key)
                            if self.reached(moved):
                                return evictions
                            following[key] = moved
            level = following
        return None

    def key(self, spots: Spots) -> Hashable:
        return tuple(spot.key for spot in spots)

    def reached(self, spots: Spots) -> bool:
        total = 0
        for spot in spots:
            if spot.key not in self.worth:
                self.worth[spot.key] = self.work.worth(spot.node)
            total += self.worth[spot.key]
        return total >= self.work.aim

    def remembered(self, key: Hashable, make: Callable[[], ClusterNode | None]) -> Spot | None:
        if key not in self.cache:
            node = make()
            self.cache[key] = None if node is None else Spot(node, key_of(node))
        return self.cache[key]

    def again(self, pod: ClusterPod) -> ClusterPod:
        if pod.uid not in self.replacements:
            self.replacements[pod.uid] = again(pod)
        return self.replacements[pod.uid]

    def evictions(self, spots: Spots) -> Iterator[tuple[Spots, int, ClusterPod]]:
        for index, spot in enumerate(spots):
            for pod in spot.node.pods.values():
                if not pod.uid.endswith("~"):
                    freed = self.remembered((spot.key, pod.uid), lambda: without(spot.node, pod))  # noqa: B023
                    assert freed is not None
                    yield (*spots[:index], freed, *spots[index + 1 :]), index, pod

    def placings(self, spots: Spots, source: int, pod: ClusterPod) -> Iterator[Spots]:
        replacement = self.again(pod)
        for index, spot in enumerate(spots):
            if self.target is (ReplacementTarget.OTHER if index == source else ReplacementTarget.SAME):
                continue
            placed = self.remembered((spot.key, pod.uid, "place"), lambda: with_pod(spot.node, replacement))  # noqa: B023
            if placed is not None:
                yield (*spots[:index], placed, *spots[index + 1 :])

    def fits_after(self, spot: Spot, then: ClusterPod) -> bool:
        """Return whether both fit on the node that one has left, the pending pod first."""
        first = self.work.pending_pod
        if first is None or self.target is ReplacementTarget.OTHER:
            return False
        taken = self.remembered((spot.key, first.uid), lambda: with_pod(spot.node, first))
        return taken is not None and with_pod(taken.node, self.again(then)) is not None


def again(pod: ClusterPod) -> ClusterPod:
    assert pod.admission is not None
    return replace(pod, uid=f"{pod.uid}~", node="", admission=replace(pod.admission, uid=f"{pod.uid}~"))


def without(node: ClusterNode, pod: ClusterPod) -> ClusterNode:
    assert node.state is not None
    return node.without_pod(pod.uid).with_state(remove(node.state, pod.uid))


def with_pod(node: ClusterNode, pod: ClusterPod) -> ClusterNode | None:
    assert node.state is not None
    assert pod.admission is not None
    if scheduling.obstacles(pod.constraints, pod.requests, node):
        return None
    admission = admit(node.state, pod.admission)
    return node.with_pod(pod.placed(node.name)).with_state(admission.node) if admission.admitted else None


def number_that_fit(node: ClusterNode, pod: ClusterPod) -> int:
    number = 0
    while True:
        assert pod.admission is not None
        uid = f"x{number}"
        following = with_pod(node, replace(pod, uid=uid, admission=replace(pod.admission, uid=uid)))
        if following is None:
            return number
        node, number = following, number + 1


@dataclass
class Task:
    """A goal and the oracle's own idea of it: a sum over nodes that must reach a number."""

    goal: Goal
    worth: Callable[[ClusterNode], int]
    aim: int
    pending_pod: ClusterPod | None = None

    def reached(self, nodes: Nodes) -> bool:
        return sum(map(self.worth, nodes)) >= self.aim


def task(draw: random.Random, nodes: Nodes, build: Any) -> Task:
    kind = draw.choice(["pending", "pending", "shape", "zone"])
    cpus = draw.choice([3, 3, 4, 5])
    if kind == "pending":
        pod = replace(build.pod("big", cpus), phase="Pending")
        return Task(pending_goals([pod])[0], lambda node: with_pod(node, pod) is not None, 1, pod)
    if kind == "shape":
        wanted = Wanted.shape("big", Shape.parse(f"cpu={cpus},memory=1Gi"))
        aim = sum(number_that_fit(node, wanted.example) for node in nodes) + draw.choice([1, 1, 2])
        return Task(
            FitMore((replace(wanted, count=aim),)), lambda node: number_that_fit(node, wanted.example), aim
        )
    chosen, zone = draw.choice(nodes).name, draw.choice([0, 1])

    def in_the_way(node: ClusterNode) -> int:
        state = node.state
        assert state is not None
        return -sum(node.name == chosen and zone in zones_of(state, uid) for uid in node.pods)

    return Task(Vacate(chosen, zone), in_the_way, 0)


def play(made: PlanFound, nodes: Nodes, reached: Callable[[Nodes], bool]) -> None:
    """Carry a plan out as it says, with the kubelet's admission alone."""
    state = {node.name: node for node in nodes}
    waiting = list(made.placements)

    def place() -> None:
        while waiting:
            placement = waiting.pop(0)
            taken = with_pod(state[placement.node], placement.pod)
            assert taken is not None
            state[placement.node] = taken

    for move in made.moves:
        state[move.pod.node] = without(state[move.pod.node], move.pod)
        if move.after_pending:
            place()
        placed = with_pod(state[move.node], move.replacement)
        assert placed is not None
        state[move.node] = placed
    if made.placements:
        place()
    else:
        assert reached(tuple(state.values()))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_plans_are_as_short_as_an_exhaustive_search_finds(
    share: int,
    build: Any,
    random_cluster: Callable[[random.Random], list[ClusterNode]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures: Counter[str] = Counter()
    draw = random.Random(20260131 + share)
    while figures["clusters"] < CLUSTERS // SHARES:
        nodes = tuple(random_cluster(draw))
        work = task(draw, nodes, build)
        if work.reached(nodes):
            continue
        figures["clusters"] += 1
        target = draw.choice(
            [ReplacementTarget.ANY, ReplacementTarget.ANY, ReplacementTarget.OTHER, ReplacementTarget.SAME]
        )
        policy = Policy(limits=EvictionLimits(total=MOST), target=target)
        situation = build.situation(nodes)
        outcome = plan(work.goal, situation, policy, expired=lambda: False)
        fewest = Oracle(target, work).fewest(nodes)
        if outcome.plan is not None and _reaches(outcome.plan, work.goal):
            play(outcome.plan, nodes, work.reached)
            assert fewest is not None, "the planner found what the oracle did not"
            assert outcome.plan.before == measure(work.goal, situation.cluster)
            figures["minimal"] += len(outcome.plan.moves) == fewest
            figures["found"] += 1
        figures["solvable"] += fewest is not None
        figures[f"by {fewest} evictions"] += fewest is not None
    with capsys.disabled():
        print(f"\nplans against an exhaustive search: {dict(sorted(figures.items()))}")  # noqa: T201
    assert figures["solvable"] >= 100 / SHARES
    assert figures["found"] == figures["solvable"]
    assert figures["minimal"] == figures["found"]


def _reaches(made: PlanFound, goal: Goal) -> bool:
    assert goal.aim is not None
    return made.after >= goal.aim
