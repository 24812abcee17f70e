"""Defaults that the API server sets in a pod's spec when the pod is created.

Templates (of ReplicaSets, StatefulSets, Jobs) and manifests are stored as they were written; the defaults
that decide QoS class, exclusive CPUs and scheduling are filled in only on the pod. To predict for a pod that
does not exist yet, they have to be filled in the same way, in the API server's order (1.36): first the type's
own defaults (``SetDefaults_Pod``: requests default to limits, pod-level requests to those of the
containers), then the admission plugins LimitRanger, RuntimeClass (overhead, node selector, tolerations) and
Priority. Mutating webhooks cannot be foreseen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.resources import HUGEPAGES

Spec = Mapping[str, Any]
ResourceList = Mapping[str, Any]

_CONTAINERS = ("initContainers", "containers")
_OVERCOMMITTABLE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Defaults:
    """The objects of a cluster that fill in what a pod leaves open."""

    limit_ranges: tuple[Mapping[str, Any], ...] = ()
    runtime_classes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → RuntimeClass."""
    priority_classes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → PriorityClass."""

    @classmethod
    def of(cls, objects: Iterable[Mapping[str, Any]]) -> "Defaults":
        """Pick the objects that matter out of a dump."""
        kinds: dict[str, list[Mapping[str, Any]]] = {}
        for item in objects:
            kinds.setdefault(str(item.get("kind", "")), []).append(item)
        return cls(
            tuple(kinds.get("LimitRange", ())),
            {item["metadata"]["name"]: item for item in kinds.get("RuntimeClass", ())},
            {item["metadata"]["name"]: item for item in kinds.get("PriorityClass", ())},
        )


NO_DEFAULTS = Defaults()


def created_spec(spec: Spec, *, namespace: str, defaults: Defaults = NO_DEFAULTS) -> dict[str, Any]:
    """Return the spec that a pod of this namespace would have once the API server has stored it.

    Raises:
        InvalidQuantity: an amount is not a quantity.
    """
    made = dict(spec)
    for part in _CONTAINERS:
        if made.get(part):
            made[part] = [_requests_from_limits(container) for container in made[part]]
    made = _with_pod_level_requests(made)
    for limit_range in defaults.limit_ranges:
        if (limit_range.get("metadata") or {}).get("namespace") == namespace:
            made = _with_limit_range(made, limit_range)
    made = _with_runtime_class(made, defaults.runtime_classes)
    return _with_priority(made, defaults.priority_classes)


def _requests_from_limits(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Let requests default to limits, and write quantities as the API stores them."""
    resources = owner.get("resources") or {}
    limits = _canonical(resources.get("limits"))
    requests = {**limits, **_canonical(resources.get("requests"))}
    return {**owner, "resources": {**resources, **_amounts(requests=requests, limits=limits)}}


def _with_pod_level_requests(spec: dict[str, Any]) -> dict[str, Any]:
    """Let pod-level requests (KEP-2837) default to what the containers ask for, then to the pod's limits."""
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return spec
    limits, requests = _canonical(resources.get("limits")), _canonical(resources.get("requests"))
    of_containers = _container_requests(spec)
    for name in _OVERCOMMITTABLE:
        if name not in requests and name in of_containers:
            requests[name] = of_containers[name].canonical()
    for name, amount in limits.items():
        if name in _OVERCOMMITTABLE or name.startswith(HUGEPAGES):
            requests.setdefault(name, amount)
    return {**spec, "resources": {**resources, **_amounts(requests=requests, limits=limits)}}


def _container_requests(spec: Spec) -> dict[str, quantity.Quantity]:
    """Return what containers ask for together (KEP-753): the most that is needed at any one time."""
    together: dict[str, quantity.Quantity] = {}
    most: dict[str, quantity.Quantity] = {}
    for container in spec.get("initContainers") or ():
        requests = _quantities(container)
        if container.get("restartPolicy") == "Always":
            together = _sum(together, requests)
            most = _largest(most, together)
        else:
            most = _largest(most, _sum(together, requests))
    for container in spec.get("containers") or ():
        together = _sum(together, _quantities(container))
    return _largest(most, together)


def _quantities(container: Mapping[str, Any]) -> dict[str, quantity.Quantity]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: quantity.parse(amount) for name, amount in requests.items()}


def _sum(
    one: Mapping[str, quantity.Quantity], other: Mapping[str, quantity.Quantity]
) -> dict[str, quantity.Quantity]:
    return {**one, **{name: one[name] + amount if name in one else amount for name, amount in other.items()}}


def _largest(
    one: Mapping[str, quantity.Quantity], other: Mapping[str, quantity.Quantity]
) -> dict[str, quantity.Quantity]:
    return {
        **one,
        **{name: max(one[name], amount) if name in one else amount for name, amount in other.items()},
    }


def _with_limit_range(spec: dict[str, Any], limit_range: Mapping[str, Any]) -> dict[str, Any]:
    """Give containers the default requests and limits of a LimitRange."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits, requests = _canonical(item.get("default")), _canonical(item.get("defaultRequest"))
        for part in _CONTAINERS:
            if spec.get(part):
                spec = {
                    **spec,
                    part: [_with_defaults(container, requests, limits) for container in spec[part]],
                }
    return spec


def _with_defaults(
    container: Mapping[str, Any], requests: ResourceList, limits: ResourceList
) -> dict[str, Any]:
    resources = container.get("resources") or {}
    filled = _amounts(
        requests={**requests, **(resources.get("requests") or {})},
        limits={**limits, **(resources.get("limits") or {})},
    )
    return {**container, "resources": {**resources, **filled}}


def _with_runtime_class(spec: dict[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = classes.get(spec.get("runtimeClassName") or "")
    if found is None:
        return spec
    overhead = (found.get("overhead") or {}).get("podFixed")
    scheduling = found.get("scheduling") or {}
    added: dict[str, Any] = {}
    if overhead:
        added["overhead"] = _canonical(overhead)
    if scheduling.get("nodeSelector"):
        added["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        added["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]
    return {**spec, **added}


def _with_priority(spec: dict[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Resolve the priority class; without a name, the lowest global default counts."""
    if spec.get("priority") is not None:
        return spec
    named = classes.get(spec.get("priorityClassName") or "")
    found = [named] if named is not None else []
    if not spec.get("priorityClassName"):
        found = [item for item in classes.values() if item.get("globalDefault")]
    value = min((int(item.get("value", 0)) for item in found), default=0)
    return {**spec, "priority": value}


def _canonical(amounts: ResourceList | None) -> dict[str, Any]:
    return {name: quantity.parse(amount).canonical() for name, amount in (amounts or {}).items()}


def _amounts(**kinds: ResourceList) -> dict[str, ResourceList]:
    return {kind: amounts for kind, amounts in kinds.items() if amounts}
