"""The kubelet's own look at a node's free resources, after the topology manager has admitted a pod.

Rules: ``pkg/kubelet/lifecycle/predicate.go`` and the scheduler's filters that it calls (kubelet 1.36). The
first failing check gives the reason: pod slots, cpu, memory, ephemeral storage, then other resources (in
random order in the kubelet, by name here), node affinity, taints that evict. Host ports and the preemption
that critical pods may cause are not simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from numazones import scheduling
from numazones.cluster import ClusterNode, ClusterPod

_FIRST = ("cpu", "memory", "ephemeral-storage")
_NATIVE_DOMAIN = "kubernetes.io/"
_UNTOLERATED = "node(s) had taints that the pod didn't tolerate"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the kubelet does not run a pod: ``status.reason``, and its message without the usual prefix."""

    reason: str
    message: str


def rejection(pod: ClusterPod, node: ClusterNode) -> Rejection | None:
    """Return the kubelet's first objection to running a pod beside those on the node; None: it fits.

    Args:
        pod: the pod to admit.
        node: the node with the pods that it runs already.
    """
    return next(_objections(pod, node), None)


def _objections(pod: ClusterPod, node: ClusterNode) -> Iterator[Rejection]:
    if node.pod_count + 1 > node.pod_slots:
        yield _insufficient("pods", 1, node.pod_count, node.pod_slots)
    others = sorted(pod.requests.keys() - set(_FIRST))
    for resource in (*_FIRST, *others):
        amount = pod.requests.get(resource, 0)
        capacity, used = node.allocatable.get(resource, 0), node.requested.get(resource, 0)
        # Extended resources that the node does not know are taken to be cluster-wide.
        if amount > capacity - used and (resource in node.allocatable or not _is_extended(resource)):
            yield _insufficient(resource, amount, used, capacity)
    if not scheduling.selects(pod.constraints, node.name, node.labels):
        yield Rejection("NodeAffinity", f"Predicate NodeAffinity failed: {scheduling.NOT_SELECTED}")
    evicting = (taint for taint in node.taints if taint.effect == "NoExecute")
    if not all(scheduling.tolerated(taint, pod.constraints.tolerations) for taint in evicting):
        yield Rejection("TaintToleration", f"Predicate TaintToleration failed: {_UNTOLERATED}")


def _insufficient(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )


def _is_extended(resource: str) -> bool:
    return "/" in resource and _NATIVE_DOMAIN not in resource
