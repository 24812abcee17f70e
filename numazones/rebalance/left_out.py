"""Pods and nodes that plans leave out, since something raises about them that no rule foresees.

Such a pod is not moved and no room is made for it. From and to such a node nothing is moved, and no plan
holds that leaves the scheduler the choice of it. An error where a pod meets a node may be either's fault, so
both are tried with a pod and a node that are beyond doubt. Where that shows nothing it is held against the
pod, and from the second pod on against the node.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TypeVar

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import About, ObjectFault, Subject, title
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.placement.fragmentation import Shape
from numazones.prediction.room import pod_of_shape
from numazones.rebalance.goals import pending_goals
from numazones.rebalance.moves import evict, place
from numazones.wording import pluralize

_T = TypeVar("_T")

UNDECIDED = "Undecided"
"""Rule that keeps a pod about which something raises."""
_TOLD = 3
"""Objects that are named in a sentence."""


class LeftOut:
    """Errors so far, and who is left out for them."""

    def __init__(self) -> None:
        self.pods: dict[str, str] = {}
        """UID → what was raised."""
        self.nodes: dict[str, str] = {}
        """Name → what was raised."""
        self._suspects: dict[str, dict[str, Subject]] = {}
        """Node → UIDs of the pods that an error there is held against."""
        self._found: dict[str, tuple[Subject, ObjectFault]] = {}

    def take(self, fault: ObjectFault) -> bool:
        """Take an error; return whether another pod or node is left out for it now."""
        pod = next((one for one in fault.objects if isinstance(one, ClusterPod)), None)
        node = next((one for one in fault.objects if isinstance(one, ClusterNode)), None)
        if fault.objects and not isinstance(fault.objects[0], ClusterPod | ClusterNode):
            self._note(fault.objects[0], fault)
            return False
        if pod is not None and _uid(pod) not in self.pods and not self._is_of_node(pod, node):
            self.pods[_uid(pod)] = fault.problem
            self._note(pod, fault)
        elif node is not None and node.name not in self.nodes:
            self.nodes[node.name] = fault.problem
            for uid, other in self._suspects.pop(node.name, {}).items():
                self.pods.pop(uid, None)
                self._found.pop(title(other), None)
            self._note(node, fault)
        else:
            return False
        return True

    def __len__(self) -> int:
        return len(self.pods) + len(self.nodes)

    def _is_of_node(self, pod: ClusterPod, node: ClusterNode | None) -> bool:
        """Return whether an error is the node's fault."""
        if node is None or _raises_with(pod, _sound_node()):
            return False
        if _raises_with(_sound_pod(), node):
            return True
        suspects = self._suspects.setdefault(node.name, {})
        suspects[_uid(pod)] = pod
        return len(suspects) > 1

    def _note(self, one: Subject, fault: ObjectFault) -> None:
        self._found.setdefault(title(one), (one, fault))

    def decide(self, pod: ClusterPod, work: Callable[[], _T], otherwise: Callable[[str], _T]) -> _T:
        """Return what some work finds about a pod; ``otherwise``, given the problem, for one left out."""
        problem = self.pods.get(pod.uid)
        if problem is None:
            try:
                with About(pod):
                    return work()
            except ObjectFault as fault:
                self.take(fault)
                problem = str(fault)
        return otherwise(problem)

    def found(self) -> Iterator[tuple[Subject, ObjectFault]]:
        """Yield each object that is left out, or a budget that raises, and the error."""
        yield from self._found.values()

    def __str__(self) -> str:
        """Return a sentence that names some of them; empty if there are none."""
        told = [f"{name} ({fault.problem})" for name, (_, fault) in self._found.items()]
        more = len(told) - _TOLD
        named = ", ".join(told[:_TOLD]) + (f" and {pluralize(more, 'other')}" if more > 0 else "")
        return f"left out: {named}" if told else ""


def sound(pods: Iterable[ClusterPod], left_out: LeftOut) -> Iterator[ClusterPod]:
    """Yield the pods that are not left out."""
    return (pod for pod in pods if pod.uid not in left_out.pods)


def _uid(pod: ClusterPod) -> str:
    """Return the UID of a pod, also of one that stands for its replacement."""
    return pod.uid.rstrip("~")


def _raises_with(pod: ClusterPod, node: ClusterNode) -> bool:
    """Return whether something raises where a pod meets a node."""
    try:
        with About(pod, node):
            for goal in pending_goals((pod,)) if pod.admission is not None else ():
                goal.worth(node)
            placed = place(node, pod).node
            if placed is not None:
                evict(placed, pod)
    except ObjectFault:
        return True
    return False


@cache
def _sound_pod() -> ClusterPod:
    return pod_of_shape(Shape.parse("cpu=1,memory=1Mi"), "sound")


@cache
def _sound_node() -> ClusterNode:
    cpus = tuple(CPU(id=number, core=number, socket=0, die=0, numa=0) for number in range(256))
    settings = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
        "topologyManagerPolicy": "single-numa-node",
    }
    state = Node.fresh(Machine(cpus, (NUMANode(0, 1 << 40),)), KubeletConfiguration.from_api(settings))
    return ClusterNode("sound", allocatable={"cpu": 255_000, "memory": 1 << 40}).with_state(state)
