"""Foresee which pods kube-scheduler would preempt for a more important pod, and whether that helps.

The scheduler chooses victims until sums of requests fit (kube-scheduler 1.36, ``selectVictimsOnNode`` and
``filterPodsWithPDBViolation`` in ``plugins/defaultpreemption``, ``pickOneNodeForPreemption`` in
``framework/preemption``). It knows nothing of NUMA nodes, so its victims may die in vain: whether the node
would admit the pod without them is asked here. Where the scheduler's own choice cannot be told, because rules
that look at other pods are at play or pods are about to leave anyway, the answer is no.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numazones.apimachinery import timestamp
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import About
from numazones.prediction.forecast import NodeAnswer, PodKind, ask
from numazones.rebalance.budgets import Budget

_OFFSET = 2**31
"""Added to each victim's priority, so that few with negative ones are preferred to many."""
_ANTI_AFFINITY = "podAntiAffinity"


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that the scheduler would preempt on a node, the most important first."""

    node: str
    pods: tuple[ClusterPod, ...]
    violations: int = 0
    """How many of them their PodDisruptionBudgets protect; the scheduler does it if it must."""


def victims(pod: ClusterPod, node: ClusterNode, budgets: Sequence[Budget] = ()) -> Victims | None:
    """Return whom the scheduler preempts on the node for the pod; None: nobody, or that cannot be told."""
    if not _is_certain(pod, node) or not scheduling.lacks(pod.requests, node):
        return None  # where sums fit, the scheduler binds without preempting
    lower = sorted((other for other in node.pods.values() if _priority(other) < _priority(pod)), key=_rank)
    for other in lower:
        node = node.without_pod(other.uid)
    if not lower or scheduling.lacks(pod.requests, node):
        return None
    protected = _protected(lower, budgets)
    chosen: list[ClusterPod] = []
    for other in sorted(lower, key=lambda other: other.uid not in protected):
        spared = node.with_pod(other)
        if scheduling.lacks(pod.requests, spared):
            chosen.append(other)
        else:
            node = spared
    violations = sum(1 for other in chosen if other.uid in protected)
    return Victims(node.name, tuple(sorted(chosen, key=_rank)), violations)


def useful_victims(pod: ClusterPod, node: ClusterNode, budgets: Sequence[Budget] = ()) -> Victims | None:
    """Return whom the scheduler preempts on the node, if the node would then admit the pod; else None."""
    kind, found = PodKind.of(pod), victims(pod, node, budgets)
    after = None if found is None else without(node, (victim.uid for victim in found.pods))
    if kind is None or after is None or ask(kind, after).answer is not NodeAnswer.ADMITS:
        return None
    return found


def best(choices: Iterable[Victims]) -> Victims | None:
    """Return the choice that the scheduler makes among nodes."""
    return min(choices, key=_harm, default=None)


def without(node: ClusterNode, uids: Iterable[str]) -> ClusterNode | None:
    """Return the node without pods that are on it; None where one is not, or nothing is known of it."""
    placement = node.known
    if placement is None:
        return None
    for uid in uids:
        pod: ClusterPod | None = node.pods.get(uid)
        if pod is None:
            return None
        node, placement = node.without_pod(uid), placement.remove(pod.kubelet_uid)
    return node.with_placement(placement)


def _is_certain(pod: ClusterPod, node: ClusterNode) -> bool:
    """Return whether resources alone keep the pod off the node, so that sums decide who is preempted."""
    return (
        pod.preempts
        and not pod.constraints.beyond
        and not scheduling.placement_obstacles(pod.constraints, node)
        and not any(
            other.deleting or _ANTI_AFFINITY in other.constraints.beyond for other in node.pods.values()
        )
    )


def _protected(pods: Iterable[ClusterPod], budgets: Sequence[Budget]) -> set[str]:
    """UIDs of the pods whose preemption breaks a budget, if they go in this order."""
    left = [budget.disruptions_allowed for budget in budgets]
    found = set()
    for pod in pods:
        for at, budget in enumerate(budgets):
            with About(budget):
                if pod.labels and pod.namespace == budget.namespace and budget.selects(pod):
                    left[at] -= 1
                    if left[at] < 0:
                        found.add(pod.uid)
    return found


def _priority(pod: ClusterPod) -> int:
    return pod.priority or 0


def _rank(pod: ClusterPod) -> tuple[int, float]:
    """Return the sort key of pods, the most important first: priority, then earlier start."""
    return -_priority(pod), _started(pod)


def _harm(choice: Victims) -> tuple[int, int, int, int, float]:
    """Return the sort key of nodes, least harm first; of equal ones, the shortest running pods."""
    highest = _priority(choice.pods[0])
    earliest = min(_started(pod) for pod in choice.pods if _priority(pod) == highest)
    total = sum(_priority(pod) + _OFFSET for pod in choice.pods)
    return choice.violations, highest, total, len(choice.pods), -earliest


def _started(pod: ClusterPod) -> float:
    try:
        return timestamp.parse(pod.started).timestamp()
    except timestamp.InvalidTimestamp:
        return float("inf")
