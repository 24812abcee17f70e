"""Placement model: the protocol behind which a node decides about pods.

A node has one placement, a value: that of its kubelet (``placement.kubelet``), or of another model that
places pods on the node's NUMA nodes instead (``numazones.models`` finds these). Whoever predicts, plans,
draws or counts asks the placement, and nobody asks which model it is. What may not be moved or trusted is
said by the value.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement import fragmentation
from numazones.placement.occupancy import Occupancy

if TYPE_CHECKING:  # who only looks at what is held does not load the kubelet's checks
    from numazones.kubelet.node_admission import NodeAdmission
    from numazones.kubelet.node_info import NodeInfo, PodInfo
    from numazones.placement.model import Model

__all__ = [
    "ADMITTED",
    "Decision",
    "Effect",
    "Given",
    "Info",
    "Occupancy",
    "Placement",
    "Room",
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
    """Reason why a node's state is unknown."""

    reason: str
    """One word, as conditions have it."""
    message: str
    last_known: "Placement | None" = field(default=None, compare=False, repr=False)
    """What the node decided from when it was known last, with what has happened since; None: never known."""
    refused: frozenset[Hashable] = field(default=frozenset(), compare=False, repr=False)
    """The needs of pods (``PodKind.needs``) that its kubelet rejected since it changed."""
    awaited: bool = field(default=False, compare=False, repr=False)
    """Whether the next zones are to be waited for, as these are just being written, or lack pods that may be
    on any NUMA node."""
    unseen: bool = field(default=False, compare=False, repr=False)
    """Whether nothing was ever known of the node, though its exporter runs or has just come."""


class Shortfall(NamedTuple):
    """Shortfall that made a node reject a pod, for people."""

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
    """Effect of an admitted pod on the room that is left."""

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


class Room(NamedTuple):
    """Room that single NUMA nodes, or a model's smallest pools, have left."""

    amounts: Mapping[str, Mapping[int, int]]
    """Resource → NUMA node → amount, in the model's own units."""
    cpus: Mapping[int, int]
    """NUMA node → whole CPUs that could be given to single pods."""
    blocks: Mapping[int, int] | None = None
    """NUMA node → those of them that one pod could get; None: all."""

    @classmethod
    def of(cls, free: Mapping[int, CPUSet]) -> Self:
        """Return the room where a model gives CPUs alone; ``free``: NUMA node → those that nobody has."""
        cpus = {numa: mask.bit_count() for numa, mask in free.items()}
        return cls({CPU: cpus}, cpus)

    @property
    def free(self) -> int:
        """Whole CPUs over all NUMA nodes."""
        return sum(self.cpus.values())

    @property
    def largest(self) -> int:
        """The most whole CPUs that one pod could get of one NUMA node."""
        return max((self.cpus if self.blocks is None else self.blocks).values(), default=0)


class Given(NamedTuple):
    """Resources that a pod is given, and the placement for the next one."""

    placement: "Placement"
    cpus: CPUSet = 0
    """For itself."""
    numas: CPUSet = 0
    """The mask of NUMA nodes that it is given something of."""


@dataclass(frozen=True)
class Decision:
    """Decision of a placement about a pod: one value for all models.

    A model names the verdict, and how to find out the rest for whoever asks for it. Only that is kept:
    a cache of each view would cost more than the view where thousands of nodes are asked.
    """

    before: "Placement"
    """Who decided, and from what."""
    reason: str = ""
    """Of a rejection, as it would show on the pod; empty if admitted."""
    message: str = ""
    """Of a rejection, in the words of who decided; empty if admitted."""
    given: Callable[[], Given] | None = field(default=None, compare=False, repr=False)
    """Returns what the pod is given, called once; None: nothing, and the node stays as it is."""
    explanation: Callable[[], Iterable[str]] | None = field(default=None, compare=False, repr=False)
    """Returns one line per fact, the verdict last; None: the model has no more to say than amounts."""
    written: Callable[[], Mapping[str, str]] | None = field(default=None, compare=False, repr=False)
    """Returns the annotations that the model writes on an admitted pod; None: it writes none."""

    @property
    def admitted(self) -> bool:
        """Return whether the pod would run."""
        return not self.reason

    @property
    def placement(self) -> "Placement":
        """Return the placement for the next pod."""
        return self._given.placement

    @property
    def exclusive(self) -> CPUSet:
        """CPUs that an admitted pod has for itself."""
        return self._given.cpus

    @property
    def zones(self) -> tuple[int, ...]:
        """NUMA nodes, ascending, that an admitted pod gets something of."""
        return tuple(cpuset.ids(self._given.numas))

    @property
    def shares(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return (container, NUMA nodes that it gets something of); none: only of the pod is that known."""
        return ()

    @property
    def effect(self) -> Effect:
        """Return the effect of an admitted pod on the room that is left."""
        after = self.placement.room
        return Effect.of(self.before.room.amounts, after.amounts, after.largest)

    @property
    def closeness(self) -> float:
        """Return, for a rejection, the share of the demand that one NUMA node offers; 0 if unknown."""
        return 0.0

    @property
    def outcome(self) -> str:
        """Return the pod's visible outcome: Admitted or the reason, and what is written."""
        if self.reason:
            return self.reason
        return self.before.model.outcome(ADMITTED, {} if self.written is None else self.written())

    @property
    def follows_from_amounts(self) -> bool:
        """Return whether nodes with equal amounts admit the pod with the same effect and NUMA nodes."""
        return False

    def shortfall(self, node: str) -> Shortfall:  # noqa: ARG002 - the kubelet's names the node
        """Say why the pod is rejected on the node of that name."""
        return Shortfall.said_by(self.before.model.decider, self.message or self.reason)

    def explain(self) -> tuple[str, ...]:
        """Explain the decision, one line per fact, the verdict last.

        Raises:
            NumazonesError: as the decision itself.
        """
        if self.explanation is not None:
            return tuple(self.explanation())
        free = (f"{count} of NUMA node {numa}" for numa, count in self.before.room.cpus.items())
        verdict = (
            f"gets CPUs {cpuset.format(self.exclusive)}" if self.admitted else f"rejected: {self.message}"
        )
        return (f"free CPUs: {', '.join(free)}", verdict)

    # Of a pod that is bound to the node:

    @property
    def spans(self) -> bool:
        """Return whether an admitted pod has resources of several NUMA nodes."""
        return len(self.zones) > 1

    @property
    def preempted(self) -> tuple[str, ...]:
        """UIDs of the pods that make room for a critical one."""
        return ()

    @property
    def holds_nothing(self) -> bool:
        """Return whether the node holds nothing for the pod; a model may keep part of a rejected one."""
        return False

    @property
    def by_kubelet(self) -> "NodeAdmission | None":
        """The decision of the kubelet, where that settled it; None: another model had the last word."""
        return None

    @cached_property
    def _given(self) -> Given:
        return Given(self.before) if self.given is None else self.given()


Info = Callable[[Node], "NodeInfo"]
"""Puts what is known around a kubelet's state beside it: allocatable amounts, labels, pods."""


class Placement(Protocol):
    """Placement of pods on one node's NUMA nodes, with the state it decides from; a value."""

    @property
    def model(self) -> "Model":
        """The model that decides."""

    @property
    def key(self) -> Hashable:
        """Placements with equal keys decide alike on pods that are new to them."""

    @property
    def approximate(self) -> bool:
        """Return whether the state was inferred from amounts alone, so that answers may be off."""

    @property
    def kubelet(self) -> Node | None:
        """Return the kubelet's node, if the kubelet alone decides and its rules explain everything."""

    @property
    def room(self) -> Room:
        """Return what NUMA nodes have left."""

    def for_scheduler(self, name: str) -> "Placement | Unknown":
        """Return who decides about the pods of a scheduler, or why that is not known."""

    def admit(self, pod: Pod) -> Decision:
        """Decide on a pod that is new to the node.

        Raises:
            NumazonesError: the model gives no verdict; the message says why.
        """

    def after(self, pod: Pod, decision: Decision) -> "Placement":
        """Return the placement with an admitted pod, about whom ``for_scheduler`` told who decides."""

    def admit_bound(self, pod: "PodInfo", info: Info) -> Decision:
        """Decide on a pod that is bound to the node, as all who have a say there do.

        Raises:
            NumazonesError: no verdict is known; the message says why.
        """

    def remove(self, uid: str) -> "Placement":
        """Return the placement after a pod ended or was deleted; unknown pods change nothing."""

    def occupancy(self, names: Mapping[str, str] | None) -> Occupancy | None:
        """Return what each NUMA node has and who holds what; None where nothing tells which CPUs there are.

        ``names``: UID in the kubelet's records → NAMESPACE/NAME; None: nobody asks who holds it.
        """
