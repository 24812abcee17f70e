"""Room that is held for pods on their way to a node, as far as the pods themselves show it.

Between the moment a pod is given a choice of nodes and the moment it has one, no node counts it. A pod that
was released from the gate says when in an annotation, and its affinity says where to; one that a scheduler
nominated has ``status.nominatedNodeName``.
"""

from collections.abc import Iterable, Iterator, Sequence

from numazones import timestamp
from numazones.cluster import ClusterNode, ClusterPod
from numazones.prediction import beside

RELEASED = "numazones.io/admission-released"
"""Annotation: when a pod was released from the gate."""
MAX_NODES = 16
"""A pod that may go to more nodes than these was given no choice, and holds nothing."""
RELEASE_SECONDS = 60.0
"""Seconds after which a released pod without a node no longer holds room."""


def was_released_lately(pod: ClusterPod, now: float) -> bool:
    """Whether a pod was released from the gate not long before ``now``, seconds since the epoch.

    Clocks that differ by some seconds may call it a moment to come; one that is far off was written before
    the clock was set back, and would hold room until the clock is there again.
    """
    try:
        released = timestamp.parse(pod.annotations.get(RELEASED, "")).timestamp()
    except timestamp.InvalidTimestamp:
        return False
    return abs(now - released) < RELEASE_SECONDS


def holders(
    waiting: Iterable[ClusterPod], nodes: Sequence[ClusterNode], asking: ClusterPod, *, now: float
) -> Iterator[tuple[str, ClusterPod]]:
    """Yield (node, pod) for pods without a node, whom one that asks has to leave room on the node.

    ``now``: seconds since the epoch.
    """
    for pod in waiting:
        if pod.uid == asking.uid or pod.node or pod.constraints.scheduling_gates:
            continue
        if pod.nominated:
            if (pod.priority or 0) >= (asking.priority or 0):
                yield pod.nominated, pod
        elif was_released_lately(pod, now):
            chosen = [node.name for node in nodes if pod.constraints.selects(node.name, node.labels)]
            yield from ((name, pod) for name in chosen if len(chosen) <= MAX_NODES)


def with_held(node: ClusterNode, held: Sequence[ClusterPod]) -> ClusterNode | None:
    """Return the node as it will be when the pods on their way have come; None where that cannot be told."""
    for pod in held:
        if pod.admission is None:
            return None
        node = beside(pod, node) or node.with_pod(pod)
    return node
