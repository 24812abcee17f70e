"""The scale subresource: one kind, ``autoscaling/v1`` Scale, for everything that has replicas."""

from typing import Any

from numazones.apimachinery import jsonpath
from numazones_apiserver import errors
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind
from numazones_apiserver.selectors import selector_text


def _path(kind: Kind, name: str) -> str:
    return str((kind.scale or {}).get(name, ""))


def _count(obj: Object, path: str) -> int:
    found = jsonpath.find(obj, path) if path else []
    return int(found[0]) if found and isinstance(found[0], int) else 0


def scale_of(kind: Kind, obj: Object) -> Object:
    """The Scale of an object."""
    metadata = obj["metadata"]
    status: Object = {"replicas": _count(obj, _path(kind, "statusReplicasPath"))}
    selector = jsonpath.find(obj, path)[:1] if (path := _path(kind, "labelSelectorPath")) else []
    if selector:
        status["selector"] = selector_text(selector[0])
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": _count(obj, _path(kind, "specReplicasPath"))},
        "status": status,
    }


def with_replicas(kind: Kind, obj: Object, scale: Any) -> Object:
    """The object scaled as a Scale says; raises StatusError 422 for a negative count."""
    replicas = (scale.get("spec") or {}).get("replicas", 0) if isinstance(scale, dict) else None
    if not isinstance(replicas, int) or replicas < 0:
        error = errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid("autoscaling", "Scale", obj["metadata"]["name"], [error])
    version = (scale.get("metadata") or {}).get("resourceVersion")
    keys = _path(kind, "specReplicasPath").strip(".").split(".")
    metadata = {**obj["metadata"], **({"resourceVersion": version} if version else {})}
    metadata.pop("managedFields", None)
    return {**_with_value(obj, keys, replicas), "metadata": metadata}


def _with_value(obj: Object, keys: list[str], value: Any) -> Object:
    head, *rest = keys
    return {**obj, head: _with_value(obj.get(head) or {}, rest, value) if rest else value}
