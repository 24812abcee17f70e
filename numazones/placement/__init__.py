"""What a placement model is: the protocol behind which a node decides about pods.

A node has one placement, a value: that of its kubelet (``placement.kubelet``), or of another model that
places pods on the node's NUMA nodes instead (``numazones.models`` finds these). Whoever predicts, plans,
draws or counts asks the placement, and nobody asks which model it is. What may not be moved or trusted is
said by the value.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement import fragmentation
from numazones.placement.fragmentation import Fragmentation, Shape
from numazones.placement.occupancy import Occupancy

if TYPE_CHECKING:  # who only looks at what is held does not load the kubelet's checks
    from numazones.kubelet.node_admission import NodeAdmission
    from numazones.kubelet.node_info import NodeInfo, PodInfo

__all__ = [
    "ADMITTED",
    "BoundDecision",
    "Decided",
    "Decision",
    "Effect",
    "Info",
    "Occupancy",
    "Placement",
    "Shortfall",
    "Unknown",
    "UnreadableNode",
]

ADMITTED = "Admitted"
"""What became of a pod that was not rejected."""


class UnreadableNode(NumazonesError):
    """A node's objects don't tell what its placement model decides from; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why it is not known what a node decides from."""

    reason: str
    """One word, as conditions have it."""
    message: str
    believed: "Placement | None" = field(default=None, compare=False, repr=False)
    """What the node decided from when it was known last, with what has happened since; None: never known."""
    refused: frozenset[Hashable] = field(default=frozenset(), compare=False, repr=False)
    """The needs of pods (``prediction.Kind.needs``) that its kubelet rejected since it changed."""
    awaited: bool = field(default=False, compare=False, repr=False)
    """Whether the next zones are to be waited for, as these are just being written, or lack pods that may be
    on any NUMA node."""


class Shortfall(NamedTuple):
    """Why a pod was rejected, for people."""

    sentence: str
    """In one sentence, with the node's name where that helps."""
    brief: str
    """In few words."""
    holders: tuple[tuple[str, str], ...] = ()
    """(UID as the kubelet knows it, amount) of the pods that hold what is missing, most first."""
    line: str = ""
    """For a table of nodes: the sentence without the node's name."""

    @classmethod
    def said_by(cls, decider: str, message: str) -> "Shortfall":
        """Return what is known where only the words of who decides tell."""
        sentence = f"{decider} says: {message}"
        return cls(sentence, sentence, line=sentence)


class Effect(NamedTuple):
    """What an admitted pod does to the room that is left."""

    packing: float
    """From 0 to 1: how well large free blocks are kept whole, as ``fragmentation.packing``."""
    free_block: int
    """The most exclusive CPUs that one NUMA node could still give afterwards."""
    stranding: int = 0
    """Idle devices and huge pages, by kind and NUMA node, that lose what is beside them to a pod without."""

    @classmethod
    def of(
        cls, before: Mapping[str, Mapping[int, int]], after: Mapping[str, Mapping[int, int]], free_block: int
    ) -> Self:
        """Return the effect, by the rooms (resource → NUMA id → amount) before and after."""
        return cls(fragmentation.packing(before, after), free_block, fragmentation.stranding(before, after))


class Decision(Protocol):
    """What a placement decided about a pod that is new to it."""

    @property
    def admitted(self) -> bool:
        """Whether the pod would run."""

    @property
    def reason(self) -> str:
        """Of a rejection, as it would show on the pod; empty if admitted."""

    @property
    def message(self) -> str:
        """Of a rejection, in the words of who decided; empty if admitted."""

    @property
    def model(self) -> str:
        """The name of the model that decided."""

    @property
    def source(self) -> str:
        """The same as the reasons of an AdmissionPrediction name it."""

    @property
    def approximate(self) -> bool:
        """Whether it was decided from amounts alone, so that it may be off."""

    @property
    def placement(self) -> "Placement":
        """What the next pod is decided on."""

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes, ascending, that an admitted pod gets something of."""

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""

    @property
    def effect(self) -> Effect:
        """What an admitted pod does to the room that is left."""

    @property
    def closeness(self) -> float:
        """Of a rejection: the share of what is needed that one NUMA node offers, of the scarcest resource."""

    @property
    def outcome(self) -> str:
        """What would become of the pod as far as that shows: Admitted or the reason, and what is written."""

    def shortfall(self, node: str) -> Shortfall:
        """Say why the pod is rejected on the node of that name."""

    def explain(self) -> tuple[str, ...]:
        """Explain the decision, one line per fact, the verdict last.

        Raises:
            NumazonesError: as the decision itself.
        """


Info = Callable[[Node], "NodeInfo"]
"""Puts what is known around a kubelet's state beside it: allocatable amounts, labels, pods."""


class BoundDecision(Protocol):
    """What becomes of a pod that is bound to a node: the checks of its kubelet, then those of the model."""

    @property
    def admitted(self) -> bool:
        """Whether the pod runs."""

    @property
    def reason(self) -> str:
        """Of a rejection, as it shows on the pod; empty if admitted."""

    @property
    def message(self) -> str:
        """Of a rejection, in the words of who decided; empty if admitted."""

    @property
    def outcome(self) -> str:
        """What becomes of the pod as far as that shows."""

    @property
    def holds_nothing(self) -> bool:
        """Whether the node holds nothing for the pod from now on; a model may keep part of a rejected one."""

    @property
    def placement(self) -> "Placement":
        """What the next pod is decided on."""

    @property
    def preempted(self) -> tuple[str, ...]:
        """UIDs of the pods that make room for a critical one."""

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""

    @property
    def spans(self) -> bool:
        """Whether an admitted pod has a container on several NUMA nodes."""

    @property
    def by_kubelet(self) -> "NodeAdmission | None":
        """The decision of the kubelet, where that settled it; None: another model had the last word."""

    def explain(self) -> tuple[str, ...]:
        """Explain the decision, one line per fact."""


class Placement(Protocol):
    """Who places pods on one node's NUMA nodes, and what it decides from; a value."""

    @property
    def model(self) -> str:
        """The model's name, as columns and metrics show it."""

    @property
    def decider(self) -> str:
        """Who decides, as sentences name it."""

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""

    @property
    def approximate(self) -> bool:
        """Whether the state was inferred from amounts alone, so that answers may be off."""

    @property
    def movable(self) -> bool:
        """Whether plans may move pods from and to the node: what they gain is provable there."""

    @property
    def filtered_by_scheduler(self) -> bool:
        """Whether a scheduler asks the model before it chooses the node: nothing is rejected there."""

    @property
    def kubelet(self) -> Node | None:
        """What the kubelet decides from, where it alone decides and its rules explain everything."""

    @property
    def cpus_of_numa(self) -> Mapping[int, CPUSet]:
        """NUMA id → CPUs; empty where nothing tells."""

    @property
    def largest_free_block(self) -> int:
        """The most whole CPUs that one NUMA node could still give to one pod."""

    @property
    def free_cpus(self) -> int:
        """Whole CPUs that could still be given to single pods, over all NUMA nodes."""

    def for_scheduler(self, name: str) -> "Placement | Unknown":
        """Return who decides about the pods of a scheduler, or why that is not known."""

    def admit(self, pod: Pod) -> Decision:
        """Decide on a pod that is new to the node.

        Raises:
            NumazonesError: the model gives no verdict; the message says why.
        """

    def after(self, pod: Pod, decision: Decision) -> "Placement":
        """Return the placement with an admitted pod, about whom ``for_scheduler`` told who decides."""

    def admit_bound(self, pod: "PodInfo", info: Info) -> BoundDecision:
        """Decide on a pod that is bound to the node, as all who have a say there do.

        Raises:
            NumazonesError: no verdict is known; the message says why.
        """

    def remove(self, uid: str) -> "Placement":
        """Return the placement after a pod ended or was deleted; unknown pods change nothing."""

    def fragmentation(self, shape: Shape) -> Fragmentation:
        """Return what is free, and what further pods of a shape would use of it, each on one NUMA node."""

    def fitting_by_amounts(self, shape: Shape) -> int | None:
        """Return how many further pods of a shape are admitted; None: amounts alone don't tell."""

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; None where nothing tells which CPUs there are.

        ``names``: UID in the kubelet's records → NAMESPACE/NAME; None: who holds it is left out.
        """


@dataclass(frozen=True, slots=True)
class Decided:
    """A bound pod about which a model other than the kubelet had the last word."""

    decision: Decision
    preempted: tuple[str, ...] = ()
    holds_nothing: bool = False
    by_kubelet: None = None

    @property
    def admitted(self) -> bool:
        """Whether the pod runs."""
        return self.decision.admitted

    @property
    def reason(self) -> str:
        """Of a rejection, as it shows on the pod; empty if admitted."""
        return self.decision.reason

    @property
    def message(self) -> str:
        """Of a rejection, in the words of who decided; empty if admitted."""
        return self.decision.message

    @property
    def outcome(self) -> str:
        """What becomes of the pod as far as that shows."""
        return self.decision.outcome

    @property
    def placement(self) -> Placement:
        """What the next pod is decided on."""
        return self.decision.placement

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""
        return self.decision.exclusive

    @property
    def spans(self) -> bool:
        """Whether an admitted pod has something of several NUMA nodes."""
        return len(self.decision.zones) > 1

    def explain(self) -> tuple[str, ...]:
        """Explain the decision, one line per fact."""
        return self.decision.explain()
