"""Pods that the gate released to nodes which are all lost since: Kubernetes lets them go nowhere else."""

from collections.abc import Iterable

from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.waiting import released_to


def lost_nodes(pod: ClusterPod, nodes: Iterable[ClusterNode]) -> tuple[str, ...]:
    """Return the nodes that a pod was released to, if it may go to no node at all any more; else none.

    A node is lost that is gone, cordoned, or keeps the pod away by a taint. ``nodes``: all of the cluster.

    >>> from numazones import build
    >>> body = build.pod_body("web", cpu=2)
    >>> body["metadata"]["annotations"] = {"numazones.io/admission-released": "2026-01-31T08:00:00Z"}
    >>> term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}
    >>> required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    >>> body["spec"]["affinity"] = {"nodeAffinity": required}
    >>> pod = ClusterPod.from_api(body)
    >>> lost_nodes(pod, [ClusterNode("worker-1")]), lost_nodes(pod, [ClusterNode("worker-2")])
    ((), ('worker-1',))
    """
    named = released_to(pod)
    if not named or pod.node or pod.terminal or pod.deleting or pod.constraints.scheduling_gates:
        return ()
    if any(not scheduling.placement_obstacles(pod.constraints, node) for node in nodes):
        return ()
    return named
