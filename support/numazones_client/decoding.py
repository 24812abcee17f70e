"""Answers to lists and watches, and how callers choose what to keep of each object.

A list page and a watch event arrive as bytes, and a list of fifty thousand pods is read page by page: of
each object only what some rule needs survives. One object that cannot be read must not keep the others from
being seen, so it is left out here, with a warning that names it, and reported to whoever mirrors it.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from numazones.errors import NumazonesError

T = TypeVar("T")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object of which nothing could be kept."""

    key: str
    """How the caller names the object, from its metadata alone."""
    metadata: Mapping[str, Any]
    problem: str
    """What cannot be read, for people."""
    kind: str = ""
    api_version: str = ""
    error: str = ""
    """Name of the exception."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    resource_version: str
    """Where a watch continues from."""
    continue_token: str = ""
    """Empty on the last page."""
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One event of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; ERROR never leaves the client."""
    object: T | None
    """The object; None for bookmarks, errors and objects that cannot be read."""
    resource_version: str
    """Where a new watch continues from after this event."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """The Status of an ERROR event."""
    unreadable: Unreadable | None = None
    """What is known of an object that cannot be read."""


def by_name(metadata: Mapping[str, Any]) -> str:
    """Name an object: ``namespace/name``, or ``name`` where there are no namespaces."""
    namespace, name = metadata.get("namespace"), metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else str(name)


def by_uid(metadata: Mapping[str, Any]) -> str:
    """Name an object by its uid."""
    return str(metadata.get("uid") or "")


class Decoder(Generic[T]):
    """Turns answers into values with a function that keeps what its caller needs of one object.

    Args:
        keep: takes the object as it came, with the ``kind`` and ``apiVersion`` that lists leave out. An
            object for which it raises is ``Unreadable``.
        key: names an unreadable object by its metadata, as the table that mirrors it does.
    """

    def __init__(
        self, keep: Callable[[dict[str, Any]], T], *, key: Callable[[Mapping[str, Any]], str] = by_name
    ) -> None:
        self._keep = keep
        self._key = key
        self.kind = ""
        """Of the objects, once one was read."""

    def page(self, body: bytes) -> Page[T]:
        """Decode the body of a list; ValueError, KeyError, TypeError, AttributeError: it is none."""
        document = loads(body)
        metadata = document.get("metadata") or {}
        kind = str(document.get("kind") or "").removesuffix("List")
        version = document.get("apiVersion") or ""
        items: list[T] = []
        unreadable: list[Unreadable] = []
        for item in document.get("items") or ():
            item.setdefault("apiVersion", version)
            item.setdefault("kind", kind)
            kept = self._one(item)
            if isinstance(kept, Unreadable):
                unreadable.append(kept)
            else:
                items.append(kept)
        return Page(
            items, metadata.get("resourceVersion") or "", metadata.get("continue") or "", tuple(unreadable)
        )

    def event(self, line: bytes) -> Event[T]:
        """Decode one line of a watch; raises as ``page`` does."""
        document = loads(line)
        kind, body = document["type"], document["object"]
        if kind == ERROR:
            return Event(kind, None, "", body)
        version = (body.get("metadata") or {}).get("resourceVersion") or ""
        if kind == BOOKMARK:
            return Event(kind, None, version)
        kept = self._one(body)
        if isinstance(kept, Unreadable):
            return Event(kind, None, version, unreadable=kept)
        return Event(kind, kept, version)

    def _one(self, body: dict[str, Any]) -> T | Unreadable:
        self.kind = str(body.get("kind") or self.kind)
        try:
            return self._keep(body)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the mirror of the others
            metadata = body.get("metadata")
            metadata = metadata if isinstance(metadata, Mapping) else {}
            name = f"{body.get('kind') or 'object'} {by_name(metadata) or '(unnamed)'}"
            problem = str(error) if isinstance(error, NumazonesError) else repr(error)
            _log.warning("%s cannot be read and is ignored: %s", name, problem)
            kind, version = str(body.get("kind") or ""), str(body.get("apiVersion") or "")
            return Unreadable(self._key(metadata), metadata, problem, kind, version, type(error).__name__)


_DEEPEST = 100
"""Levels of JSON that are read of an object with more than Python reads; rules look at a tenth of them."""
_LONGEST = 400
"""Digits of a number that are read; a float of Kubernetes has 309 at most."""
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[-0-9][-+.0-9eE]{%d,}' % _LONGEST)


def loads(body: bytes) -> Any:
    """Read an answer, with nulls in place of what Python's parser declines.

    API servers hand on, as it came, what people put into opaque fields, such as the parameters of a
    ResourceClaim: thousands of levels or of digits, for which a list as a whole could not be read.

    >>> loads(b'{"items": ' + b"[" * 5000 + b"]" * 5000 + b', "n": ' + b"9" * 5000 + b"}")["n"] is None
    True
    """
    try:
        return json.loads(body)
    except (RecursionError, ValueError):
        return json.loads(b"".join(_readable_parts(body)))


def _readable_parts(body: bytes) -> Iterator[bytes]:
    """Yield JSON without what is too deep or too long."""
    depth = kept = 0
    for mark in _MARKS.finditer(body):
        match mark[0][:1]:
            case b"[" | b"{":
                depth += 1
                if depth == _DEEPEST + 1:
                    yield body[kept : mark.start()]
            case b"]" | b"}":
                depth -= 1
                if depth == _DEEPEST:
                    yield b"null"
                    kept = mark.end()
            case b'"':
                continue
            case _ if depth <= _DEEPEST:
                yield body[kept : mark.start()]
                yield b"null"
                kept = mark.end()
    if depth <= _DEEPEST:
        yield body[kept:]


JSON: Decoder[dict[str, Any]] = Decoder(lambda body: body)
"""Plain mappings, nothing left out."""
