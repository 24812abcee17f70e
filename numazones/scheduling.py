"""Which nodes the default scheduler could choose for a pod, and every reason why it could not.

Before the kubelet has its say, the scheduler filters. These are its filters that concern a node alone
(kube-scheduler 1.36: NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit), in its order and
with its words, so that a reason here reads like the events people know. Unlike the scheduler, which stops
at the first filter that fails, all failing reasons are returned. Filters that look at other pods or at
volumes (spreading, pod affinity, ports) are not covered; scheduling gates are set aside on purpose.

Effective requests follow KEP-753 (sidecars), KEP-2837 (pod-level resources) and the pod overhead.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from numazones import quantity
from numazones.constraints import Constraints, Requirement, SelectorTerm, Taint, Toleration

UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_POD_LEVEL = frozenset({"cpu", "memory"})


class SchedulableNode(Protocol):
    """What the filters ask of a node; ``numazones.cluster.ClusterNode`` answers."""

    @property
    def name(self) -> str:
        """Name of the node, also its only field that node affinity can select by."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the node."""

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints of the node."""

    @property
    def unschedulable(self) -> bool:
        """Whether the node is cordoned."""

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Amounts for pods; cpu in milli-CPUs, others in whole units."""

    @property
    def requested(self) -> Mapping[str, int]:
        """Sum of the requests of the pods on the node, in the same units."""

    @property
    def pod_slots(self) -> int:
        """How many pods the node takes."""

    @property
    def pod_count(self) -> int:
        """How many pods hold a slot."""


def obstacles(
    constraints: Constraints, requests: Mapping[str, int], node: SchedulableNode
) -> tuple[str, ...]:
    """Return all reasons for which the scheduler passes over the node; none means it could choose it."""
    return (*placement_obstacles(constraints, node), *resource_obstacles(requests, node))


def placement_obstacles(constraints: Constraints, node: SchedulableNode) -> tuple[str, ...]:
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


def resource_obstacles(requests: Mapping[str, int], node: SchedulableNode) -> tuple[str, ...]:
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


def effective_requests(body: Mapping[str, Any]) -> dict[str, int]:
    """Return what the scheduler counts for a core/v1 Pod; cpu in milli-CPUs, others in whole units.

    While a pod is being resized in place, the larger of what it asks for and what it was given counts;
    a wish that the kubelet called infeasible does not.

    Raises:
        numazones.quantity.InvalidQuantity: an amount is no quantity.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    infeasible = any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )
    total: dict[str, int] = {}
    resized = _resized(status.get("containerStatuses"))
    for container in spec.get("containers") or ():
        _add(total, _container_requests(container, resized, infeasible=infeasible))
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    resized = _resized(status.get("initContainerStatuses"))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            requests = _container_requests(container, resized, infeasible=infeasible)
            _add(total, requests)
            _add(sidecars, requests)
            running = sidecars
        else:
            running = amounts((container.get("resources") or {}).get("requests"))
            _add(running, sidecars)
        _raise_to(largest, running)
    _raise_to(total, largest)
    for resource, text in ((spec.get("resources") or {}).get("requests") or {}).items():
        if resource in _POD_LEVEL or resource.startswith("hugepages-"):
            total[resource] = amount(resource, text)
    _add(total, amounts(spec.get("overhead")))
    return total


def amounts(quantities: Mapping[str, str | int] | None) -> dict[str, int]:
    """Read a map of quantities; cpu in milli-CPUs, others in whole units, rounded up.

    Raises:
        numazones.quantity.InvalidQuantity: an amount is no quantity.
    """
    return {resource: amount(resource, text) for resource, text in (quantities or {}).items()}


def amount(resource: str, text: str | int) -> int:
    """Read one quantity; cpu in milli-CPUs, others in whole units, rounded up."""
    parsed = quantity.parse(text)
    return parsed.milli() if resource == "cpu" else parsed.value()


def _resized(statuses: Iterable[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {status.get("name", ""): status for status in statuses or () if status.get("resources")}


def _container_requests(
    container: Mapping[str, Any], resized: Mapping[str, Mapping[str, Any]], *, infeasible: bool
) -> dict[str, int]:
    wanted = amounts((container.get("resources") or {}).get("requests"))
    status = resized.get(container.get("name", ""))
    if status is None:
        return wanted
    requests = {} if infeasible else wanted
    _raise_to(requests, amounts((status.get("resources") or {}).get("requests")))
    _raise_to(requests, amounts(status.get("allocatedResources")))
    return requests


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, number in more.items():
        total[resource] = total.get(resource, 0) + number


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for resource, number in least.items():
        if number > total.get(resource, 0):
            total[resource] = number
