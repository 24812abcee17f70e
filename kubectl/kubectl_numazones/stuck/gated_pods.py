"""Pods at the scheduling gate ``numazones.io/admission``, and why no operator releases them.

Read from the API objects alone: an operator that is away cannot say so. ``doctor`` and ``gate`` share it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import is_true

OPERATOR = "numazones-operator"
"""The operator's name: of its Lease, and the value of its pods' label ``app.kubernetes.io/name``."""

Object = Mapping[str, Any]


class Trouble(NamedTuple):
    """The reason why no operator releases a pod, and the cure."""

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


def leads_without_lease(operator: Object) -> bool:
    """Return whether a ready operator's pod has leader election switched off, so that it always leads."""
    return _is_ready(operator) and _is_set(operator, "leader-elect", default=True) is False


def trouble(
    namespace: str, opted: set[str], operators: Sequence[Object], *, leads: bool = False
) -> Trouble | None:
    """Return why no operator releases a namespace's pods; None if one does.

    ``opted``: the namespaces that opt in; ``operators``: the operator's pods, none if it runs outside the
    cluster; ``leads``: True if an operator holds the Lease.
    """
    if not operators and not leads:
        return Trouble("no operator is running", "kubectl apply -k manifests/operator")
    if operators and not any(map(_is_ready, operators)):
        cure = f"kubectl describe pods -A -l app.kubernetes.io/name={OPERATOR}"
        return Trouble("no pod of the operator is ready", cure)
    if operators and not any(_is_set(pod, "admission-gate", default=False) for pod in operators):
        cure = "start the operator with --admission-gate (manifests/components/operator-admission-gate)"
        return Trouble("the operator does not release gated pods", cure)
    if namespace not in opted:
        cure = f"kubectl label namespace {namespace} {'='.join(OPT_IN)}"
        return Trouble("its namespace does not opt in", cure)
    return None


def _is_ready(pod: Object) -> bool:
    return is_true(pod.get("status") or {}, "Ready")


def _is_set(pod: Object, option: str, *, default: bool) -> bool:
    """Return the value of a boolean option of the operator: by flag, else by variable."""
    name = f"NUMAZONES_OPERATOR_{option.upper().replace('-', '_')}"
    for container in (pod.get("spec") or {}).get("containers") or ():
        words = (*(container.get("command") or ()), *(container.get("args") or ()))
        if f"--{option}" in words or f"--no-{option}" in words:
            return f"--{option}" in words
        for variable in container.get("env") or ():
            if variable.get("name") == name:
                return str(variable.get("value")).lower() in {"true", "1"}
    return default
