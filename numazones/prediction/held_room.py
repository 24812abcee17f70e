"""Room that is held for pods on their way to a node, as far as the pods themselves show it.

Between the moment a pod is given a choice of nodes and the moment it has one, no node counts it. A pod that
was released from the gate says when in an annotation, and its affinity says where to; one that a scheduler
nominated has ``status.nominatedNodeName``. Of pods that a scheduler assumes, which are being bound, only the
operator knows whose scheduler asks it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import RELEASED
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind, relevant
from numazones.errors import About
from numazones.wording import some_of

if TYPE_CHECKING:
    from numazones.prediction.forecast import Prediction

MAX_NODES = 16
"""A pod that may go to more nodes than these was given no choice, and holds nothing."""
RELEASE_SECONDS = 60.0
"""Seconds after which a released pod without a node no longer holds room."""


class ArrivalPath(StrEnum):
    """Way in which a pod comes to a node; the value says so in a sentence."""

    RELEASED = "released from the gate"
    ASSUMED = "being bound by a scheduler"
    NOMINATED = "nominated by a scheduler"


@dataclass(frozen=True, slots=True)
class Hold:
    """Room that is held for one pod."""

    pod: ClusterPod
    nodes: tuple[str, ...]
    """Where: it will come to one of them."""
    way: ArrivalPath
    until: float | None = None
    """When that ends by itself, seconds since the epoch; None: when the scheduler nominates it no longer."""

    @property
    def ends(self) -> str:
        """The same, RFC 3339; empty: when the scheduler nominates it no longer."""
        return "" if self.until is None else timestamp.format(datetime.fromtimestamp(self.until, UTC))


def release_ends(pod: ClusterPod, now: float) -> float | None:
    """Return when the room of a pod that the gate released ends; None: it holds none, or no longer.

    Both in seconds since the epoch. A release at a moment to come holds nothing before that: a clock that
    differs wrote it, or whoever wants to hold room for longer.
    """
    try:
        released = timestamp.parse(pod.annotations[RELEASED]).timestamp()
    except (KeyError, timestamp.InvalidTimestamp):
        return None
    return released + RELEASE_SECONDS if 0 <= now - released < RELEASE_SECONDS else None


def held(
    waiting: Iterable[ClusterPod],
    nodes: Sequence[ClusterNode],
    *,
    now: float,
    asking: ClusterPod | None = None,
) -> Iterator[Hold]:
    """Yield the room that is held for pods without a node.

    ``asking``: a pod that has to leave others room; None: whoever asks. ``now``: seconds since the epoch.
    """
    for pod in waiting:
        if pod.node or pod.constraints.scheduling_gates or (asking is not None and pod.uid == asking.uid):
            continue
        if pod.nominated:
            if asking is None or (pod.priority or 0) >= (asking.priority or 0):
                there = [node for node in nodes if node.name == pod.nominated]
                if _concerned(pod, there) or not there:
                    yield Hold(pod, (pod.nominated,), ArrivalPath.NOMINATED)
        elif (until := release_ends(pod, now)) is not None:
            selected = [node for node in nodes if pod.constraints.selects(node.name, node.labels)]
            chosen = _concerned(pod, selected)
            if 0 < len(chosen) <= MAX_NODES:
                yield Hold(pod, tuple(chosen), ArrivalPath.RELEASED, until)


def _concerned(pod: ClusterPod, nodes: Iterable[ClusterNode]) -> list[str]:
    """Return those of the nodes that may reject a pod; all, if NUMA placement concerns it."""
    if relevant(pod):
        return [node.name for node in nodes]
    placements = ((node.name, node.known) for node in nodes)
    return [name for name, one in placements if one is not None and one.model.places_every_pod]


def by_node(items: Iterable[Hold]) -> dict[str, list[ClusterPod]]:
    """Return node → the pods that room is held for there; of one that may come to several, each has it."""
    found: dict[str, list[ClusterPod]] = {}
    for item in items:
        for name in item.nodes:
            found.setdefault(name, []).append(item.pod)
    return found


def with_held(node: ClusterNode, held: Sequence[ClusterPod]) -> ClusterNode | None:
    """Return the node as it will be when the pods on their way have come; None where that cannot be told."""
    from numazones.prediction.forecast import beside  # noqa: PLC0415 - mostly nothing is on its way

    for pod in held:
        if pod.admission is None:
            return None
        with About(pod):
            node = beside(pod, node) or node.with_pod(pod)
    return node


def in_the_way(
    pod: ClusterPod,
    prediction: "Prediction",
    node: Callable[[str], ClusterNode | None],
    by_node: Mapping[str, Sequence[ClusterPod]],
) -> Iterator[str]:
    """Say whom room is held for, if no node would admit the pod beside those that are on their way.

    ``by_node``: node → pods on their way to it whom the pod has to leave room.
    """
    from numazones.prediction.forecast import NodeAnswer, ask  # noqa: PLC0415 - as above

    kind = PodKind.of(pod)
    if kind is None or not by_node:
        return
    for candidate in prediction.candidates:
        there = node(candidate.node)
        after = None if there is None else with_held(there, by_node.get(candidate.node, ()))
        if after is not None and ask(kind, after).answer is NodeAnswer.ADMITS:
            return
    candidates = {candidate.node for candidate in prediction.candidates}
    for name in sorted(candidates & by_node.keys()):
        others = by_node[name]
        yield f"{name}: room is held for {some_of(other.full_name for other in others)}"


def zones_held(node: ClusterNode, pods: Iterable[ClusterPod]) -> Iterator[tuple[ClusterPod, tuple[int, ...]]]:
    """Yield the pods on their way to a node with the NUMA nodes that each will get, coming in this order.

    None are named for a pod that would get no zones of its own, or of which that cannot be told.
    """
    from numazones.prediction.forecast import place_beside  # noqa: PLC0415 - as above

    for pod in pods:
        placed = place_beside(pod, node)
        if placed is None:
            node = node.with_pod(pod)
            yield pod, ()
        else:
            node = placed.node
            yield pod, tuple(placed.decision.zones)
