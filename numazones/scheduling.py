"""Which nodes the default scheduler could choose for a pod, and every reason why it could not.

Before the kubelet has its say, the scheduler filters. These are its filters that concern a node alone
(kube-scheduler 1.36: NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit), in its order and
with its words, so that a reason here reads like the events people know. Unlike the scheduler, which stops
at the first filter that fails, all failing reasons are returned. Filters that look at other pods or at
volumes (spreading, pod affinity, ports) are not covered; scheduling gates are set aside on purpose.
"""

import re
from collections.abc import Iterable, Mapping

from numazones.cluster import ClusterNode
from numazones.constraints import Constraints, Requirement, SelectorTerm, Taint, Toleration

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_INTEGER = re.compile(r"[+-]?[0-9]+")


def obstacles(constraints: Constraints, requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return all reasons for which the scheduler passes over the node; none means it could choose it."""
    return (*placement_obstacles(constraints, node), *resource_obstacles(requests, node))


def placement_obstacles(constraints: Constraints, node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons that lie in cordons, taints, selectors and affinity."""
    reasons = []
    if node.unschedulable and not tolerated(_UNSCHEDULABLE_TAINT, constraints.tolerations):
        reasons.append(UNSCHEDULABLE)
    if not all(
        tolerated(taint, constraints.tolerations) for taint in node.taints if taint.effect in _KEEPS_AWAY
    ):
        reasons.append(UNTOLERATED)
    if not selects(constraints, node.name, node.labels):
        reasons.append(NOT_SELECTED)
    return tuple(reasons)


def resource_obstacles(requests: Mapping[str, int], node: ClusterNode) -> tuple[str, ...]:
    """Return the reasons that lie in pod slots and in allocatable resources not yet requested."""
    reasons = [TOO_MANY_PODS] if node.pod_count + 1 > node.pod_slots else []
    for resource, amount in requests.items():
        if amount > 0 and amount > node.allocatable.get(resource, 0) - node.requested.get(resource, 0):
            reasons.append(f"Insufficient {resource}")
    return tuple(reasons)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether one of the tolerations covers the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Equal":
        return toleration.value == taint.value
    # Lt and Gt wait behind a gate that is off by default (TaintTolerationComparisonOperators).
    return toleration.operator == "Exists"


def selects(constraints: Constraints, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether nodeSelector and required node affinity take a node of this name and these labels."""
    if not all(labels.get(key) == value for key, value in constraints.node_selector):
        return False
    terms = constraints.node_affinity
    return terms is None or any(_term_holds(term, name, labels) for term in terms)


def _term_holds(term: SelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not term.expressions and not term.fields:
        return False
    if not all(_well_formed(requirement) for requirement in term.expressions):
        return False
    return all(_label_holds(requirement, labels) for requirement in term.expressions) and all(
        _field_holds(requirement, name) for requirement in term.fields
    )


def _well_formed(requirement: Requirement) -> bool:
    """Whether the scheduler can read the requirement; a term with one that it cannot selects nothing."""
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and _integer(requirement.values[0]) is not None
        case _:
            return False


def _label_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(requirement, value)


def _compares(requirement: Requirement, value: str | None) -> bool:
    actual = None if value is None else _integer(value)
    bound = _integer(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound


def _field_holds(requirement: Requirement, name: str) -> bool:
    value = name if requirement.key == "metadata.name" else ""
    if len(requirement.values) != 1:
        return False
    if requirement.operator == "In":
        return value == requirement.values[0]
    return requirement.operator == "NotIn" and value != requirement.values[0]


def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
