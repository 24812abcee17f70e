"""Try on a copy whether the node that a pod runs on could hold it aligned."""

from enum import StrEnum
from typing import NamedTuple

from numazones.alignment.pod_alignment import PodAlignment, alignments, started_containers
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import SINGLE_NUMA_NODE
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.kubelet import KubeletPlacement


class Alignable(StrEnum):
    """Answer whether the node that a pod runs on could hold it aligned."""

    YES = "yes"
    """It is aligned."""
    NOW = "now"
    """With the room that there is: made anew, it could be."""
    EMPTIER = "emptier"
    """If others left."""
    NEVER = "never"
    """Not even on the empty node: it asks for more than a NUMA node has."""
    UNKNOWN = "unknown"


class Trials(NamedTuple):
    """Trials of a running pod on a kubelet that admits only aligned pods."""

    empty: Admission
    """If no other pod were there."""
    now: Admission | None
    """With what the others leave; None: not even the empty node would admit it."""

    @property
    def alignable(self) -> Alignable:
        """Return what follows for a pod that is not aligned."""
        if self.now is None:
            return Alignable.NEVER
        return Alignable.NOW if self.now.admitted else Alignable.EMPTIER


def trials_on(node: ClusterNode, pod: ClusterPod) -> Trials | None:
    """Return what comes of it that a pod's node would hold it aligned; None where that is not known.

    It is not of a pod with claims: which devices the scheduler would allocate is not.
    """
    if node.state is None or node.approximate or pod.admission is None or pod.kubelet_uid in node.claimed:
        return None
    try:
        return trials(node.state, pod.admission)
    except NumazonesError:  # the kubelet would get to no verdict
        return None


def made_anew(node: ClusterNode, pod: ClusterPod) -> PodAlignment | None:
    """Return how a pod without claims would lie if it left its node and came back at once.

    Its node's own policy decides. None where that is not known, and where the kubelet would reject it.
    """
    if node.state is None or pod.admission is None:
        return None
    try:
        said = KubeletPlacement(remove(node.state, pod.admission.uid)).admit(pod.admission)
    except NumazonesError:
        return None
    if not said.admitted:
        return None
    started = {pod.admission.uid: started_containers(pod.admission)}
    occupancy = said.placement.occupancy({pod.admission.uid: pod.full_name})
    lying = alignments(occupancy, started)
    return next((found for found in lying if found.uid == pod.admission.uid), None)


def alignable(node: ClusterNode, pod: ClusterPod, found: PodAlignment) -> Alignable:
    """Return whether the node that a pod runs on could hold it aligned."""
    if found.aligned:
        return Alignable.YES
    tried = trials_on(node, pod)
    return Alignable.UNKNOWN if tried is None else tried.alignable


def trials(node: Node, pod: Pod) -> Trials:
    """Ask a node's kubelet about a pod under single-numa-node, which admits aligned pods only.

    ``pod`` has the UID under which it holds something there, if it does.

    Raises:
        NumazonesError: the kubelet would get to no verdict.
    """
    strict = node.with_topology_settings(policy=SINGLE_NUMA_NODE)
    empty = admit(strict.emptied, pod)
    return Trials(empty, admit(remove(strict, pod.uid), pod) if empty.admitted else None)
