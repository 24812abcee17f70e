"""Which nodes the default scheduler could choose for a pod, and every reason why it could not.

Before the kubelet decides, the scheduler filters nodes. These are its filters that concern a node alone
(kube-scheduler 1.36: NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit), in its order and
with its words, so that a reason here reads like the events people know. Unlike the scheduler, which stops
at the first filter that fails, all failing reasons are returned. Filters that look at other pods or at
volumes (spreading, pod affinity, ports) are not covered; scheduling gates are set aside on purpose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from numazones.cluster import ClusterNode
from numazones.constraints import Constraints, Taint
from numazones.resources import figures

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"
PODS = "pods"

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_SIMILAR = 0.8
"""From this ratio on (difflib), a name is taken for another one misspelled."""
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which a node has less left than a pod asks for; cpu in milli-CPUs."""

    resource: str
    asked: int
    free: int
    total: int = 0
    """What the node has of it when no pod is there."""
    instead: str = ""
    """Where it has none: the resource that it has and whose name is nearly the same."""

    @property
    def reason(self) -> str:
        """The scheduler's words."""
        return TOO_MANY_PODS if self.resource == PODS else f"Insufficient {self.resource}"

    @property
    def share(self) -> float:
        """The part of the request that the node has; 1 would be enough."""
        return self.free / self.asked

    def __str__(self) -> str:
        asked, free = figures(self.resource, self.asked, self.free)
        meant = f" (did you mean {self.instead}?)" if self.instead else ""
        return f"{self.reason}: {asked} asked, {free} free{meant}"


def obstacles(constraints: Constraints, requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return all reasons for which the scheduler passes over the node; none means it could choose it."""
    return (*placement_obstacles(constraints, node), *resource_obstacles(requests, node))


def placement_obstacles(constraints: Constraints, node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons from cordons, taints, selectors and affinity."""
    reasons = []
    if node.unschedulable and not constraints.tolerates(_UNSCHEDULABLE_TAINT):
        reasons.append(UNSCHEDULABLE)
    if not all(constraints.tolerates(taint) for taint in node.taints if taint.effect in _KEEPS_AWAY):
        reasons.append(UNTOLERATED)
    if not constraints.selects(node.name, node.labels):
        reasons.append(NOT_SELECTED)
    return tuple(reasons)


def resource_obstacles(requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons from pod slots and from allocatable resources not yet requested."""
    return tuple(lack.reason for lack in lacks(requests, node))


def lacks(requests: Mapping[str, int], node: ClusterNode) -> tuple[Lack, ...]:
    """Return what a node has too little of, in the scheduler's order."""
    slots = node.pod_slots
    found = [Lack(PODS, 1, slots - node.pod_count, slots)] if node.pod_count + 1 > slots else []
    for resource, amount in requests.items():
        total = node.allocatable.get(resource, 0)
        free = total - node.requested.get(resource, 0)
        if amount > 0 and amount > free:
            instead = "" if total else _similar(resource, tuple(node.allocatable))
            found.append(Lack(resource, amount, max(free, 0), total, instead))
    return tuple(found)


@lru_cache(maxsize=256)
def _similar(resource: str, offered: tuple[str, ...]) -> str:
    """Return the extended resource that somebody may have meant; empty where none is nearly called so."""
    extended = [name for name in offered if "/" in name]
    return next(iter(get_close_matches(resource, extended, n=1, cutoff=_SIMILAR)), "")
