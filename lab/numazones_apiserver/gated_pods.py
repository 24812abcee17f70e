"""Changes allowed to a pod while a scheduling gate holds it back: it may only be restricted further.

From Kubernetes 1.36, ``pkg/apis/core/validation/validation.go`` (ValidatePodUpdate,
validateNodeSelectorMutation, validateNodeAffinityMutation); messages as recorded from the real server.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numazones_apiserver import errors
from numazones_apiserver.errors import FieldError, Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
_LISTS = ("matchExpressions", "matchFields")


def check_gates(spec: Object, old: Object) -> Iterator[FieldError]:
    """Gates may only be taken away, whether others are left or not."""
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield errors.forbidden_field(f"spec.schedulingGates[{at}].name", why)


def check_limits(spec: Object, old: Object) -> Iterator[FieldError]:
    """Selector and required node affinity of a gated pod may only become stricter."""
    selector, before = spec.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield errors.invalid_value("spec.nodeSelector", selector, why)
    required = _required(old)
    if required is None:
        return
    terms, old_terms = (_required(spec) or {}).get("nodeSelectorTerms") or [], required["nodeSelectorTerms"]
    if len(terms) != len(old_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield errors.invalid_value(_TERMS, [_as_go_writes(term) for term in terms], why)
        return
    for at, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
        if not _only_adds(term, old_term):
            why = "only additions are allowed (no mutations or deletions)"
            yield errors.invalid_value(f"{_TERMS}[{at}]", _as_go_writes(term), why)


def with_old_limits(spec: Object, old: Object) -> Object:
    """The spec with what may change of a gated pod as it was; what then differs, must not."""
    result = {key: value for key, value in spec.items() if key not in ("nodeSelector", "affinity")}
    if old.get("nodeSelector"):
        result["nodeSelector"] = old["nodeSelector"]
    affinity = {key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
    old_affinity = old.get("affinity") or {}
    if "nodeAffinity" in old_affinity:
        affinity["nodeAffinity"] = old_affinity["nodeAffinity"]
    if affinity or "affinity" in old:
        result["affinity"] = affinity
    return result


def check_node_affinity(spec: Object, path: str) -> Iterator[FieldError]:
    """A requirement on fields is one value of the node's name (ValidateNodeFieldSelectorRequirement)."""
    terms = (_required(spec) or {}).get("nodeSelectorTerms") or ()
    below = f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    for at, term in enumerate(terms):
        for number, one in enumerate(term.get("matchFields") or ()):
            here, operator = f"{below}[{at}].matchFields[{number}]", one.get("operator")
            if operator not in ("In", "NotIn"):
                yield errors.invalid_value(f"{here}.operator", operator, "not a valid selector operator")
            elif len(one.get("values") or ()) != 1:
                why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
                yield errors.required(f"{here}.values", why)
            if one.get("key") != "metadata.name":
                yield errors.invalid_value(f"{here}.key", one.get("key"), "not a valid field selector key")
        for number, one in enumerate(term.get("matchExpressions") or ()):
            if one.get("operator") in ("In", "NotIn") and not one.get("values"):
                why = "must be specified when `operator` is 'In' or 'NotIn'"
                yield errors.required(f"{below}[{at}].matchExpressions[{number}].values", why)


def _required(spec: Mapping[str, Any]) -> Object | None:
    found: Object | None = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    return found


def _only_adds(term: Object, old: Object) -> bool:
    """Return whether a term starts with all its former requirements; an empty term selects nothing."""
    if not any(old.get(name) for name in _LISTS):
        return not any(term.get(name) for name in _LISTS)
    return all(_begins(term.get(name) or [], old.get(name) or []) for name in _LISTS)


def _begins(requirements: Sequence[Object], old: Sequence[Object]) -> bool:
    return list(requirements[: len(old)]) == list(old)


def _as_go_writes(term: Object) -> Object:
    return {
        f"{name[0].upper()}{name[1:]}": [
            {key.capitalize(): one.get(key) for key in ("key", "operator", "values")}
            for one in term.get(name) or ()
        ]
        or None
        for name in _LISTS
    }
