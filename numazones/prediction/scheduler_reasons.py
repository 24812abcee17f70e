"""Reasons why a node does not take a pod, in the few words that a scheduler shows.

kube-scheduler counts equal reasons together, sorts them as text, and requeues a pod whose message differs
from the one before, so a reason names neither nodes nor figures and stays the same while the cause does
(specs/scheduler-extender.md, sections 2 and 4). The whole sentence belongs into the AdmissionPrediction.
"""

from typing import Final

from numazones.placement.kubelet import KUBELET
from numazones.prediction.joined_verdict import APART, NOT_KNOWN
from numazones.prediction.verdict import NodeAnswer, NodeVerdict

HELD_ROOM: Final = "HeldRoom"
"""Reason of a node whose room is held for pods on their way to it."""
NOT_MIRRORED: Final = "NodeNotFound"
"""Reason of a node that a scheduler names and that is not known."""

PODS_LEAVE: Final = "PodsLeave"
"""Reason of a node with so many leaving pods that its possible states are too many to follow."""


def scheduler_reason(verdict: NodeVerdict) -> str:
    """Return the reason of a node that does not admit a pod."""
    reason = verdict.obstacles[0][0] if verdict.obstacles else verdict.source
    if verdict.answer is NodeAnswer.EXCLUDED:
        return reason
    if reason == APART:
        return "node(s) where the pod's devices and CPUs would not be on one NUMA node"
    if reason == NOT_KNOWN:
        return "node(s) where it is not known whether the pod's devices and CPUs would be on one NUMA node"
    if verdict.answer is NodeAnswer.UNKNOWN:
        return f"node(s) whose NUMA state is not known ({reason}){_known_all_the_same(verdict)}"
    if reason == HELD_ROOM:
        return "node(s) whose free NUMA room is held for pods on their way to them"
    return f"node(s) that would not admit the pod ({_decider(verdict.model)}: {reason})"


def _known_all_the_same(verdict: NodeVerdict) -> str:
    if verdict.would_reject:
        return "; in their last known state, they would reject the pod"
    return "; their exporters have not published it yet" if verdict.unseen else ""


def _decider(model: str | None) -> str:
    """Return who places pods on a node, as people name it."""
    return "kubelet" if model in (None, KUBELET) else str(model)
