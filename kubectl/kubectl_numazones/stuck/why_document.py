"""Document that ``why`` prints for a pod."""

from dataclasses import dataclass
from typing import Annotated, Self

from kubectl_numazones.printing.answers import FittingPlace, best_place
from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.stuck.stuck_pod import Background, helpful_changes, is_running, misalignment
from kubectl_numazones.stuck.stuck_pods import Stuck
from numazones.advice.changes import Advice
from numazones.advice.misalignment import Misalignment
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import NodeCounts, Reason
from numazones.prediction.stuck import PodCounts, is_stuck


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod."""

    namespace: Annotated[str, "Its namespace."]
    name: Annotated[str, "Its name."]
    node: Annotated[str, "Empty where it has none."]
    phase: Annotated[str, "Pending, Running, Succeeded, Failed or Unknown."]

    @classmethod
    def of(cls, pod: ClusterPod) -> Self:
        """Refer to a pod."""
        return cls(pod.namespace, pod.name, pod.node, pod.phase)


@dataclass(frozen=True, slots=True)
class KubeletMessage:
    """Message of a kubelet about a pod that it rejected."""

    node: Annotated[str, "Whose kubelet it was."]
    reason: Annotated[str, "The pod's status.reason."]
    message: Annotated[str, "The pod's status.message."]


@dataclass(frozen=True, slots=True)
class WhyDocument:
    """``why POD``: why a pod is stuck or was rejected, and what would help."""

    pod: Annotated[
        PodName, "For an owner, its most relevant pod: one that waits, else one that was rejected."
    ]
    others: Annotated[list[PodName], "Other pods of the same owner that the answer applies to."]
    rejected: Annotated[KubeletMessage | None, "Null if no kubelet has rejected it."]
    then: Annotated[
        tuple[str, ...], "What was missing when it was rejected, as its AdmissionPrediction says."
    ]
    stuck: Annotated[bool, "Whether it waits, and no node would admit it or something else keeps it waiting."]
    waits: Annotated[tuple[Wait, ...], "What it waits for apart from nodes."]
    scheduler: Annotated[str, "The scheduler's last word on it; empty if none is known."]
    held: Annotated[tuple[str, ...], "Pods that room is held for, on nodes that would otherwise admit it."]
    verdict: Annotated[str, "Admissible, Inadmissible or Unknown."]
    sentence: Annotated[str, "The same in a sentence."]
    doubts: Annotated[
        tuple[str, ...], "What is not certain because of the kubelets' releases; usually empty."
    ]
    place: Annotated[FittingPlace | None, "Where it would go now; null if nowhere, or if it runs."]
    nodes: Annotated[NodeCounts, "How many nodes said what."]
    reasons: Annotated[tuple[Reason, ...], "Why nodes would not admit it; the first is the headline."]
    advice: Annotated[list[Advice], "What would help, the cheapest first; each was tried on a copy."]
    recommendations: Annotated[list[str], "RebalanceRecommendations in force that place it."]
    not_aligned: Annotated[
        Misalignment | None, "Null for a pod that does not run or is aligned, or if that is not known."
    ]


@dataclass(frozen=True, slots=True)
class WhyListDocument:
    """``why``: of several pods, the same of each, what hurts most first."""

    items: Annotated[list[WhyDocument], "One for each pod, or owner of pods."]
    counts: Annotated[PodCounts | None, "Number of stuck pods among them; null where pods were named."]


def why_document(item: Stuck, seen: ClusterView, background: Background) -> WhyDocument:
    """Return the document; of several pods of one owner it is about the most telling one."""
    pod, prediction = item.example, item.prediction
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
        advice=helpful_changes(pod, prediction, seen),
        recommendations=seen.recommendations(item.pods),
        not_aligned=misalignment(pod, seen),
    )
