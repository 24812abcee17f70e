"""Pods that wait at the scheduling gate ``numazones.io/admission``, and why, from objects alone.

An operator that is away cannot say so; ``doctor`` and ``gate`` do, with one answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import is_true
from numazones.cluster.waiting import GATE, OPT_IN

OPERATOR = "numazones-operator"
"""The operator's name: of its Lease, and the value of its pods' label ``app.kubernetes.io/name``."""

Object = Mapping[str, Any]


class Trouble(NamedTuple):
    """Reason why nobody removes a pod's gate, and the cure."""

    why: str
    cure: str


def gates_of(pod: Object) -> list[str]:
    """Return the names of a pod's scheduling gates."""
    return [str(gate.get("name")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]


def is_gated(pod: Object) -> bool:
    """Return whether a pod waits at our gate."""
    return GATE in gates_of(pod)


def opted_in(namespaces: Iterable[Object]) -> set[str]:
    """Return the names of the namespaces whose gated pods are released."""
    return {
        item["metadata"]["name"]
        for item in namespaces
        if (item["metadata"].get("labels") or {}).get(OPT_IN[0]) == OPT_IN[1]
    }


def is_live(lease: Object | None, now: datetime) -> bool:
    """Return whether an operator leads: it holds the operator's Lease and has renewed it in time."""
    spec = (lease or {}).get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return False
    allowed = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
    return now - timestamp.parse(spec["renewTime"]) <= allowed


def trouble(namespace: str, opted: set[str], operators: Sequence[Object]) -> Trouble | None:
    """Return why nobody takes the gates of a namespace's pods away; None if an operator does."""
    if not operators:
        return Trouble("no operator runs", "kubectl apply -k manifests/operator")
    if not any(map(_is_ready, operators)):
        cure = f"kubectl describe pods -A -l app.kubernetes.io/name={OPERATOR}"
        return Trouble("no pod of the operator is ready", cure)
    if not any(map(_serves_gates, operators)):
        cure = "start the operator with --admission-gate (manifests/components/operator-admission-gate)"
        return Trouble("the operator does not release gated pods", cure)
    if namespace not in opted:
        cure = f"kubectl label namespace {namespace} {'='.join(OPT_IN)}"
        return Trouble("its namespace does not opt in", cure)
    return None


def _is_ready(pod: Object) -> bool:
    return is_true(pod.get("status") or {}, "Ready")


def _serves_gates(pod: Object) -> bool:
    """Return whether an operator's pod is configured to serve gates, by flag or by variable."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        words = (*(container.get("command") or ()), *(container.get("args") or ()))
        if "--admission-gate" in words:
            return True
        for variable in container.get("env") or ():
            if variable.get("name") == "NUMAZONES_OPERATOR_ADMISSION_GATE":
                return str(variable.get("value")).lower() in {"true", "1"}
    return False
