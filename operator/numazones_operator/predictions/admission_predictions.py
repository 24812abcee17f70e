"""Between predictions and AdmissionPrediction objects: what is written, and what is known to be written.

An object is named like its pod and owned by it, so it goes with it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numazones import cpuset
from numazones.api.meta import API_VERSION, ObjectMeta, OwnerReference
from numazones.api.prediction import (
    AdmissionPrediction,
    AdmissionPredictionSpec,
    AdmissionPredictionStatus,
    PredictionOutcome,
    PredictionSummary,
)
from numazones.api.reasons import Reason
from numazones.cluster.cluster import ClusterPod
from numazones.placement import ADMITTED, fragmentation
from numazones.prediction import doubts
from numazones.prediction.forecast import UNKNOWN, Prediction
from numazones.wording import shorten
from numazones_operator.verification.causes import Accuracy
from numazones_operator.verification.rejection_advice import brief_of, explanation_of
from numazones_operator.verification.verifier import Verification

_MAX_MESSAGE = 1024
_MAX_LINE = 512
_MAX_REASONS = 16
_MAX_LINES = 32
_MAX_CELL = 51
"""Characters; with names as usual, the table fits 160 columns."""
_NONE = "<none>"
"""What kubectl shows for a pod without a node."""

NameOf = Callable[[str, str], str]
"""(node, UID as its kubelet knows it) → namespace/name of the pod; empty if it is not there any more."""

WAITING = "Waiting"
REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class PublishedPrediction:
    """State of one pod's prediction on the API server."""

    key: str
    """namespace/name"""
    pod_uid: str
    verdict: str
    changed: str
    """When the verdict last changed."""
    digest: str
    """Of the status without that time."""
    version: int
    """Resource version, which Kubernetes promises to grow (KEP-5504)."""
    has_outcome: bool = False
    """Whether it says what became of the pod."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "PublishedPrediction":
        """Read an AdmissionPrediction."""
        metadata, status = body["metadata"], body.get("status") or {}
        return cls(
            f"{metadata['namespace']}/{metadata['name']}",
            (body.get("spec") or {}).get("podUID") or "",
            status.get("verdict") or "",
            status.get("changed") or "",
            digest(status),
            int(metadata.get("resourceVersion") or 0),
            "outcome" in status,
        )


def digest(status: Mapping[str, Any]) -> str:
    """Return a short fingerprint of a status; when it changed is not part of it."""
    content = {key: value for key, value in status.items() if key != "changed"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=12).hexdigest()


def object_of(pod: ClusterPod) -> dict[str, Any]:
    """Return the object without its status."""
    return AdmissionPrediction(
        metadata=ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            owner_references=(OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid),),
        ),
        spec=AdmissionPredictionSpec(pod_uid=pod.uid),
    ).to_api()


def with_status(pod: ClusterPod, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is applied to the status subresource."""
    return {
        "apiVersion": API_VERSION,
        "kind": AdmissionPrediction.RESOURCE.kind,
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "status": dict(status),
    }


def status_of(
    prediction: Prediction | None,
    verification: Verification | None = None,
    *,
    advice: tuple[str, ...] = (),
    name_of: NameOf = lambda _node, _uid: "",
    recommendation: str = "",
) -> dict[str, Any]:
    """Return a prediction, and its outcome if there is one, as the object's status."""
    outcome = None if verification is None else _outcome(verification, advice)
    status = AdmissionPredictionStatus(verdict="" if outcome is None else outcome.predicted)
    if prediction is not None:
        status = _prediction_status(prediction, name_of)
    summary = PredictionSummary(
        nodes="" if prediction is None else f"{prediction.nodes.admissible}/{prediction.nodes.all}",
        **(
            {"actual": WAITING} | _waiting_summary(prediction)
            if verification is None
            else _outcome_summary(verification)
        ),
    )
    return status.model_copy(
        update={"outcome": outcome, "summary": summary, "recommendation": recommendation}
    ).to_api()


def with_outcome(status: Mapping[str, Any], pod: ClusterPod, actual: str) -> dict[str, Any]:
    """Return a status with the outcome of a pod whose binding nobody saw, so that nothing was predicted."""
    rejected = actual != ADMITTED
    outcome = PredictionOutcome(
        node=pod.node,
        predicted=UNKNOWN,
        actual=REJECTED if rejected else ADMITTED,
        reason=actual if rejected else "",
        message=pod.message[:_MAX_MESSAGE] if rejected else "",
        accuracy=Accuracy.UNKNOWN,
    )
    summary = PredictionSummary(
        nodes=(status.get("summary") or {}).get("nodes") or "",
        actual=outcome.actual,
        node=pod.node,
        numa_nodes=_NONE,
        why=outcome.reason,
    )
    return {**status, "outcome": outcome.to_api(), "summary": summary.to_api()}


def holders_of(reason: Reason, name_of: NameOf) -> tuple[str, ...]:
    """Say who holds what is missing, as far as they are still there."""
    named = ((name_of(reason.node, uid), amount) for uid, amount in reason.held_by)
    return tuple(f"{name}: {amount}" for name, amount in named if name)


def _prediction_status(prediction: Prediction, name_of: NameOf) -> AdmissionPredictionStatus:
    return AdmissionPredictionStatus(
        verdict=prediction.verdict,
        message=prediction.sentence[:_MAX_MESSAGE],
        model=prediction.model,
        nodes=prediction.nodes,
        reasons=tuple(
            replace(
                reason,
                message=reason.message[:_MAX_MESSAGE],
                sentence=reason.sentence[:_MAX_MESSAGE],
                holders=holders_of(reason, name_of),
            )
            for reason in prediction.reasons[:_MAX_REASONS]
        ),
        candidates=prediction.candidates,
        doubts=doubts.bounded(prediction.doubts),
    )


def _waiting_summary(prediction: Prediction | None) -> dict[str, str]:
    """Return where a waiting pod would go, and its obstacle."""
    if prediction is None or not prediction.candidates:
        why = "" if prediction is None else shorten(prediction.brief, _MAX_CELL)
        return {"node": _NONE, "numa_nodes": _NONE, "why": why}
    best = prediction.candidates[0]
    return {"node": best.node, "numa_nodes": cpuset.format(cpuset.of(best.zones)) or _NONE}


def _outcome_summary(verification: Verification) -> dict[str, str]:
    """Return where a pod is, and why it was rejected."""
    expectation, rejected = verification.expectation, verification.actual != ADMITTED
    verdict = expectation.verdict
    numas: tuple[int, ...] = ()
    if verdict is not None and verdict.admitted and not rejected:
        numas = fragmentation.zones_of(verdict.state, expectation.pod.kubelet_uid)
    return {
        "actual": REJECTED if rejected else ADMITTED,
        "node": expectation.pod.node,
        "numa_nodes": cpuset.format(cpuset.of(numas)) or _NONE,
        "why": shorten(brief_of(verification) or verification.actual, _MAX_CELL) if rejected else "",
    }


def _outcome(verification: Verification, advice: tuple[str, ...]) -> PredictionOutcome:
    expectation = verification.expectation
    rejected = verification.actual != ADMITTED
    return PredictionOutcome(
        node=expectation.pod.node,
        model=str(expectation.model or ""),
        predicted=expectation.predicted,
        actual=REJECTED if rejected else ADMITTED,
        reason=verification.actual if rejected else "",
        message=verification.message[:_MAX_MESSAGE] if rejected else "",
        accuracy=verification.accuracy or "",
        explanation=tuple(line[:_MAX_LINE] for line in explanation_of(verification)[:_MAX_LINES]),
        advice=tuple(line[:_MAX_LINE] for line in advice),
    )
