"""Remove the scheduler's obstacles from a copy of a node: a cordon, taints, labels that a pod requires.

Only what somebody can do is said. Labels of Kubernetes' own domains are set by the kubelet or the cloud,
which write them back, and a label that the node has with another value says what the node is; then the pod
has to change.
"""

from dataclasses import dataclass, replace

from numazones.apimachinery.taints import Taint, Toleration
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.constraints import Constraints

_NOT_FOR_PODS = ("node.kubernetes.io/", "node-role.kubernetes.io/")
"""Taints of these domains show conditions of a node, or keep it for the control plane."""
_RESERVED = ("kubernetes.io", "k8s.io")
"""Domains that Kubernetes keeps for itself, those below them included."""
_FOR_PEOPLE = {"node-role.kubernetes.io", "node-restriction.kubernetes.io"}
"""Of these the domains whose labels administrators set."""


@dataclass(frozen=True, slots=True)
class UnblockedNode:
    """A pod and a node after what would let the scheduler choose the one for the other."""

    pod: ClusterPod
    node: ClusterNode
    cures: tuple[str, ...]
    """What has to be done, with why; never empty."""
    tainted: bool
    """Whether a taint is among what was in the way."""


def unblocked(pod: ClusterPod, node: ClusterNode) -> UnblockedNode | None:
    """Open a node for a pod; None where nothing keeps the scheduler away, or what does is to stay."""
    cures: list[str] = []
    constraints, free = pod.constraints, node
    if node.unschedulable:
        free = replace(free, unschedulable=False)
        cures.append(f"it is cordoned: kubectl uncordon {node.name}")
    taints = [taint for taint in node.taints if _keeps_away(taint, pod) and not _is_cordon(taint)]
    if any(taint.key.startswith(_NOT_FOR_PODS) for taint in taints):
        return None
    if taints:
        tolerations = tuple(Toleration(item.key, "Equal", item.value, item.effect) for item in taints)
        constraints = replace(constraints, tolerations=(*constraints.tolerations, *tolerations))
        named = " and ".join(map(_taint_text, taints))
        cures.append(f"the pod does not tolerate its taint {named}: add a toleration, or remove the taint")
    free = replace(free, taints=tuple(item for item in free.taints if not _is_cordon(item)))
    if not constraints.selects(node.name, node.labels):
        cure, constraints, free = _selected(constraints, free)
        cures.append(cure)
    if not cures:
        return None
    return UnblockedNode(replace(pod, constraints=constraints), free, tuple(cures), tainted=bool(taints))


def _selected(constraints: Constraints, node: ClusterNode) -> tuple[str, Constraints, ClusterNode]:
    """(what has to be done, the pod's constraints, the node) so that the pod selects the node."""
    missing = {key: value for key, value in constraints.node_selector if node.labels.get(key) != value}
    words = [f"{key}={value}" for key, value in missing.items()]
    labels = {**node.labels, **missing}
    if all(_may_be_set(key, node) for key in missing) and constraints.selects(node.name, labels):
        cure = (
            f"the pod's node selector does not match: label the node (kubectl label node {node.name} "
            f"{' '.join(words)}), or relax the selector"
        )
        return cure, constraints, replace(node, labels=labels)
    kept = tuple(item for item in constraints.node_selector if item[0] not in missing)
    wider = replace(constraints, node_selector=kept)
    if wider.selects(node.name, node.labels):
        return f"the pod's node selector {','.join(words)} does not match: relax it", wider, node
    found = "node selector and node affinity do not match: relax them"
    cure = f"the pod's {found if missing else 'node affinity does not match: relax it'}"
    return cure, replace(constraints, node_selector=(), node_affinity=None), node


def _may_be_set(label: str, node: ClusterNode) -> bool:
    """Return whether an administrator may set a label on a node without taking anything from it."""
    domain = label.partition("/")[0] if "/" in label else ""
    reserved = any(domain == own or domain.endswith(f".{own}") for own in _RESERVED)
    return label not in node.labels and (not reserved or domain in _FOR_PEOPLE)


def _keeps_away(taint: Taint, pod: ClusterPod) -> bool:
    return taint.effect in {"NoSchedule", "NoExecute"} and not pod.constraints.tolerates(taint)


def _is_cordon(taint: Taint) -> bool:
    return taint.key == "node.kubernetes.io/unschedulable"


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
