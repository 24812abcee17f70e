"""The parameter objects with which a binding puts a policy to work.

A policy without ``paramKind``, or a binding without ``paramRef``, is evaluated once, without parameters; else
once for each object that is found. None found: the binding does nothing, or is an error, as its
parameterNotFoundAction says.
"""

from collections.abc import Mapping
from typing import Any

from numazones.apimachinery.label_selector import LabelSelector
from numazones.errors import NumazonesError
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind, Registry
from numazones_apiserver.store import Store


class MisconfiguredPolicy(NumazonesError):
    """A policy or binding cannot be put to work; the message says why."""


class Parameters:
    """Finds the parameters of bindings."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def kind(self, wanted: Mapping[str, Any] | None) -> Kind | None:
        """The kind that a ``paramKind`` means; raises MisconfiguredPolicy for one that is not served."""
        if wanted is None:
            return None
        found = self._registry.by_kind(wanted["apiVersion"], wanted["kind"])
        if found is None:
            shown = f"{wanted['apiVersion']}, Kind={wanted['kind']}"
            raise MisconfiguredPolicy(f"failed to find resource referenced by paramKind: '{shown}'")
        return found

    def found(
        self, kind: Kind | None, reference: Mapping[str, Any] | None, namespace: str
    ) -> list[Object | None]:
        """The parameters of a binding for a request in a namespace; raises MisconfiguredPolicy."""
        if kind is None or reference is None:
            return [None]
        place = _namespace(kind, reference.get("namespace", ""), namespace)
        name = reference.get("name")
        collection = self._store.collection(*kind.collection)
        if name:
            version = collection.objects.get((place, name))
            versions = [version] if version is not None else []
        else:
            selector = LabelSelector.from_api(reference.get("selector") or {})
            versions = [
                one
                for one in collection.versions(place)
                if selector.matches(one.object["metadata"].get("labels") or {})
            ]
        if not versions and reference.get("parameterNotFoundAction") == "Deny":
            raise MisconfiguredPolicy(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return [
            kind.from_storage(one.object) if kind.from_storage is not None else one.object for one in versions
        ]


def _namespace(kind: Kind, named: str, requested: str) -> str:
    """Return the namespace to look for parameters in: the one that the binding names, else the request's."""
    if not kind.namespaced:
        if named:
            raise MisconfiguredPolicy(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    if not named and not requested:
        raise MisconfiguredPolicy(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return named or requested
