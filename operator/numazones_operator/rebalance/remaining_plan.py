"""A recommendation compared with the cluster as it is now: what is left of its plan, and whether that holds.

A plan is proven again before every move, because the cluster goes on living: pods come and go, budgets are
used up, somebody cordons a node. What is left of the plan is built anew from the pods that are there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from numazones.api.rebalance import MovePhase, RecommendedMove
from numazones.cluster.cluster import Cluster, ClusterPod
from numazones.placement import ADMITTED
from numazones.placement.model import kubelet_verdict
from numazones.rebalance.budgets import BudgetHeadroom
from numazones.rebalance.candidates import Situation
from numazones.rebalance.custom_resources import goals_of
from numazones.rebalance.goals import Goal, measure, pending_goals
from numazones.rebalance.moves import Move, PlacedPod, PlanFound, replacement, zones_of
from numazones.rebalance.policy import Policy
from numazones.rebalance.proof import prove
from numazones.rebalance.recommendation import Recommendation, parse_time
from numazones_operator.rebalance.objects import PolicyObject


@dataclass(frozen=True, slots=True)
class RemainingPlan:
    """Rest of a plan."""

    plan: PlanFound | None
    goal: Goal | None
    """None where everything that the plan is for is there already."""
    problem: str = ""
    """Why nothing is left that could be carried out."""


def remaining_plan(
    item: Recommendation, policy: PolicyObject, situation: Situation, settings: Policy
) -> RemainingPlan:
    """Return the moves that are still to be made, with the pods as they are now."""
    waiting = waiting_pods(item, situation.cluster)
    goal = goal_of(item, policy, waiting)
    if goal is None and not item.spec.placements:
        return RemainingPlan(None, None, f"policy {policy.name} no longer has the goal {item.spec.goal!r}")
    missing = _missing_pod(item, situation.cluster)
    if missing:
        return RemainingPlan(None, goal, f"pod {missing} is no longer waiting")
    if other := next((pod for pod in waiting if pod not in settings.beneficiaries), None):
        return RemainingPlan(None, goal, f"policy {policy.name} does not make room for pod {other.full_name}")
    moves: list[Move] = []
    for move, progress in item.moves_with_progress:
        if progress.phase == MovePhase.VERIFIED:
            continue
        pod = pod_to_move(situation.cluster, move)
        if pod is None:
            where = move.pod.full_name
            return RemainingPlan(None, goal, f"pod {where} is no longer on node {move.source.node}")
        moves.append(
            Move(
                pod=pod,
                replacement=replacement(pod, situation.templates),
                node=move.target.node,
                zones=zones_of(situation.cluster.nodes[pod.node], pod),
                affinity=move.affinity,
                after_pending=move.after_pending,
            )
        )
    targets = {item.pod.uid: item.target for item in item.spec.placements}
    placements = tuple(
        PlacedPod(pod, targets[pod.uid].node, affinity=(targets[pod.uid].node,)) for pod in waiting
    )
    after = len(placements) if item.spec.placements else item.spec.gain.after
    return RemainingPlan(PlanFound(tuple(moves), 0, after, placements), goal)


def objection(rest: RemainingPlan, situation: Situation, policy: Policy) -> str:
    """Return why what is left does not hold now; empty if it does. Budgets are checked move by move."""
    if rest.plan is None:
        return rest.problem
    if rest.goal is None:
        return ""
    unbudgeted = replace(situation, context=replace(situation.context, headroom=BudgetHeadroom()))
    return prove(rest.plan, rest.goal, unbudgeted, policy).reason


def goal_of(item: Recommendation, policy: PolicyObject, waiting: Iterable[ClusterPod]) -> Goal | None:
    """Return the goal that a recommendation is for, as the policy has it now."""
    if item.spec.placements:
        goals = pending_goals(waiting)
        return goals[0] if goals else None
    return next((goal for goal in goals_of(policy.spec.goals) if goal.key == item.spec.goal_key), None)


def waiting_pods(item: Recommendation, cluster: Cluster) -> list[ClusterPod]:
    """Return the pods of a plan that still wait for a node."""
    return [
        cluster.pending[placement.pod.uid]
        for placement in item.spec.placements
        if placement.pod.uid in cluster.pending
    ]


def _missing_pod(item: Recommendation, cluster: Cluster) -> str:
    """Name a pod of a plan that neither waits nor has a node: nothing is evicted for a pod that is gone."""
    for pod in (placement.pod for placement in item.spec.placements):
        present = pod.uid in cluster.pending or any(pod.uid in node.pods for node in cluster.nodes.values())
        if not present:
            return pod.full_name
    return ""


def pod_to_move(cluster: Cluster, move: RecommendedMove) -> ClusterPod | None:
    """Return the pod of a move, if it is where the move wants to take it from."""
    node = cluster.nodes.get(move.source.node)
    return None if node is None else node.pods.get(move.pod.uid)


def current_count(item: Recommendation, goal: Goal | None, cluster: Cluster) -> int:
    """Count what the goal is worth now; pending pods that were placed count as well."""
    pods = {uid: pod for node in cluster.nodes.values() for uid, pod in node.pods.items()}
    placed = sum(
        placement.pod.uid in pods or any(_stands_for(pod, placement.pod.uid, item) for pod in pods.values())
        for placement in item.spec.placements
    )
    return placed + (0 if goal is None else measure(goal, cluster))


def _stands_for(pod: ClusterPod, uid: str, item: Recommendation) -> bool:
    """Return whether a pod is the next one of an owner in a loop of rejections, and was admitted."""
    owner = pod.controller
    if owner is None or owner.uid != uid or kubelet_verdict(pod) != ADMITTED:
        return False
    made, proposed = parse_time(pod.created), parse_time(item.created)
    return made is not None and proposed is not None and made >= proposed
