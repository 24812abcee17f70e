"""Checks of the second scheduler: the traps in its configuration, and pods that no scheduler looks at."""

from collections.abc import Iterator, Mapping
from typing import Any

from kubectl_numazones.doctor.evidence import SCHEDULERS_PODS, Evidence, program_of
from kubectl_numazones.doctor.findings import Finding, NotChecked, error, warning
from kubectl_numazones.reading.files import Object
from numazones.apimachinery.documents import CONFIGURATION, UnreadableDocument, read_yaml
from numazones.cluster.cluster import is_true
from numazones.cluster.waiting import GATED

SCHEDULER = "numazones"
_ALL = 100
_RESTART = "and restart the scheduler: kubectl -n {} rollout restart deployment"
_HIGHEST_OF_PLUGINS = 1200
"""Points of all of kube-scheduler's own plugins together (1.36)."""
_A_PLACE = 10
"""Points by which two places of our ranking differ, times weight."""


def extender(evidence: Evidence) -> Iterator[Finding]:
    """Configurations of schedulers that ask our extender have none of the traps, which are silent."""
    if not evidence.of("ConfigMap") and any(map(_is_scheduler, evidence.of("Pod"))):
        why = evidence.unseen.get("ConfigMap", "the scheduler's ConfigMap was not read")
        raise NotChecked(why)
    for item in evidence.of("ConfigMap"):
        for text in (item.get("data") or {}).values():
            configuration = _configuration(text)
            if configuration is not None:
                yield from _traps(item, configuration)


def waiting_pods(evidence: Evidence) -> Iterator[Finding]:
    """A scheduler looks at the pods that name ours."""
    replicas = [
        is_true(pod.get("status") or {}, "Ready") for pod in filter(_is_scheduler, evidence.of("Pod"))
    ]
    if any(replicas):
        return
    for pod in evidence.of("Pod"):
        spec = pod.get("spec") or {}
        if spec.get("schedulerName") != SCHEDULER or spec.get("nodeName") or _has_ended(pod):
            continue
        if not replicas and _was_looked_at(pod):
            continue  # by a scheduler whose pods are called otherwise, or that runs outside the cluster
        metadata = pod["metadata"]
        yield error(
            f"{metadata.get('namespace', 'default')}/{metadata['name']}",
            f"no scheduler named {SCHEDULER} runs (no pod of {SCHEDULERS_PODS} is ready), so it is never "
            "scheduled",
            "kubectl apply -k manifests/scheduler, or take schedulerName out of its template",
        )


def _traps(item: Object, configuration: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with a configuration (docs/guides/scheduler.md tells why)."""
    namespace = item["metadata"].get("namespace", "default")
    name, restart = f"{namespace}/{item['metadata']['name']}", _RESTART.format(namespace)
    ours = [one for one in configuration.get("extenders") or () if _is_ours(one)]
    if not ours:
        yield error(
            name,
            "the scheduler calls no extender, so it binds pods unchecked",
            f"add the extender, as configuration.yaml of manifests/scheduler does, {restart}",
        )
        return
    of_all = configuration.get("percentageOfNodesToScore", 0)
    if any(it.get("percentageOfNodesToScore", of_all) != _ALL for it in _profiles(configuration)):
        yield warning(
            name,
            "the scheduler considers only some of the nodes: the extender may reject all of them "
            "although another node fits",
            f"set percentageOfNodesToScore: 100, {restart}",
        )
    for one in ours:
        yield from _traps_of(name, one, restart)


def _traps_of(name: str, extender: Mapping[str, Any], restart: str) -> Iterator[Finding]:
    if extender.get("ignorable"):
        yield error(
            name,
            "the extender may be ignored: pods go anywhere while it is down",
            f"set ignorable: false, {restart}",
        )
    for verb, severity, why in (
        ("filter", error, "nodes that would reject a pod are not ruled out"),
        (
            "bind",
            error,
            "room that is taken after the filter call goes unnoticed, and the kubelet rejects the pod",
        ),
        ("preempt", warning, "pods are evicted although the preemptor would still be rejected"),
        ("prioritize", warning, "pods go to nodes where they break up free room"),
    ):
        if not extender.get(f"{verb}Verb"):
            yield severity(name, f"{verb}Verb is missing: {why}", f"set {verb}Verb: {verb}, {restart}")
    weight = extender.get("weight", 1)
    if (
        extender.get("prioritizeVerb")
        and isinstance(weight, int)
        and weight * _A_PLACE <= _HIGHEST_OF_PLUGINS
    ):
        yield warning(
            name,
            f"weight {weight} lets the scheduler's own preferences outweigh the extender's",
            f"unless this is intended, set weight: 125 {restart}",
        )
    if not extender.get("nodeCacheCapable"):
        yield warning(
            name,
            "the scheduler sends whole nodes with each request",
            f"set nodeCacheCapable: true, {restart}",
        )


def _configuration(text: str) -> Mapping[str, Any] | None:
    """Return a configuration of our scheduler; None if the text is something else."""
    if "KubeSchedulerConfiguration" not in text:
        return None
    try:
        found = read_yaml(text, CONFIGURATION)
    except UnreadableDocument:
        return None
    if not isinstance(found, dict) or found.get("kind") != "KubeSchedulerConfiguration":
        return None
    return found if _profiles(found) else None


def _profiles(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the profiles of our scheduler's name."""
    profiles = configuration.get("profiles") or ()
    return [it for it in profiles if isinstance(it, dict) and it.get("schedulerName") == SCHEDULER]


def _is_ours(extender: Any) -> bool:
    """Return whether an extender is ours, by its port or the name of its Service."""
    address = str(extender.get("urlPrefix")) if isinstance(extender, dict) else ""
    return ":9409" in address or "numazones" in address


def _is_scheduler(pod: Object) -> bool:
    return program_of(pod) == SCHEDULERS_PODS


def _was_looked_at(pod: Object) -> bool:
    """Return whether a scheduler has said something about a pod that it has not placed."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "PodScheduled" and condition.get("reason") != GATED
        for condition in conditions
    )


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
