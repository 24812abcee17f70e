"""Store objects: one revision counter, and per resource a collection with a bounded history.

It plays etcd and the API server's watch cache at once. Objects are plain dicts that nobody changes
once they are stored: a write stores a new dict. So history, snapshots and watchers share them, and
each version of an object is encoded at most once, however many lists and watches send it.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import orjson

from numazones_apiserver import errors
from numazones_apiserver.errors import Object

Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""


@dataclass(slots=True, eq=False)
class Version:
    """One version of one object, its revision, and its JSON once somebody asked for it."""

    object: Object
    revision: int
    _json: bytes | None = field(init=False, default=None)

    def json(self) -> bytes:
        """The object as JSON."""
        if self._json is None:
            self._json = orjson.dumps(self.object)
        return self._json


@dataclass(frozen=True, slots=True)
class Record:
    """One change of a collection; a creation has no ``before``; a deletion's ``after`` has its revision."""

    type: str
    key: Key
    before: Version | None
    after: Version

    @property
    def revision(self) -> int:
        """The revision of this change."""
        return self.after.revision


@dataclass(slots=True, eq=False)
class Collection:
    """All objects of one resource, by key and in key order, and their latest changes."""

    group: str
    plural: str
    objects: dict[Key, Version] = field(default_factory=dict)
    order: list[Key] = field(default_factory=list)
    namespaces: dict[str, set[Key]] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)
    dropped_records: int = 0
    """How many records have been dropped from the front of the history."""
    compact_revision: int = 0
    """Changes up to this revision are no longer known."""
    waiters: set[asyncio.Event] = field(default_factory=set)

    def in_namespace(self, namespace: str) -> list[Key]:
        """The keys of one namespace in order, or all of them for ""."""
        if not namespace:
            return self.order
        start = bisect_left(self.order, (namespace, ""))
        return self.order[start : start + len(self.namespaces.get(namespace, ()))]

    def versions(self, namespace: str = "") -> Iterator[Version]:
        """The current objects of one namespace, or all, in order."""
        return map(self.objects.__getitem__, self.in_namespace(namespace))

    def at(self, revision: int, namespace: str = "") -> "Snapshot":
        """The objects as they were at a revision; raises StatusError 410 when its history is dropped."""
        if revision < self.compact_revision:
            raise errors.resource_expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        then: dict[Key, Version | None] = {}
        for record in reversed(self.history):
            if record.revision <= revision:
                break
            then[record.key] = record.before
        keys = self.in_namespace(namespace)
        if then:
            touched = {key for key in then if namespace in ("", key[0])}
            keys = sorted(key for key in touched.union(keys) if then.get(key, _UNTOUCHED) is not None)
        return Snapshot(keys, self.objects, then)


_UNTOUCHED = object()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a collection at one revision: their keys in order, and each by its key."""

    keys: list[Key]
    _now: dict[Key, Version]
    _then: dict[Key, Version | None]

    def __getitem__(self, key: Key) -> Version:
        return self._then.get(key) or self._now[key]


RecordListener = Callable[[Collection, Record], None]
"""A function that is called with every change at once, in the order of revisions."""


class Store:
    """All collections and the revision that they share."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.revision = 1
        self._history = history
        self._collections: dict[tuple[str, str], Collection] = {}
        self.listeners: list[RecordListener] = []

    def collection(self, group: str, plural: str) -> Collection:
        """The collection of a resource; made when first asked for."""
        collection = self._collections.get((group, plural))
        if collection is None:
            collection = self._collections[group, plural] = Collection(group, plural, compact_revision=0)
        return collection

    def collections(self) -> list[Collection]:
        """All collections."""
        return list(self._collections.values())

    def put(self, collection: Collection, obj: Object) -> Version:
        """Create or replace an object; sets its resourceVersion on a copy of its metadata."""
        version = self._version(obj)
        metadata = version.object["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        before = collection.objects.get(key)
        collection.objects[key] = version
        if before is None:
            insort(collection.order, key)
            collection.namespaces.setdefault(key[0], set()).add(key)
        self._commit(collection, Record("ADDED" if before is None else "MODIFIED", key, before, version))
        return version

    def delete(self, collection: Collection, key: Key, last: Object | None = None) -> Version:
        """Delete an object; ``last`` is its final state when that differs from the stored one."""
        before = collection.objects.pop(key)
        del collection.order[bisect_left(collection.order, key)]
        collection.namespaces[key[0]].discard(key)
        version = self._version(last or before.object)
        self._commit(collection, Record("DELETED", key, before, version))
        return version

    def compact(self) -> int:
        """Forget all history; whoever asks for changes since an older revision gets 410."""
        for collection in self._collections.values():
            collection.dropped_records += len(collection.history)
            collection.history.clear()
            collection.compact_revision = self.revision
            _wake(collection)
        return self.revision

    def _version(self, obj: Object) -> Version:
        self.revision += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        return Version({**obj, "metadata": metadata}, self.revision)

    def _commit(self, collection: Collection, record: Record) -> None:
        collection.history.append(record)
        if len(collection.history) > 2 * self._history:
            dropped = collection.history[: self._history]
            collection.compact_revision = dropped[-1].revision
            collection.dropped_records += len(dropped)
            del collection.history[: self._history]
        _wake(collection)
        for listener in self.listeners:
            listener(collection, record)


def _wake(collection: Collection) -> None:
    for event in collection.waiters:
        event.set()
