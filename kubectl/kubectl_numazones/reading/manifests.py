"""Read the pods of a manifest that nobody has applied yet, so that no API server has looked at it.

A mistake is named with the file and the field (``numazones.cluster.pod_manifest``).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.files import documents
from numazones.apimachinery.api_object import CURE, MALFORMED
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.cluster.pod_manifest import InvalidManifest, part_of
from numazones.cluster.pod_templates import (
    InvalidWorkload,
    PodTemplate,
    Workload,
    network_resources,
    networks,
    workloads,
)
from numazones.wording import some_of

_CURE = "use one of the pods that it creates (kubectl get pod NAME -o yaml > pod.yaml), or a SHAPE"
# Fields of a spec that makes pods of one kind or another.
_OF_PODS = frozenset(
    {"template", "podTemplate", "replicas", "resources", "containers", "instances", "numNodes", "trainer"}
)


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
    notes = [f"skipped: {_without_template(one)}; {_CURE}" for one in told]
    pods: list[TemplatePods] = []
    for one in found:
        for template in one.templates:
            pods.append(_template_pods(path, one, template, uid=f"manifest-{len(pods)}"))
            notes += _network_notes(pods[-1].name, template, resources)
    return Manifest(tuple(pods), tuple(notes))


def shared_pool_notes(templates: Iterable[TemplatePods]) -> Iterator[str]:
    """Yield a note on the pods to which kubelets give no exclusive CPUs, if there are any."""
    pods = [(one.name, one.pod.admission) for one in templates]
    names = [name for name, pod in pods if pod is not None and not pod.demand().total.cpus]
    if names:
        yield (
            f"{some_of(names)}: no exclusive CPUs: only Guaranteed pods that request whole CPUs get them. "
            "All other pods run in the shared pool; NUMA nodes limit only their devices and, if they are "
            "Guaranteed, their memory"
        )


def _template_pods(path: Path, workload: Workload, template: PodTemplate, *, uid: str) -> TemplatePods:
    name = workload.name_of(template)
    where = f"{path}: {name}" if template.role or not workload.name else str(path)
    try:
        pod = _read(workload, template.body, uid)
    except InvalidManifest as error:
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
            "(k8s.v1.cni.cncf.io/networks); add them to its limits so that they are counted"
        )


def _read(workload: Workload, body: Mapping[str, Any], uid: str) -> ClusterPod:
    owner = part_of(workload.body, "metadata")
    named = {field: owner[field] for field in ("name", "namespace") if field in owner}
    third_party = "." in workload.api_version.partition("/")[0]
    metadata = {**part_of(body, "metadata"), **named, "uid": uid}
    pod = ClusterPod.from_manifest({**body, "metadata": metadata}, exact=not third_party)
    hash(PodKind.of(pod))  # fields that are compared later, such as schedulerName, are no lists
    return pod


def _reason(error: Exception) -> str:
    return str(error).removesuffix(CURE) or type(error).__name__
