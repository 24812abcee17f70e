"""Proves a plan by playing it through, independently of the search that found it.

Nothing is taken over from the search: every pod must still be movable, every eviction allowed by budgets
and limits after the ones before, and every replacement is admitted by the kubelet on every node that the
scheduler could choose for it: all of them, unless the plan confines the replacement by node affinity.
Pending pods that may come at any time are let in before each replacement, too. Where pods are to be aligned,
each replacement must end aligned, and all the same if one of those that wait for room takes what the eviction
frees on its node.
Only then does the count at the end matter. Where free choices multiply beyond what can be played through,
the plan counts as unproven.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.errors import About, NumazonesError, Passing
from numazones.rebalance.beneficiaries import highest_victim, outranks
from numazones.rebalance.candidates import Situation, why_not
from numazones.rebalance.goals import Align, Counts, Goal, ungated_pods, waiting_pods
from numazones.rebalance.limits import PlannedEvictions, RemainingEvictions
from numazones.rebalance.moves import Move, PlacedPod, PlanFound, evict, obstacles, place, relocation
from numazones.rebalance.policy import Policy, ReplacementTarget

_MAX_SEQUENCES = 256
"""How many sequences of events are played through."""


class Disproved(NumazonesError, Passing):
    """A plan does not hold; the message says which move fails and why."""

    def __init__(self, message: str, *, hopeless: str = "") -> None:
        """``hopeless``: uid of a pod that no plan may move as this one does."""
        super().__init__(message)
        self.hopeless = hopeless


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that a plan works, or why it does not."""

    holds: bool
    reason: str = ""
    """Why it does not."""
    sequences: int = 0
    """How many sequences of events were played through."""
    hopeless: str = ""
    """Uid of a pod that no plan may move as this one does; empty: none, or not known."""


def prove(plan: PlanFound, goal: Goal, situation: Situation, policy: Policy) -> Proof:
    """Return whether a plan holds in a situation."""
    play = _Play(plan, goal, situation, policy)
    try:
        play.run()
    except Disproved as error:
        return Proof(holds=False, reason=str(error), sequences=play.sequences, hopeless=error.hopeless)
    return Proof(holds=True, sequences=play.sequences)


def choices(pod: ClusterPod, cluster: Cluster, affinity: tuple[str, ...] = ()) -> list[ClusterNode]:
    """Return the nodes that the scheduler could choose for a pod, confined to some by affinity if given."""
    names = [name for name in affinity if name in cluster.nodes] if affinity else list(cluster.nodes)
    nodes = [cluster.nodes[name] for name in names]
    return [node for node in nodes if not obstacles(node, pod)]


@dataclass(eq=False, repr=False)
class _Play:
    _plan: PlanFound
    _goal: Goal
    _situation: Situation
    _policy: Policy
    _counts: dict[str, Counts] = field(init=False, default_factory=dict)
    sequences: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        history, now = self._situation.history, self._situation.context.now
        self._forbidden = history.forbidden_moves(now, self._policy.cooldown)
        self._closed = {} if waiting_pods(self._goal) else history.closed_nodes(now)
        cluster = self._situation.cluster
        self._base = cluster.nodes
        self._others = ungated_pods(cluster.pending.values()) if isinstance(self._goal, Align) else ()

    def run(self) -> None:
        self._check_rules()
        self._move(0, self._situation.cluster)

    def _check_rules(self) -> None:
        context = self._situation.context
        allowance = RemainingEvictions(
            PlannedEvictions(self._policy.limits, context.replicas), context.headroom
        )
        moved: set[str] = set()
        waiting = waiting_pods(self._goal)
        highest = highest_victim((*waiting, *(placement.pod for placement in self._plan.placements)))
        for move in self._plan.moves:
            if move.pod.uid in moved:
                raise Disproved(f"pod {move.pod.full_name} would be moved twice")
            moved.add(move.pod.uid)
            with About(move.pod):
                allowance = self._check_rules_of(move, allowance, highest)

    def _check_rules_of(
        self, move: Move, allowance: RemainingEvictions, highest: int | None
    ) -> RemainingEvictions:
        """Check that a pod may be moved; return the evictions that are left after it."""
        node = self._base.get(move.pod.node)
        pod = None if node is None else node.pods.get(move.pod.uid)
        if pod is None:
            raise Disproved(f"pod {move.pod.full_name} is no longer on node {move.pod.node}")
        objections = why_not(pod, self._situation, self._policy)
        if objections:
            raise Disproved(f"pod {pod.full_name} may not be moved: {objections[0].message}")
        if outranks(pod, highest):
            raise Disproved(
                f"pod {pod.full_name} may not be moved: its priority {pod.priority} is above {highest}, "
                "the priority of the pod that would get its room"
            )
        rejection = allowance.rejection(pod)
        if rejection:
            raise Disproved(f"pod {pod.full_name} may not be moved: {rejection}")
        return allowance.after(pod)

    def _move(self, index: int, cluster: Cluster) -> None:
        if index == len(self._plan.moves):
            if any(move.after_pending for move in self._plan.moves):
                self._finish()
            else:
                self._place(0, cluster)
            return
        move = self._plan.moves[index]
        with About(move.pod):
            self._make(move, index, cluster)

    def _make(self, move: Move, index: int, cluster: Cluster) -> None:
        """Play a move through, and then the next ones."""
        for early in self._with_early_pods(cluster):
            self._check_replacement(move, early.with_node(evict(early.nodes[move.pod.node], move.pod)))
        cluster = cluster.with_node(evict(cluster.nodes[move.pod.node], move.pod))
        for early in self._with_early_pods(cluster):
            self._check_replacement(move, early)
        self._check_others(move, cluster)
        if move.after_pending:
            for placement in self._plan.placements:
                cluster = self._placed_before(placement, cluster)
        options = self._options(move.replacement, cluster, move.affinity)
        for node in options:
            self._check_target(move, node)
            placed = place(node, move.replacement)
            if placed.node is None:
                raise Disproved(
                    f"the replacement of {move.pod.full_name} may be scheduled to node {node.name}, which "
                    f"would not admit it: {'; '.join(placed.rejections)}"
                )
            if isinstance(self._goal, Align) and self._worth(placed.node) < self._worth(node):
                raise Disproved(
                    f"the replacement of {move.pod.full_name} may be scheduled to node {node.name}, "
                    "where it would not be aligned"
                )
            self._move(index + 1, cluster.with_node(placed.node))

    def _with_early_pods(self, cluster: Cluster) -> Iterator[Cluster]:
        """Yield the clusters in which pods that may come at any time have taken the room first.

        Where a kubelet rejects such a pod, all stays as it was, and the next one comes.
        """
        for placement in self._plan.placements:
            if placement.pod.uid in self._situation.at_any_time:
                for node in choices(placement.pod, cluster):
                    placed = place(node, placement.pod)
                    if placed.node is not None:
                        yield cluster.with_node(placed.node)

    def _check_replacement(self, move: Move, cluster: Cluster) -> None:
        """Check that the replacement fits even if pods of the goal come early and no eviction follows."""
        for node in self._options(move.replacement, cluster, move.affinity):
            self._check_target(move, node)
            placed = place(node, move.replacement)
            if placed.node is None:
                raise Disproved(
                    f"a pending pod may be scheduled before the replacement of {move.pod.full_name}; "
                    f"node {node.name} would then not admit the replacement: {'; '.join(placed.rejections)}"
                )

    def _check_others(self, move: Move, cluster: Cluster) -> None:
        """Check that the replacement ends aligned even if a pod that waits takes what the eviction frees."""
        freed = cluster.nodes[move.pod.node]
        for pod in self._others:
            taken = place(freed, pod).node
            if taken is None:
                continue
            nodes = choices(move.replacement, cluster.with_node(taken), move.affinity)
            if not nodes or not all(self._ends_aligned(move.replacement, node) for node in nodes):
                raise Disproved(
                    f"pending pod {pod.full_name} may take the room that evicting {move.pod.full_name} frees "
                    f"on node {freed.name} before the replacement gets there; the replacement would then "
                    "not be aligned",
                    hopeless=move.pod.uid,
                )

    def _ends_aligned(self, pod: ClusterPod, node: ClusterNode) -> bool:
        placed = place(node, pod).node
        return placed is not None and self._worth(placed) >= self._worth(node)

    def _check_target(self, move: Move, node: ClusterNode) -> None:
        excluded = ReplacementTarget.OTHER if node.name == move.pod.node else ReplacementTarget.SAME
        if self._policy.target is excluded:
            raise Disproved(
                f"the replacement of {move.pod.full_name} may be scheduled to node {node.name}, "
                f"but the policy's target is {self._policy.target}"
            )
        if relocation(move.pod, node.name) in self._forbidden:
            raise Disproved(
                f"the replacement of {move.pod.full_name} may be scheduled to node {node.name}, but a plan "
                f"that moved a pod of the same owner from {move.pod.node} to that node failed or was "
                "rejected within the cooldown"
            )
        emptied = self._closed.get(node.name)
        if emptied is not None:
            raise Disproved(
                f"the replacement of {move.pod.full_name} may be scheduled to node {node.name}, where a plan "
                f"of policy {emptied.policy} made room; until {timestamp.format(emptied.until)} only plans "
                "for pending pods may use it"
            )

    def _options(self, pod: ClusterPod, cluster: Cluster, affinity: tuple[str, ...]) -> list[ClusterNode]:
        if pod.constraints.beyond:
            raise Disproved(
                f"where {pod.full_name} will run cannot be predicted: {', '.join(pod.constraints.beyond)}"
            )
        unknown = self._situation.left_out.nodes
        if unknown and not affinity:
            raise Disproved(
                f"the scheduler could choose node {next(iter(unknown))} for {pod.full_name}, and the "
                "state of that node is unknown"
            )
        options = choices(pod, cluster, affinity)
        if not options:
            raise Disproved(f"no node that the scheduler could choose is left for {pod.full_name}")
        if len(options) > _MAX_SEQUENCES:
            raise Disproved(f"the scheduler could choose any of {len(options)} nodes for {pod.full_name}")
        return options

    def _placed_before(self, placement: PlacedPod, cluster: Cluster) -> Cluster:
        options = self._options(placement.pod, cluster, (placement.node,))
        placed = place(options[0], placement.pod)
        if placed.node is None:
            raise Disproved(f"node {placement.node} would not admit pod {placement.pod.full_name}")
        return cluster.with_node(placed.node)

    def _place(self, index: int, cluster: Cluster) -> None:
        if index == 0:
            self._check_count(cluster)
        if index == len(self._plan.placements):
            self._finish()
            return
        placement = self._plan.placements[index]
        with About(placement.pod):
            self._place_on_each(placement, index, cluster)

    def _place_on_each(self, placement: PlacedPod, index: int, cluster: Cluster) -> None:
        for node in self._options(placement.pod, cluster, placement.affinity):
            placed = place(node, placement.pod)
            if placed.node is None:
                raise Disproved(
                    f"pod {placement.pod.full_name} may be scheduled to node {node.name}, which would not "
                    f"admit it: {'; '.join(placed.rejections)}"
                )
            self._place(index + 1, cluster.with_node(placed.node))

    def _check_count(self, cluster: Cluster) -> None:
        total = self._goal.total(self._counts_of(cluster))
        if total < self._plan.after:
            raise Disproved(f"the goal would reach {total}, not {self._plan.after}")

    def _counts_of(self, cluster: Cluster) -> Counts:
        columns = []
        for node in cluster.nodes.values():
            with About(node):
                columns.append(self._worth(node))
        return tuple(map(sum, zip(*columns, strict=True)))

    def _worth(self, node: ClusterNode) -> Counts:
        """Return what a node contributes; of the nodes as they are now it is worked out once."""
        name = node.name
        with About(node):
            if self._base[name] is not node:
                return self._goal.worth(node)
            if name not in self._counts:
                self._counts[name] = self._goal.worth(node)
            return self._counts[name]

    def _finish(self) -> None:
        self.sequences += 1
        if self.sequences > _MAX_SEQUENCES:
            raise Disproved(f"more than {_MAX_SEQUENCES} sequences of events are possible")
