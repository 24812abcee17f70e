"""Answer of one node about a pod, as a value."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from numazones.cluster.pod_kind import PodKind
from numazones.cluster.scheduling import NOT_ALLOCATED, Lack
from numazones.placement import Decision
from numazones.placement.kubelet import KUBELET, SOURCE
from numazones.prediction.device_answer import DeviceAnswer

SCHEDULER_SOURCE: Final = "Scheduler"
UNKNOWN_SOURCE: Final = "Unknown"
"""Who stands in the way, where it is no placement model; a model says its own (``Model.source``)."""


class NodeAnswer(Enum):
    """Answer of a node about a pod."""

    ADMITS = "admits"
    REJECTS = "rejects"
    UNKNOWN = "unknown"
    EXCLUDED = "excluded"

    __hash__ = object.__hash__  # Enum's own runs in Python, with every verdict that is looked up


@dataclass(frozen=True, slots=True)
class RoundedPod:
    """A pod with its CPUs rounded up to whole cores."""

    kind: PodKind = field(compare=False)
    verdict: "NodeVerdict" = field(compare=False)
    """The verdict of the placement."""


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """One node's verdict; the same for all nodes in the same position."""

    answer: NodeAnswer
    source: str = SOURCE
    """Who says so: the scheduler, a placement model, or nobody knows."""
    obstacles: tuple[tuple[str, str], ...] = ()
    """(reason, message) of everything in the way; messages are empty where the reason says it all."""
    lacks: tuple[Lack, ...] = ()
    """What the node as a whole has too little of, the scarcest first."""
    closeness: float = 0.0
    """The share of what is needed that the node offers, of the scarcest resource; 1: nothing is short."""
    rejection: Decision | None = field(default=None, compare=False, repr=False)
    zones: tuple[int, ...] = ()
    """NUMA nodes the pod would get something of."""
    shares: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), compare=False, repr=False)
    """(container, NUMA nodes that it would get something of), of a pod of several containers."""
    score: int = 0
    free_block: int = 0
    """The most exclusive CPUs that one NUMA node could still give afterwards."""
    would_reject: bool = False
    """Of a node whose state is not known: whether it would reject the pod by all that was known of it."""
    awaited: bool = False
    """Of a node whose state is not known: whether to wait for its next zones (``Unknown.awaited``)."""
    unseen: bool = False
    """Of a node whose state was never known: whether its exporter is expected to publish it."""
    stranding: int = 0
    """Idle devices and huge pages, by kind and NUMA node, that lose what is beside them to a pod without."""
    approximate: bool = False
    sentence: str = ""
    """The obstacles in plain words, where it is not ``rejection`` that says them."""
    hopeless: Decision | None = field(default=None, compare=False, repr=False)
    """The rejection by the same node without any pod; None: there is none, or it is not known."""
    possible: bool = True
    """True if the node would have what the pod asks for if no other pod were there."""
    in_whole_cores: "RoundedPod | None" = None
    """The pod that the node would admit if CPUs were requested in whole cores; None if not even then."""
    by_amounts: bool = field(default=False, compare=False, repr=False)
    """Whether all nodes with the same amounts say the same (``kubelet.amounts``)."""
    doubts: tuple[str, ...] = ()
    """What is not certain about the release of its kubelet, where that decided (``Release.doubts``)."""
    devices: DeviceAnswer | None = None
    """Devices that the scheduler would allocate there; None: the pod needs none, or nobody was asked."""
    model: str | None = KUBELET
    """Who places pods on the node; None where that is not known or was not asked."""

    @property
    def placement_admits(self) -> bool:
        """Return whether placement does not object, though devices may still have to be allocated."""
        return self.answer is NodeAnswer.ADMITS or self.obstacles[0][0] == NOT_ALLOCATED

    @property
    def may_admit(self) -> bool:
        """Return whether the node's state is unknown, and nothing known of it speaks against the pod."""
        return self.answer is NodeAnswer.UNKNOWN and not (self.would_reject or self.awaited or self.unseen)
