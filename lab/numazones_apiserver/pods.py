"""Defaults that the API server sets on pods, and the pods it rejects.

Defaults are those of core/v1 (pkg/apis/core/v1/defaults.go), of the Priority, ServiceAccount and
DefaultTolerationSeconds admission plugins; checks are the ones that matter to schedulers and
operators, first of all that a pod's spec hardly ever changes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.defaulting import Defaults, created_spec
from numazones_apiserver import errors
from numazones_apiserver.errors import FieldError, Object
from numazones_apiserver.gated_pods import check_gates, check_limits, check_node_affinity, with_old_limits

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_DETAIL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_NATIVE = ("cpu", "memory")
_MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

_GATED_CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "lastTransitionTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}

PriorityOf = Callable[[str], tuple[int, str] | None]
DefaultsOf = Callable[[str], Defaults]


def _default_resources(resources: Object) -> Object:
    """The resources of a container, whose requests default to its limits."""
    limits = resources.get("limits")
    if not limits:
        return resources
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def _default_container(container: Object) -> Object:
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    digest = "@" in image
    latest = not digest and tag in ("", "latest")
    result = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        **container,
        "resources": _default_resources(container.get("resources") or {}),
    }
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in result:
            result[name] = {**_PROBE, **result[name]}
    if "ports" in result:
        result["ports"] = [{"protocol": "TCP", **port} for port in result["ports"]]
    if "env" in result:
        result["env"] = [_default_variable(one) for one in result["env"]]
    return result


def _default_variable(variable: Object) -> Object:
    source = (variable.get("valueFrom") or {}).get("fieldRef")
    if source is None or "apiVersion" in source:
        return variable
    return {**variable, "valueFrom": {**variable["valueFrom"], "fieldRef": {"apiVersion": "v1", **source}}}


def _default_volume(volume: Object) -> Object:
    result = dict(volume)
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        if isinstance(result.get(name), dict):
            result[name] = {"defaultMode": 420, **result[name]}
    if "hostPath" in result:
        result["hostPath"] = {"type": "", **result["hostPath"]}
    if not set(result) - {"name"}:
        result["emptyDir"] = {}
    return result


def default_spec(spec: Object) -> Object:
    """The defaults of a pod's spec, also where it is the template of another kind."""
    result = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        **spec,
    }
    if "serviceAccountName" in result:
        result.setdefault("serviceAccount", result["serviceAccountName"])
    for name in ("containers", "initContainers"):
        if isinstance(result.get(name), list):
            result[name] = [_default_container(one) for one in result[name]]
    if isinstance(result.get("volumes"), list):
        result["volumes"] = [_default_volume(one) for one in result["volumes"]]
    return result


def _default_tolerations(tolerations: Iterable[Object]) -> list[Object]:
    """The tolerations of a pod, which by default leaves a node that fails for five minutes."""
    result = list(tolerations)
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            one.get("key") in (None, "", key) and one.get("effect") in (None, "", "NoExecute")
            for one in result
        ):
            result.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return result


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort (kubernetes.io: quality of service for pods)."""
    guaranteed, any_set = True, False
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    # Pod-level resources (KEP-2837) decide alone where there are any.
    for owner in [spec] if spec.get("resources") else containers:
        resources = owner.get("resources") or {}
        requests, limits = (
            _native_amounts(resources.get("requests")),
            _native_amounts(resources.get("limits")),
        )
        any_set = any_set or bool(requests) or bool(limits)
        if set(limits) != set(_NATIVE) or requests != limits:
            guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _native_amounts(amounts: Object | None) -> dict[str, quantity.Quantity]:
    parsed = {name: quantity.parse(value) for name, value in (amounts or {}).items() if name in _NATIVE}
    return {name: amount for name, amount in parsed.items() if amount}


class PodStrategy:
    """Write pods: many defaults, an almost immutable spec, and a status of their own."""

    def __init__(self, priority_of: PriorityOf, defaults_of: DefaultsOf) -> None:
        self._priority_of = priority_of
        self._defaults_of = defaults_of

    def for_create(self, obj: Object) -> Object:
        """The pod, Pending, with its priority and defaults, also those of LimitRanges and RuntimeClass."""
        spec = self._with_admission_defaults(default_spec(obj.get("spec") or {}), obj["metadata"])
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        found = self._priority_of(spec.get("priorityClassName", ""))
        if found is None:
            name = spec["priorityClassName"]
            raise errors.forbidden(
                "", "pods", obj["metadata"].get("name", ""), f"no PriorityClass with name {name} was found"
            )
        spec["priority"], policy = found
        spec.setdefault("preemptionPolicy", policy)
        spec["tolerations"] = _default_tolerations(spec.get("tolerations") or ())
        status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [_GATED_CONDITION]
        return {**obj, "spec": spec, "status": status}

    def _with_admission_defaults(self, spec: Object, metadata: Object) -> Object:
        """The spec with defaults of LimitRanges (not their bounds), RuntimeClass and pod-level resources."""
        namespace, name = metadata.get("namespace", ""), spec.get("runtimeClassName")
        defaults = self._defaults_of(namespace)
        if name and name not in defaults.runtime_classes:
            raise errors.forbidden(
                "", "pods", metadata.get("name", ""), f'pod rejected: RuntimeClass "{name}" not found'
            )
        if not name and not defaults.limit_ranges and not spec.get("resources"):
            return spec
        made = created_spec({**spec, "priority": 0}, namespace=namespace, defaults=defaults)
        del made["priority"]
        return made

    def for_update(self, obj: Object, old: Object) -> Object:
        """The pod with its defaults and the old status."""
        return {**obj, "spec": default_spec(obj.get("spec") or {}), "status": old.get("status", {})}

    def for_status(self, obj: Object, old: Object) -> Object:
        """Labels, annotations and status from the new object, the rest from the old one."""
        metadata = {**obj["metadata"]}
        owners = old["metadata"].get("ownerReferences")
        if owners is None:
            metadata.pop("ownerReferences", None)
        else:
            metadata["ownerReferences"] = owners
        status = {"qosClass": old.get("status", {}).get("qosClass", ""), **(obj.get("status") or {})}
        return {**obj, "metadata": metadata, "spec": old["spec"], "status": status}

    def check(self, obj: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the errors of containers; on update, also of spec fields that must not change."""
        if old is None:
            spec = obj.get("spec") or {}
            yield from check_spec(spec, "spec")
            if spec.get("nodeName") and spec.get("schedulingGates"):
                why = "cannot be set until all schedulingGates have been cleared"
                yield errors.forbidden_field("spec.nodeName", why)
        else:
            yield from _check_update(obj["spec"], old["spec"])


def _check_update(spec: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors of a changed spec."""
    yield from check_gates(spec, old)
    if old.get("schedulingGates"):
        yield from check_limits(spec, old)
        yield from check_node_affinity(spec, "spec")
    if _without_mutable_fields(spec, old) != _without_mutable_fields(old, old):
        yield errors.forbidden_field("spec", _MUTABLE)


def _without_mutable_fields(spec: Object, old: Object) -> Object:
    """The spec without the fields that may change, and without added tolerations."""
    spec = with_old_limits(spec, old) if old.get("schedulingGates") else spec
    mutable = ("activeDeadlineSeconds", "schedulingGates")
    result = {key: value for key, value in spec.items() if key not in mutable}
    for name in ("containers", "initContainers"):
        if name in result:
            result[name] = [{**one, "image": ""} for one in result[name]]
    if all(one in (spec.get("tolerations") or ()) for one in old.get("tolerations") or ()):
        result.pop("tolerations", None)
    return result


def check_spec(spec: Object, path: str) -> Iterator[FieldError]:
    """Yield the errors of a pod's spec."""
    containers = spec.get("containers")
    if not containers:
        yield errors.required(f"{path}.containers")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{at}]"
            name = container.get("name", "")
            if not name:
                yield errors.required(f"{here}.name")
            elif not _LABEL.fullmatch(name):
                yield errors.invalid_value(f"{here}.name", name, LABEL_DETAIL)
            elif name in seen:
                yield errors.duplicate(f"{here}.name", name)
            seen.add(name)
            if not container.get("image"):
                yield errors.required(f"{here}.image")
            yield from _check_resources(container.get("resources") or {}, f"{here}.resources")
    yield from check_node_affinity(spec, path)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        supported = ("Always", "OnFailure", "Never")
        yield errors.unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), supported)


def _check_resources(resources: Object, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, amount in (resources.get(field) or {}).items():
            if quantity.parse(amount).nanos < 0:
                detail = "must be greater than or equal to 0"
                yield errors.invalid_value(f"{path}.{field}[{name}]", amount, detail)
    for name, amount in (resources.get("requests") or {}).items():
        if name not in limits:
            if _never_overcommitted(name):
                detail = "Limit must be set for non overcommitable resources"
                yield errors.required(f"{path}.limits", detail)
            continue
        asked, allowed = quantity.parse(amount), quantity.parse(limits[name])
        if _never_overcommitted(name) and asked != allowed:
            yield errors.invalid_value(
                f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}"
            )
        elif asked > allowed:
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield errors.invalid_value(f"{path}.requests", amount, detail)


def _never_overcommitted(name: str) -> bool:
    """Return whether requests must equal limits, as for hugepages and extended resources."""
    native = "/" not in name or "kubernetes.io/" in name
    return name.startswith("hugepages-") or not native


def assign_node(pod: Object, node: str, annotations: Any, now: str) -> Object:
    """The pod once it is assigned to a node; raises StatusError 409 when it already is."""
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        raise errors.conflict(
            "", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    current = pod["spec"].get("nodeName")
    if current:
        why = f'pod {name} is already assigned to node "{current}"'
        raise errors.conflict("", "pods/binding", name, why)
    if pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
        raise errors.conflict("", "pods/binding", name, why)
    status = pod.get("status") or {}
    kept = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    metadata = pod["metadata"]
    if annotations:
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*kept, scheduled]},
    }
