"""Read the pod of a manifest that nobody has applied yet, so that no API server has looked at it.

A mistake is named with the file and the field. Rules for amounts are those of the API server's validation of
pods: a quantity, not below 0, and no request above its limit.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.files import documents
from numazones.apimachinery import quantity
from numazones.apimachinery.api_object import CURE, MALFORMED
from numazones.apimachinery.defaulting import created_spec
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import PodKind

_MOST_SHOWN = 40


def pod_of_manifest(path: Path) -> ClusterPod:
    """Return the pod of a manifest: a Pod, or the template of the first object that has one.

    Raises:
        BadDump: the file cannot be read, holds no pod, or the API server would not take the pod.
    """
    for document in documents(path):
        if not isinstance(document, dict):
            continue
        try:
            body = _pod_in(document)
            if body is not None:
                return _read(document, body)
        except BadDump as error:
            raise BadDump(f"{path}: {error}") from error
        except MALFORMED as error:
            raise BadDump(f"{path} has not the form of a manifest ({_reason(error)})") from error
    raise BadDump(f"{path} holds no Pod and nothing with a pod template")


def _pod_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the Pod or pod template that a document holds, None if neither."""
    spec = _mapping(document, "spec", "")
    job = _mapping(_mapping(spec, "jobTemplate", "spec."), "spec", "spec.jobTemplate.")
    template = _mapping(job, "template", "spec.jobTemplate.spec.") or _mapping(spec, "template", "spec.")
    return template or (document if document.get("kind") == "Pod" else None)


def _read(document: Mapping[str, Any], body: Mapping[str, Any]) -> ClusterPod:
    metadata = {
        "name": "pod",
        "namespace": "default",
        **_mapping(document, "metadata", ""),
        "uid": "manifest",
    }
    spec = _mapping(body, "spec", "")
    for problem in _problems(spec):
        raise BadDump(problem)
    pod = ClusterPod.from_api(
        {**body, "metadata": metadata, "spec": created_spec(spec, namespace=metadata["namespace"])}
    )
    if pod.admission is None:
        raise BadDump(pod.problem)
    hash(PodKind.of(pod))  # fields that are compared later, such as schedulerName, are no lists
    return pod


def _problems(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the API server would not take of a pod's containers and amounts."""
    yield from _wrong_resources(_mapping(spec, "resources", "spec."), "spec.resources")
    yield from _wrong_amounts(_mapping(spec, "overhead", "spec."), "spec.overhead")
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            yield f"spec.{field} must be a list, not {containers!r:.{_MOST_SHOWN}}"
            return
        for at, container in enumerate(containers):
            where = f"spec.{field}[{at}]"
            if not isinstance(container, Mapping):
                yield f"{where} must be a mapping, not {container!r:.{_MOST_SHOWN}}"
                return
            yield from _wrong_resources(_mapping(container, "resources", f"{where}."), f"{where}.resources")
    if not spec.get("containers"):
        yield "spec.containers is missing: a pod has at least one container"


def _wrong_resources(resources: Mapping[str, Any], where: str) -> Iterator[str]:
    parts = {name: _mapping(resources, name, f"{where}.") for name in ("limits", "requests")}
    for name, amounts in parts.items():
        yield from _wrong_amounts(amounts, f"{where}.{name}")
    for resource, limit in parts["limits"].items():
        request = parts["requests"].get(resource, limit)
        if quantity.parse(request) > quantity.parse(limit):
            yield f"{where}.requests.{resource} is {request}, more than the limit of {limit}"


def _wrong_amounts(amounts: Mapping[str, Any], where: str) -> Iterator[str]:
    for resource, amount in amounts.items():
        try:
            negative = quantity.parse(amount).nanos < 0
        except quantity.InvalidQuantity as error:
            yield f"{where}.{resource}: {error}"
            continue
        if negative:
            yield f"{where}.{resource} is {amount}; it must not be below 0"


def _mapping(body: Mapping[str, Any], field: str, within: str) -> Mapping[str, Any]:
    """Return a part of an object, empty where it has none.

    Raises:
        BadDump: it is no mapping.
    """
    part = body.get(field)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise BadDump(f"{within}{field} must be a mapping, not {part!r:.{_MOST_SHOWN}}")
    return part


def _reason(error: Exception) -> str:
    return str(error).removesuffix(CURE) or type(error).__name__
