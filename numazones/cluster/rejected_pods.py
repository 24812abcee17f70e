"""Pods that a kubelet rejected and that stay behind, and whether their owner has replaced them.

A rejected pod has the phase Failed and holds nothing, but it stays until the garbage collector's limit
(12,500 ended pods of a cluster). It can go once its owner has all the pods it wants without it: a
ReplicaSet, or a Job, counts the pods that have not ended. Other controllers are not judged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from numazones.cluster.cluster import ClusterPod, Owner

_INDEX = "batch.kubernetes.io/job-completion-index"
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod that a kubelet rejected."""

    namespace: Annotated[str, "Its namespace."]
    name: Annotated[str, "Its name."]
    uid: Annotated[str, "Its UID."]
    node: Annotated[str, "Node whose kubelet rejected it."]
    reason: Annotated[str, "The pod's status.reason."]
    created: Annotated[str, "When it was created."]
    owner: Annotated[str, "Its controller; empty if it has none."]
    replaced: Annotated[bool, "Whether its owner has replaced it, so that it can be deleted."]
    why: Annotated[str, "Why it counts as replaced, or why it stays."]


def rejected_pods(pods: Iterable[ClusterPod], owners: Iterable[Body]) -> list[RejectedPod]:
    """Return the rejected pods, the oldest first.

    ``owners``: the ReplicaSets and Jobs of their namespaces, as the API server serves them.
    """
    found = list(pods)
    bodies = {str((body.get("metadata") or {}).get("uid")): body for body in owners}
    siblings: dict[str, list[ClusterPod]] = {}
    for pod in found:
        if pod.controller is not None:
            siblings.setdefault(pod.controller.uid, []).append(pod)
    return sorted(
        (_judged(pod, siblings, bodies) for pod in found if is_rejected(pod)),
        key=lambda one: (one.created, one.namespace, one.name),
    )


def is_rejected(pod: ClusterPod) -> bool:
    """Return whether a kubelet rejected the pod, which has failed and is still there."""
    ended = pod.phase == "Failed" and bool(pod.node) and not pod.deleting
    return ended and bool(pod.reason) and not pod.acknowledged


def rejection(pod: ClusterPod) -> str:
    """Say in one sentence that a kubelet rejected the pod, and what to do."""
    return f"{pod.reason} on {pod.node}; a failed pod is not retried: delete it"


def _judged(
    pod: ClusterPod, siblings: Mapping[str, Sequence[ClusterPod]], bodies: Mapping[str, Body]
) -> RejectedPod:
    owner = pod.controller
    replaced, why = False, "it has no owner that would replace it"
    if owner is not None:
        replaced, why = _verdict(pod, owner, siblings[owner.uid], bodies.get(owner.uid))
    named = "" if owner is None else f"{owner.kind} {owner.name}"
    return RejectedPod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.reason, pod.created, named, replaced, why
    )


def _verdict(
    pod: ClusterPod, owner: Owner, siblings: Sequence[ClusterPod], body: Body | None
) -> tuple[bool, str]:
    """Return whether an owner has replaced a pod, and why that is so."""
    if owner.kind not in {"ReplicaSet", "Job"}:
        return False, f"a {owner.kind} is not known to create another pod while this one exists"
    if body is None:
        return False, f"its {owner.kind} was deleted or was not read"
    if _is_deleting(body):
        return False, f"its {owner.kind} is being deleted, and the pod with it"
    live = [one for one in siblings if not one.terminal and not one.deleting]
    if owner.kind == "ReplicaSet":
        return _by_count(len(live), _number(body, "spec", "replicas", default=1))
    return _of_job(pod, live, siblings, body)


def _of_job(
    pod: ClusterPod, live: Sequence[ClusterPod], siblings: Sequence[ClusterPod], body: Body
) -> tuple[bool, str]:
    states = {str(one.get("type")) for one in _conditions(body) if one.get("status") == "True"}
    if "Complete" in states:
        return True, "its Job is complete without it"
    if "Failed" in states or (body.get("spec") or {}).get("suspend"):
        return False, "its Job has failed or is suspended"
    index = pod.labels.get(_INDEX)
    if index is not None:
        done = [one for one in siblings if one.phase == "Succeeded"]
        if any(one.labels.get(_INDEX) == index for one in (*live, *done)):
            return True, f"another pod has index {index}"
        return False, f"no other pod has index {index}"
    parallel = _number(body, "spec", "parallelism", default=1)
    total = (body.get("spec") or {}).get("completions")
    left = parallel if total is None else max(0, int(total) - _number(body, "status", "succeeded", default=0))
    return _by_count(len(live), min(parallel, left))


def _by_count(live: int, wanted: int) -> tuple[bool, str]:
    return live >= wanted, f"its owner has {live} of {wanted} pods"


def _number(body: Body, part: str, field: str, *, default: int) -> int:
    value = (body.get(part) or {}).get(field)
    return default if value is None else int(value)


def _conditions(body: Body) -> Iterator[Body]:
    yield from (body.get("status") or {}).get("conditions") or ()


def _is_deleting(body: Body) -> bool:
    return bool((body.get("metadata") or {}).get("deletionTimestamp"))
