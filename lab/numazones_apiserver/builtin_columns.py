"""The columns that ``kubectl get`` prints for the built-in kinds.

Names, order, priorities and cell texts follow the tables of kube-apiserver 1.36.
"""

from collections.abc import Callable, Mapping
from typing import Any

from numazones.apimachinery.duration import human_duration
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import TableColumn
from numazones_apiserver.selectors import selector_text
from numazones_apiserver.tables import (
    NONE,
    UNKNOWN,
    age,
    age_column,
    instant,
    name_column,
)

CellReader = Callable[[Object], Any]
_UNSET = "<unset>"


def get(obj: Any, *path: str, default: Any = None) -> Any:
    """The value at a path of keys, the default when something on the way is absent."""
    for key in path:
        if not isinstance(obj, Mapping) or obj.get(key) is None:
            return default
        obj = obj[key]
    return obj


def _wide(name: str, cell: CellReader) -> TableColumn:
    return TableColumn(name, cell, priority=1)


def _integer(name: str, cell: CellReader) -> TableColumn:
    return TableColumn(name, cell, type="integer")


def _field(*path: str, default: Any = "") -> CellReader:
    return lambda obj: get(obj, *path, default=default)


def _selector(*path: str) -> CellReader:
    return lambda obj: selector_text(get(obj, *path, default={})) or NONE


def _reference(*path: str, keys: tuple[str, ...], default: str) -> CellReader:
    """Members of an object that refers to another, the default where it is absent."""
    return lambda obj: (
        "/".join(get(obj, *path, key, default="") for key in keys) if get(obj, *path) else default
    )


def _ready_replicas(workload: Object) -> str:
    wanted = get(workload, "spec", "replicas", default=0)
    return f"{get(workload, 'status', 'readyReplicas', default=0)}/{wanted}"


_WEBHOOKS = _integer("Webhooks", lambda obj: len(obj.get("webhooks") or ()))


def _template_columns(*, selector: bool = True) -> tuple[TableColumn, ...]:
    def containers(key: str) -> CellReader:
        return lambda obj: ",".join(
            one.get(key, "") for one in get(obj, "spec", "template", "spec", "containers", default=[])
        )

    columns: tuple[TableColumn, ...] = (
        _wide("Containers", containers("name")),
        _wide("Images", containers("image")),
    )
    if selector:
        columns += (_wide("Selector", _selector("spec", "selector")),)
    return columns


# --- pods ------------------------------------------------------------------------------------


def _condition(obj: Object, kind: str) -> str:
    conditions = get(obj, "status", "conditions", default=[])
    return next((one.get("status", "") for one in conditions if one.get("type") == kind), "")


def _sidecars(pod: Object) -> set[str]:
    containers = get(pod, "spec", "initContainers", default=[])
    return {one["name"] for one in containers if one.get("restartPolicy") == "Always"}


def _end_reason(state: Object, prefix: str = "") -> str:
    if state.get("reason"):
        return f"{prefix}{state['reason']}"
    if state.get("signal"):
        return f"{prefix}Signal:{state['signal']}"
    return f"{prefix}ExitCode:{state.get('exitCode', 0)}"


def _init_status(pod: Object) -> str:
    """Return the state of the first unfinished init container, "" when all are done."""
    sidecars = _sidecars(pod)
    total = len(get(pod, "spec", "initContainers", default=[]))
    for at, one in enumerate(get(pod, "status", "initContainerStatuses", default=[])):
        ended, waiting = get(one, "state", "terminated"), get(one, "state", "waiting", default={})
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if one.get("name") in sidecars and one.get("started"):
            continue
        if ended is not None:
            return _end_reason(ended, "Init:")
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{at}/{total}"
    return ""


def _is_past_init(pod: Object) -> bool:
    return not _init_status(pod) or _condition(pod, "Initialized") == "True"


def _container_reason(pod: Object, reason: str) -> str:
    running, failed = False, ""
    for one in reversed(get(pod, "status", "containerStatuses", default=[])):
        waiting, ended = get(one, "state", "waiting", default={}), get(one, "state", "terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end_reason(ended)
            if ended.get("exitCode", 0) != 0:
                failed = reason
        elif one.get("ready") and get(one, "state", "running") is not None:
            running = True
    if reason != "Completed":
        return reason
    if running and _condition(pod, "Ready") == "True":
        return "Running"
    return failed or ("NotReady" if running else reason)


def pod_status(pod: Object) -> str:
    """The STATUS of a pod: its phase, or a reason that says more."""
    phase = get(pod, "status", "phase", default="")
    reason = get(pod, "status", "reason", default="") or phase
    gated = any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated"
        for one in get(pod, "status", "conditions", default=[])
    )
    reason = "SchedulingGated" if gated else reason
    reason = _init_status(pod) or reason
    if _is_past_init(pod):
        reason = _container_reason(pod, reason)
    if pod["metadata"].get("deletionTimestamp"):
        if get(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(reason)


def _pod_ready(pod: Object) -> str:
    sidecars = _sidecars(pod)
    ready = sum(
        1
        for one in get(pod, "status", "initContainerStatuses", default=[])
        if one.get("name") in sidecars and one.get("started") and one.get("ready")
    )
    if _is_past_init(pod):
        ready += sum(
            1
            for one in get(pod, "status", "containerStatuses", default=[])
            if one.get("ready") and get(one, "state", "running") is not None
        )
    return f"{ready}/{len(get(pod, 'spec', 'containers', default=[])) + len(sidecars)}"


def _pod_restarts(pod: Object) -> str:
    sidecars = _sidecars(pod)
    init = get(pod, "status", "initContainerStatuses", default=[])
    if _is_past_init(pod):
        counted = [one for one in init if one.get("name") in sidecars]
        counted += get(pod, "status", "containerStatuses", default=[])
    else:
        counted = init
    restarts = sum(one.get("restartCount", 0) for one in counted)
    ends = [end for one in counted if (end := get(one, "lastState", "terminated", "finishedAt"))]
    return f"{restarts} ({age(max(ends))} ago)" if restarts and ends else str(restarts)


def _readiness_gates(pod: Object) -> str:
    gates = get(pod, "spec", "readinessGates", default=[])
    if not gates:
        return NONE
    return f"{sum(_condition(pod, gate['conditionType']) == 'True' for gate in gates)}/{len(gates)}"


def _pod_ip(pod: Object) -> str:
    addresses = get(pod, "status", "podIPs", default=[])
    return addresses[0].get("ip", NONE) if addresses else NONE


# --- nodes -----------------------------------------------------------------------------------


def _node_status(node: Object) -> str:
    ready = _condition(node, "Ready")
    status = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    return f"{status},SchedulingDisabled" if get(node, "spec", "unschedulable") else status


def _node_roles(node: Object) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/") and key != "node-role.kubernetes.io/":
            roles.add(key.removeprefix("node-role.kubernetes.io/"))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or NONE


def _node_address(kind: str) -> CellReader:
    def cell(node: Object) -> str:
        addresses = get(node, "status", "addresses", default=[])
        return next((one["address"] for one in addresses if one.get("type") == kind), NONE)

    return cell


# --- others ----------------------------------------------------------------------------------


def _event_last_seen(event: Object) -> str:
    last = get(event, "series", "lastObservedTime") or event.get("lastTimestamp")
    return age(last) if last else _first_seen(event)


def _first_seen(event: Object) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"))


def _event_object(event: Object) -> str:
    involved = event.get("involvedObject") or {}
    kind, name = str(involved.get("kind", "")).lower(), involved.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object) -> str:
    component = get(event, "source", "component") or event.get("reportingComponent", "")
    host = get(event, "source", "host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else component


def _event_count(event: Object) -> int:
    return int(get(event, "series", "count") or event.get("count") or 1)


def _service_ports(service: Object) -> str:
    parts = []
    for port in get(service, "spec", "ports", default=[]):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(parts) or NONE


def _job_status(job: Object) -> str:
    for kind, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if _condition(job, kind) == "True":
            return shown
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _condition(job, "Suspended") == "True":
        return "Suspended"
    return "FailureTarget" if _condition(job, "FailureTarget") == "True" else "Running"


def _job_completions(job: Object) -> str:
    done, wanted = get(job, "status", "succeeded", default=0), get(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = get(job, "spec", "parallelism", default=0)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object) -> str:
    start, end = instant(get(job, "status", "startTime")), instant(get(job, "status", "completionTime"))
    if start is None:
        return ""
    return human_duration((end - start).total_seconds()) if end else age(get(job, "status", "startTime"))


_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(*path: str) -> CellReader:
    return lambda obj: ",".join(_ACCESS_MODES.get(mode, mode) for mode in get(obj, *path, default=[]))


def _claim_status(claim: Object) -> str:
    leaves = claim["metadata"].get("deletionTimestamp")
    return "Terminating" if leaves else get(claim, "status", "phase", default="")


def _role_reference(binding: Object) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> CellReader:
    def cell(binding: Object) -> str:
        found = [one for one in binding.get("subjects") or () if one.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{one.get('namespace', '')}/{one['name']}" for one in found)
        return ", ".join(one["name"] for one in found)

    return cell


def _binding_columns() -> tuple[TableColumn, ...]:
    return (
        name_column(),
        TableColumn("Role", _role_reference),
        age_column(),
        _wide("Users", _subjects("User")),
        _wide("Groups", _subjects("Group")),
        _wide("ServiceAccounts", _subjects("ServiceAccount")),
    )


def _created_columns() -> tuple[TableColumn, ...]:
    created = TableColumn("Created At", lambda obj: obj["metadata"].get("creationTimestamp"), type="date")
    return (name_column(), created)


def _with_age(*columns: TableColumn, wide: tuple[TableColumn, ...] = ()) -> tuple[TableColumn, ...]:
    return (name_column(), *columns, age_column(), *wide)


_PARAM_KIND = TableColumn(
    "ParamKind", _reference("spec", "paramKind", keys=("apiVersion", "kind"), default=_UNSET)
)
_POLICY_BINDING = (
    TableColumn("PolicyName", _field("spec", "policyName")),
    TableColumn(
        "ParamRef",
        lambda obj: (
            "/".join(filter(None, (get(obj, "spec", "paramRef", key) for key in ("namespace", "name"))))
            or _UNSET
        ),
    ),
)


def _claim_state(claim: Object) -> str:
    deleted = bool(claim["metadata"].get("deletionTimestamp"))
    if not get(claim, "status", "allocation"):
        return "deleted" if deleted else "pending"
    reserved = bool(get(claim, "status", "reservedFor"))
    states = (("deleted", deleted), ("allocated", True), ("reserved", reserved))
    return ",".join(name for name, holds in states if holds)


COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "Pod": _with_age(
        TableColumn("Ready", _pod_ready),
        TableColumn("Status", pod_status),
        TableColumn("Restarts", _pod_restarts),
        wide=(
            _wide("IP", _pod_ip),
            _wide("Node", _field("spec", "nodeName", default=NONE)),
            _wide("Nominated Node", _field("status", "nominatedNodeName", default=NONE)),
            _wide("Readiness Gates", _readiness_gates),
        ),
    ),
    "Node": (
        name_column(),
        TableColumn("Status", _node_status),
        TableColumn("Roles", _node_roles),
        age_column(),
        TableColumn("Version", _field("status", "nodeInfo", "kubeletVersion")),
        _wide("Internal-IP", _node_address("InternalIP")),
        _wide("External-IP", _node_address("ExternalIP")),
        _wide("OS-Image", _field("status", "nodeInfo", "osImage", default=UNKNOWN)),
        _wide("Kernel-Version", _field("status", "nodeInfo", "kernelVersion", default=UNKNOWN)),
        _wide("Container-Runtime", _field("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN)),
    ),
    "Namespace": _with_age(TableColumn("Status", _field("status", "phase"))),
    "Event": (
        TableColumn("Last Seen", _event_last_seen),
        TableColumn("Type", _field("type")),
        TableColumn("Reason", _field("reason")),
        TableColumn("Object", _event_object),
        _wide("Subobject", _field("involvedObject", "fieldPath")),
        _wide("Source", _event_source),
        TableColumn("Message", lambda event: str(event.get("message", "")).strip()),
        _wide("First Seen", _first_seen),
        _wide("Count", _event_count),
        TableColumn("Name", lambda obj: obj["metadata"]["name"], format="name", priority=1),
    ),
    "ConfigMap": _with_age(
        TableColumn("Data", lambda obj: str(len(obj.get("data") or ()) + len(obj.get("binaryData") or ()))),
    ),
    "Secret": _with_age(
        TableColumn("Type", _field("type")), TableColumn("Data", lambda obj: str(len(obj.get("data") or ())))
    ),
    "ServiceAccount": _with_age(),
    "Service": _with_age(
        TableColumn("Type", _field("spec", "type")),
        TableColumn("Cluster-IP", _field("spec", "clusterIP", default=NONE)),
        TableColumn("External-IP", lambda obj: ",".join(get(obj, "spec", "externalIPs", default=[])) or NONE),
        TableColumn("Port(s)", _service_ports),
        wide=(_wide("Selector", _selector("spec", "selector")),),
    ),
    "PersistentVolumeClaim": _with_age(
        TableColumn("Status", _claim_status),
        TableColumn("Volume", _field("spec", "volumeName")),
        TableColumn("Capacity", _field("status", "capacity", "storage")),
        TableColumn("Access Modes", _access_modes("status", "accessModes")),
        TableColumn("StorageClass", _field("spec", "storageClassName")),
        TableColumn("VolumeAttributesClass", _field("spec", "volumeAttributesClassName", default=_UNSET)),
        wide=(_wide("VolumeMode", _field("spec", "volumeMode", default=_UNSET)),),
    ),
    "PersistentVolume": _with_age(
        TableColumn("Capacity", _field("spec", "capacity", "storage")),
        TableColumn("Access Modes", _access_modes("spec", "accessModes")),
        TableColumn("Reclaim Policy", _field("spec", "persistentVolumeReclaimPolicy")),
        TableColumn("Status", _claim_status),
        TableColumn("Claim", _reference("spec", "claimRef", keys=("namespace", "name"), default="")),
        TableColumn("StorageClass", _field("spec", "storageClassName")),
        TableColumn("VolumeAttributesClass", _field("spec", "volumeAttributesClassName", default=_UNSET)),
        TableColumn("Reason", _field("status", "reason")),
        wide=(_wide("VolumeMode", _field("spec", "volumeMode", default=_UNSET)),),
    ),
    "Lease": _with_age(TableColumn("Holder", _field("spec", "holderIdentity"))),
    "PodDisruptionBudget": _with_age(
        TableColumn("Min Available", lambda obj: str(get(obj, "spec", "minAvailable", default="N/A"))),
        TableColumn("Max Unavailable", lambda obj: str(get(obj, "spec", "maxUnavailable", default="N/A"))),
        _integer("Allowed Disruptions", _field("status", "disruptionsAllowed", default=0)),
    ),
    "Deployment": _with_age(
        TableColumn("Ready", _ready_replicas),
        TableColumn("Up-to-date", _field("status", "updatedReplicas", default=0)),
        TableColumn("Available", _field("status", "availableReplicas", default=0)),
        wide=_template_columns(),
    ),
    "ReplicaSet": _with_age(
        _integer("Desired", _field("spec", "replicas", default=0)),
        _integer("Current", _field("status", "replicas", default=0)),
        _integer("Ready", _field("status", "readyReplicas", default=0)),
        wide=_template_columns(),
    ),
    "StatefulSet": _with_age(
        TableColumn("Ready", _ready_replicas),
        wide=_template_columns(selector=False),
    ),
    "DaemonSet": _with_age(
        _integer("Desired", _field("status", "desiredNumberScheduled", default=0)),
        _integer("Current", _field("status", "currentNumberScheduled", default=0)),
        _integer("Ready", _field("status", "numberReady", default=0)),
        _integer("Up-to-date", _field("status", "updatedNumberScheduled", default=0)),
        _integer("Available", _field("status", "numberAvailable", default=0)),
        TableColumn("Node Selector", _selector("spec", "template", "spec", "nodeSelector")),
        wide=_template_columns(),
    ),
    "Job": _with_age(
        TableColumn("Status", _job_status),
        TableColumn("Completions", _job_completions),
        TableColumn("Duration", _job_duration),
        wide=_template_columns(),
    ),
    "PriorityClass": (
        name_column(),
        _integer("Value", _field("value", default=0)),
        TableColumn("Global-Default", lambda obj: bool(obj.get("globalDefault")), type="boolean"),
        age_column(),
        TableColumn("PreemptionPolicy", _field("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    "LimitRange": _created_columns(),
    "RuntimeClass": _with_age(TableColumn("Handler", _field("handler"))),
    "StorageClass": _with_age(
        TableColumn("Provisioner", _field("provisioner")),
        TableColumn("ReclaimPolicy", _field("reclaimPolicy", default="Delete")),
        TableColumn("VolumeBindingMode", _field("volumeBindingMode", default="Immediate")),
        TableColumn(
            "AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion")), type="boolean"
        ),
    ),
    "ResourceClaim": _with_age(TableColumn("State", _claim_state)),
    "ResourceSlice": _with_age(
        TableColumn("Node", _field("spec", "nodeName")),
        TableColumn("Driver", _field("spec", "driver")),
        TableColumn("Pool", _field("spec", "pool", "name")),
    ),
    "NetworkPolicy": _with_age(
        TableColumn("Pod-Selector", _selector("spec", "podSelector")),
    ),
    "Role": _created_columns(),
    "ClusterRole": _created_columns(),
    "RoleBinding": _binding_columns(),
    "ClusterRoleBinding": _binding_columns(),
    "ValidatingAdmissionPolicy": _with_age(
        _integer("Validations", lambda obj: len(get(obj, "spec", "validations", default=[]))), _PARAM_KIND
    ),
    "ValidatingAdmissionPolicyBinding": _with_age(*_POLICY_BINDING),
    "MutatingAdmissionPolicy": _with_age(
        _integer("Mutations", lambda obj: len(get(obj, "spec", "mutations", default=[]))), _PARAM_KIND
    ),
    "MutatingAdmissionPolicyBinding": _with_age(*_POLICY_BINDING),
    "ValidatingWebhookConfiguration": _with_age(_WEBHOOKS),
    "MutatingWebhookConfiguration": _with_age(_WEBHOOKS),
    "CustomResourceDefinition": _created_columns(),
}
"""Columns by kind; a kind that is not listed gets its name and its age."""


def columns_of(kind: str) -> tuple[TableColumn, ...]:
    """The columns of a built-in kind."""
    return COLUMNS.get(kind) or (name_column(), age_column())
