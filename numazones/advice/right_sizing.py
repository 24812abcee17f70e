"""Containers whose exclusive CPUs idle: the request that fits their use, and what would fit then.

What a container uses is measured, not known here. A smaller request is one that the node's own kubelet would
admit in the pod's place, so that options such as full-pcpus-only count; what would fit then is asked of the
node as it would be. Nothing is said where that is not known.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from numazones.advice.other_requests import with_requests
from numazones.apimachinery.answer import Named
from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import beside
from numazones.prediction.room import FittingPods

IDLE_BELOW = 0.1
"""Share of a container's exclusive CPUs below which they idle."""
MOST_BUSY = 0.8
"""How busy the CPUs of a request that fits may be on average."""


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """How busy the exclusive CPUs of a container were."""

    namespace: Annotated[str, "Its pod's namespace."]
    pod: Annotated[str, "Its pod."]
    container: Annotated[str, "Its name; empty for a pod that holds CPUs as a whole."]
    node: Annotated[str, "Where it runs."]
    cpus: Annotated[int, "Exclusive CPUs."]
    used: Annotated[float, "CPUs that were busy, on average."]
    seconds: Annotated[float, "For how long that was measured."]

    @property
    def busy(self) -> float:
        """The share that was busy, from 0 to 1."""
        return self.used / self.cpus if self.cpus else 0.0

    @property
    def fitting_cpus(self) -> int:
        """Whole CPUs that would be busy enough, and not too busy."""
        return max(1, math.ceil(round(self.used / MOST_BUSY, 6)))


@dataclass(frozen=True, slots=True)
class IdleContainer:
    """A container whose exclusive CPUs idle, and what a fitting request would give back."""

    use: Annotated[MeasuredUse, "What was measured."]
    request: Annotated[int, "CPUs of the request that would fit.", Named("cpu")]
    given_back: Annotated[int, "CPUs that others could have."]
    then_fit: Annotated[int, "Pods of the shape that would fit on its node then, in addition."] = 0


@dataclass(frozen=True, slots=True)
class UnknownUse:
    """A container that nothing can be said of."""

    use: MeasuredUse
    why: str


@dataclass(frozen=True, slots=True)
class RightSizing:
    """All containers that idle, and what would fit if each had the request that fits."""

    idle: tuple[IdleContainer, ...]
    unknown: tuple[UnknownUse, ...]
    nodes: Mapping[str, ClusterNode]
    """Nodes with all requests changed, where any is."""

    def more_pods(self, before: Mapping[str, ClusterNode], shape: Shape) -> dict[str, int]:
        """Return node → how many more pods of a shape fit than before, where that differs."""
        fitting = FittingPods()
        found = {
            name: fitting.count(node, shape).fitting - fitting.count(before[name], shape).fitting
            for name, node in self.nodes.items()
        }
        return {name: count for name, count in found.items() if count}


def right_sizing(
    nodes: Mapping[str, ClusterNode], uses: Iterable[MeasuredUse], shape: Shape | None = None
) -> RightSizing:
    """Find the containers that idle, those that would give back most first.

    Args:
        nodes: the cluster's, with their pods.
        uses: what was measured of containers.
        shape: a pod of which is counted how many more would fit.
    """
    after: dict[str, ClusterNode] = {}
    idle: list[IdleContainer] = []
    unknown: list[UnknownUse] = []
    fitting = FittingPods()
    wasteful = [use for use in uses if use.cpus > 1 and use.busy < IDLE_BELOW]
    for use in sorted(
        wasteful, key=lambda use: (use.fitting_cpus - use.cpus, use.node, use.namespace, use.pod)
    ):
        node = nodes.get(use.node)
        if node is None:
            unknown.append(UnknownUse(use, f"node {use.node} is not there"))
            continue
        found = _smaller(node, use)
        if isinstance(found, str):
            unknown.append(UnknownUse(use, found))
            continue
        request, changed = found
        if request >= use.cpus:
            continue
        more = 0
        if shape is not None:
            more = fitting.count(changed, shape).fitting - fitting.count(node, shape).fitting
        idle.append(IdleContainer(use, request, use.cpus - request, more))
        together = _smaller(after.get(use.node, node), use, least=request)
        if not isinstance(together, str):
            after[use.node] = together[1]
    idle.sort(key=lambda one: -one.given_back)
    return RightSizing(tuple(idle), tuple(unknown), after)


def resized(pod: ClusterPod, uses: Iterable[MeasuredUse], node: ClusterNode) -> ClusterPod:
    """Return the pod with requests that fit the measured use of its containers, where those are smaller."""
    for use in uses:
        request = min(use.fitting_cpus, use.cpus)
        if use.container and request < use.cpus:
            pod = with_requests(pod, node.state, use.container, {CPU: request})
    return pod


def _smaller(node: ClusterNode, use: MeasuredUse, *, least: int = 0) -> tuple[int, ClusterNode] | str:
    """Return the smallest sufficient request that the node admits, and the node then; or why not."""
    if node.known is None or node.state is None:
        return f"the state of node {node.name} is unknown"
    pod = next(
        (pod for pod in node.pods.values() if (pod.namespace, pod.name) == (use.namespace, use.pod)), None
    )
    if pod is None or pod.admission is None:
        return f"pod {use.namespace}/{use.pod} is not there, or cannot be read"
    if not use.container:
        return "the pod as a whole holds its CPUs"
    without = node.without_pod(pod.uid).with_placement(node.known.remove(pod.kubelet_uid))
    for request in range(least or use.fitting_cpus, use.cpus + 1):
        changed = beside(with_requests(pod, node.state, use.container, {CPU: request}).placed(""), without)
        if changed is not None:
            return request, changed
    return f"node {node.name} would admit pod {use.namespace}/{use.pod} with no smaller request"
