"""Watches: the changes of a collection as a stream of events, each encoded once for all watchers.

A watch is a position in the collection's history. Nothing is queued per watcher: a slow one finds, when
it looks again, that its position was compacted, and gets 410 as the documentation prescribes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from numazones_apiserver import errors
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind
from numazones_apiserver.lists import check_options
from numazones_apiserver.requests import flag, resource_version
from numazones_apiserver.selectors import Selection
from numazones_apiserver.store import Collection, Record, Store, Version

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
Rendering = Callable[[Object], Object]
"""Makes of an object what the client asked to see instead: a table, or its metadata."""


@dataclass(slots=True)
class Watch:
    """One client's position in the history of a collection, and which of its objects the client asked for."""

    store: Store
    collection: Collection
    kind: Kind
    namespace: str
    selection: Selection
    render: Rendering | None = None
    position: int = 0
    bookmarks: bool = False

    def start(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Take the position that the query asks for and return the initial events. Raises StatusError 410."""
        check_options(query, watch=True)
        self.bookmarks = flag(query, "allowWatchBookmarks")
        asked = resource_version(query)
        streaming = flag(query, "sendInitialEvents")
        told = "sendInitialEvents" in query
        if asked and asked < self.collection.compact_revision and not streaming:
            raise errors.resource_expired(
                f"too old resource version: {asked} ({self.collection.compact_revision})"
            )
        end = self.collection.dropped_records + len(self.collection.history)
        if streaming or (not asked and not told):
            self.position = end
            versions = list(self.collection.versions(self.namespace))
            yield from (
                self._frame("ADDED", version)
                for version in versions
                if self.selection.matches(self._form(version))
            )
            if streaming and self.bookmarks:
                yield self.bookmark(initial_events_end=True)
        elif asked:
            at = bisect_right(self.collection.history, asked, key=lambda record: record.revision)
            self.position = self.collection.dropped_records + at
        else:
            self.position = end

    def pending(self) -> Iterator[bytes]:
        """The events since the last call; raises StatusError 410 when the position is compacted."""
        at = self.position - self.collection.dropped_records
        if at < 0:
            raise errors.resource_expired(
                f"too old resource version: {self.position} ({self.collection.compact_revision})"
            )
        records = self.collection.history[at:]
        self.position += len(records)
        for record in records:
            if self.namespace in ("", record.key[0]):
                frame = self._event(record)
                if frame is not None:
                    yield frame

    def _event(self, record: Record) -> bytes | None:
        if self.selection.everything:
            return self._frame(record.type, record.after)
        was = record.before is not None and self.selection.matches(self._form(record.before))
        if record.type == "DELETED":
            return self._frame("DELETED", record.after) if was else None
        fits = self.selection.matches(self._form(record.after))
        if fits:
            return self._frame("MODIFIED" if was else "ADDED", record.after)
        if not was or record.before is None:
            return None
        # What left the selection is sent as deleted: its last state within it, at this change's revision.
        last = record.before.object
        metadata = {**last["metadata"], "resourceVersion": str(record.revision)}
        return self._frame("DELETED", Version({**last, "metadata": metadata}, record.revision))

    def _form(self, version: Version) -> Object:
        convert = self.kind.from_storage
        return convert(version.object) if convert is not None else version.object

    def _frame(self, event: str, version: Version) -> bytes:
        if self.render is None and self.kind.from_storage is None:
            body = version.json()
        else:
            obj = self._form(version)
            body = orjson.dumps(self.render(obj) if self.render is not None else obj)
        return b'{"type":"%b","object":%b}\n' % (event.encode(), body)

    def bookmark(self, *, initial_events_end: bool = False) -> bytes:
        """An event that only tells how far the stream has come."""
        metadata: Object = {"resourceVersion": str(self.store.revision), "creationTimestamp": None}
        if initial_events_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: Object = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        if self.render is not None:
            obj = self.render(obj)
        return b'{"type":"BOOKMARK","object":%b}\n' % orjson.dumps(obj)


def error_frame(error: StatusError) -> bytes:
    """The event that ends a stream with an error."""
    return b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.status())
