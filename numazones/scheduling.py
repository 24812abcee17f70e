"""Which nodes the default scheduler could choose for a pod, and every reason why it could not.

Before the kubelet has its say, the scheduler filters. These are its filters that concern a node alone
(kube-scheduler 1.36: NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit), in its order and
with its words, so that a reason here reads like the events people know. Unlike the scheduler, which stops
at the first filter that fails, all failing reasons are returned. Filters that look at other pods or at
volumes (spreading, pod affinity, ports) are not covered; scheduling gates are set aside on purpose.
"""

from collections.abc import Mapping

from numazones.cluster import ClusterNode
from numazones.constraints import Constraints, Taint

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


def obstacles(constraints: Constraints, requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return all reasons for which the scheduler passes over the node; none means it could choose it."""
    return (*placement_obstacles(constraints, node), *resource_obstacles(requests, node))


def placement_obstacles(constraints: Constraints, node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons that lie in cordons, taints, selectors and affinity."""
    reasons = []
    if node.unschedulable and not constraints.tolerates(_UNSCHEDULABLE_TAINT):
        reasons.append(UNSCHEDULABLE)
    if not all(constraints.tolerates(taint) for taint in node.taints if taint.effect in _KEEPS_AWAY):
        reasons.append(UNTOLERATED)
    if not constraints.selects(node.name, node.labels):
        reasons.append(NOT_SELECTED)
    return tuple(reasons)


def resource_obstacles(requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons that lie in pod slots and in allocatable resources not yet requested."""
    reasons = [TOO_MANY_PODS] if node.pod_count + 1 > node.pod_slots else []
    for resource, amount in requests.items():
        if amount > 0 and amount > node.allocatable.get(resource, 0) - node.requested.get(resource, 0):
            reasons.append(f"Insufficient {resource}")
    return tuple(reasons)
