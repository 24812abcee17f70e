"""The descheduler's HighNodeUtilization: which pods it would evict. For comparison with plans.

The rule empties nodes that are hardly used, so that their pods are packed onto the others: a node is
underutilized if its requests are at or below the threshold for every resource; its pods are evicted in the
order in which they are gladly evicted, the emptiest node first, as long as the other nodes have capacity left
for their requests. It looks at amounts only, neither at NUMA nodes nor at where the pods end up.
"""

from collections.abc import Mapping, Sequence

from numazones import scheduling
from numazones.cluster import Cluster, ClusterNode, ClusterPod
from numazones.rebalance.filter import order


def evictions(
    cluster: Cluster, thresholds: Mapping[str, float], movable: Sequence[ClusterPod]
) -> tuple[ClusterPod, ...]:
    """Return the pods that the rule evicts in one cycle; thresholds in percent of allocatable by resource."""
    ready = [node for node in cluster.nodes.values() if node.ready]
    low = [node for node in ready if _is_low(node, thresholds)]
    high = [node for node in ready if not _is_low(node, thresholds) and not node.unschedulable]
    if not low or not high:
        return ()
    left = {
        resource: sum(node.allocatable.get(resource, 0) - node.requested.get(resource, 0) for node in high)
        for resource in thresholds
    }
    may_move = {pod.uid for pod in movable}
    chosen: list[ClusterPod] = []
    for node in sorted(low, key=lambda node: (_use(node, thresholds), node.name)):
        for pod in sorted(node.pods.values(), key=order):
            if any(amount <= 0 for amount in left.values()):
                return tuple(chosen)
            if pod.uid in may_move and _fits_somewhere(pod, high):
                chosen.append(pod)
                left = {name: amount - pod.requests.get(name, 0) for name, amount in left.items()}
    return tuple(chosen)


def _is_low(node: ClusterNode, thresholds: Mapping[str, float]) -> bool:
    return all(_share(node, resource) <= percent for resource, percent in thresholds.items())


def _use(node: ClusterNode, thresholds: Mapping[str, float]) -> float:
    return sum(_share(node, resource) for resource in thresholds)


def _share(node: ClusterNode, resource: str) -> float:
    capacity = node.allocatable.get(resource, 0)
    return 100 * node.requested.get(resource, 0) / capacity if capacity else 0.0


def _fits_somewhere(pod: ClusterPod, nodes: Sequence[ClusterNode]) -> bool:
    return any(not scheduling.obstacles(pod.constraints, pod.requests, node) for node in nodes)
