"""The question that is put to policies: somebody wants to write or delete an object.

What expressions see as ``request`` is the AdmissionRequest of admission.k8s.io/v1; fields that are empty are
absent, and the objects are not in it but beside it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class User:
    """User who sends a request, as far as policies can see."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_api(self) -> Object:
        """The UserInfo of authentication.k8s.io/v1."""
        extra = {key: list(values) for key, values in self.extra.items()}
        info = {"username": self.name, "uid": self.uid, "groups": list(self.groups), "extra": extra}
        return {key: value for key, value in info.items() if value}


SERVER = User("system:apiserver", ("system:authenticated", "system:masters"))
"""Who writes what no request asked for."""


@dataclass(frozen=True, slots=True)
class Review:
    """One write or deletion; ``old`` is the stored object, ``object`` what is to be stored."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    object: Object | None
    old: Object | None
    user: User = SERVER
    subresource: str = ""
    dry_run: bool = False
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def with_object(self, obj: Object) -> "Review":
        """The same question about a changed object."""
        return replace(self, object=obj)

    @property
    def shown_name(self) -> str:
        """The name for messages, also of an object that has none yet."""
        metadata = (self.object or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    def request(self, matched: Kind) -> Object:
        """Return ``request`` as expressions see it, for a policy that matched another kind."""
        body = {
            "uid": self.uid,
            "kind": _kind(matched),
            "resource": _resource(matched),
            "subResource": self.subresource,
            "requestKind": _kind(self.kind),
            "requestResource": _resource(self.kind),
            "requestSubResource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
        }
        present = {key: value for key, value in body.items() if value}
        return {**present, "userInfo": self.user.to_api(), "dryRun": self.dry_run}


def converted(obj: Object | None, of: Kind, to: Kind) -> Object | None:
    """An object in the form of another kind of the same collection."""
    if obj is None or of is to:
        return obj
    stored = of.to_storage(obj) if of.to_storage is not None else obj
    shown = to.from_storage(stored) if to.from_storage is not None else stored
    return {**shown, "apiVersion": to.api_version, "kind": to.kind}


def _kind(kind: Kind) -> dict[str, Any]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> dict[str, Any]:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}
