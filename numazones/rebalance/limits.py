"""Limits on a plan's evictions: in total, per node, per namespace, per workload.

Total, node and namespace are the descheduler's (``maxNoOfPodsToEvictTotal``, ``…PerNode`` (the node that
the pod leaves), ``…PerNamespace``), tested in that order and with its result labels. The limit per
workload follows from its number of replicas unless a policy sets one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import ClusterPod
from numazones.rebalance.budgets import BudgetHeadroom

TOTAL_REACHED = "maximum number of evicted pods per a descheduling cycle reached"
NODE_REACHED = "maximum number of evicted pods per node reached"
NAMESPACE_REACHED = "maximum number of evicted pods per namespace reached"
WORKLOAD_REACHED = "maximum number of evicted pods per workload reached"
ONLY_REPLICA = "pod is the only replica of its workload"

# Up to 3 replicas one at a time, up to 10 two, above them a tenth.
_FEW, _SOME = 4, 10


def allowed_per_workload(limits: EvictionLimits, replicas: int) -> int:
    """Return how many pods of a workload may be evicted in one plan."""
    if replicas <= 1:
        return 1 if limits.single_replicas else 0
    if limits.per_workload is not None:
        return min(limits.per_workload, replicas)
    return default_per_workload(replicas)


def default_per_workload(replicas: int) -> int:
    """Return how many pods of a workload may be evicted at a time, by its number of replicas alone."""
    if replicas > _SOME:
        return replicas // 10
    return min(replicas, 2 if replicas >= _FEW else 1)


@dataclass(frozen=True, slots=True)
class PlannedEvictions:
    """Planned evictions against their limits."""

    limits: EvictionLimits
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Owner UID → number of its pods."""
    total: int = 0
    nodes: Mapping[str, int] = field(default_factory=dict)
    namespaces: Mapping[str, int] = field(default_factory=dict)
    workloads: Mapping[str, int] = field(default_factory=dict)

    def rejection(self, pod: ClusterPod) -> str:
        """Return the label of the limit that one more eviction, of this pod, would exceed; empty if none."""
        limits = self.limits
        if limits.total is not None and self.total + 1 > limits.total:
            return TOTAL_REACHED
        if limits.per_node is not None and self.nodes.get(pod.node, 0) + 1 > limits.per_node:
            return NODE_REACHED
        if limits.per_namespace is not None and (
            self.namespaces.get(pod.namespace, 0) + 1 > limits.per_namespace
        ):
            return NAMESPACE_REACHED
        for owner in pod.owners:
            replicas = self.replicas.get(owner.uid, 1)
            if self.workloads.get(owner.uid, 0) + 1 > allowed_per_workload(limits, replicas):
                return WORKLOAD_REACHED if replicas > 1 else ONLY_REPLICA
        return ""

    def after(self, pod: ClusterPod) -> "PlannedEvictions":
        """Return the tally with this pod's eviction planned."""
        workloads = self.workloads
        for owner in pod.owners:
            workloads = _plus_one(workloads, owner.uid)
        return PlannedEvictions(
            self.limits,
            self.replicas,
            self.total + 1,
            _plus_one(self.nodes, pod.node),
            _plus_one(self.namespaces, pod.namespace),
            workloads,
        )


@dataclass(frozen=True, slots=True)
class RemainingEvictions:
    """The evictions that limits and budgets still allow in a plan."""

    tally: PlannedEvictions
    headroom: BudgetHeadroom = field(default_factory=BudgetHeadroom)

    def rejection(self, pod: ClusterPod) -> str:
        """Say why one more eviction, of this pod, is not allowed; empty if it is."""
        return self.tally.rejection(pod) or self.headroom.rejection(pod)

    def after(self, pod: ClusterPod) -> "RemainingEvictions":
        """Return what is still allowed after the pod's eviction."""
        return RemainingEvictions(self.tally.after(pod), self.headroom.after(pod))


def _plus_one(counts: Mapping[str, int], key: str) -> Mapping[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}
