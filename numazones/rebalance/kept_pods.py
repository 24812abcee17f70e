"""Explanations of the rules that keep pods where they are, for reports that count pods by rule.

The rules are those of ``filter`` and ``candidates``; ``why_not`` gives the message for one pod.
"""

from collections.abc import Iterator, Mapping

from numazones.cluster.cluster import OTHER_MODEL
from numazones.rebalance import protections as names
from numazones.rebalance.left_out import UNDECIDED
from numazones.wording import pluralize

RULES: Mapping[str, str] = {
    "MirrorPods": "a mirror pod cannot be evicted",
    "StaticPods": "a static pod cannot be evicted",
    "TerminatingPods": "already terminating",
    "PreferNoEviction": "annotated against eviction, which the policy enforces",
    "EvictionCost": "an eviction cost annotation that rules out eviction",
    names.SYSTEM_CRITICAL: "system-critical priority",
    "PriorityThreshold": "priority at or above the policy's priorityThreshold",
    names.BARE: "nothing recreates a pod without an owner",
    names.LOCAL_STORAGE: "data in emptyDir or hostPath volumes would be lost",
    names.DAEMON_SET: "a DaemonSet recreates its pod on the same node",
    names.PVC: "the policy protects pods with PersistentVolumeClaims",
    names.WITHOUT_PDB: "the policy protects pods without a PodDisruptionBudget",
    names.RESOURCE_CLAIMS: "the policy protects pods with ResourceClaims",
    "LabelSelector": "outside the policy's labelSelector",
    "Namespaces": "outside the policy's namespaces",
    "NamespaceLabelSelector": "outside the policy's namespaceLabelSelector",
    "NodeSelector": "on a node outside the policy's nodeSelector",
    "MinReplicas": "the owner has fewer replicas than the policy's minReplicas",
    "MinPodAge": "younger than the policy's minPodAge",
    "NodeFit": "no other node fits, and the policy sets nodeFit",
    "Phase": "not running",
    "NodeState": "the state of the node is not known for certain",
    OTHER_MODEL: "a placement model other than the kubelet decides on the node",
    "Replacement": "no controller would replace the pod, or its template cannot be read",
    "Unforeseeable": "the node of the replacement cannot be predicted",
    "Limits": "the only replica of the workload, or the policy's limits allow no eviction",
    "PodDisruptionBudget": "a PodDisruptionBudget allows no eviction now",
    UNDECIDED: "an unexpected error occurred while checking them",
    "Cooldown": "a pod of the same owner was moved recently",
}
"""Rule → why it keeps pods, as the end of "N pods stay: …"."""


def kept_pods(unmovable: Mapping[str, int]) -> Iterator[str]:
    """Yield one sentence for each rule that keeps pods, the one with the most pods first."""
    for rule, count in sorted(unmovable.items(), key=lambda entry: (-entry[1], entry[0])):
        verb = "stays" if count == 1 else "stay"
        yield f"{pluralize(count, 'pod')} {verb}: {RULES.get(rule, 'a rule keeps them')} (rule {rule})"
