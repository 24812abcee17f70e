"""Join the verdict of a node's placement with the devices that the scheduler would allocate there.

A pod may require alignment by its annotation ``numazones.io/alignment: required``. Then only a node will do
where one NUMA node has everything that a container gets of its own: CPUs, memory and devices. No part of
Kubernetes (1.36) checks this for devices of claims, so we keep such a pod off nodes that fail the condition,
and off nodes where the answer is not known.
"""

from dataclasses import replace
from typing import Final

from numazones import cpuset
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.pod_kind import ALIGNMENT, REQUIRED, PodKind
from numazones.kubelet.machine import name_numas
from numazones.prediction.device_answer import ALIGNED, ALIGNMENT_UNKNOWN, CANNOT_ALLOCATE, NOT_ALIGNED
from numazones.prediction.pod_devices import device_answer
from numazones.prediction.verdict import SCHEDULER_SOURCE, UNKNOWN_SOURCE, NodeAnswer, NodeVerdict

ALIGNMENT_SOURCE: Final = "Alignment"
"""Source of a verdict that the pod's own annotation demands."""
APART: Final = "NotAligned"
"""Reason of a node where what the pod gets would not be on one NUMA node."""
NOT_KNOWN: Final = "AlignmentNotKnown"
"""Reason of a node where that is not known."""
_REQUIRED: Final = f"the pod requires alignment (annotation {ALIGNMENT})"


def with_devices(kind: PodKind, node: ClusterNode, verdict: NodeVerdict) -> NodeVerdict:
    """Join what a placement says about a pod with the devices that the scheduler would allocate."""
    joined = _allocating(kind, node, verdict)
    return _as_required(kind, joined) if kind.requires_alignment else joined


def misspelled(kind: PodKind) -> str:
    """Return what is wrong with the annotation of a pod; empty if nothing is."""
    if kind.alignment in ("", REQUIRED):
        return ""
    return f"annotation {ALIGNMENT}: {kind.alignment!r:.40} has no effect; the only value is {REQUIRED}"


def _allocating(kind: PodKind, node: ClusterNode, verdict: NodeVerdict) -> NodeVerdict:
    if verdict.answer not in (NodeAnswer.ADMITS, NodeAnswer.REJECTS):
        return verdict
    found = device_answer(kind, node, verdict.zones, verdict.shares)
    if found is None:
        return verdict
    if verdict.answer is NodeAnswer.REJECTS:
        return replace(verdict, devices=found) if found.aborts else verdict
    if found.fits:
        return replace(verdict, devices=found)
    if found.fits is None:
        return replace(
            verdict,
            answer=NodeAnswer.UNKNOWN,
            source=UNKNOWN_SOURCE,
            obstacles=((scheduling.NOT_ALLOCATED, found.reason),),
            devices=found if found.aborts else None,
        )
    return NodeVerdict(
        NodeAnswer.REJECTS,
        SCHEDULER_SOURCE,
        ((CANNOT_ALLOCATE, found.message),),
        sentence=found.reason,
        model=None,
    )


def _as_required(kind: PodKind, verdict: NodeVerdict) -> NodeVerdict:
    """Return the verdict on a pod that requires alignment, or a worse one where it would not get it."""
    if verdict.answer in (NodeAnswer.REJECTS, NodeAnswer.EXCLUDED):
        return verdict
    if verdict.answer is NodeAnswer.UNKNOWN:
        reason, message = verdict.obstacles[0]
        known = NOT_KNOWN if reason == scheduling.NOT_ALLOCATED else reason
        return replace(verdict, obstacles=((known, message),), awaited=True)
    alignment = _alignment(kind, verdict)
    if alignment == ALIGNED:
        return verdict
    where = _where(verdict)
    if alignment == ALIGNMENT_UNKNOWN:
        return replace(
            verdict,
            answer=NodeAnswer.UNKNOWN,
            source=UNKNOWN_SOURCE,
            obstacles=((NOT_KNOWN, f"{where}; {_REQUIRED}"),),
            sentence=f"{where}; {_REQUIRED}",
            devices=None,
            awaited=True,
        )
    return NodeVerdict(
        NodeAnswer.REJECTS,
        ALIGNMENT_SOURCE,
        ((APART, where),),
        sentence=f"{where}; {_REQUIRED}",
        model=None,
    )


def _alignment(kind: PodKind, verdict: NodeVerdict) -> str:
    """Return whether each container would have all of its own on one NUMA node."""
    if verdict.approximate:
        return ALIGNMENT_UNKNOWN
    if any(len(numas) > 1 for _, numas in verdict.shares):
        return NOT_ALIGNED
    if verdict.devices is not None:
        return verdict.devices.alignment
    if len(verdict.zones) <= 1 or verdict.shares:
        return ALIGNED
    return NOT_ALIGNED if len(kind.admission.containers) == 1 else ALIGNMENT_UNKNOWN


def _where(verdict: NodeVerdict) -> str:
    if verdict.approximate:
        return (
            "the node publishes no NUMAZones, so it is not known exactly where the pod's CPUs and devices "
            "would be"
        )
    if verdict.devices is not None:
        return verdict.devices.sentence
    return f"CPUs, memory and devices on {name_numas(cpuset.of(verdict.zones))}: not aligned"
