"""Read the pods of a manifest that nobody has applied yet, so that no API server has looked at it.

A mistake is named with the file and the field. Rules for amounts are those of the API server's validation of
pods: a quantity, not below 0, and no request above its limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.files import documents
from numazones.apimachinery import quantity
from numazones.apimachinery.api_object import CURE, MALFORMED
from numazones.apimachinery.defaulting import created_spec
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.cluster.pod_templates import (
    InvalidWorkload,
    PodTemplate,
    Workload,
    network_resources,
    networks,
    workloads,
)
from numazones.wording import some_of

_MOST_SHOWN = 40
_CURE = "use one of the pods that it creates (kubectl get pod NAME -o yaml > pod.yaml), or a SHAPE"
# Fields of a spec that makes pods of one kind or another.
_OF_PODS = frozenset(
    {"template", "podTemplate", "replicas", "resources", "containers", "instances", "numNodes", "trainer"}
)
_OF_RESOURCES = frozenset({"limits", "requests", "claims"})


@dataclass(frozen=True, slots=True)
class TemplatePods:
    """Pods of one template of a manifest."""

    name: str
    """Of the object, and of the template in it."""
    pod: ClusterPod
    replicas: int
    gang: str
    """Name of the object, where it says how many of its pods must run at once."""
    least: int
    """How many those are; 0: it does not say."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest has pods of."""

    templates: tuple[TemplatePods, ...]
    notes: tuple[str, ...]
    """What has to be known to read the answer: objects without template, devices that come later."""


def read_manifest(path: Path) -> Manifest:
    """Return every pod template of a file: of Pods, workloads, lists of these, in one document or several.

    Raises:
        BadDump: the file cannot be read, has no pod template, or the API server would not take the pods.
    """
    found: list[Workload] = []
    try:
        for document in documents(path):
            if isinstance(document, Mapping):
                found += workloads(document)
    except (InvalidWorkload, *MALFORMED) as error:
        raise BadDump(f"{path}: {_reason(error)}") from error
    without = [one for one in found if not one.templates]
    if len(without) == len(found):
        named = f": {some_of(map(_without_template, without), most=3)}; {_CURE}" if without else ""
        raise BadDump(f"{path} contains no Pod and nothing with a pod template{named}")
    resources = {name: kind for one in found for name, kind in network_resources(one).items()}
    told = [one for one in without if _makes_pods(one)]
    notes = [f"not answered: {_without_template(one)}; {_CURE}" for one in told]
    pods: list[TemplatePods] = []
    for one in found:
        for template in one.templates:
            pods.append(_template_pods(path, one, template, uid=f"manifest-{len(pods)}"))
            notes += _network_notes(pods[-1].name, template, resources)
    return Manifest(tuple(pods), tuple(notes))


def _template_pods(path: Path, workload: Workload, template: PodTemplate, *, uid: str) -> TemplatePods:
    name = workload.name_of(template)
    where = f"{path}: {name}" if template.role or not workload.name else str(path)
    try:
        pod = _read(workload.body, template.body, uid)
    except BadDump as error:
        raise BadDump(f"{where}: {error}") from error
    except MALFORMED as error:
        raise BadDump(f"{where} is not a valid manifest ({_reason(error)})") from error
    gang = workload.name if workload.least else ""
    return TemplatePods(name, pod, template.replicas, gang, workload.least)


def _without_template(workload: Workload) -> str:
    return f"{workload} ({workload.api_version or 'no apiVersion'}) has no pod template"


def _makes_pods(workload: Workload) -> bool:
    """Return whether an object seems to have pods; others of a chart, such as Services, are passed over."""
    group = workload.api_version.rpartition("/")[0]
    spec = workload.body.get("spec")
    third_party = "." in group and not group.endswith(".k8s.io")
    return third_party and isinstance(spec, Mapping) and not _OF_PODS.isdisjoint(spec)


def _network_notes(name: str, template: PodTemplate, resources: Mapping[str, str]) -> Iterator[str]:
    attached = networks(template)
    if attached:
        listed = [
            f"{one} ({resources[key]})" if (key := one.rpartition("/")[2]) in resources else one
            for one in attached
        ]
        yield (
            f"{name}: networks {', '.join(listed)} may add devices that the manifest does not name "
            "(k8s.v1.cni.cncf.io/networks); add them to its limits to have them counted"
        )


def _read(document: Mapping[str, Any], body: Mapping[str, Any], uid: str) -> ClusterPod:
    owner, own = _mapping(document, "metadata", ""), _mapping(body, "metadata", "")
    metadata = {
        "name": "pod",
        "namespace": "default",
        **own,
        **{field: owner[field] for field in ("name", "namespace") if field in owner},
        "uid": uid,
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
    for field in resources:
        if field not in _OF_RESOURCES:
            yield f"{where}.{field} is not a field of a pod; use limits or requests"
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
