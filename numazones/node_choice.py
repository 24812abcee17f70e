"""Which node a pod should go to: the ways of choosing one, with or without asking who will decide there.

kube-scheduler looks at whole nodes, so that the one that it chooses may reject the pod. The other ways pass
over every node that would, as ``prediction`` tells it, and differ in how they rank the rest. Pods that name
their node themselves are not asked about.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from numazones import scheduling
from numazones.cluster import ClusterNode, ClusterPod
from numazones.prediction import Forecast, Kind, NodeVerdict, Standing
from numazones.resources import CPU, MEMORY

_PERCENT = 100


class NodeChoice(StrEnum):
    """A way of choosing a node."""

    DEFAULT = "default"
    """kube-scheduler's filters, then the largest share of CPU and memory that is left (LeastAllocated)."""
    EXACT = "exact"
    """The same among the nodes that would admit the pod."""
    PACK = "pack"
    """Of the nodes that would admit it, the one whose CPU and memory are requested most (MostAllocated)."""
    BEST_FIT = "best-fit"
    """Of the nodes that would admit it, the one that keeps large free blocks, as predictions rank them."""


def choose(pod: ClusterPod, nodes: Iterable[ClusterNode], choice: NodeChoice) -> ClusterNode | None:
    """Return the node that the pod goes to, the first of equal ones; None: no node suits it.

    ``nodes``: those whose placement is known.
    """
    passing = [node for node in nodes if not scheduling.obstacles(pod.constraints, pod.requests, node)]
    if choice is NodeChoice.DEFAULT:
        suitable = [node for node in passing if _passes_own_scheduler(node, pod)]
        return max(suitable, key=lambda node: _least_allocated(node, pod), default=None)
    kind = Kind.of(pod)
    if kind is None:
        return None
    forecast = Forecast(kind)
    forecast.renew(passing)
    verdicts = forecast.verdicts
    admitting = [node for node in passing if verdicts[node.name].standing is Standing.ADMITS]
    rank = _RANKS[choice]
    return max(admitting, key=lambda node: rank(node, pod, verdicts[node.name]), default=None)


def _passes_own_scheduler(node: ClusterNode, pod: ClusterPod) -> bool:
    """Whether the node passes what a placement model's scheduler filters by beyond the default filters."""
    placement = node.known
    if placement is None or pod.admission is None or not placement.filtered_by_scheduler:
        return True
    return placement.admit(pod.admission).admitted


def _least_allocated(node: ClusterNode, pod: ClusterPod) -> int:
    """Percent of CPU and memory that nobody would have requested, each with the same weight."""
    shares = [
        max(0, have - node.requested.get(name, 0) - pod.requests.get(name, 0)) * _PERCENT // have
        for name in (CPU, MEMORY)
        if (have := node.allocatable.get(name, 0))
    ]
    return sum(shares) // len(shares) if shares else 0


def _most_allocated(node: ClusterNode, pod: ClusterPod) -> int:
    """Percent of CPU and memory that would be requested, each with the same weight."""
    shares = [
        min(have, node.requested.get(name, 0) + pod.requests.get(name, 0)) * _PERCENT // have
        for name in (CPU, MEMORY)
        if (have := node.allocatable.get(name, 0))
    ]
    return sum(shares) // len(shares) if shares else 0


_RANKS: dict[NodeChoice, Callable[[ClusterNode, ClusterPod, NodeVerdict], Any]] = {
    NodeChoice.EXACT: lambda node, pod, _: _least_allocated(node, pod),
    NodeChoice.PACK: lambda node, pod, _: _most_allocated(node, pod),
    NodeChoice.BEST_FIT: lambda _, __, said: (not said.approximate, said.score, said.free_block),
}
