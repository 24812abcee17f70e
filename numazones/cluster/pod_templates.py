"""Pod templates of workloads: where they stand, what they are called, how many pods they make.

One description serves all kinds: whatever holds ``spec.containers`` is a pod template, of a Deployment as of
a RayCluster. Its name comes from the lists and fields it stands in, its number of pods is the product of the
counts on the way to it. Formats: core, apps and batch of Kubernetes, and the published definitions of
Volcano, KubeRay, LeaderWorkerSet, JobSet, Kubeflow's training operator and Kueue.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from numazones.errors import NumazonesError

_DEEPEST = 24
_MOST_PODS = 1_000_000
# Fields that say how many there are of what stands beside or below them; the first that is given counts.
_COUNTS = ("replicas", "parallelism", "count", "numReplicas", "numNodes", "minReplicas")
_PER_GROUP = "numOfHosts"
"""Pods that one replica of a KubeRay worker group has."""
_NAMES = ("name", "groupName", "replicaType", "role")
# Fields that are on the way to a template and say nothing about it.
_PLAIN = frozenset(
    {
        "spec",
        "template",
        "podTemplate",
        "jobTemplate",
        "leaderWorkerTemplate",
        "rayClusterSpec",
        "rayClusterConfig",
    }
)
_SUFFIXES = re.compile(r"(GroupSpecs?|PodTemplate|Template|Specs?|Config)$")
# Kinds of Kubernetes whose template is one even if it has no containers: then that is its mistake.
_BUILT_IN = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"}
)
_ON_THE_WAY = frozenset({"spec", "jobTemplate", "template"})
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_NETWORK_RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


class InvalidWorkload(NumazonesError):
    """A number of pods in a workload is none; the message names the field."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One pod template of an object, or a pod."""

    role: str
    """Its name inside the object, such as worker; empty if the object has a single nameless one."""
    replicas: int
    """How many pods it makes at once."""
    body: Mapping[str, Any]
    """Metadata and spec of the pods."""
    path: str
    """Where it stands, such as ``spec.tasks[1].template``; empty: the object is a pod."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One object of a manifest, with its pod templates."""

    api_version: str
    kind: str
    name: str
    body: Mapping[str, Any]
    templates: tuple[PodTemplate, ...]
    least: int
    """How many of its pods must run at once for any to run (Volcano's minAvailable); 0: it does not say."""

    def __str__(self) -> str:
        return f"{self.kind or 'object'} {self.name}".strip()

    def name_of(self, template: PodTemplate) -> str:
        """Return a template's name for people: that of the object, and its role there."""
        return "/".join(filter(None, (self.name or self.kind, template.role)))


def workloads(document: Mapping[str, Any]) -> Iterator[Workload]:
    """Yield the objects of a document, those of a List one by one.

    Raises:
        InvalidWorkload: a number of pods is none.

    >>> spec = {"containers": [{"name": "main"}]}
    >>> task = {"name": "worker", "replicas": 3, "template": {"spec": spec}}
    >>> job = {"kind": "Job", "metadata": {"name": "train"}, "spec": {"minAvailable": 2, "tasks": [task]}}
    >>> [(one.name_of(each), each.replicas) for one in workloads(job) for each in one.templates]
    [('train/worker', 3)]
    """
    yield from _workloads(document, "", 0)


def _workloads(document: Mapping[str, Any], default_kind: str, depth: int) -> Iterator[Workload]:
    kind = _text(document.get("kind")) or default_kind
    items = document.get("items")
    if isinstance(items, list) and kind.endswith("List") and depth < _DEEPEST:
        for item in items:
            if isinstance(item, Mapping):
                yield from _workloads(item, kind.removesuffix("List"), depth + 1)
        return
    metadata = document.get("metadata")
    spec = document.get("spec")
    yield Workload(
        _text(document.get("apiVersion")),
        kind,
        _text(metadata.get("name")) if isinstance(metadata, Mapping) else "",
        document,
        _numbered(list(_templates(document, kind))),
        _least(spec) if isinstance(spec, Mapping) else 0,
    )


def networks(template: PodTemplate) -> tuple[str, ...]:
    """Return the networks that Multus attaches to a template's pods, by name.

    An admission webhook may add the devices of these to the pods, which the template does not show.
    """
    metadata = template.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    asked = annotations.get(_NETWORKS) if isinstance(annotations, Mapping) else None
    if not isinstance(asked, str):
        return ()
    named = (
        re.findall(r'"name"\s*:\s*"([^"]+)"', asked) if asked.lstrip().startswith("[") else asked.split(",")
    )
    return tuple(dict.fromkeys(name.strip().partition("@")[0] for name in named if name.strip()))


def network_resources(found: Workload) -> dict[str, str]:
    """Return name → resource of a NetworkAttachmentDefinition whose devices are handed out; else nothing."""
    metadata = found.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    resource = annotations.get(_NETWORK_RESOURCE) if isinstance(annotations, Mapping) else None
    return (
        {found.name: resource}
        if found.kind == "NetworkAttachmentDefinition" and isinstance(resource, str)
        else {}
    )


def _least(spec: Mapping[str, Any]) -> int:
    policy: Any = spec
    for field in ("runPolicy", "schedulingPolicy"):
        policy = policy.get(field) if isinstance(policy, Mapping) else None
    for holder in (spec, policy):
        if isinstance(holder, Mapping) and _is_count(holder.get("minAvailable")):
            return int(holder["minAvailable"])
    return 0


def _templates(document: Mapping[str, Any], kind: str) -> Iterator[PodTemplate]:
    if kind == "Pod" or _is_template(document):
        yield PodTemplate("", 1, document, "")
        return
    yield from _below(document, (), "", (), built_in=kind in _BUILT_IN)


def _below(
    holder: Mapping[str, Any], roles: tuple[str, ...], path: str, counts: tuple[int, ...], *, built_in: bool
) -> Iterator[PodTemplate]:
    """Yield the templates below a mapping; ``built_in``: its field template is one in any case."""
    if path.count(".") >= _DEEPEST:
        return
    own = _count(holder, path)
    for field, value in holder.items():
        at = f"{path}.{field}" if path else str(field)
        if field in {"metadata", "status"}:
            continue
        within = (*counts, own, _members(holder, field, path))
        if isinstance(value, Mapping):
            named = _named(roles, str(field), path)
            if _is_template(value) or (built_in and field == "template"):
                yield PodTemplate("/".join(named), _product(within, at), value, at)
            else:
                yield from _below(value, named, at, within, built_in=built_in)
        elif built_in and field in _ON_THE_WAY and value is not None:
            raise InvalidWorkload(f"{at} must be a mapping, not {value!r:.40}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _of_item(item, roles, f"{at}[{index}]", within)


def _of_item(
    item: Mapping[str, Any], roles: tuple[str, ...], path: str, counts: tuple[int, ...]
) -> Iterator[PodTemplate]:
    name = next((_text(item[field]) for field in _NAMES if item.get(field)), "")
    named = (*roles, name or path.rpartition(".")[2])
    if _is_template(item):
        yield PodTemplate("/".join(named), _product((*counts, _count(item, path)), path), item, path)
    else:
        yield from _below(item, named, path, counts, built_in=False)


def _named(roles: tuple[str, ...], field: str, path: str) -> tuple[str, ...]:
    """Return the roles and what a field adds: head of headGroupSpec, Worker below …ReplicaSpecs."""
    if field in _PLAIN or field.endswith("ReplicaSpecs"):
        return roles
    if path.endswith("ReplicaSpecs"):
        return (*roles, field)
    return (*roles, _SUFFIXES.sub("", field) or field)


def _count(holder: Mapping[str, Any], path: str) -> int:
    """Return how many there are of what a mapping holds, by the first of its fields that says so."""
    given = next((field for field in _COUNTS if holder.get(field) is not None), None)
    if given is None:
        return 1
    number = _checked(holder[given], path, given)
    if given == "parallelism" and holder.get("completions") is not None:
        number = min(number, _checked(holder["completions"], path, "completions"))
    if holder.get(_PER_GROUP) is not None:
        number *= _checked(holder[_PER_GROUP], path, _PER_GROUP)
    return number


def _members(holder: Mapping[str, Any], field: str, path: str) -> int:
    """Return how many of a LeaderWorkerSet's group are of one template: one leader, the others workers."""
    if field != "workerTemplate" or holder.get("size") is None:
        return 1
    size = _checked(holder["size"], path, "size")
    return max(0, size - 1) if holder.get("leaderTemplate") else size


def _checked(value: Any, path: str, field: str) -> int:
    if not _is_count(value):
        where = f"{path}.{field}" if path else field
        raise InvalidWorkload(f"{where} must be a whole number of pods, not {value!r:.40}")
    return int(value)


def _product(counts: tuple[int, ...], path: str) -> int:
    number = prod(counts)
    if number > _MOST_PODS:
        raise InvalidWorkload(
            f"{path} creates {number} pods, more than the {_MOST_PODS} that one command accepts"
        )
    return number


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list) and bool(spec["containers"])


def _numbered(found: list[PodTemplate]) -> tuple[PodTemplate, ...]:
    """Return the templates with names that tell them apart: by their place where roles are equal."""
    roles = [template.role for template in found]
    return tuple(
        template
        if roles.count(template.role) == 1
        else PodTemplate(
            f"{template.role}[{roles[:number].count(template.role)}]",
            template.replicas,
            template.body,
            template.path,
        )
        for number, template in enumerate(found)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
