"""A node of the agent's behind the protocol of placement models."""

from collections.abc import Mapping
from dataclasses import dataclass

from numazones import cpuset
from numazones.kubelet.machine import numas_of
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.placement import Decision, Room, UnreadableNode
from numazones.placement.kubelet import KubeletPlacement, PlacementAboveKubelet
from numazones.placement.model import NodeObjects, check_kubelet, readable
from numazones.placement.occupancy import Holder, Occupancy
from pinned_model.model import DECIDER, MODEL, NODES
from pinned_model.rules import Node, choose_cpus, needed_cpus


@dataclass(frozen=True, slots=True)
class PinnedPlacement(PlacementAboveKubelet[Node]):
    model = MODEL

    @property
    def room(self) -> Room:
        return Room.of(self.node.free)

    def without(self, uid: str) -> Node:
        return self.node.without_pod(uid)

    def admit(self, pod: Pod) -> Decision:
        count = needed_cpus(pod)
        cpus = choose_cpus(self.node, count)
        if cpus is None:
            lacking = f"needs {count} CPUs of one NUMA node; the most free ones are {self.room.largest}"
            return Decision(self, CREATE_CONTAINER_ERROR, lacking)
        after, numas = self.node.with_pod(pod.uid, cpus), numas_of(self.node.machine.cpus_of_numa, cpus)
        return Decision(self, given=lambda: self.given(after, cpus, numas))

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy:
        holders = [Holder((names or {}).get(uid, uid), uid, cpus) for uid, cpus in self.node.given.items()]
        return self.occupied(self.node.machine, holders, reserved=self.node.reserved)


def read(objects: NodeObjects) -> PinnedPlacement:
    """Return the node with exactly its pods: those that it does not show come to it in order of creation."""
    check_kubelet(objects.kubelet, DECIDER)
    own = objects.own(NODES)
    if objects.kubelet is None or own is None:
        raise UnreadableNode("the node has no PinnedNode or no NUMAZones; see whether agent and exporter run")
    pods = {pod.uid: pod for pod in readable(objects.pods)}
    given = {uid: cpuset.parse(cpus) for uid, cpus in own["spec"]["given"].items() if uid in pods}
    node = Node(objects.kubelet.machine, cpuset.parse(own["spec"]["reserved"]), given)
    for uid, pod in sorted(pods.items(), key=lambda item: item[1].created):
        if uid not in given and (cpus := choose_cpus(node, needed_cpus(pod))) is not None:
            node = node.with_pod(uid, cpus)
    return PinnedPlacement(node, KubeletPlacement(objects.kubelet))
