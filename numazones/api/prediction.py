"""AdmissionPrediction: where a pod would be admitted, why not elsewhere, and whether that was right.

Named like its pod and owned by it, so it goes with it. Written by the operator from
``numazones.prediction.forecast``; reasons carry the words of the scheduler and of the kubelet (1.36) as users
know them. A node whose state is unknown counts as stale, never as admitting.
"""

from dataclasses import asdict
from typing import Annotated, ClassVar

from pydantic import Field, PlainSerializer

from numazones.api.meta import (
    IMMUTABLE,
    MAX_NAME,
    APIModel,
    APIObject,
    PrinterColumn,
    ResourceType,
    TimestampText,
    list_of,
    optional,
    text,
)
from numazones.api.reasons import MAX_LINE, MAX_MESSAGE, Candidate, NodeCounts, Reason, model_of


class AdmissionPredictionSpec(APIModel):
    """Pod that the object is about; it never changes."""

    pod_uid: str = Field(max_length=128, description="UID of the pod of the same name.")


class PredictionOutcome(APIModel):
    """Outcome of the pod, compared with the prediction for its node at that moment."""

    node: str = Field(max_length=MAX_NAME, description="Node the pod was bound to.")
    model: Annotated[str, model_of("this node")] = ""
    predicted: str = Field(
        max_length=32, description="Verdict for that node: Admissible, Inadmissible or Unknown."
    )
    actual: str = text(32, "Admitted or Rejected; left out while the kubelet has not decided.")
    reason: str = text(256, "The kubelet's reason for a rejection.")
    message: str = text(MAX_MESSAGE, "The kubelet's message.")
    accuracy: str = text(
        32,
        "Accuracy of the prediction: Right; if it was wrong, Race (pods came or went in the meantime), "
        "Stale (the NUMAZones were out of date) or Model (the model was wrong); Unknown if there was "
        "none. Left out until it is known.",
    )
    explanation: tuple[Annotated[str, Field(max_length=MAX_LINE)], ...] = list_of(
        32, "Explanation for the node at that time: hints, the deciding rule, what was missing, who held it."
    )
    advice: tuple[Annotated[str, Field(max_length=MAX_LINE)], ...] = list_of(
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
    message: str = text(MAX_MESSAGE, "The prediction in one sentence.")
    model: Annotated[str, model_of("the node that the message is about")] = ""
    nodes: Annotated[NodeCounts, PlainSerializer(asdict)] | None = optional("How many nodes were evaluated.")
    reasons: tuple[Annotated[Reason, Field(description="Why some nodes do not admit the pod.")], ...] = (
        list_of(
            64,
            "Sorted by kind (placement, missing resources, nodes that the pod may not use), then by "
            "frequency.",
        )
    )
    candidates: tuple[Candidate, ...] = list_of(64, "Best first.")
    doubts: tuple[Annotated[str, Field(max_length=MAX_LINE)], ...] = list_of(
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
