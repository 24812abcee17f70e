"""Containers whose exclusive CPUs idle: the request that fits their use, and what would fit then.

What a container uses is measured, not known here. Replicas share one template, so the busiest of them
decides, and all of them must have been measured. A smaller request is one that the node's own kubelet would
admit in the pod's place, so that options such as full-pcpus-only count, alone and with the other smaller
requests; what would fit then is asked of the node as it would be. Nothing is said where that is not known.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from numazones.apimachinery.answer import Named
from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.other_requests import with_requests
from numazones.cluster.usage import MeasuredUse
from numazones.kubelet.demand import ContainerKind
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import beside
from numazones.prediction.room import FittingPods
from numazones.wording import pluralize

IDLE_BELOW = 0.1
"""Share of a container's exclusive CPUs below which they idle."""
MOST_BUSY = 0.8
"""How busy the CPUs of a request that fits may be on average."""


_ContainerKey = tuple[str, str, str]
"""Namespace, pod, container."""


@dataclass(frozen=True, slots=True)
class IdleContainer:
    """A container whose exclusive CPUs idle, and what a fitting request would give back."""

    use: Annotated[MeasuredUse, "What was measured."]
    request: Annotated[int, "CPUs of the smallest request that fits the measured use.", Named("cpu")]
    given_back: Annotated[int, "CPUs that would become free for other pods."]
    then_fit: Annotated[int, "Additional pods of the shape that would then fit on its node."] = 0


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

    def given_back(self, before: Mapping[str, ClusterNode]) -> int:
        """Return how many CPUs others could have if all requests were changed."""
        return sum(_exclusive(before[name]) - _exclusive(node) for name, node in self.nodes.items())

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
    uses = list(uses)
    least = _least_requests(nodes, uses)
    after: dict[str, ClusterNode] = {}
    idle: list[IdleContainer] = []
    unknown: list[UnknownUse] = []
    fitting = FittingPods()
    wasteful = [use for use in uses if use.cpus > 1 and use.busy < IDLE_BELOW]
    for use in sorted(
        wasteful, key=lambda use: (fitting_cpus(use) - use.cpus, use.node, use.namespace, use.pod)
    ):
        node = nodes.get(use.node)
        if node is None:
            unknown.append(UnknownUse(use, f"node {use.node} does not exist"))
            continue
        found = _smaller(node, after.get(use.node, node), use, least.get(_key(use), fitting_cpus(use)))
        if isinstance(found, str):
            unknown.append(UnknownUse(use, found))
            continue
        request, changed, together = found
        given_back = _exclusive(node) - _exclusive(changed)
        if given_back <= 0:
            continue
        after[use.node] = together
        more = 0
        if shape is not None:
            more = fitting.count(changed, shape).fitting - fitting.count(node, shape).fitting
        idle.append(IdleContainer(use, request, given_back, more))
    idle.sort(key=lambda one: -one.given_back)
    return RightSizing(tuple(idle), tuple(unknown), after)


def resized(pod: ClusterPod, uses: Iterable[MeasuredUse], node: ClusterNode) -> ClusterPod:
    """Return the pod with requests that fit the measured use of its containers, where those are smaller."""
    for use in uses:
        request = min(fitting_cpus(use), use.cpus)
        if use.container and request < use.cpus and not is_init(pod, use.container):
            pod = with_requests(pod, node.state, use.container, {CPU: request})
    return pod


def _exclusive(node: ClusterNode) -> int:
    return 0 if node.state is None else node.state.cpus.exclusive_cpus().bit_count()


def fitting_cpus(use: MeasuredUse) -> int:
    """Return the whole CPUs that would be busy enough, and not too busy."""
    return max(1, math.ceil(round(use.used / MOST_BUSY, 6)))


def is_init(pod: ClusterPod, container: str) -> bool:
    """Return whether this is an init container, whose CPUs others of the pod use when it has ended."""
    containers = pod.admission.containers if pod.admission is not None else ()
    return any(item.name == container and item.kind is ContainerKind.INIT for item in containers)


def _key(use: MeasuredUse) -> _ContainerKey:
    return use.namespace, use.pod, use.container


def _least_requests(
    nodes: Mapping[str, ClusterNode], uses: Iterable[MeasuredUse]
) -> dict[_ContainerKey, int | str]:
    """Return the CPUs that are enough for a container and for all replicas of it, or why that is unknown."""
    measured = {_key(use): fitting_cpus(use) for use in uses}
    replicas: dict[_ContainerKey, list[_ContainerKey]] = {}
    """(namespace, uid of the owner, container) → the containers made of that template."""
    for pod in (pod for node in nodes.values() for pod in node.pods.values() if not pod.terminal):
        owner = pod.uid if pod.controller is None else pod.controller.uid
        for container in pod.admission.containers if pod.admission is not None else ():
            key = (pod.namespace, pod.name, container.name)
            replicas.setdefault((pod.namespace, owner, container.name), []).append(key)
    found: dict[_ContainerKey, int | str] = {}
    for keys in replicas.values():
        missing = next((key for key in keys if key not in measured), None)
        enough: int | str = max(measured.get(key, 0) for key in keys)
        if missing is not None:
            enough = f"its replica {missing[0]}/{missing[1]} was not measured, or not for long enough"
        found |= dict.fromkeys(keys, enough)
    return found


def _smaller(
    node: ClusterNode, others_changed: ClusterNode, use: MeasuredUse, least: int | str
) -> tuple[int, ClusterNode, ClusterNode] | str:
    """Return the smallest request that the node admits, alone and after other changes; or why there is none.

    The nodes that are returned are the two as they would be then.
    """
    if reason := _why_unknown(node, use):
        return reason
    if isinstance(least, str):
        return least
    for request in range(least, use.cpus + 1):
        alone = _with_request(node, use, request)
        together = alone if others_changed is node else _with_request(others_changed, use, request)
        if alone is not None and together is not None:
            return request, alone, together
    return f"node {node.name} would not admit pod {use.namespace}/{use.pod} with any smaller request"


def _why_unknown(node: ClusterNode, use: MeasuredUse) -> str:
    """Return why nothing can be said of a container; empty if something can."""
    if node.known is None or node.state is None:
        return f"the state of node {node.name} is unknown"
    pod = _pod_of(node, use)
    if pod is None or pod.admission is None:
        return f"pod {use.namespace}/{use.pod} does not exist or cannot be read"
    if not use.container:
        return "its CPUs are assigned to the pod as a whole"
    if is_init(pod, use.container):
        return f"init container {use.container} has finished, but the pod keeps its CPUs"
    held = node.state.cpus.assignments.get(pod.kubelet_uid, {}).get(use.container, 0).bit_count()
    if held != use.cpus:
        return f"measured with {pluralize(use.cpus, 'CPU')}, but its kubelet has since given it {held}"
    return ""


def _pod_of(node: ClusterNode, use: MeasuredUse) -> ClusterPod | None:
    name = (use.namespace, use.pod)
    return next((pod for pod in node.pods.values() if (pod.namespace, pod.name) == name), None)


def _with_request(node: ClusterNode, use: MeasuredUse, request: int) -> ClusterNode | None:
    """Return the node with another request of a container; None where it would not admit the pod then."""
    pod = _pod_of(node, use)
    if pod is None or node.known is None:
        return None
    without = node.without_pod(pod.uid, node.known.remove(pod.kubelet_uid))
    return beside(with_requests(pod, node.state, use.container, {CPU: request}).placed(""), without)
