"""Count how many more pods of a shape a node takes: one answer for all who show or sum it up.

Copies of the shape's pod are admitted one after the other, by whoever decides on the node, until one is not;
before that, the scheduler's filters and the node's sums of requests say how many there can be at most, so
that full nodes cost nothing. Nodes in equal states are counted once: ``FittingPods`` remembers what it found.
"""

from collections.abc import Hashable
from dataclasses import replace

from numazones.apimachinery.resources import MEMORY
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node_admission import operating_system
from numazones.placement import Placement, Unknown
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.kubelet import fitting_by_amounts

_MAX_REMEMBERED = 8192
_LEAST_MEMORY = 1 << 20


class FittingPods:
    """Counts how many more pods of shapes fit, and remembers it; belongs to whoever asks again."""

    def __init__(self) -> None:
        self._pods: dict[Shape, ClusterPod] = {}
        self._known: dict[tuple[Hashable, int, Shape], Fragmentation] = {}

    def count(self, node: ClusterNode, shape: Shape) -> Fragmentation:
        """Return how many more pods of a shape fit, and what of the free CPUs they would take.

        Nothing is free, and nothing fits, where ``why_unknown`` says why that is not known.
        """
        placement = node.known
        pod = self._pod(shape)
        if placement is None or scheduling.unallocated(pod.requests, node):
            return Fragmentation()
        most = max_by_sums(node, pod)
        key = (placement.key, most, shape)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            found = self._known[key] = _count(placement, pod, shape, most)
        return found

    def why_unknown(self, node: ClusterNode, shape: Shape) -> str:
        """Say why it is not known how many more pods of a shape fit; empty where it is.

        Nobody may know who decides on the node or what that decides from; or devices that the shape has are
        served by dynamic resource allocation there, of which nothing is known here.
        """
        if node.unknown is not None:
            return node.unknown.message
        return scheduling.unallocated(self._pod(shape).requests, node)

    def _pod(self, shape: Shape) -> ClusterPod:
        pod = self._pods.get(shape)
        if pod is None:
            pod = self._pods[shape] = pod_of_shape(shape)
        return pod


def pod_of_shape(shape: Shape, name: str = "shape") -> ClusterPod:
    """Return a Guaranteed pod of one container that asks for what a shape has."""
    amounts = {resource: str(amount) for resource, amount in _with_memory(shape).resources}
    body = {
        "metadata": {"namespace": "", "name": name, "uid": f"shape/{name}"},
        "spec": {"containers": [{"name": name, "resources": {"requests": amounts, "limits": amounts}}]},
    }
    return ClusterPod.from_api(body)


def _with_memory(shape: Shape) -> Shape:
    """The shape with a little memory, unless it has some: without, its pods would not be Guaranteed."""
    amounts = {MEMORY: _LEAST_MEMORY, **dict(shape.resources)}
    return Shape(tuple(sorted(amounts.items())))


def copy_of(pod: ClusterPod, number: int) -> ClusterPod:
    """Return one of several equal pods; models tell pods apart by UID, some by name as well."""
    uid = f"copy-{number}"
    admission = None if pod.admission is None else replace(pod.admission, uid=uid, name=uid)
    return replace(pod, uid=uid, node="", admission=admission)


def max_by_sums(node: ClusterNode, pod: ClusterPod) -> int:
    """Return how many copies of a pod the scheduler's filters let onto a node, whatever decides there."""
    if (
        scheduling.placement_obstacles(pod.constraints, node)
        or operating_system(node.os, pod.info) is not None
    ):
        return 0
    most = node.pod_slots - node.pod_count
    for resource, amount in pod.requests.items():
        if amount > 0:
            free = node.allocatable.get(resource, 0) - node.requested.get(resource, 0)
            most = min(most, free // amount)
    return max(most, 0)


def _count(placement: Placement, pod: ClusterPod, shape: Shape, most: int) -> Fragmentation:
    """``most``: copies that the scheduler's sums allow."""
    free, kubelet = placement.room.free, placement.kubelet
    by_amounts = None if kubelet is None else fitting_by_amounts(kubelet, _with_memory(shape))
    if by_amounts is not None:
        number = min(most, by_amounts)
        return Fragmentation(free, usable=number * shape.cpus, fitting=number)
    # Where no CPUs are given exclusively, none are free in this sense, and pods fit by their sums.
    after, number = placement, 0
    while number < most:
        following = _after_copy(after, copy_of(pod, number))
        if following is None:
            break
        after, number = following, number + 1
    return Fragmentation(free, usable=max(free - after.room.free, 0), fitting=number)


def _after_copy(placement: Placement, pod: ClusterPod) -> Placement | None:
    """Return the placement with a pod; None where it is not admitted."""
    decider = placement.for_scheduler(pod.constraints.scheduler_name)
    if isinstance(decider, Unknown) or pod.admission is None:
        return None
    try:
        decision = decider.admit(pod.admission)
    except NumazonesError:  # no verdict is known: nothing to rely on
        return None
    return placement.after(pod.admission, decision) if decision.admitted else None
