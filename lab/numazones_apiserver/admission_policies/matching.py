"""Match requests with a policy or binding: rules, namespace selector and object selector.

kubernetes.io, "Validating Admission Policy", and the matching of kube-apiserver (policy/matching,
webhook/predicates). What configures admission itself is never put to policies, so that a wrong one can be
removed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones.apimachinery.label_selector import LabelSelector
from numazones_apiserver.admission_policies.review import Review
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind, Registry
from numazones_apiserver.store import Store

GROUP = "admissionregistration.k8s.io"


def is_exempt(kind: Kind) -> bool:
    """Return whether a kind configures admission itself, so that policies do not apply to it."""
    return kind.group == GROUP


class Matcher:
    """Matches requests against ``matchConstraints`` and ``matchResources``."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def namespace(self, name: str) -> Object | None:
        """The stored namespace."""
        found = self._store.collection("", "namespaces").objects.get(("", name))
        return found.object if found is not None else None

    def matched_kind(self, resources: Mapping[str, Any], review: Review) -> Kind | None:
        """The kind as which the request matches; None when it does not."""
        if not self._matches_namespace(resources.get("namespaceSelector") or {}, review):
            return None
        if not _matches_object(resources.get("objectSelector") or {}, review):
            return None
        exact = resources.get("matchPolicy") == "Exact"
        if self._matched_by_rules(resources.get("excludeResourceRules") or (), review, exact=exact):
            return None
        rules = resources.get("resourceRules")
        return self._matched_by_rules(rules, review, exact=exact) if rules else review.kind

    def _matched_by_rules(
        self, rules: Iterable[Mapping[str, Any]], review: Review, *, exact: bool
    ) -> Kind | None:
        """The request's own kind where a rule names it, else another version of it that a rule names."""
        own, kinds = review.kind, [review.kind]
        if not exact:
            kinds += [one for one in self._registry if one.collection == own.collection and one is not own]
        for kind in kinds:
            if any(_matches_rule(rule, review, kind) for rule in rules):
                return kind
        return None

    def _matches_namespace(self, selector: Mapping[str, Any], review: Review) -> bool:
        """Return whether the selector matches the namespace's labels; objects without one always match."""
        parsed = LabelSelector.from_api(selector)
        if parsed.everything:
            return True
        if not review.kind.group and review.kind.plural == "namespaces":
            return parsed.matches(_labels(review.object if review.object is not None else review.old))
        return not review.namespace or parsed.matches(_labels(self.namespace(review.namespace)))


def _matches_object(selector: Mapping[str, Any], review: Review) -> bool:
    """Return whether the selector matches the labels of the object, before or after the change."""
    parsed = LabelSelector.from_api(selector)
    versions = (review.object, review.old)
    return parsed.everything or any(parsed.matches(_labels(one)) for one in versions if one is not None)


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _matches_rule(rule: Mapping[str, Any], review: Review, kind: Kind) -> bool:
    names = rule.get("resourceNames")
    scope = "Namespaced" if kind.namespaced else "Cluster"
    return (
        _is_in(review.operation, rule.get("operations"))
        and _is_in(kind.group, rule.get("apiGroups"))
        and _is_in(kind.version, rule.get("apiVersions"))
        and any(_matches_resource(one, kind, review.subresource) for one in rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", scope)
        and (not names or review.name in names)
    )


def _is_in(value: str, values: Iterable[str] | None) -> bool:
    return any(one in ("*", value) for one in values or ())


def _matches_resource(pattern: str, kind: Kind, subresource: str) -> bool:
    """``pods``, ``pods/status``, ``pods/*``, ``*/status``, ``*`` (no subresources) and ``*/*``."""
    plural, _, part = pattern.partition("/")
    return plural in ("*", kind.plural) and part in (("*", subresource) if subresource else ("", "*"))
