"""Kinds that the API serves: one ``Kind`` per resource of a group and version, and their registry.

Built-in kinds come from ``builtin_kinds``, custom ones come and go with their
CustomResourceDefinition. Discovery, OpenAPI and request routing all read this registry.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from numazones_apiserver.errors import FieldError, Object
from numazones_apiserver.schema import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of the table that ``kubectl get`` prints; priority 0 is shown always, 1 with -o wide."""

    name: str
    cell: Callable[[Object], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Strategy(Protocol):
    """Rules of one kind for writing its objects; every method returns a new object."""

    def for_create(self, obj: Object) -> Object:
        """The object with its defaults and its initial status."""

    def for_update(self, obj: Object, old: Object) -> Object:
        """The object with what a plain update may not change taken from the old one."""

    def for_status(self, obj: Object, old: Object) -> Object:
        """The old object with what the status subresource may change taken from the new one."""

    def check(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        """Yield the errors of an object beyond its schema."""


@dataclass(frozen=True, eq=False)
class Kind:
    """One resource of one group and version."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    load_schema: Callable[[], Schema]
    strategy: Strategy
    columns: tuple[TableColumn, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    custom: bool = False
    generations: bool = True
    """Whether metadata.generation counts changes of the desired state."""
    list_kind: str = ""
    collection: tuple[str, str] = ("", "")
    """Group and plural under which objects are stored, shared by all versions of a resource."""
    from_storage: Callable[[Object], Object] | None = None
    """Converts from the stored form, where several API versions share a collection."""
    to_storage: Callable[[Object], Object] | None = None
    openapi: Callable[[], Object] | None = None
    """The OpenAPI v3 schema of a custom kind; built-in kinds have published definitions."""
    scale: Mapping[str, str] | None = None
    """Paths of replicas and selector where the scale subresource is served."""

    @cached_property
    def schema(self) -> Schema:
        """The compiled schema of whole objects."""
        return self.load_schema()

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``, as objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        """The kind of a list of these."""
        return self.list_kind or f"{self.kind}List"


def name_of(obj: Object) -> str:
    """metadata.name."""
    return str(obj["metadata"].get("name", ""))


def namespace_of(obj: Object) -> str:
    """metadata.namespace, "" for cluster-scoped objects."""
    return str(obj["metadata"].get("namespace", ""))


class Registry:
    """All kinds by group, version and plural; ``changes`` counts what discovery caches must notice."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self.changes = 0
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve a kind, in place of any of the same name."""
        self._kinds[kind.group, kind.version, kind.plural] = kind
        self.changes += 1

    def remove(self, group: str, plural: str) -> None:
        """Stop serving all versions of a resource."""
        for key in [key for key in self._kinds if (key[0], key[2]) == (group, plural)]:
            del self._kinds[key]
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path means."""
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind that an owner reference or an object means."""
        group, _, version = api_version.rpartition("/")
        return next((one for one in self.of(group, version) if one.kind == kind), None)

    def by_collection(self, collection: tuple[str, str]) -> Kind | None:
        """A kind whose objects are in the collection; if possible the one in whose form they are stored."""
        found = [one for one in self if one.collection == collection]
        return next((one for one in found if one.from_storage is None), found[0] if found else None)

    def of(self, group: str, version: str) -> list[Kind]:
        """The kinds of one group and version, by plural."""
        found = [kind for kind in self if (kind.group, kind.version) == (group, version)]
        return sorted(found, key=lambda kind: kind.plural)

    def groups(self) -> dict[str, list[str]]:
        """The versions of each named group, preferred first."""
        versions: dict[str, list[str]] = {}
        for kind in self:
            listed = versions.setdefault(kind.group, [])
            if kind.version not in listed:
                listed.append(kind.version)
        versions.pop("", None)
        return {group: sorted(listed, key=version_rank) for group, listed in sorted(versions.items())}

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Orders versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, others."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), version)
