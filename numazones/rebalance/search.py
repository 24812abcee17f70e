"""Searches for the fewest and least disruptive moves that bring a goal to a given number.

Iterative deepening over the number of evictions: whatever is found first is minimal among what was
searched. Nodes in a state are values, so what follows from a state (its count, the state after an
eviction, the state after a placement) is worked out once and remembered.

What keeps the tree small, without losing plans:

- a state that more evictions cannot bring to the number is left (bound: every movable pod of as many nodes
  as evictions are left is gone);
- before the last placement, the number must be reached without the pod: placing takes room, never makes it;
- a plan that already costs more than the best one known is not continued;
- a state reached before with as many evictions left is not searched again.

Where a cluster is too large for all of that, ``Breadth`` confines what comes before the last eviction to the
most promising nodes and destinations; the last eviction is always sought among all pods.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from heapq import heappush, heappushpop, nsmallest
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.errors import About, Passing
from numazones.rebalance.candidates import EvictionCandidate
from numazones.rebalance.goals import Counts, Goal
from numazones.rebalance.history import Relocation
from numazones.rebalance.limits import RemainingEvictions
from numazones.rebalance.moves import Disruption, evict, place, relocation
from numazones.rebalance.policy import ReplacementTarget
from numazones.rebalance.single_move import free_block, fullest_first

Expired = Callable[[], bool]
"""Says whether the time for a search is up; the library reads no clock."""


class _TimeIsUp(Passing):
    """Ends a search."""


@dataclass(frozen=True, slots=True)
class Breadth:
    """Number of nodes and destinations that are tried before the last eviction."""

    nodes: int
    destinations: int


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a plan that was found."""

    candidate: EvictionCandidate
    node: str
    after_pending: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan of a search."""

    steps: tuple[Step, ...]
    minimal: bool
    """Whether all smaller ones were tried in full."""


class NodeState:
    """A node in one state, with everything that follows from it remembered."""

    __slots__ = (
        "_evicted",
        "_free_block",
        "_goal",
        "_moved",
        "_upper_bound",
        "_with_replacement",
        "_worth",
        "key",
        "node",
    )

    def __init__(
        self, node: ClusterNode, goal: Goal, key: Hashable, moved: tuple[ClusterPod, ...] = ()
    ) -> None:
        """``moved``: the pod that came or went last."""
        self.node = node
        self._moved = moved
        self.key = key
        self._goal = goal
        self._worth: Counts | None = None
        self._upper_bound: Counts | None = None
        self._free_block: int | None = None
        self._evicted: dict[str, NodeState] = {}
        self._with_replacement: dict[str, NodeState | None] = {}

    @property
    def worth(self) -> Counts:
        """Return what the node contributes to the goal."""
        if self._worth is None:
            with About(*self._moved, self.node):
                self._worth = self._goal.worth(self.node)
        return self._worth

    @property
    def upper_bound(self) -> Counts:
        """Return the node's upper bound by amounts; exact once its worth has been computed."""
        if self._worth is not None:
            return self._worth
        if self._upper_bound is None:
            with About(*self._moved, self.node):
                self._upper_bound = self._goal.upper_bound(self.node)
        return self._upper_bound

    @property
    def free_block(self) -> int:
        """The most exclusive CPUs that one zone could still give."""
        if self._free_block is None:
            with About(*self._moved, self.node):
                self._free_block = free_block(self.node)
        return self._free_block

    def without(self, candidate: EvictionCandidate) -> "NodeState":
        """Return the state after an eviction."""
        uid = candidate.pod.uid
        if uid not in self._evicted:
            self._evicted[uid] = self._with_node(evict(self.node, candidate.pod), candidate.pod)
        return self._evicted[uid]

    def with_replacement(self, candidate: EvictionCandidate) -> "NodeState | None":
        """Return the state after the candidate's replacement is placed; None where it cannot be."""
        uid = candidate.pod.uid
        if uid not in self._with_replacement:
            node = place(self.node, candidate.replacement).node
            self._with_replacement[uid] = None if node is None else self._with_node(node, candidate.pod)
        return self._with_replacement[uid]

    def forget_moves(self) -> None:
        """Let go of the states that moves lead to."""
        self._evicted.clear()
        self._with_replacement.clear()

    def _with_node(self, node: ClusterNode, moved: ClusterPod) -> "NodeState":
        with About(moved, node):
            return NodeState(node, self._goal, state_key(node), (moved,))


def state_key(node: ClusterNode) -> Hashable:
    """Return what tells states of one node apart: its pods and what each of them holds."""
    state = node.state
    if state is None:
        return frozenset(node.pods)
    return (
        frozenset(node.pods),
        frozenset((uid, *containers.values()) for uid, containers in state.cpus.assignments.items()),
        state.memory.groups,
        tuple(state.memory.free.values()),
        tuple(state.devices.allocated.items()),
    )


@dataclass(frozen=True, slots=True)
class SearchState:
    """All states, as they are after some moves."""

    base: Mapping[str, NodeState]
    changed: Mapping[str, NodeState]
    counts: Counts

    def __getitem__(self, node: str) -> NodeState:
        return self.changed.get(node) or self.base[node]

    def with_state(self, name: str, state: NodeState) -> "SearchState":
        """Return the view with one node in another state."""
        old, new = self[name].worth, state.worth
        counts = self.counts if old == new else tuple(map(_replaced_term, self.counts, old, new))
        return SearchState(self.base, {**self.changed, name: state}, counts)


def _replaced_term(count: int, old: int, new: int) -> int:
    return count - old + new


@dataclass(eq=False, repr=False)
class Search:
    """Looks for plans in one cluster for one goal."""

    cluster: InitVar[Cluster]
    goal: Goal
    candidates: Sequence[EvictionCandidate]
    """The pods that may be moved, in their order."""
    _: KW_ONLY
    target: ReplacementTarget
    expired: Expired
    pending: EvictionCandidate | None = None
    """The pod that the goal is about, if it is about one; it may be placed before the last replacement."""
    forbidden: Collection[Relocation] = ()
    """Moves that no plan may have."""
    closed: Collection[str] = ()
    """Nodes that no pod may be moved to."""
    known: InitVar[Mapping[str, NodeState]] = MappingProxyType({})
    """States of an earlier search for the goal; those of nodes that are the same still are used on."""

    def __post_init__(self, cluster: Cluster, known: Mapping[str, NodeState]) -> None:
        base: dict[str, NodeState] = {}
        for name, node in cluster.nodes.items():
            state = known.get(name)
            if state is None or state.node is not node:
                with About(node):
                    state = NodeState(node, self.goal, state_key(node))
            base[name] = state
        columns = []
        for state in base.values():
            with About(state.node):
                columns.append(state.worth)
                _ = state.free_block
        counts = tuple(map(sum, zip(*columns, strict=True)))
        self._start = SearchState(base, {}, counts)
        self._by_node: dict[str, list[EvictionCandidate]] = {}
        for candidate in self.candidates:
            self._by_node.setdefault(candidate.pod.node, []).append(candidate)
        self._emptiest_first = sorted(self._by_node, key=lambda name: (-base[name].free_block, name))
        """Nodes of movable pods, as they are before any move."""
        ordered = fullest_first(cluster.nodes.values(), lambda node: base[node.name].free_block)
        self._destinations = [node.name for node in ordered]
        self._gains: dict[tuple[str, Hashable], int] = {}
        self._numbers: dict[tuple[str, Hashable], int] = {}
        """Node and key of a state → its number; numbers take a tenth of the memory where views are kept."""
        # Of the search that is going on:
        self._want = 0
        self._breadth: Breadth | None = None
        self._best: _Best | None = None
        self._seen: dict[tuple[int, ...], int] = {}

    @property
    def states(self) -> Mapping[str, NodeState]:
        """Node → its state before any move."""
        return self._start.base

    @property
    def total(self) -> int:
        """Return the goal's count before any move."""
        return self.goal.total(self._start.counts)

    def find(
        self, want: int, allowance: RemainingEvictions, *, at_most: int, breadth: Breadth | None = None
    ) -> Found | None:
        """Return the best plan that brings the goal to ``want``; None where none was found in time."""
        self._want, self._breadth = want, breadth
        for depth in range(self._fewest(want), at_most + 1):
            best, in_time = self._best_of(depth, allowance)
            if best is not None:
                return Found(best[1], minimal=breadth is None or depth == self._fewest(want))
            if not in_time:
                return None
        return None

    def _fewest(self, want: int) -> int:
        """Return how many evictions are needed at least, given what one of them can gain."""
        most = self.goal.gain_per_eviction
        return 1 if most is None else max(1, -(-(want - self.total) // most))

    def _best_of(self, depth: int, allowance: RemainingEvictions) -> "tuple[_Best | None, bool]":
        """Return the best plan of exactly so many evictions, and whether all were tried."""
        self._seen, self._best = {}, None
        try:
            self._descend(self._start, (), depth, allowance)
        except _TimeIsUp:
            return self._best, False
        return self._best, True

    def _descend(
        self, view: SearchState, steps: tuple[Step, ...], left: int, allowance: RemainingEvictions
    ) -> None:
        if not self._worth_going_on(view, steps, left):
            return
        moved = {step.candidate.index for step in steps}
        sources = [each for each in self._sources(view, steps, left) if each.index not in moved]
        floor = _Floor(sources, left, _cost(steps))
        for candidate in sources:
            if self.expired():
                raise _TimeIsUp
            with About(candidate.pod):
                if not self._is_too_dear(floor, candidate) and not allowance.rejection(candidate.pod):
                    self._evict(candidate, view, steps, left, allowance)

    def _evict(
        self,
        candidate: EvictionCandidate,
        view: SearchState,
        steps: tuple[Step, ...],
        left: int,
        allowance: RemainingEvictions,
    ) -> None:
        """Go on with a pod evicted."""
        name = candidate.pod.node
        state = view[name].without(candidate)
        if left > 1 or self._reaches(view, name, state):
            after = allowance.after(candidate.pod)
            for step, placed in self._placements(view.with_state(name, state), candidate, left):
                if left > 1:
                    self._descend(placed, (*steps, step), left - 1, after)
                else:
                    self._record((*steps, step))
                    break  # other destinations cost the same

    def _record(self, steps: tuple[Step, ...]) -> None:
        cost = _cost(steps)
        if self._best is None or cost < self._best[0]:
            self._best = (cost, steps)

    # What need not be searched

    def _is_too_dear(self, floor: "_Floor", candidate: EvictionCandidate) -> bool:
        return self._best is not None and floor.with_one(candidate) >= self._best[0]

    def _worth_going_on(self, view: SearchState, steps: tuple[Step, ...], left: int) -> bool:
        most = self.goal.gain_per_eviction
        if most is not None and self.goal.total(view.counts) + left * most < self._want:
            return False
        if steps:
            key = self._key(view)
            if self._seen.get(key, 0) >= left:
                return False
            self._seen[key] = left
            if self._breadth is not None:
                return True  # few states; their bounds would cost more than they save
        return left == 1 or self._is_within_bounds(view, left)

    def _key(self, view: SearchState) -> tuple[int, ...]:
        """Return a key that is equal for views in the same state."""
        numbers = self._numbers
        states = ((name, state.key) for name, state in view.changed.items())
        return tuple(sorted(numbers.setdefault(state, len(numbers)) for state in states))

    def _is_within_bounds(self, view: SearchState, left: int) -> bool:
        """Return whether that many evictions could reach the number, placements set aside.

        A node that has been looked at is remembered, and there are thousands: none more than needed are.
        """
        lacking = self._want - self.goal.total(view.counts)
        most: list[int] = []
        for name in self._emptiest_first:
            if sum(most) >= lacking:
                return True
            gain = self._emptied_gain(view, name)
            if len(most) < left:
                heappush(most, gain)
            else:
                heappushpop(most, gain)
        return sum(most) >= lacking

    def _emptied_gain(self, view: SearchState, name: str) -> int:
        """Return what a node would contribute more if every movable pod left it."""
        state = view[name]
        key = (name, state.key)
        if key not in self._gains:
            empty = state
            for candidate in self._by_node[name]:
                if candidate.pod.uid in empty.node.pods:
                    empty = empty.without(candidate)
            pairs = zip(empty.worth, state.worth, strict=True)
            self._gains[key] = sum(max(0, after - before) for after, before in pairs)
        return self._gains[key]

    def _reaches(self, view: SearchState, name: str, state: NodeState) -> bool:
        """Return whether the number is reached with one node in another state."""
        most = tuple(map(_replaced_term, view.counts, view[name].worth, state.upper_bound))
        return (
            self.goal.total(most) >= self._want
            and self.goal.total(view.with_state(name, state).counts) >= self._want
        )

    # What is searched, and in which order

    def _sources(self, view: SearchState, steps: tuple[Step, ...], left: int) -> Sequence[EvictionCandidate]:
        """Return the pods to evict next, in the order in which they are best evicted."""
        if self.goal.gain_per_eviction is not None and (
            self._want - self.goal.total(view.counts) == left * self.goal.gain_per_eviction
        ):
            return [
                each
                for each in self.candidates
                if self.goal.concerns(each.pod.node) and self._gains_by(view, each)
            ]
        if self._breadth is None or (left == 1 and not steps):
            return self.candidates
        names = [*view.changed, *self._promising_nodes(view, self._breadth.nodes)]
        listed = [candidate for name in names for candidate in self._by_node.get(name, ())]
        return sorted(listed, key=lambda candidate: candidate.index)

    def _gains_by(self, view: SearchState, candidate: EvictionCandidate) -> bool:
        name = candidate.pod.node
        return candidate.pod.uid in view[name].node.pods and (
            view[name].without(candidate).worth > view[name].worth
        )

    def _promising_nodes(self, view: SearchState, number: int) -> list[str]:
        """Return the nodes that would gain something if emptied, those with the largest free blocks first."""
        names = (name for name in self._emptiest_first if name not in view.changed)
        gaining = (name for name in names if self._emptied_gain(view, name) > 0)
        return list(islice(gaining, number))

    def _placements(
        self, view: SearchState, candidate: EvictionCandidate, left: int
    ) -> Iterator[tuple[Step, SearchState]]:
        """Yield where the replacement fits, and the view then; the last one must reach the number."""
        tried = 0
        for name in self._nodes_for(view, candidate, left):
            with About(candidate.pod, view.base[name].node):
                placed = self._placed(view, name, candidate, left)
            if placed is None:
                continue
            yield Step(candidate, name), placed
            tried += 1
            if left > 1 and self._breadth is not None and tried == self._breadth.destinations:
                return
        if left == 1 and not tried:
            yield from self._placement_after_pending(view, candidate)

    def _placed(
        self, view: SearchState, name: str, candidate: EvictionCandidate, left: int
    ) -> SearchState | None:
        """Return the view with the replacement on a node; None where it does not fit or brings too little."""
        state = None if self._is_forbidden(candidate, name) else view[name].with_replacement(candidate)
        placed = None if state is None else view.with_state(name, state)
        if placed is None or (left == 1 and self.goal.total(placed.counts) < self._want):
            return None
        return placed

    def _placement_after_pending(
        self, view: SearchState, candidate: EvictionCandidate
    ) -> Iterator[tuple[Step, SearchState]]:
        """Yield the replacement's placement on the node that it leaves, once the pending pod is there."""
        name = candidate.pod.node
        if (
            self.pending is None
            or self.target is ReplacementTarget.OTHER
            or self._is_forbidden(candidate, name)
        ):
            return
        taken = view[name].with_replacement(self.pending)
        state = None if taken is None else taken.with_replacement(candidate)
        if state is not None:
            yield Step(candidate, name, after_pending=True), view

    def _nodes_for(self, view: SearchState, candidate: EvictionCandidate, left: int) -> Iterator[str]:
        """Yield where the replacement may go, the fullest nodes first."""
        source = candidate.pod.node
        names: Iterable[str] = self._destinations
        if self.target is ReplacementTarget.SAME:
            names = (source,)
        elif (
            self._breadth is not None
            and left == 1
            and len(view.changed) > 1
            and (view.base[source].without(candidate) is view.changed[source])
        ):
            names = view.changed  # elsewhere it would have fitted without the moves before
        for name in names:
            if self.expired():
                raise _TimeIsUp
            if name != source or self.target is not ReplacementTarget.OTHER:
                yield name

    def _is_forbidden(self, candidate: EvictionCandidate, node: str) -> bool:
        if node in self.closed:
            return True
        return bool(self.forbidden) and relocation(candidate.pod, node) in self.forbidden


class _Cost(NamedTuple):
    """Cost by which plans with equally many evictions are compared."""

    disruption: Disruption = Disruption()
    weight: int = 0

    def plus(self, other: "_Cost") -> "_Cost":
        return _Cost(self.disruption.plus(other.disruption), self.weight + other.weight)


_Best = tuple[_Cost, tuple[Step, ...]]


def _cost_of(candidate: EvictionCandidate) -> _Cost:
    return _Cost(candidate.disruption, candidate.weight)


def _cost(steps: Iterable[Step]) -> _Cost:
    return _sum(_Cost(), (step.candidate for step in steps))


def _sum(cost: _Cost, candidates: Iterable[EvictionCandidate]) -> _Cost:
    for candidate in candidates:
        with About(candidate.pod):
            cost = cost.plus(_cost_of(candidate))
    return cost


class _Floor:
    """The least that a plan can cost with a number of further evictions among some pods."""

    def __init__(self, sources: Sequence[EvictionCandidate], number: int, spent: _Cost) -> None:
        cheapest = nsmallest(number, sources, key=lambda each: (each.disruption, each.weight))
        self._among_cheapest = {candidate.index for candidate in cheapest}
        self._others = _sum(spent, cheapest[: number - 1])
        self._all = _sum(self._others, cheapest[-1:])

    def with_one(self, candidate: EvictionCandidate) -> _Cost:
        """Return the least that it can cost if the candidate is one of them."""
        if candidate.index in self._among_cheapest:
            return self._all
        return self._others.plus(_cost_of(candidate))
