"""Rules that protect pods from eviction, and the order of the pods that no rule protects.

The rules are those of the descheduler's DefaultEvictor (its ``Filter`` and ``PreEvictionFilter``) and of
the annotations by which placement models have pods say what evicting them costs. All rules are evaluated,
since people ask "why not this pod". We differ in one place: mirror, static and terminating pods are rejected
even with the evict annotation, because evicting them does nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from numazones.apimachinery import timestamp
from numazones.cluster import scheduling
from numazones.cluster.cluster import MIRROR, Cluster, ClusterPod
from numazones.placement import models
from numazones.rebalance import protections as names
from numazones.rebalance.budgets import BudgetHeadroom
from numazones.rebalance.protections import Protections
from numazones.wording import pluralize

EVICT = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
SOURCE = "kubernetes.io/config.source"
NEVER = 2**31 - 1
"""Eviction cost of a pod that must not be evicted."""

_QOS_ORDER = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


@dataclass(frozen=True, slots=True)
class Objection:
    """A rule against evicting a pod, and why it applies."""

    rule: str
    """Name of the protection, as in the policy."""
    message: str


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """Facts that the rules need besides the pod."""

    now: datetime
    """Aware of its time zone."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Owner UID → number of its pods."""
    headroom: BudgetHeadroom = field(default_factory=BudgetHeadroom)
    storage_classes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(namespace, PersistentVolumeClaim) → storage class; claims that are not there are unknown."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @staticmethod
    def count_replicas(pods: Iterable[ClusterPod]) -> dict[str, int]:
        """Count the pods of each owner, by UID."""
        counts: dict[str, int] = {}
        for pod in pods:
            for owner in pod.owners:
                counts[owner.uid] = counts.get(owner.uid, 0) + 1
        return counts


def objections(
    pod: ClusterPod,
    protections: Protections,
    context: EvictionContext,
    *,
    cluster: Cluster | None = None,
) -> tuple[Objection, ...]:
    """Return every objection to evicting the pod; none means that it may be evicted.

    ``cluster`` is needed for the node-fit rule alone.
    """
    found = list(_unmovable(pod))
    if EVICT not in pod.annotations:
        found += _protection_objections(pod, protections)
        found += _storage_objections(pod, protections, context)
        found += _selection_objections(pod, protections)
        found += _age_and_number_objections(pod, protections, context)
    found += _pre_eviction_objections(pod, protections, context, cluster)
    return tuple(found)


def protection(pod: ClusterPod) -> str:
    """Return why policies keep a pod by default, by what it shows itself; empty: nothing keeps it."""
    found = (*_unmovable(pod), *_protection_objections(pod, _BY_DEFAULT))
    if names.LOCAL_STORAGE in _BY_DEFAULT and pod.local_storage:
        return "pod has local storage and is protected against eviction"
    return found[0].message if found else ""


_BY_DEFAULT = Protections()


def order(pod: ClusterPod) -> tuple[bool, int, int, bool, int, str, str, str]:
    """Return the key that sorts pods by which are best evicted first; a total order.

    Pods without a priority first, then by priority, QoS class, preference to stay and eviction cost.
    """
    return (
        pod.priority is not None,
        pod.priority or 0,
        qos_rank(pod),
        PREFER_NO_EVICTION in pod.annotations,
        eviction_cost(pod),
        pod.namespace,
        pod.name,
        pod.uid,
    )


def qos_rank(pod: ClusterPod) -> int:
    """Return 0 for BestEffort, 1 for Burstable, 2 for Guaranteed or unknown."""
    return 2 if pod.admission is None else _QOS_ORDER[pod.admission.qos.value]


def eviction_cost(pod: ClusterPod) -> int:
    """Return the highest cost in the pod's annotations; 0 without one, or where it is no 32-bit number."""
    told = (pod.annotations.get(name) for name in models.eviction_costs())
    return max((_cost(text) for text in told if text is not None), default=0)


def _cost(text: str) -> int:
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0"):
        return 0
    cost = int(text)
    return cost if -(2**31) <= cost < 2**31 else 0


def _unmovable(pod: ClusterPod) -> Iterator[Objection]:
    if MIRROR in pod.annotations:
        yield Objection("MirrorPods", "pod is a mirror pod")
    if pod.annotations.get(SOURCE, "api") != "api":
        yield Objection("StaticPods", "pod is a static pod")
    if pod.deleting:
        yield Objection("TerminatingPods", "pod is terminating")


def _protection_objections(pod: ClusterPod, protections: Protections) -> Iterator[Objection]:
    if PREFER_NO_EVICTION in pod.annotations and protections.no_eviction_policy == names.MANDATORY:
        yield Objection("PreferNoEviction", "pod asks not to be evicted and the policy makes that mandatory")
    if eviction_cost(pod) == NEVER:
        yield Objection("EvictionCost", "pod has the highest eviction cost, which rules out eviction")
    if names.SYSTEM_CRITICAL in protections:
        yield from _priority_objections(pod, protections)
    if not pod.owners:
        if names.BARE in protections:
            yield Objection(names.BARE, "nothing would recreate it")
        elif pod.phase != "Failed":
            yield Objection(names.BARE, "nothing would recreate it, and it is not in phase Failed")
    if names.DAEMON_SET in protections and any(owner.kind == "DaemonSet" for owner in pod.owners):
        yield Objection(names.DAEMON_SET, "daemonset pods are protected against eviction")
    if names.RESOURCE_CLAIMS in protections and pod.resource_claims:
        yield Objection(names.RESOURCE_CLAIMS, "pod has ResourceClaims and is protected against eviction")


def _priority_objections(pod: ClusterPod, protections: Protections) -> Iterator[Objection]:
    if pod.priority is None:
        return
    if pod.priority >= names.HIGHEST_USER_PRIORITY:
        yield Objection(
            names.SYSTEM_CRITICAL, "pod has system critical priority and is protected against eviction"
        )
    threshold = protections.priority_threshold
    if threshold is not None and pod.priority >= threshold:
        yield Objection(
            "PriorityThreshold",
            f"pod has higher priority than specified priority class threshold: {pod.priority} ≥ {threshold}",
        )


def _storage_objections(
    pod: ClusterPod, protections: Protections, context: EvictionContext
) -> Iterator[Objection]:
    if names.LOCAL_STORAGE in protections and pod.local_storage:
        yield Objection(names.LOCAL_STORAGE, "pod has local storage and is protected against eviction")
    if names.PVC in protections:
        for claim in pod.volume_claims:
            yield from _claim_objections(pod, claim, protections, context)
    if names.WITHOUT_PDB in protections and not context.headroom.budgets_of(pod):
        yield Objection(
            names.WITHOUT_PDB, "pod does not have a PodDisruptionBudget and is protected against eviction"
        )


def _claim_objections(
    pod: ClusterPod, claim: str, protections: Protections, context: EvictionContext
) -> Iterator[Objection]:
    if not protections.storage_classes:
        yield Objection(names.PVC, f"pod with PVC {claim} is protected against eviction")
        return
    storage_class = context.storage_classes.get((pod.namespace, claim))
    if storage_class is None:
        yield Objection(names.PVC, f"storage class of PVC {claim} is unknown, so the pod is protected")
    elif storage_class in protections.storage_classes:
        yield Objection(names.PVC, f"pod using protected storage class {storage_class} (PVC {claim})")


def _selection_objections(pod: ClusterPod, protections: Protections) -> Iterator[Objection]:
    selector = protections.label_selector
    if selector is not None and not selector.matches(pod.labels):
        yield Objection("LabelSelector", "pod labels do not match the labelSelector of the policy")
    included, excluded = protections.included_namespaces, protections.excluded_namespaces
    if pod.namespace in excluded or (included and pod.namespace not in included):
        yield Objection("Namespaces", f"namespace {pod.namespace} is outside the policy")


def _age_and_number_objections(
    pod: ClusterPod, protections: Protections, context: EvictionContext
) -> Iterator[Objection]:
    if protections.min_replicas > 1 and len(pod.owners) == 1:
        number = context.replicas.get(pod.owners[0].uid, 0)
        if number < protections.min_replicas:
            yield Objection(
                "MinReplicas",
                f"owner has {pluralize(number, 'replica')} which is less than "
                f"minReplicas of {protections.min_replicas}",
            )
    age = protections.min_pod_age
    if age is not None and (not pod.started or context.now - timestamp.parse(pod.started) < age):
        yield Objection("MinPodAge", f"pod age is not older than MinPodAge: {age}")


def _pre_eviction_objections(
    pod: ClusterPod, protections: Protections, context: EvictionContext, cluster: Cluster | None
) -> Iterator[Objection]:
    selector = protections.namespace_label_selector
    if selector is not None and not selector.matches(context.namespace_labels.get(pod.namespace, {})):
        yield Objection(
            "NamespaceLabelSelector", "labels of the pod's namespace do not match namespaceLabelSelector"
        )
    if protections.node_fit and cluster is not None and not _fits_elsewhere(pod, cluster):
        yield Objection(
            "NodeFit",
            "pod does not fit on any other node because of nodeSelector(s), Taint(s), requests, "
            "or nodes marked as unschedulable",
        )
    if (
        protections.node_selector is not None
        and cluster is not None
        and pod.node in cluster.nodes
        and not protections.node_selector.matches(cluster.nodes[pod.node].labels)
    ):
        yield Objection("NodeSelector", f"node {pod.node} is outside the policy's nodeSelector")


def _fits_elsewhere(pod: ClusterPod, cluster: Cluster) -> bool:
    return any(
        node.ready and not scheduling.obstacles(pod.constraints, pod.requests, node)
        for node in cluster.nodes.values()
        if node.name != pod.node
    )
