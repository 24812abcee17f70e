"""Document that ``why`` prints for a pod."""

from dataclasses import dataclass
from typing import Annotated, Self

from kubectl_numazones.printing.answers import FittingPlace, best_place
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pod import Background, helpful_changes, is_running, misalignment
from kubectl_numazones.stuck.stuck_pods import StuckPods
from numazones.advice.changes import Advice
from numazones.advice.misalignment import Misalignment
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import NodeCounts, Reason
from numazones.prediction.stuck import PodCounts, is_stuck


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod."""

    namespace: Annotated[str, "Namespace of the pod."]
    name: Annotated[str, "Name of the pod."]
    node: Annotated[str, "Node of the pod; empty if it has none."]
    phase: Annotated[str, "Pending, Running, Succeeded, Failed or Unknown."]

    @classmethod
    def of(cls, pod: ClusterPod) -> Self:
        """Refer to a pod."""
        return cls(pod.namespace, pod.name, pod.node, pod.phase)


@dataclass(frozen=True, slots=True)
class KubeletMessage:
    """Message of a kubelet about a pod that it rejected."""

    node: Annotated[str, "Node whose kubelet rejected the pod."]
    reason: Annotated[str, "The pod's status.reason."]
    message: Annotated[str, "The pod's status.message."]


@dataclass(frozen=True, slots=True)
class WhyDocument:
    """``why POD``: why a pod is stuck or was rejected, and what would help."""

    pod: Annotated[
        PodName, "For an owner, its most relevant pod: one that is waiting, else one that was rejected."
    ]
    others: Annotated[list[PodName], "Other pods of the same owner that the answer applies to."]
    rejected: Annotated[KubeletMessage | None, "Rejection by a kubelet; null if there was none."]
    then: Annotated[
        tuple[str, ...], "What was missing when the pod was rejected, according to its AdmissionPrediction."
    ]
    stuck: Annotated[
        bool,
        "Whether the pod is waiting, and either no node would admit it or something else keeps it waiting.",
    ]
    waits: Annotated[tuple[Wait, ...], "What the pod is waiting for, apart from nodes."]
    scheduler: Annotated[str, "The scheduler's last message about the pod; empty if none is known."]
    held: Annotated[
        tuple[str, ...], "Pods for which room is held on nodes that would otherwise admit this pod."
    ]
    verdict: Annotated[str, "Admissible, Inadmissible or Unknown."]
    sentence: Annotated[str, "The verdict in a sentence."]
    doubts: Annotated[tuple[str, ...], "What is uncertain because of the kubelets' versions; usually empty."]
    place: Annotated[
        FittingPlace | None, "Where the pod would be placed now; null if nowhere, or if it is running."
    ]
    nodes: Annotated[NodeCounts, "Number of nodes by verdict."]
    reasons: Annotated[
        tuple[Reason, ...], "Why nodes would not admit the pod, the most important reason first."
    ]
    advice: Annotated[
        list[Advice], "What would help, the cheapest first; each was tried on a copy of the cluster."
    ]
    recommendations: Annotated[list[str], "Current RebalanceRecommendations that place the pod."]
    not_aligned: Annotated[
        Misalignment | None,
        "Why the pod is not aligned; null if it is aligned or not running, or if this is unknown.",
    ]


@dataclass(frozen=True, slots=True)
class WhyListDocument:
    """``why``: several pods, with the same fields for each, the most urgent first."""

    items: Annotated[list[WhyDocument], "One for each pod or owner of pods."]
    counts: Annotated[PodCounts | None, "Number of stuck pods among them; null if pods were named."]


def why_document(item: StuckPods, outlooks: Outlooks, background: Background) -> WhyDocument:
    """Return the document; of several pods of one owner it is about the most telling one."""
    pod, prediction, seen = item.example, item.prediction, outlooks.seen
    return WhyDocument(
        pod=PodName.of(pod),
        others=[PodName.of(other) for other in item.pods if other is not pod],
        rejected=KubeletMessage(pod.node, pod.reason, pod.message) if pod.reason and pod.node else None,
        then=background.then,
        stuck=not pod.node and is_stuck(prediction, background.waits),
        waits=background.waits,
        scheduler=background.scheduler,
        held=background.held,
        verdict=prediction.verdict,
        sentence=prediction.sentence,
        doubts=prediction.doubts,
        place=None if is_running(pod) else best_place(pod, seen.situation.cluster.nodes, prediction),
        nodes=prediction.nodes,
        reasons=prediction.reasons,
        advice=helpful_changes(pod, prediction, outlooks),
        recommendations=seen.recommendations(item.pods),
        not_aligned=misalignment(pod, seen),
    )
