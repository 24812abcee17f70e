"""Reasons why a pod without a node waits although a node would admit it.

A node may be free for a pod that no scheduler looks at: it carries a scheduling gate (KEP-3521), nobody
serves its ``schedulerName``, a claim is not there, or the scheduler has its own reasons, such as volumes and
pod affinity, which predictions do not cover. The API says so in places that people do not think of looking at
together: ``spec.schedulingGates``, the condition PodScheduled, events.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from numazones.cluster import scheduling
from numazones.cluster.admission_gate import GATE, OPT_IN, RELEASED
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.wording import some_of

_REPLACING = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Controllers that make another pod for one that is deleted, and count that as no failure."""
_NAMING = frozenset({"metadata.name", "kubernetes.io/hostname"})
"""What a release names nodes by."""
_FAILED = "FailedScheduling"
_NOT_SERVED = "AdmissionGateNotServed"
GATED = "SchedulingGated"


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that a pod waits for beside a node."""

    TITLE: ClassVar = "Waiting"
    reason: Annotated[
        str, "Reason in one word, such as SchedulingGate, NotOptedIn, MissingClaim or NoScheduler."
    ]
    sentence: Annotated[str, "The reason in a sentence, with what to do about it if something helps."]


HELD_ROOM = Wait("HeldRoom", "the room that it needs is held for other pods on their way there")


@dataclass(frozen=True, slots=True)
class PodContext:
    """Objects around a pod; those that were not read are None or empty."""

    namespace_labels: Mapping[str, str] | None = None
    operator_runs: bool = True
    """Whether a pod of the operator was seen that runs."""
    served: Collection[str] = ()
    """Names of the schedulers that have been seen to look at pods."""
    claims: Collection[str] | None = None
    """PersistentVolumeClaims of the pod's namespace."""
    events: Iterable[Mapping[str, Any]] = field(default_factory=tuple)
    """Events of the pod."""


def waits(
    pod: ClusterPod,
    around: PodContext,
    *,
    admissible: bool,
    held: bool = False,
    lost: tuple[str, ...] = (),
) -> tuple[Wait, ...]:
    """Return what a pod waits for, whatever the nodes say.

    Args:
        pod: the pod.
        around: what is known around it.
        admissible: whether some node would admit it.
        held: whether the room for it is held for others (``held_room.in_the_way``), the last thing to say.
        lost: the nodes that it was released to, if all are lost (``lost_nodes``).
    """
    if lost:
        return (Wait("ReleasedNodesLost", told_of_loss(pod, lost)),)
    return _waits(pod, around, admissible=admissible) or ((HELD_ROOM,) if held else ())


def _waits(pod: ClusterPod, around: PodContext, *, admissible: bool) -> tuple[Wait, ...]:
    if pod.node or pod.terminal:
        return ()
    told = latest_messages(around.events)
    gates = tuple(_gates(pod, around, told, admissible=admissible))
    if gates:
        return gates
    missing = tuple(
        Wait("MissingClaim", f"PersistentVolumeClaim {name} of namespace {pod.namespace} does not exist")
        for name in pod.volume_claims
        if around.claims is not None and name not in around.claims
    )
    said = scheduler_says(pod, told)
    only = released_to(pod)
    if said and only and not admissible:
        return (*missing, Wait("ReleasedToFewNodes", _told_of_release(only, said)))
    if said and admissible:
        return (*missing, Wait("Unschedulable", f"the scheduler cannot place it: {said}"))
    name = pod.constraints.scheduler_name
    if not said and not missing and around.served and name not in around.served:
        cure = "start it, or correct spec.schedulerName"
        return (Wait("NoScheduler", f"no scheduler named {name} seems to be running; {cure}"),)
    return missing


def released_to(pod: ClusterPod) -> tuple[str, ...]:
    """Return the nodes that the gate limited a pod to when it released it; none: it was not, or to all."""
    if RELEASED not in pod.annotations or pod.constraints.node_affinity is None:
        return ()
    named = (
        value
        for term in pod.constraints.node_affinity
        for requirement in (*term.fields, *term.expressions)
        if requirement.key in _NAMING and requirement.operator == "In"
        for value in requirement.values
    )
    return tuple(dict.fromkeys(named))


def lost_nodes(pod: ClusterPod, nodes: Iterable[ClusterNode]) -> tuple[str, ...]:
    """Return the nodes that a pod was released to, if it may go to no node at all any more; else none.

    A node is lost that is gone, cordoned, or keeps the pod away by a taint. ``nodes``: all of the cluster.

    >>> from numazones import build
    >>> body = build.pod_body("web", cpu=2)
    >>> body["metadata"]["annotations"] = {"numazones.io/admission-released": "2026-01-31T08:00:00Z"}
    >>> term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}
    >>> required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    >>> body["spec"]["affinity"] = {"nodeAffinity": required}
    >>> pod = ClusterPod.from_api(body)
    >>> lost_nodes(pod, [ClusterNode("worker-1")]), lost_nodes(pod, [ClusterNode("worker-2")])
    ((), ('worker-1',))
    """
    named = released_to(pod)
    if not named or pod.node or pod.terminal or pod.deleting or pod.constraints.scheduling_gates:
        return ()
    if any(not scheduling.placement_obstacles(pod.constraints, node) for node in nodes):
        return ()
    return named


def is_replaced(pod: ClusterPod) -> bool:
    """Return whether another pod comes for this one when it is deleted, which counts as no failure."""
    controller = pod.controller
    return controller is not None and controller.kind in _REPLACING


def told_of_loss(pod: ClusterPod, nodes: tuple[str, ...]) -> str:
    """Say that all nodes are lost that the gate released a pod to, and what to do."""
    owner = pod.controller
    next_step = "recreate it" if owner is None else f"its {owner.kind} creates a replacement"
    if owner is not None and owner.kind == "Job":
        next_step += ", and counts this one as a failure"
    command = f"kubectl delete pod -n {pod.namespace} {pod.name}"
    return (
        f"the gate released it to {some_of(nodes)} only, and each of these nodes is gone, cordoned or "
        f"tainted; a released pod cannot go elsewhere: bring one back, or {command}, and {next_step}"
    )


def _told_of_release(nodes: tuple[str, ...], said: str) -> str:
    return (
        f"the gate released it to {some_of(nodes)} only, and the scheduler cannot place it there: "
        f"{said}; a released pod cannot go elsewhere: if this persists, delete it, and its owner creates "
        f"a replacement"
    )


def scheduler_says(pod: ClusterPod, told: Mapping[str, str]) -> str:
    """Return the scheduler's last word on a pod; empty where it has not looked at it."""
    status, reason, message = pod.scheduled or ("", "", "")
    if status == "False" and reason != GATED:
        return message or reason
    return told.get(_FAILED, "") if not pod.constraints.scheduling_gates else ""


def _gates(
    pod: ClusterPod, around: PodContext, told: Mapping[str, str], *, admissible: bool
) -> Iterable[Wait]:
    for gate in pod.constraints.scheduling_gates:
        if gate != GATE:
            sentence = f"its scheduling gate {gate} must be removed by the program that set it"
            yield Wait("SchedulingGate", f"{sentence}; until then no scheduler considers the pod")
            continue
        labels = around.namespace_labels
        if labels is not None and labels.get(OPT_IN[0]) != OPT_IN[1]:
            cure = f"kubectl label namespace {pod.namespace} {OPT_IN[0]}={OPT_IN[1]}"
            yield Wait(
                "NotOptedIn",
                f"its gate {GATE} is not removed, because namespace {pod.namespace} has not opted in: {cure}",
            )
        elif not around.operator_runs:
            yield Wait(
                "NoOperator",
                f"its gate {GATE} is not removed, because no running pod of the operator was found: check "
                f"that the operator is running",
            )
        elif _NOT_SERVED in told:
            yield Wait("NotServed", told[_NOT_SERVED])
        elif admissible:
            yield Wait("Held", f"the operator has not removed its gate {GATE} yet")


def latest_messages(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return reason → message of the latest event with it."""
    return {
        str(event.get("reason") or ""): str(event.get("message") or "")
        for event in sorted(events, key=last_seen)
    }


def last_seen(event: Mapping[str, Any]) -> str:
    """Return when an event was seen last, RFC 3339; empty if it does not say."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")
