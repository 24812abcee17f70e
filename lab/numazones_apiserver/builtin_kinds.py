"""The built-in kinds that are served, and the rules that are particular to each.

The table is kube-apiserver 1.36's discovery for the kinds that nodes, workloads, operators and
kubectl need; the small strategies below it say how each kind starts out and what it rejects.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numazones_apiserver import definitions, errors
from numazones_apiserver.admission_policies import policy_objects
from numazones_apiserver.builtin_columns import columns_of, get
from numazones_apiserver.errors import FieldError, Object
from numazones_apiserver.kinds import Kind, Strategy, TableColumn
from numazones_apiserver.pods import DefaultsOf, PodStrategy, PriorityOf, check_spec, default_spec

ObjectCheck = Callable[[Object, Object | None], Iterable[FieldError]]


def _nothing_wrong(_obj: Object, _old: Object | None) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, slots=True)
class Plain:
    """Objects that are stored as they are, with defaults; ``status`` names a status subresource."""

    defaults: Callable[[Object], Object] = lambda obj: obj
    has_status: bool = False
    initial_status: Object | None = None
    keeps_status: bool = False
    """Whether a created object keeps the status it came with, as nodes do."""
    check: ObjectCheck = field(default=_nothing_wrong)

    def for_create(self, obj: Object) -> Object:
        """The object with its defaults and its initial status."""
        obj = self.defaults(obj)
        if self.has_status and not self.keeps_status:
            obj = {key: value for key, value in obj.items() if key != "status"}
        if self.initial_status is not None and "status" not in obj:
            obj = {**obj, "status": dict(self.initial_status)}
        return obj

    def for_update(self, obj: Object, old: Object) -> Object:
        """The object with its defaults; the status stays as it was."""
        obj = self.defaults(obj)
        if not self.has_status:
            return obj
        obj = {key: value for key, value in obj.items() if key != "status"}
        return {**obj, "status": old["status"]} if "status" in old else obj

    def for_status(self, obj: Object, old: Object) -> Object:
        """Status and metadata from the new object, the rest from the old one."""
        kept = {key: value for key, value in old.items() if key not in ("status", "metadata")}
        result = {**kept, "metadata": obj["metadata"]}
        return {**result, "status": obj["status"]} if "status" in obj else result


# --- defaults --------------------------------------------------------------------------------


def _namespace(obj: Object) -> Object:
    labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
    spec = {**(obj.get("spec") or {})}
    spec.setdefault("finalizers", ["kubernetes"])
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "spec": spec}


def _spec_defaults(**values: Any) -> Callable[[Object], Object]:
    def with_defaults(obj: Object) -> Object:
        given = {
            key: value for key, value in (obj.get("spec") or {}).items() if value != {} or key not in values
        }
        return {**obj, "spec": {**values, **given}}

    return with_defaults


def _top_defaults(**values: Any) -> Callable[[Object], Object]:
    return lambda obj: {**values, **obj}


def _limit_range(obj: Object) -> Object:
    """Limits of containers default to the maximum, requests to the limits and else to the minimum."""

    def with_defaults(item: Object) -> Object:
        if item.get("type") != "Container":
            return item
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        found = {"default": limits, "defaultRequest": requests}
        return {**item, **{name: amounts for name, amounts in found.items() if amounts}}

    items = [with_defaults(item) for item in get(obj, "spec", "limits", default=[])]
    return {**obj, "spec": {**(obj.get("spec") or {}), "limits": items}}


def _with_template(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict):
        return obj
    metadata = {"creationTimestamp": None, **(template.get("metadata") or {})}
    filled = {**template, "metadata": metadata, "spec": default_spec(template.get("spec") or {})}
    return {**obj, "spec": {**spec, "template": filled}}


_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}


def _deployment(obj: Object) -> Object:
    defaults = {
        "replicas": 1,
        "strategy": _ROLLING,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    return _with_template(_spec_defaults(**defaults)(obj))


def _replica_set(obj: Object) -> Object:
    return _with_template(_spec_defaults(replicas=1)(obj))


def _stateful_set(obj: Object) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    defaults = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": strategy,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": retention,
    }
    return _with_template(_spec_defaults(**defaults)(obj))


def _daemon_set(obj: Object) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    return _with_template(_spec_defaults(updateStrategy=strategy, revisionHistoryLimit=10)(obj))


def _job(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    defaults: Object = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    if "parallelism" not in spec:
        defaults["completions"] = 1
    uid = obj["metadata"].get("uid", "")
    if not spec.get("manualSelector") and "selector" not in spec and uid:
        own = {"batch.kubernetes.io/controller-uid": uid}
        labels = {**own, "batch.kubernetes.io/job-name": obj["metadata"]["name"], "controller-uid": uid}
        labels["job-name"] = obj["metadata"]["name"]
        template = spec.get("template") or {}
        metadata = template.get("metadata") or {}
        metadata = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}
        defaults["selector"] = {"matchLabels": own}
        spec = {**spec, "template": {**template, "metadata": metadata}}
    own_labels = obj["metadata"].get("labels") or get(spec, "template", "metadata", "labels", default={})
    metadata = {**obj["metadata"], "labels": own_labels} if own_labels else obj["metadata"]
    return _with_template({**obj, "metadata": metadata, "spec": {**defaults, **spec}})


def _service(obj: Object) -> Object:
    spec = {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        **(obj.get("spec") or {}),
    }
    if "ports" in spec:
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec["ports"]
        ]
    return {**obj, "spec": spec}


def _network_policy(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    kinds = ["Ingress", "Egress"] if "egress" in spec else ["Ingress"]
    return {**obj, "spec": {"podSelector": {}, "policyTypes": kinds, **spec}}


def _binding(obj: Object) -> Object:
    groups = {"User": "rbac.authorization.k8s.io", "Group": "rbac.authorization.k8s.io"}
    subjects = [
        {"apiGroup": groups[one["kind"]], **one} if one.get("kind") in groups else one
        for one in obj.get("subjects") or ()
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", **(obj.get("roleRef") or {})}
    return {**obj, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _secret(obj: Object) -> Object:
    plain = obj.get("stringData")
    obj = {"type": "Opaque", **obj}
    if not plain:
        return obj
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    return {
        **{key: value for key, value in obj.items() if key != "stringData"},
        "data": {**(obj.get("data") or {}), **encoded},
    }


# --- checks ----------------------------------------------------------------------------------


def _check_workload(obj: Object, old: Object | None) -> Iterator[FieldError]:
    spec = obj.get("spec") or {}
    selector = get(spec, "selector", "matchLabels", default={})
    labels = get(spec, "template", "metadata", "labels", default={})
    if "selector" not in spec:
        yield errors.required("spec.selector")
    elif any(labels.get(key) != value for key, value in selector.items()):
        yield errors.invalid_value(
            "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
        )
    if old is not None and get(old, "spec", "selector") != spec.get("selector"):
        yield errors.invalid_value("spec.selector", spec.get("selector"), "field is immutable")
    yield from check_spec(get(spec, "template", "spec", default={}), "spec.template.spec")


def _check_budget(obj: Object, _old: Object | None) -> Iterator[FieldError]:
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield errors.invalid_value(
            "spec",
            {key: spec[key] for key in ("minAvailable", "maxUnavailable")},
            "minAvailable and maxUnavailable cannot be both set",
        )


def _check_lease(obj: Object, _old: Object | None) -> Iterator[FieldError]:
    seconds = get(obj, "spec", "leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield errors.invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = get(obj, "spec", "leaseTransitions")
    if transitions is not None and transitions < 0:
        yield errors.invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _check_immutable_data(obj: Object, old: Object | None) -> Iterator[FieldError]:
    if old is None or not old.get("immutable"):
        return
    for name in ("immutable", "data", "binaryData"):
        if obj.get(name) != old.get(name):
            yield errors.forbidden_field(name, "field is immutable when `immutable` is set")


def _check_event(obj: Object, _old: Object | None) -> Iterator[FieldError]:
    namespace = get(obj, "involvedObject", "namespace", default="")
    if namespace and namespace != obj["metadata"].get("namespace", ""):
        yield errors.invalid_value("involvedObject.namespace", namespace, "does not match event.namespace")


def _check_runtime_class(obj: Object, old: Object | None) -> Iterator[FieldError]:
    if old is not None and obj.get("handler") != old.get("handler"):
        yield errors.invalid_value("handler", obj.get("handler"), "field is immutable")


def _check_role_ref(obj: Object, old: Object | None) -> Iterator[FieldError]:
    if old is not None and obj.get("roleRef") != old.get("roleRef"):
        yield errors.invalid_value("roleRef", obj.get("roleRef"), "cannot change roleRef")


# --- events in two groups --------------------------------------------------------------------

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def event_to_new(obj: Object) -> Object:
    """A core/v1 Event as events.k8s.io/v1 shows it."""
    return {_EVENT_NAMES.get(key, key): value for key, value in obj.items()} | {
        "apiVersion": "events.k8s.io/v1"
    }


def event_to_core(obj: Object) -> Object:
    """An events.k8s.io/v1 Event in the form that is stored."""
    old = {new: name for name, new in _EVENT_NAMES.items()}
    return {old.get(key, key): value for key, value in obj.items()} | {"apiVersion": "v1"}


# --- the table -------------------------------------------------------------------------------


def _reader(*path: str, default: str = "") -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        value = get(obj, *path, default=default)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read


def metadata_fields(*, namespaced: bool) -> dict[str, Callable[[Object], str]]:
    """The fields that every kind can be selected by."""
    fields = {"metadata.name": _reader("metadata", "name")}
    if namespaced:
        fields["metadata.namespace"] = _reader("metadata", "namespace")
    return fields


def _fields(*paths: str) -> dict[str, Callable[[Object], str]]:
    return {path: _reader(*path.split(".")) for path in paths}


_EVENT_FIELDS = {
    **_fields(
        *(
            f"involvedObject.{name}"
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        ),
        "reason",
        "reportingComponent",
        "type",
    ),
    "source": lambda obj: str(get(obj, "source", "component") or obj.get("reportingComponent", "")),
}
_NEW_EVENT_FIELDS = {
    name.replace("involvedObject", "regarding").replace("reportingComponent", "reportingController"): reader
    for name, reader in _EVENT_FIELDS.items()
    if name != "source"
}
_POD_FIELDS = {
    **_fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    **_fields("status.phase", "status.nominatedNodeName", "status.podIP"),
    "spec.hostNetwork": _reader("spec", "hostNetwork", default="false"),
}


# Kind, scope, short names, categories, subresources, and whether changes of the spec are counted
# (metadata.generation), by API group; plurals follow the English rule.
_TABLE = """
core:
  Namespace                         cluster     ns        -               status,finalize          -
  Node                              cluster     no        -               status,proxy             -
  Pod                               namespaced  po        all         status,binding,eviction,proxy  counted
  Event                             namespaced  ev        -               -                        -
  ConfigMap                         namespaced  cm        -               -                        -
  Secret                            namespaced  -         -               -                        -
  ServiceAccount                    namespaced  sa        -               -                        -
  Service                           namespaced  svc       all             status                   -
  PersistentVolumeClaim             namespaced  pvc       -               status                   -
  PersistentVolume                  cluster     pv        -               status                   -
  LimitRange                        namespaced  limits    -               -                        -
events.k8s.io:
  Event                             namespaced  ev        -               -                        -
coordination.k8s.io:
  Lease                             namespaced  -         -               -                        -
policy:
  PodDisruptionBudget               namespaced  pdb       -               status                   counted
scheduling.k8s.io:
  PriorityClass                     cluster     pc        -               -                        counted
storage.k8s.io:
  StorageClass                      cluster     sc        -               -                        -
node.k8s.io:
  RuntimeClass                      cluster     -         -               -                        -
resource.k8s.io:
  DeviceClass                       cluster     -         -               -                        counted
  ResourceClaim                     namespaced  -         -               status                   -
  ResourceClaimTemplate             namespaced  -         -               -                        -
  ResourceSlice                     cluster     -         -               -                        counted
apps:
  Deployment                        namespaced  deploy    all             status,scale             counted
  ReplicaSet                        namespaced  rs        all             status,scale             counted
  StatefulSet                       namespaced  sts       all             status,scale             counted
  DaemonSet                         namespaced  ds        all             status                   counted
batch:
  Job                               namespaced  -         all             status                   counted
networking.k8s.io:
  NetworkPolicy                     namespaced  netpol    -               -                        counted
rbac.authorization.k8s.io:
  Role                              namespaced  -         -               -                        -
  ClusterRole                       cluster     -         -               -                        -
  RoleBinding                       namespaced  -         -               -                        -
  ClusterRoleBinding                cluster     -         -               -                        -
admissionregistration.k8s.io:
  ValidatingAdmissionPolicy         cluster     -         api-extensions  status                   counted
  ValidatingAdmissionPolicyBinding  cluster     -         api-extensions  -                        counted
  MutatingAdmissionPolicy           cluster     -         api-extensions  -                        counted
  MutatingAdmissionPolicyBinding    cluster     -         api-extensions  -                        counted
  ValidatingWebhookConfiguration    cluster     -         api-extensions  -                        counted
  MutatingWebhookConfiguration      cluster     -         api-extensions  -                        counted
apiextensions.k8s.io:
  CustomResourceDefinition          cluster     crd,crds  api-extensions  status                   counted
"""
_ADMISSION = "admissionregistration.k8s.io"
_BUDGET_STATUS = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_DAEMON_SET_STATUS = dict.fromkeys(
    ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
)


def _workload(defaults: Callable[[Object], Object], status: Object) -> Plain:
    return Plain(defaults=defaults, has_status=True, initial_status=status, check=_check_workload)


# How objects of a kind are written, by group and kind; kinds not named here are plain.
_STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("", "Namespace"): Plain(_namespace, True, {"phase": "Active"}),
    ("", "Node"): Plain(has_status=True, keeps_status=True),
    ("", "Event"): Plain(check=_check_event),
    ("", "ConfigMap"): Plain(check=_check_immutable_data),
    ("", "Secret"): Plain(_secret, check=_check_immutable_data),
    ("", "Service"): Plain(_service, True, {"loadBalancer": {}}),
    ("", "PersistentVolumeClaim"): Plain(_spec_defaults(volumeMode="Filesystem"), True, {"phase": "Pending"}),
    ("", "PersistentVolume"): Plain(
        _spec_defaults(volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain"),
        True,
        {"phase": "Pending"},
    ),
    ("", "LimitRange"): Plain(_limit_range),
    ("node.k8s.io", "RuntimeClass"): Plain(check=_check_runtime_class),
    ("events.k8s.io", "Event"): Plain(check=lambda obj, old: _check_event(event_to_core(obj), old)),
    ("coordination.k8s.io", "Lease"): Plain(check=_check_lease),
    ("policy", "PodDisruptionBudget"): Plain(
        has_status=True, initial_status=_BUDGET_STATUS, check=_check_budget
    ),
    ("scheduling.k8s.io", "PriorityClass"): Plain(_top_defaults(preemptionPolicy="PreemptLowerPriority")),
    ("storage.k8s.io", "StorageClass"): Plain(
        _top_defaults(reclaimPolicy="Delete", volumeBindingMode="Immediate")
    ),
    ("resource.k8s.io", "ResourceClaim"): Plain(has_status=True),
    ("apps", "Deployment"): _workload(_deployment, {}),
    ("apps", "ReplicaSet"): _workload(_replica_set, {"replicas": 0}),
    ("apps", "StatefulSet"): _workload(_stateful_set, {"replicas": 0, "availableReplicas": 0}),
    ("apps", "DaemonSet"): _workload(_daemon_set, _DAEMON_SET_STATUS),
    ("batch", "Job"): Plain(_job, True, {}),
    ("networking.k8s.io", "NetworkPolicy"): Plain(_network_policy),
    ("rbac.authorization.k8s.io", "RoleBinding"): Plain(_binding, check=_check_role_ref),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Plain(_binding, check=_check_role_ref),
    (_ADMISSION, "ValidatingAdmissionPolicy"): Plain(
        policy_objects.with_policy_defaults, True, {}, check=policy_objects.check_validating_policy
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): Plain(
        policy_objects.with_binding_defaults, check=policy_objects.check_validating_binding
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): Plain(
        policy_objects.with_policy_defaults, check=policy_objects.check_mutating_policy
    ),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): Plain(
        policy_objects.with_binding_defaults, check=policy_objects.check_mutating_binding
    ),
}
# Fields that lists and watches can be narrowed by, beside name and namespace.
_SELECTABLE: Mapping[tuple[str, str], Mapping[str, Callable[[Object], str]]] = {
    ("", "Namespace"): _fields("status.phase"),
    ("", "Node"): {"spec.unschedulable": _reader("spec", "unschedulable", default="false")},
    ("", "Pod"): _POD_FIELDS,
    ("", "Event"): _EVENT_FIELDS,
    ("", "Secret"): _fields("type"),
    ("", "Service"): _fields("spec.clusterIP", "spec.type"),
    ("events.k8s.io", "Event"): _NEW_EVENT_FIELDS,
    ("apps", "ReplicaSet"): _fields("status.replicas"),
    ("resource.k8s.io", "ResourceSlice"): _fields("spec.nodeName", "spec.driver"),
    ("batch", "Job"): _fields("status.successful"),
}


def builtin_kinds(
    priority_of: PriorityOf, defaults_of: DefaultsOf, definitions_strategy: Strategy
) -> list[Kind]:
    """All built-in kinds; ``definitions_strategy`` is how CustomResourceDefinitions are written."""
    strategies = {
        **_STRATEGIES,
        ("", "Pod"): PodStrategy(priority_of, defaults_of),
        ("apiextensions.k8s.io", "CustomResourceDefinition"): definitions_strategy,
    }
    kinds, group = [], ""
    for line in _TABLE.strip().splitlines():
        if line.endswith(":"):
            group = line[:-1].removesuffix("core")
        else:
            kind, *rest = line.split()
            kinds.append(_kind(group, kind, rest, strategies.get((group, kind), Plain())))
    return kinds


_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}


def _columns_of_new_events() -> tuple[TableColumn, ...]:
    """The columns of core/v1 events, read from their newer form."""

    def of_core_event(cell: Callable[[Object], Any]) -> Callable[[Object], Any]:
        return lambda obj: cell(event_to_core(obj))

    return tuple(replace(column, cell=of_core_event(column.cell)) for column in columns_of("Event"))


def _kind(group: str, kind: str, cells: Iterable[str], strategy: Strategy) -> Kind:
    scope, *lists, counted = cells
    short_names, categories, subresources = (() if cell == "-" else tuple(cell.split(",")) for cell in lists)
    in_two_groups, namespaced, plural = group == "events.k8s.io", scope == "namespaced", _plural(kind)
    return Kind(
        group=group,
        version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        namespaced=namespaced,
        load_schema=lambda: definitions.schema_of(group, "v1", kind),
        strategy=strategy,
        columns=_columns_of_new_events() if in_two_groups else columns_of(kind),
        short_names=short_names,
        categories=categories,
        subresources=frozenset(subresources),
        selectable={**metadata_fields(namespaced=namespaced), **_SELECTABLE.get((group, kind), {})},
        generations=counted == "counted",
        collection=("", "events") if in_two_groups else (group, plural),
        from_storage=event_to_new if in_two_groups else None,
        to_storage=event_to_core if in_two_groups else None,
        scale=_SCALE if "scale" in subresources else None,
    )


def _plural(kind: str) -> str:
    name = kind.lower()
    return name[:-1] + "ies" if name.endswith("y") else name + ("es" if name.endswith("s") else "s")
