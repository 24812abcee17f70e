"""AdmissionPrediction: where a pod would be admitted, why not elsewhere, and whether that was right.

Named like its pod and owned by it, so it goes with it. Written by the operator from
``numazones.prediction.forecast``; reasons carry the words of the scheduler and of the kubelet (1.36) as users
know them. A node whose state is unknown counts as stale, never as admitting.
"""

from dataclasses import KW_ONLY, asdict, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainSerializer

from numazones.api.meta import (
    ATOMIC,
    IMMUTABLE,
    MAX_NAME,
    NUMAID,
    UNPUBLISHED,
    WIRE,
    APIModel,
    APIObject,
    PrinterColumn,
    ResourceType,
    TimestampText,
    list_of,
    optional,
    text,
)
from numazones.apimachinery.answer import Named, or_null

_MAX_MESSAGE = 4096
_MAX_LINE = 512


def _model(where: str) -> Any:
    return Field(
        max_length=32,
        description=f"Name of the placement model of {where}, such as kubelet; left out if it is not known.",
    )


class AdmissionPredictionSpec(APIModel):
    """Pod that the object is about; it never changes."""

    pod_uid: str = Field(max_length=128, description="UID of the pod of the same name.")


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
    model: Annotated[str, "The placement model of these nodes.", or_null, _model("these nodes")] = ""
    message: Annotated[
        str,
        "The message of the kubelet or the scheduler.",
        Field(
            max_length=_MAX_MESSAGE,
            description="The kubelet's message on that node, or why the node is unknown.",
        ),
    ] = ""
    sentence: Annotated[str, Field(max_length=_MAX_MESSAGE, description="The message in plain words.")] = ""
    holders: Annotated[
        tuple[Annotated[str, Field(max_length=_MAX_LINE)], ...],
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
    model: Annotated[str, _model("this node")] = ""
    devices: Annotated[str, _INTERNAL] = ""
    """Devices that the scheduler would allocate there by DRA, and where they and the rest of the pod are."""
    alignment: Annotated[str, _INTERNAL] = ""
    """Whether these are on the NUMA node of the rest: aligned, notAligned or unknown."""
    stranding: Annotated[int, _INTERNAL] = 0
    """As in ``NodeVerdict``."""


class PredictionOutcome(APIModel):
    """Outcome of the pod, compared with the prediction for its node at that moment."""

    node: str = Field(max_length=MAX_NAME, description="Node the pod was bound to.")
    model: Annotated[str, _model("this node")] = ""
    predicted: str = Field(
        max_length=32, description="Verdict for that node: Admissible, Inadmissible or Unknown."
    )
    actual: str = text(32, "Admitted or Rejected; left out while the kubelet has not decided.")
    reason: str = text(256, "The kubelet's reason for a rejection.")
    message: str = text(_MAX_MESSAGE, "The kubelet's message.")
    accuracy: str = text(
        32,
        "Accuracy of the prediction: Right; if it was wrong, Race (pods came or went in the meantime), "
        "Stale (the NUMAZones were out of date) or Model (the model was wrong); Unknown if there was "
        "none. Left out until it is known.",
    )
    explanation: tuple[Annotated[str, Field(max_length=_MAX_LINE)], ...] = list_of(
        32, "Explanation for the node at that time: hints, the deciding rule, what was missing, who held it."
    )
    advice: tuple[Annotated[str, Field(max_length=_MAX_LINE)], ...] = list_of(
        8, "Changes after which this node would have admitted the pod; each was tried on a copy of the node."
    )


class PredictionSummary(APIModel):
    """The same in a few words, for the columns of kubectl get; programs read the rest."""

    nodes: str = text(32, "Number of nodes that would admit the pod, out of all nodes, such as 3/20.")
    actual: str = text(32, "Waiting until the kubelet has decided, then Admitted or Rejected.")
    node: str = text(MAX_NAME, "Node of the pod; the best candidate while the pod is waiting.")
    numa_nodes: str = text(64, "NUMA nodes of this node whose resources the pod was predicted to get.")
    why: str = text(128, "What prevents, or prevented, admission.")


class AdmissionPredictionStatus(APIModel):
    """The prediction and, later, the outcome."""

    verdict: str = text(32, "Admissible, Inadmissible or Unknown.")
    message: str = text(_MAX_MESSAGE, "The prediction in one sentence.")
    model: Annotated[str, _model("the node that the message is about")] = ""
    nodes: Annotated[NodeCounts, PlainSerializer(asdict)] | None = optional("How many nodes were evaluated.")
    reasons: tuple[Annotated[Reason, Field(description="Why some nodes do not admit the pod.")], ...] = (
        list_of(
            64,
            "Sorted by kind (placement, missing resources, nodes that the pod may not use), then by "
            "frequency.",
        )
    )
    candidates: tuple[Candidate, ...] = list_of(64, "Best first.")
    doubts: tuple[Annotated[str, Field(max_length=_MAX_LINE)], ...] = list_of(
        16, "What is uncertain about the prediction because a kubelet's release is not fully known."
    )
    recommendation: str = text(MAX_NAME, "Active RebalanceRecommendation that would make room for the pod.")
    changed: TimestampText | None = optional("When the verdict last changed.")
    outcome: PredictionOutcome | None = optional("What happened to the pod once it had a node.")
    summary: PredictionSummary | None = optional(
        "The prediction and its outcome in a few words, for the columns of kubectl get."
    )


ADMISSION_PREDICTION = ResourceType(
    kind="AdmissionPrediction",
    plural="admissionpredictions",
    singular="admissionprediction",
    short_names=("ap",),
    scope="Namespaced",
    description="Which nodes would admit the pod of the same name, why others would not, and whether the "
    "prediction was right.",
    columns=(
        PrinterColumn("Verdict", ".status.verdict", "Admissible, Inadmissible or Unknown"),
        PrinterColumn("Nodes", ".status.summary.nodes", "Nodes that would admit the pod, out of all nodes"),
        PrinterColumn("Actual", ".status.summary.actual", "Waiting, or what the kubelet decided"),
        PrinterColumn(
            "Node", ".status.summary.node", "Node of the pod; the best candidate while the pod is waiting"
        ),
        PrinterColumn("NUMA", ".status.summary.numaNodes", "NUMA nodes that the pod is predicted to get"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "Time since the first prediction", type="date"),
        PrinterColumn("Model", ".status.model", "Placement model of the node that Why refers to", priority=1),
        PrinterColumn("Why", ".status.summary.why", "What prevents, or prevented, admission"),
    ),
)


class AdmissionPrediction(APIObject):
    """Nodes that would admit a pod.

    Pods without a node get one, if NUMA placement concerns them. Of a pod that was made with a node, nothing
    is predicted: it gets one if its kubelet rejects it, and none if it runs; zones show where.
    """

    RESOURCE: ClassVar[ResourceType] = ADMISSION_PREDICTION

    spec: AdmissionPredictionSpec = Field(
        description="The pod that the prediction is about; immutable.", json_schema_extra=IMMUTABLE
    )
    status: AdmissionPredictionStatus | None = optional("The prediction and, later, the outcome.")
