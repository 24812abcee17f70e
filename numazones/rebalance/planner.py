"""From a goal to a proven plan.

Small clusters are searched in full, so that the plan has the fewest evictions there can be. In large ones
the search is confined (see ``search``), and gain is sought one by one, each step on the cluster as the
steps before leave it. In both cases a plan is what ``prove`` has confirmed; replacements whose place
decides over the plan are confined by node affinity, and only those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from numazones.alignment.pod_alignment import PodAlignment
from numazones.apimachinery import timestamp
from numazones.apimachinery.quantity import format_milli
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.errors import About
from numazones.rebalance.beneficiaries import highest_victim, outranks
from numazones.rebalance.candidates import EvictionCandidate, Situation, candidates
from numazones.rebalance.goals import Align, Goal, Vacate, waiting_pods, without_pods
from numazones.rebalance.history import FreedNode
from numazones.rebalance.limits import PlannedEvictions, RemainingEvictions
from numazones.rebalance.moves import (
    Disruption,
    Move,
    PlacedPod,
    PlanFound,
    evict,
    place,
    relocation,
    zones_of,
)
from numazones.rebalance.policy import Policy
from numazones.rebalance.proof import Proof, prove
from numazones.rebalance.search import Breadth, Expired, Found, NodeState, Search, Step
from numazones.rebalance.single_move import free_block
from numazones.wording import pluralize

_Item = TypeVar("_Item")

SMALL = 400
"""Up to this number of movable pods times nodes, every plan is tried."""
BREADTH = Breadth(nodes=16, destinations=3)
_MILLIS, _GIB = 1000, 1 << 30


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """The result of planning."""

    plan: PlanFound | None
    reason: str = ""
    """Why there is no plan."""
    before: int = 0
    """What the goal counts now."""
    reached: bool = False
    """Whether there is nothing to do."""
    movable: int = 0
    """How many pods could be moved at all."""
    undoes: Mapping[str, FreedNode] = field(default_factory=dict)
    """Nodes that the only plan found would fill, though another policy's made room there: it is not made."""


def plan(goal: Goal, situation: Situation, policy: Policy, *, expired: Expired) -> PlanningResult:
    """Return a proven plan towards a goal, or why there is none.

    Pods and nodes about which something raises that no rule foresees are left out
    (``situation.left_out``). ``expired`` says whether the time is up; the best plan so far is returned then.

    Raises:
        ObjectFault: leaving out pods and nodes does not help.
    """
    waited = waiting_pods(goal)

    def attempt(sound: Situation) -> PlanningResult:
        left, nodes = without_pods(goal, situation.left_out.pods), situation.left_out.nodes
        if waited and not waiting_pods(left):
            return PlanningResult(None, "no pod is left to make room for")
        if isinstance(goal, Vacate) and goal.node in nodes:
            return PlanningResult(None, f"the state of node {goal.node} is unknown: {nodes[goal.node]}")
        with About(*waiting_pods(left)[:1], otherwise=True):
            return _plan(left, sound, policy, expired)

    return situation.isolated(attempt)


def _plan(goal: Goal, situation: Situation, policy: Policy, expired: Expired) -> PlanningResult:
    outcome = _Planning(goal, situation, policy, expired).outcome()
    closed = {} if waiting_pods(goal) else situation.history.closed_nodes(situation.context.now)
    if outcome.plan is not None or outcome.reached or not closed:
        return outcome
    contradicting = _contradicting_plan(goal, situation, policy, expired)
    undoes = {move.node: closed[move.node] for move in contradicting if move.node in closed}
    if not undoes:
        return outcome
    return replace(outcome, undoes=undoes, reason=f"the only plan found {_undoing(undoes)}")


def _contradicting_plan(
    goal: Goal, situation: Situation, policy: Policy, expired: Expired
) -> tuple[Move, ...]:
    """Return the moves that there would be if the room that others' plans have made could be filled."""
    careless = replace(situation, history=replace(situation.history, emptied={}))
    found = _Planning(goal, careless, policy, expired).outcome().plan
    return () if found is None else found.moves


def _undoing(undoes: Mapping[str, FreedNode]) -> str:
    """Say whose room a plan would fill, and until when it is left alone."""
    nodes = ", ".join(sorted(undoes))
    policies = " and ".join(sorted({emptied.policy for emptied in undoes.values()}))
    until = timestamp.format(max(emptied.until for emptied in undoes.values()))
    return f"would fill {nodes}, where plans of policy {policies} made room; this policy waits until {until}"


@dataclass(eq=False, repr=False)
class _Planning:
    _goal: Goal
    _situation: Situation
    _policy: Policy
    _expired: Expired

    def __post_init__(self) -> None:
        goal, situation, policy = self._goal, self._situation, self._policy
        movable = candidates(situation, policy)
        highest = highest_victim(waiting_pods(goal))
        allowed = tuple(one for one in movable if _may_go_for(one.pod, highest))
        self._spared = len(movable) - len(allowed)
        """How many pods stay since they are more important than those that wait."""
        self._movable = _for_goal(goal, allowed, situation.cluster)
        context = situation.context
        self._forbidden = situation.history.forbidden_moves(context.now, policy.cooldown)
        self._closed = {} if waiting_pods(goal) else situation.history.closed_nodes(context.now)
        self._allowance = RemainingEvictions(
            PlannedEvictions(policy.limits, context.replicas), context.headroom
        )
        self._states: dict[str, NodeState] = {}
        """Node → its state in the search that came last."""

    def outcome(self) -> PlanningResult:
        first: PlanningResult | None = None
        try:
            while True:
                found, hopeless = self._attempt()
                if found.plan is not None:
                    return found
                first = first or found
                if not hopeless or self._expired():
                    return replace(first, movable=len(self._movable))
                self._rule_out(hopeless)
        finally:
            self._forget_moves()

    def _attempt(self) -> tuple[PlanningResult, str]:
        """Return what is found, and the uid of a pod for whose move a plan does not hold; empty if none."""
        search = self._search(self._situation.cluster, self._movable)
        before = search.total
        aim = self._goal.aim
        if aim is not None and before >= aim:
            nothing = self._no_plan("there is nothing to do: the goal is reached", before)
            return replace(nothing, reached=True), ""
        steps, minimal = self._steps(search)
        if not steps:
            return self._no_plan(self._reason_for_no_plan(), before), ""
        made = self._prove_with_fewest_affinities(self._draft(steps, before, minimal=minimal))
        if isinstance(made, Proof):
            return self._no_plan(
                f"the plan that was found did not pass the proof: {made.reason}", before
            ), made.hopeless
        if made.gain < self._policy.min_gain:
            reason = f"the best plan gains {made.gain}, less than minGain of {self._policy.min_gain}"
            return self._no_plan(reason, before), ""
        return PlanningResult(made, "", before, movable=len(self._movable)), ""

    def _rule_out(self, uid: str) -> None:
        """Let a pod not be made anew on the node that it leaves, or, asked again, not be moved at all."""
        moves = [relocation(one.pod, one.pod.node) for one in self._movable if one.pod.uid == uid]
        here = frozenset(move for move in moves if move is not None)
        if here <= self._forbidden:
            self._movable = tuple(one for one in self._movable if one.pod.uid != uid)
        self._forbidden |= here

    def _no_plan(self, reason: str, before: int) -> PlanningResult:
        return PlanningResult(None, reason, before, movable=len(self._movable))

    def _reason_for_no_plan(self) -> str:
        spared = ""
        if self._spared:
            spared = f"; not moved: {pluralize(self._spared, 'pod')} more important than the pending pod"
        spared += self._cooling()
        if not self._movable:
            return f"no pod may be moved{spared}"
        within = pluralize(self._policy.max_evictions, "eviction")
        result = "was found before time ran out" if self._expired() else "helps"
        barred = pluralize(len(self._forbidden), "move")
        besides = (
            f"; excluded until the cooldown ends: {barred} of plans that failed or were rejected"
            if self._forbidden
            else ""
        )
        return f"no plan with up to {within} {result}{besides}{spared}"

    def _cooling(self) -> str:
        """Say how many pods stay, and until when, because a pod of the same owner was moved recently."""
        now, history = self._situation.context.now, self._situation.history
        pods = (pod for node in self._situation.cluster.nodes.values() for pod in node.pods.values())
        ends = [history.cooling_until(pod, self._policy.cooldown) for pod in pods if history.moved]
        later = [end for end in ends if end is not None and now < end]
        if not later:
            return ""
        verb = "stays" if len(later) == 1 else "stay"
        return f"; {pluralize(len(later), 'pod')} {verb}: cooldown until {timestamp.format(max(later))}"

    def _forget_moves(self) -> None:
        """Let go of what the last search has tried, node by node.

        These are hundreds of thousands of values; all at once, no other thread would have its turn meanwhile.
        """
        for state in self._states.values():
            with About(state.node):
                state.forget_moves()

    def _search(self, cluster: Cluster, movable: Sequence[EvictionCandidate]) -> Search:
        self._forget_moves()
        search = Search(
            cluster,
            self._goal,
            movable,
            target=self._policy.target,
            expired=self._expired,
            pending=_the_pending_pod(self._goal),
            forbidden=self._forbidden,
            closed=self._closed,
            known=self._states,
        )
        self._states.update(search.states)
        return search

    def _steps(self, search: Search) -> tuple[list[Step], bool]:
        """Return the moves, and whether no fewer moves would gain as much."""
        size = len(self._movable) * len(self._situation.cluster.nodes)
        breadth = None if size <= SMALL else BREADTH
        aim, most = self._goal.aim, self._policy.max_evictions
        # Some pods can never be aligned: all at once would be sought in vain.
        whole = isinstance(self._goal, Vacate) or (breadth is None and not isinstance(self._goal, Align))
        if aim is not None and whole and aim - search.total > 1:
            found = search.find(aim, self._allowance, at_most=most, breadth=breadth)
            if found is not None:
                return list(found.steps), found.minimal
        return self._one_by_one(search, breadth, most)

    def _one_by_one(self, search: Search, breadth: Breadth | None, most: int) -> tuple[list[Step], bool]:
        steps: list[Step] = []
        cluster, movable, allowance = self._situation.cluster, self._movable, self._allowance
        minimal = True
        while len(steps) < most and not self._is_reached(search):
            found: Found | None = search.find(
                search.total + 1, allowance, at_most=self._for_one_more(most - len(steps)), breadth=breadth
            )
            if found is None:
                break
            minimal = found.minimal and not steps
            steps += found.steps
            for step in found.steps:
                allowance = allowance.after(step.candidate.pod)
            if found.steps[-1].after_pending:
                break
            cluster = _after(cluster, found.steps)
            gone = {step.candidate.index for step in found.steps}
            movable = tuple(candidate for candidate in movable if candidate.index not in gone)
            search = self._search(cluster, movable)
        return steps, minimal

    def _for_one_more(self, left: int) -> int:
        """Return how many evictions may be made for a gain of one; to align a pod, its own and no other."""
        return 1 if isinstance(self._goal, Align) else left

    def _is_reached(self, search: Search) -> bool:
        aim = self._goal.aim
        return aim is not None and search.total >= aim

    def _draft(self, steps: Iterable[Step], before: int, *, minimal: bool) -> PlanFound:
        """Return the plan with every replacement and every pending pod confined to one node."""
        cluster = self._situation.cluster
        pods = list(waiting_pods(self._goal))
        moves: list[Move] = []
        placements: list[PlacedPod] = []
        for step in steps:
            with About(step.candidate.pod):
                source = cluster.nodes[step.candidate.pod.node]
                freed = evict(source, step.candidate.pod)
                cluster = cluster.with_node(freed)
                if step.after_pending:
                    cluster, placements = _place_pending(pods, cluster, [step.node])
                target = place(cluster.nodes[step.node], step.candidate.replacement).node
                if target is None:  # cannot be: the search went the same way
                    break
                cluster = cluster.with_node(target)
                moves.append(self._move(step, source, freed, target))
        after = self._search(cluster, ()).total
        if pods and not placements:
            likely = [move.pod.node for move in moves] + list(cluster.nodes)
            _, placements = _place_pending(pods[:after], cluster, likely)
        if any(move.after_pending for move in moves):
            after = before + 1
        return PlanFound(tuple(moves), before, after, tuple(placements), minimal)

    def _move(self, step: Step, source: ClusterNode, freed: ClusterNode, target: ClusterNode) -> Move:
        """Return a step as a move of a plan; the nodes are as it leaves them."""
        return Move(
            pod=step.candidate.pod,
            replacement=step.candidate.replacement,
            node=step.node,
            zones=zones_of(source, step.candidate.pod),
            target_zones=zones_of(target, step.candidate.replacement),
            affinity=(step.node,),
            after_pending=step.after_pending,
            why=self._why(step, source, freed),
        )

    def _why(self, step: Step, source: ClusterNode, freed: ClusterNode) -> str:
        pod = step.candidate.pod
        if isinstance(self._goal, Align):
            return f"{self._goal.misaligned(source)[pod.uid].sentence}; its replacement will be aligned"
        before, after = free_block(source), free_block(freed)
        if after > before:
            return f"free CPUs on one NUMA node of {source.name} grow from {before} to {after}"
        return f"frees {format_milli(pod.requests.get('cpu', 0))} CPUs on {source.name}"

    def _prove_with_fewest_affinities(self, draft: PlanFound) -> PlanFound | Proof:
        """Return the plan with no more affinities than it needs, or why it does not hold."""
        proof = self._prove(draft)
        if not proof.holds:
            return proof
        for index, move in enumerate(draft.moves):
            freer = replace(draft, moves=_with(draft.moves, index, replace(move, affinity=())))
            if self._prove(freer).holds:
                draft = freer
        for index, placement in enumerate(draft.placements):
            freer = replace(draft, placements=_with(draft.placements, index, replace(placement, affinity=())))
            if self._prove(freer).holds:
                draft = freer
        return draft

    def _prove(self, draft: PlanFound) -> Proof:
        return prove(draft, self._goal, self._situation, self._policy)


def _may_go_for(pod: ClusterPod, highest: int | None) -> bool:
    """Return whether a pod's priority lets it be evicted for pods that wait."""
    with About(pod):
        return not outranks(pod, highest)


def _for_goal(
    goal: Goal, movable: tuple[EvictionCandidate, ...], cluster: Cluster
) -> tuple[EvictionCandidate, ...]:
    """Return the pods that a plan for the goal may evict; to align pods, only those that are not."""
    if not isinstance(goal, Align):
        return movable
    lie = {uid: found for node in cluster.nodes.values() for uid, found in goal.misaligned(node).items()}
    return tuple(
        replace(one, weight=-_remote_millis(lie[one.pod.uid]))
        for one in movable
        if one.pod.uid in lie and (not goal.only or one.pod.uid in goal.only)
    )


def _remote_millis(found: PodAlignment) -> int:
    """Return what aligning a pod regains, in milli-CPUs; 1 GiB of memory counts as one CPU."""
    return _MILLIS * found.remote_cpus + _MILLIS * found.remote_memory // _GIB


def _after(cluster: Cluster, steps: Iterable[Step]) -> Cluster:
    """Return the cluster after some steps of a search, which are known to work."""
    for step in steps:
        cluster = cluster.with_node(evict(cluster.nodes[step.candidate.pod.node], step.candidate.pod))
        placed = place(cluster.nodes[step.node], step.candidate.replacement).node
        if placed is not None:
            cluster = cluster.with_node(placed)
    return cluster


def _the_pending_pod(goal: Goal) -> EvictionCandidate | None:
    """Return the pending pod as a candidate to place; None unless the goal is about exactly one."""
    pods = waiting_pods(goal)
    return EvictionCandidate(pods[0], Disruption(), -1) if len(pods) == 1 else None


def _place_pending(
    pods: Iterable[ClusterPod], cluster: Cluster, names: Iterable[str]
) -> tuple[Cluster, list[PlacedPod]]:
    """Place pending pods one after the other, each on the first of the nodes that takes it."""
    placements: list[PlacedPod] = []
    likely = list(dict.fromkeys(names))
    for pod in pods:
        for name in likely:
            node = place(cluster.nodes[name], pod).node
            if node is not None:
                cluster = cluster.with_node(node)
                placements.append(PlacedPod(pod, name, zones_of(node, pod), (name,)))
                break
    return cluster, placements


def _with(items: tuple[_Item, ...], index: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:index], item, *items[index + 1 :])
