"""Find the less important pods to preempt, as kube-scheduler's DefaultPreemption does.

The dry run looks at what the scheduler counts, not at NUMA nodes (kube-scheduler 1.36,
``plugins/defaultpreemption``, ``framework/preemption``; specs/scheduler-extender.md, section 5). Budgets are
not looked at: no candidate violates one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones_simulator.kube_scheduler.messages import available

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CANDIDATE = "no candidate node for preemption"

_OFFSET = 1 << 31
"""Added to each priority before they are summed, so that fewer victims are less."""


def expected_victim(node: str) -> str:
    """Return the error about a node without victims."""
    return f'expected at least one victim pod on node "{node}"'


@dataclass(slots=True)
class DryRun:
    """Result of simulated evictions."""

    candidates: dict[str, list[ClusterPod]] = field(default_factory=dict)
    """Node → the pods that would have to go."""
    reasons: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → why evictions don't help there."""
    errors: list[str] = field(default_factory=list)

    def message(self, count: int) -> str:
        """Say why there is no candidate among ``count`` nodes."""
        if len(self.errors) == 1:
            return self.errors[0]
        return f"[{', '.join(self.errors)}]" if self.errors else available(count, self.reasons.values())


def dry_run(
    pod: ClusterPod,
    nodes: Iterable[ClusterNode],
    *,
    resolvable: Callable[[str], bool],
    obstacles: Callable[[ClusterNode], Sequence[str]],
) -> DryRun:
    """Try evictions on each node.

    Args:
        pod: for which room is sought.
        nodes: all of them.
        resolvable: whether evictions may help on a node at all.
        obstacles: what keeps the pod from a node as it is given.
    """
    found = DryRun()
    for node in nodes:
        if not resolvable(node.name):
            found.reasons[node.name] = (NOT_HELPFUL,)
            continue
        lesser = [other for other in node.pods.values() if _priority(other) < _priority(pod)]
        if not lesser:
            found.reasons[node.name] = (NO_VICTIMS,)
            continue
        emptied = node.with_pods(other for other in node.pods.values() if other not in lesser)
        if reasons := tuple(obstacles(emptied)):
            found.reasons[node.name] = reasons
        elif victims := _not_reprieved(emptied, lesser, obstacles):
            found.candidates[node.name] = victims
        else:
            found.errors.append(expected_victim(node.name))
    return found


def _not_reprieved(
    node: ClusterNode, lesser: Sequence[ClusterPod], obstacles: Callable[[ClusterNode], Sequence[str]]
) -> list[ClusterPod]:
    """Let the more important ones stay where there is room for them beside the pod."""
    victims = []
    for other in sorted(lesser, key=_importance):
        beside = node.with_pod(other)
        if obstacles(beside):
            victims.append(other)
        else:
            node = beside
    return victims


def choose(candidates: Mapping[str, Sequence[ClusterPod]]) -> str:
    """Return the node whose victims matter least (``pickOneNodeForPreemption``)."""

    def cost(node: str) -> tuple[int, int, int]:
        priorities = [_priority(victim) for victim in candidates[node]]
        return max(priorities), sum(priority + _OFFSET for priority in priorities), len(priorities)

    least = min(map(cost, candidates))
    cheapest = [node for node in candidates if cost(node) == least]
    return max(cheapest, key=lambda node: _start(candidates[node]))


def _start(victims: Sequence[ClusterPod]) -> str:
    """Return when the first of the most important victims started: later is better."""
    highest = max(map(_priority, victims))
    return min(_started(victim) for victim in victims if _priority(victim) == highest)


def _importance(pod: ClusterPod) -> tuple[int, str]:
    return (-_priority(pod), _started(pod))


def _started(pod: ClusterPod) -> str:
    return pod.started or pod.created


def _priority(pod: ClusterPod) -> int:
    return pod.priority or 0
