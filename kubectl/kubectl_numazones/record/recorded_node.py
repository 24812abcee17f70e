"""Record of a node, reduced to what placement depends on.

Names of fields are listed, not forbidden: what nobody thought of (commands, environments, volumes, addresses,
certificates) is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones.placement import models

Body = dict[str, Any]

_CONTAINER = ("name", "image", "resources", "restartPolicy")
_POD_SPEC = (
    "nodeName",
    "nodeSelector",
    "tolerations",
    "schedulerName",
    "priority",
    "priorityClassName",
    "overhead",
    "resources",
    "restartPolicy",
    "schedulingGates",
    "os",
    "terminationGracePeriodSeconds",
    "hostNetwork",
)
_POD_STATUS = ("phase", "reason", "message", "startTime", "qosClass")
_CONTAINER_STATUS = ("name", "ready", "restartCount", "allocatedResources", "resources")
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_ANNOTATIONS = ("kubernetes.io/config.", "numazones.io/")
"""Beginnings of the annotations that tell something about placement, beside those that models read."""
_NODE_INFO = (
    "kubeletVersion",
    "kernelVersion",
    "containerRuntimeVersion",
    "operatingSystem",
    "architecture",
)
_EVENT = ("reason", "message", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime")


@dataclass(frozen=True, slots=True)
class NodeRecording:
    """A node as it was read, reduced."""

    name: str
    node: Body
    pods: tuple[Body, ...]
    events: tuple[Body, ...]
    zones: tuple[Body, ...]
    """NUMAZones, made of the same reading as the files."""
    configuration: Body | None
    """The kubelet's, as far as placement depends on it."""
    devices: Mapping[str, Body]
    """As ``device_plugins.json`` has them."""
    podresources: tuple[Body, ...] | None
    """What the kubelet says each pod holds: namespace, name, containers."""
    problems: tuple[Body, ...]
    """What the exporter could not read, or what contradicts."""
    tree: Mapping[str, bytes] = field(repr=False)
    """Files of sysfs and procfs; a name that ends with a slash is a directory."""
    state: Mapping[str, bytes] = field(repr=False)
    """The kubelet's state files by name."""


def node_of(body: Mapping[str, Any]) -> Body:
    """Reduce a Node."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(body),
        "spec": _fields_of(spec, ("taints", "unschedulable")),
        "status": _fields_of(status, ("capacity", "allocatable"))
        | {
            "conditions": [
                _fields_of(item, ("type", "status", "reason")) for item in status.get("conditions") or ()
            ],
            "nodeInfo": _fields_of(status.get("nodeInfo") or {}, _NODE_INFO),
        },
    }


def pod_of(body: Mapping[str, Any]) -> Body:
    """Reduce a Pod."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    kept = _fields_of(spec, _POD_SPEC)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    if affinity:
        kept["affinity"] = {"nodeAffinity": affinity}
    for name in ("initContainers", "containers"):
        if spec.get(name):
            kept[name] = [_fields_of(item, _CONTAINER) for item in spec[name]]
    if spec.get("resourceClaims"):
        kept["resourceClaims"] = [_fields_of(item, ("name",)) for item in spec["resourceClaims"]]
    told = _fields_of(status, _POD_STATUS)
    told["conditions"] = [
        _fields_of(it, ("type", "status", "reason")) for it in status.get("conditions") or ()
    ]
    for name in ("initContainerStatuses", "containerStatuses"):
        if status.get(name):
            told[name] = [_container_status(item) for item in status[name]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(body), "spec": kept, "status": told}


def _container_status(status: Mapping[str, Any]) -> Body:
    state = {
        name: _fields_of(told or {}, ("reason", "exitCode", "startedAt"))
        for name, told in (status.get("state") or {}).items()
    }
    return _fields_of(status, _CONTAINER_STATUS) | {"state": state}


def event_of(body: Mapping[str, Any], number: int) -> Body:
    """Reduce an Event; its name, which begins with a pod's, becomes a number."""
    metadata = {"name": f"event-{number}", "namespace": (body.get("metadata") or {}).get("namespace", "")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": _fields_of(body.get("involvedObject") or {}, ("kind", "namespace", "name", "uid")),
    } | _fields_of(body, _EVENT)


def _metadata(body: Mapping[str, Any]) -> Body:
    metadata = body["metadata"]
    kept = _fields_of(metadata, _METADATA)
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith((*_ANNOTATIONS, *models.node_annotations(), *models.pod_annotations()))
    }
    if annotations:
        kept["annotations"] = annotations
    if metadata.get("ownerReferences"):
        kept["ownerReferences"] = [_fields_of(owner, _OWNER) for owner in metadata["ownerReferences"]]
    return kept


def _fields_of(body: Mapping[str, Any], names: Iterable[str]) -> Body:
    return {name: body[name] for name in names if body.get(name) is not None}
