"""Answers of nodes that the library, the commands and AdmissionPrediction share: counts, reasons, candidates.

Apart from the objects that hold them, as most programs read and write none of those.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from numazones.api.meta import ATOMIC, MAX_NAME, NUMAID, UNPUBLISHED, WIRE
from numazones.apimachinery.answer import Named, or_null

MAX_MESSAGE = 4096
MAX_LINE = 512


def model_of(where: str) -> Any:
    """Declare the name of a placement model; empty where it is not known."""
    return Field(
        max_length=32,
        description=f"Name of the placement model of {where}, such as kubelet; left out if it is not known.",
    )


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Counts of nodes by their answer."""

    __pydantic_config__ = WIRE
    evaluated: Annotated[
        int,
        "Nodes that the scheduler could choose.",
        Field(ge=0, description="Nodes that the scheduler could choose."),
    ] = 0
    admissible: Annotated[
        int,
        "Nodes that would admit the pod, among those that the scheduler could choose.",
        Field(ge=0, description="Nodes whose kubelet would admit the pod, among the evaluated ones."),
    ] = 0
    stale: Annotated[
        int,
        "Nodes whose state is not known.",
        Named("unknown"),
        Field(ge=0, description="Nodes whose state is not known now, among the evaluated ones."),
    ] = 0
    excluded: Annotated[
        int,
        "Nodes that the scheduler would not choose.",
        Field(ge=0, description="Nodes that the scheduler rules out."),
    ] = 0

    @property
    def all(self) -> int:
        """Nodes of the cluster."""
        return self.evaluated + self.excluded


_INTERNAL = Field(exclude=True, json_schema_extra={UNPUBLISHED: True})
"""Marks what the library alone reads."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why nodes would not admit a pod."""

    __pydantic_config__ = WIRE
    ANSWER: ClassVar = ("reason", "source", "count", "node", "message", "in_words", "model")
    reason: Annotated[
        str,
        "The reason in one word, or in the scheduler's words.",
        Field(
            max_length=256,
            description="The scheduler's message, or the reason that the kubelet would write into the pod's "
            "status.",
        ),
    ]
    source: Annotated[
        str,
        "Source of the reason: the scheduler's checks, or the placement model of the node.",
        Field(
            max_length=32,
            description="What rejects the pod: Scheduler, Alignment (which the pod requires), Unknown, or "
            "the node's placement model, such as Kubelet.",
        ),
    ] = ""
    _: KW_ONLY
    count: Annotated[
        int,
        "Number of nodes; each counts once, for its first obstacle.",
        Named("nodes"),
        Field(ge=0, description="Number of nodes."),
    ]
    node: Annotated[
        str,
        "The closest node.",
        Named("example"),
        Field(max_length=MAX_NAME, description="Example: the node that comes closest."),
    ] = ""
    model: Annotated[str, "The placement model of these nodes.", or_null, model_of("these nodes")] = ""
    message: Annotated[
        str,
        "The message of the kubelet or the scheduler.",
        Field(
            max_length=MAX_MESSAGE,
            description="The kubelet's message on that node, or why the node is unknown.",
        ),
    ] = ""
    sentence: Annotated[str, Field(max_length=MAX_MESSAGE, description="The message in plain words.")] = ""
    holders: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_LINE)], ...],
        Field(
            max_length=8,
            description="Pods on that node that hold what is missing, largest first, such as team/web-1: 8 "
            "exclusive CPUs.",
            json_schema_extra=ATOMIC,
        ),
    ] = ()
    brief: Annotated[str, _INTERNAL] = ""
    """The sentence in a few words."""
    held_by: Annotated[tuple[tuple[str, str], ...], _INTERNAL] = ()
    """(UID as the kubelet knows it, amount) of the pods that hold there what is missing, most first."""

    @property
    def in_words(self) -> Annotated[str, "In plain words.", Named("sentence")]:
        """The sentence, or what stands for it."""
        return self.sentence or self.message or self.reason


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would admit the pod."""

    __pydantic_config__ = WIRE
    node: Annotated[str, Field(max_length=MAX_NAME, description="Name of the node.")]
    zones: Annotated[
        tuple[NUMAID, ...],
        Field(
            alias="numaIDs",
            max_length=1024,
            description="NUMA nodes whose resources the pod would get.",
            json_schema_extra=ATOMIC,
        ),
    ] = ()
    _: KW_ONLY
    score: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="The less usable room the placement costs, the higher the score; 100 is the best.",
        ),
    ]
    free_block: Annotated[
        int,
        Field(
            alias="largestZone",
            ge=0,
            description="Largest number of exclusive CPUs that one NUMA node could still give afterwards.",
        ),
    ] = 0
    approximate: Annotated[
        bool, Field(description="The node publishes no NUMAZones; its NodeResourceTopology was used.")
    ] = False
    model: Annotated[str, model_of("this node")] = ""
    devices: Annotated[str, _INTERNAL] = ""
    """Devices that the scheduler would allocate there by DRA, and where they and the rest of the pod are."""
    alignment: Annotated[str, _INTERNAL] = ""
    """Alignment of these with the rest of the pod: aligned, notAligned or unknown."""
    stranding: Annotated[int, _INTERNAL] = 0
    """As in ``NodeVerdict``."""
