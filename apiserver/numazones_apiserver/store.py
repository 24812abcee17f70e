"""Where objects live: one revision counter, one shelf per resource, a bounded history per shelf.

It plays etcd and the API server's watch cache at once. Objects are plain dicts that nobody changes
after they were put: a write puts a new dict. So history, snapshots and watchers share them, and
each version of an object is encoded at most once however many lists and watches send it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

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
    _encoded: bytes | None = None

    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._encoded is None:
            self._encoded = orjson.dumps(self.object)
        return self._encoded


@dataclass(frozen=True, slots=True)
class Record:
    """One step of a shelf's history; a creation has no `before`, a deletion's `after` has its revision."""

    type: str
    key: Key
    before: Version | None
    after: Version

    @property
    def revision(self) -> int:
        """The revision that this step made."""
        return self.after.revision


@dataclass(slots=True, eq=False)
class Shelf:
    """All objects of one resource, by key and in key order, and what happened to them lately."""

    group: str
    plural: str
    objects: dict[Key, Version] = field(default_factory=dict)
    order: list[Key] = field(default_factory=list)
    namespaces: dict[str, set[Key]] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)
    forgotten: int = 0
    """How many records were dropped from the front of the history, ever."""
    compacted: int = 0
    """Changes up to this revision can no longer be told."""
    waiting: set[asyncio.Event] = field(default_factory=set)

    def in_namespace(self, namespace: str) -> list[Key]:
        """The keys of one namespace in order, or all of them for ""."""
        if not namespace:
            return self.order
        start = bisect_left(self.order, (namespace, ""))
        return self.order[start : start + len(self.namespaces.get(namespace, ()))]

    def versions(self, namespace: str = "") -> Iterator[Version]:
        """The current objects of one namespace, or all, in order."""
        return map(self.objects.__getitem__, self.in_namespace(namespace))

    def at(self, revision: int, namespace: str = "") -> Moment:
        """The objects as they were at a revision; raises ApiError 410 when that is forgotten."""
        if revision < self.compacted:
            raise errors.gone(
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
        return Moment(keys, self.objects, then)


_UNTOUCHED: Final = object()


@dataclass(frozen=True, slots=True)
class Moment:
    """The objects of a shelf at one revision: their keys in order, and each by its key."""

    keys: list[Key]
    _now: dict[Key, Version]
    _then: dict[Key, Version | None]

    def __getitem__(self, key: Key) -> Version:
        return self._then.get(key) or self._now[key]


Listener = Callable[[Shelf, Record], None]
"""What is told of every change at once, in the order of revisions."""


class Store:
    """All shelves and the revision they share."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.revision = 1
        self._history = history
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self.listeners: list[Listener] = []

    def shelf(self, group: str, plural: str) -> Shelf:
        """The shelf of a resource; made when first asked for."""
        shelf = self._shelves.get((group, plural))
        if shelf is None:
            shelf = self._shelves[group, plural] = Shelf(group, plural, compacted=0)
        return shelf

    def shelves(self) -> list[Shelf]:
        """Every shelf there is."""
        return list(self._shelves.values())

    def put(self, shelf: Shelf, obj: Object) -> Version:
        """Create or replace an object; sets its resourceVersion on a copy of its metadata."""
        version = self._version(obj)
        metadata = version.object["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        before = shelf.objects.get(key)
        shelf.objects[key] = version
        if before is None:
            insort(shelf.order, key)
            shelf.namespaces.setdefault(key[0], set()).add(key)
        self._commit(shelf, Record("ADDED" if before is None else "MODIFIED", key, before, version))
        return version

    def delete(self, shelf: Shelf, key: Key, last: Object | None = None) -> Version:
        """Take an object away; `last` is its final state when that differs from the stored one."""
        before = shelf.objects.pop(key)
        del shelf.order[bisect_left(shelf.order, key)]
        shelf.namespaces[key[0]].discard(key)
        version = self._version(last or before.object)
        self._commit(shelf, Record("DELETED", key, before, version))
        return version

    def compact(self) -> int:
        """Forget all history; whoever asks for changes since an older revision gets 410."""
        for shelf in self._shelves.values():
            shelf.forgotten += len(shelf.history)
            shelf.history.clear()
            shelf.compacted = self.revision
            _wake(shelf)
        return self.revision

    def _version(self, obj: Object) -> Version:
        self.revision += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        return Version({**obj, "metadata": metadata}, self.revision)

    def _commit(self, shelf: Shelf, record: Record) -> None:
        shelf.history.append(record)
        if len(shelf.history) > 2 * self._history:
            dropped = shelf.history[: self._history]
            shelf.compacted = dropped[-1].revision
            shelf.forgotten += len(dropped)
            del shelf.history[: self._history]
        _wake(shelf)
        for listener in self.listeners:
            listener(shelf, record)


def _wake(shelf: Shelf) -> None:
    for event in shelf.waiting:
        event.set()
