"""The patch that releases a pod from the scheduling gate ``numazones.io/admission``.

One request takes the gate away and limits the pod to nodes that would admit it, as Kubernetes allows for
gated pods alone: where a pod has required node affinity, requirements may only be appended to each of its
terms; where it has none, any may be set (``validateNodeAffinityMutation``, Kubernetes 1.36). A strategic
merge patch names the one gate to delete and leaves all others, and all other affinity, as they are on the
server.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numazones.cluster.admission_gate import RELEASED, WITHOUT_GATE

HOSTNAME = "kubernetes.io/hostname"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"
_MOST = 100
"""The greatest weight of a preference."""


class TargetNode(NamedTuple):
    """A node that a pod may go to."""

    name: str
    host: str | None
    """Its label ``kubernetes.io/hostname``; None: it has none."""


def gate_removal_patch(
    uid: str,
    targets: Sequence[TargetNode],
    *,
    affinity: Mapping[str, Any] | None = None,
    only: bool = True,
    without: Sequence[str] = (),
    version: str = "",
    now: str,
) -> dict[str, Any]:
    """Return the strategic merge patch that releases a pod to nodes, best first; none: to all.

    Args:
        uid: the pod's.
        targets: the nodes.
        affinity: the pod's own node affinity, where it has any.
        only: whether it may go to no others; else the nodes are preferred.
        without: names of nodes that it may not go to, whatever is preferred.
        version: the resource version at which the pod was read, for the server to refuse the patch if it has
            changed since.
        now: the time of day, RFC 3339.
    """
    spec: dict[str, Any] = {"schedulingGates": WITHOUT_GATE}
    changes = (_limits if only else _preferences)(affinity or {}, targets)
    if without:
        changes |= _exclusions(affinity or {}, without)
    if changes:
        spec["affinity"] = {"nodeAffinity": changes}
    # The server refuses a patch whose UID is that of another pod.
    metadata: dict[str, Any] = {"uid": uid, "annotations": {RELEASED: now}}
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": spec}


def _limits(affinity: Mapping[str, Any], targets: Sequence[TargetNode]) -> dict[str, Any]:
    """Return what changes of a pod's node affinity for it to go to the nodes only."""
    if not targets:
        return {}
    limits: dict[str, Any] = {
        _REQUIRED: {
            "nodeSelectorTerms": [_limited(term, targets) for term in _terms(affinity)]
            or [{"matchFields": [_is_named(target.name)]} for target in targets]
        }
    }
    if len(targets) > 1 and not affinity.get(_PREFERRED):
        best = {"matchFields": [_is_named(targets[0].name)]}
        limits[_PREFERRED] = [{"weight": _MOST, "preference": best}]
    return limits


def _exclusions(affinity: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return what changes of a pod's node affinity for it not to go to the nodes."""
    others = [_is_named(name, "NotIn") for name in names]
    return {
        _REQUIRED: {
            "nodeSelectorTerms": [
                _with(term, "matchFields", *others) if _selects_any(term) else term
                for term in _terms(affinity)
            ]
            or [{"matchFields": others}]
        }
    }


def _preferences(affinity: Mapping[str, Any], targets: Sequence[TargetNode]) -> dict[str, Any]:
    """Return what changes of a pod's node affinity for it to go to the nodes if it can."""
    if not targets or affinity.get(_PREFERRED):
        return {}
    return {
        _PREFERRED: [
            {"weight": _MOST // position, "preference": {"matchFields": [_is_named(target.name)]}}
            for position, target in enumerate(targets, 1)
        ]
    }


def _limited(term: dict[str, Any], targets: Sequence[TargetNode]) -> dict[str, Any]:
    """Return a term of the pod's own that selects no other nodes.

    A requirement on a node's name takes one value, and all of a term's must hold, so that a term names one
    node or none; several can only be told apart by the label that should be their name.
    """
    if not _selects_any(term):
        return term
    hosts = [target.host for target in targets if target.host is not None]
    if len(hosts) > 1:
        return _with(term, "matchExpressions", {"key": HOSTNAME, "operator": "In", "values": hosts})
    return _with(term, "matchFields", _is_named(targets[0].name))


def _terms(affinity: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the terms of a node affinity of which one must hold; none: every node will do."""
    return (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []


def _with(term: dict[str, Any], part: str, *requirements: dict[str, Any]) -> dict[str, Any]:
    """Return a term with more requirements, after its own."""
    return {**term, part: [*(term.get(part) or ()), *requirements]}


def _selects_any(term: Mapping[str, Any]) -> bool:
    """Return whether a term can select nodes; an empty term selects none, and must stay that way."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _is_named(name: str, operator: str = "In") -> dict[str, Any]:
    return {"key": _NAME, "operator": operator, "values": [name]}
