"""A pod as its kubelet takes it in again after a restart: with what it was allocated, not what it wants.

The two differ where a resize in place (KEP-1287) is infeasible, deferred, or not looked at yet. A kubelet
that starts replaces CPU and memory in the spec by the amounts of its checkpoint
(``UpdatePodFromAllocation``, 1.36). The pod's status shows the requests among them
(``allocatedResources``). A resize never changes the QoS class, so limits that equal requests still do; of
other limits those in force are taken.
"""

from collections.abc import Mapping
from typing import Any

_RESIZABLE = ("cpu", "memory")


def as_allocated(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a core/v1 Pod with its allocated amounts in the spec; the same object if these are no others."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    changed: dict[str, Any] = {}
    for containers, statuses in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        shown = {one.get("name"): one for one in status.get(statuses) or ()}
        found = [_allocated(one, shown.get(one.get("name"), {})) for one in spec.get(containers) or ()]
        if found != list(spec.get(containers) or ()):
            changed[containers] = found
    # A kubelet of 1.36 shows the sum of any pod's containers there, not only of pod-level resources.
    whole = _allocated(spec, status) if spec.get("resources") else spec
    if whole is not spec:
        changed["resources"] = whole["resources"]
    return {**body, "spec": {**spec, **changed}} if changed else body


def _allocated(owner: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container, or a pod's spec, with the amounts that its status shows as allocated."""
    allocated = status.get("allocatedResources")
    if not allocated:
        return owner
    resources = owner.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    in_force = (status.get("resources") or {}).get("limits") or {}
    equal = {name: amount for name, amount in allocated.items() if requests.get(name) == limits.get(name)}
    fixed = {name: amount for name, amount in requests.items() if name not in _RESIZABLE}
    new = {
        "requests": {**fixed, **{name: allocated[name] for name in _RESIZABLE if name in allocated}},
        "limits": _replaced(limits, {**in_force, **equal}),
    }
    if new == {"requests": requests, "limits": limits}:
        return owner
    return {**owner, "resources": {**resources, **new}}


def _replaced(amounts: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Return amounts of which those that can be resized are others."""
    return {**amounts, **{name: by[name] for name in _RESIZABLE if name in amounts and name in by}}
