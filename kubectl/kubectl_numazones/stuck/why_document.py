"""What ``why`` says of a pod, as a document."""

from kubectl_numazones.printing.documents import PodReference, Reason, WhyDocument, WhyNotAligned
from kubectl_numazones.reading.cluster import Seen
from kubectl_numazones.stuck.stuck_pod import Background, helpful_changes, misalignment
from kubectl_numazones.stuck.stuck_pods import Stuck
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import Prediction


def why_document(item: Stuck, seen: Seen, background: Background) -> WhyDocument:
    """Return the document; of several pods of one owner it is about the most telling one."""
    pod, prediction = item.example, item.prediction
    return {
        "pod": _reference(pod),
        "others": [_reference(other) for other in item.pods if other is not pod],
        "rejected": {"node": pod.node, "reason": pod.reason, "message": pod.message}
        if pod.reason and pod.node
        else None,
        "then": list(background.then),
        "waits": [{"reason": wait.reason, "sentence": wait.sentence} for wait in background.waits],
        "scheduler": background.scheduler,
        "held": list(background.held),
        "verdict": prediction.verdict,
        "sentence": prediction.sentence,
        "nodes": {
            "evaluated": prediction.evaluated,
            "admissible": prediction.admissible,
            "unknown": prediction.stale,
            "excluded": prediction.excluded,
        },
        "reasons": reasons(prediction),
        "advice": [
            {"node": one.node, "change": str(one.change), "sentence": one.sentence}
            for one in helpful_changes(pod, prediction, seen)
        ],
        "recommendations": seen.recommendations(item.pods),
        "notAligned": _not_aligned(pod, seen),
    }


def _not_aligned(pod: ClusterPod, seen: Seen) -> WhyNotAligned | None:
    found = misalignment(pod, seen)
    if found is None:
        return None
    return {
        "alignment": str(found.found.alignment),
        "sentence": found.found.sentence,
        "alignable": str(found.alignable),
        "why": list(found.why),
        "help": list(found.help),
    }


def reasons(prediction: Prediction) -> list[Reason]:
    """Return why nodes do not admit a pod."""
    return [
        {
            "reason": item.reason,
            "source": str(item.source),
            "nodes": item.count,
            "example": item.node,
            "message": item.message,
            "sentence": item.sentence or item.message or item.reason,
            "model": item.model,
        }
        for item in prediction.reasons
    ]


def _reference(pod: ClusterPod) -> PodReference:
    return {"namespace": pod.namespace, "name": pod.name, "node": pod.node, "phase": pod.phase}
