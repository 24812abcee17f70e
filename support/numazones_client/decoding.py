"""Answers to lists and watches, and how callers choose what to keep of each object.

A list page and a watch event arrive as bytes, and a list of fifty thousand pods is read page by page: of
each object only what some rule needs survives. One object that cannot be read must not keep the others from
being seen, so it is left out here, with a warning that names it, and reported to whoever mirrors it.
"""

import json
import logging
from collections.abc import Callable, Mapping
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
        keep: takes the object as it came, with the ``kind`` and ``apiVersion`` that lists leave out. What it
            raises for an object of unexpected form (NumazonesError, KeyError, TypeError, ValueError,
            AttributeError) makes the object ``Unreadable``.
        key: names an unreadable object by its metadata, as the table that mirrors it does.
    """

    def __init__(
        self, keep: Callable[[dict[str, Any]], T], *, key: Callable[[Mapping[str, Any]], str] = by_name
    ) -> None:
        self._keep = keep
        self._key = key

    def page(self, body: bytes) -> Page[T]:
        """Decode the body of a list; ValueError, KeyError, TypeError, AttributeError: it is none."""
        document = json.loads(body)
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
        document = json.loads(line)
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
        try:
            return self._keep(body)
        except (NumazonesError, KeyError, TypeError, ValueError, AttributeError) as error:
            metadata = body.get("metadata")
            metadata = metadata if isinstance(metadata, Mapping) else {}
            name = f"{body.get('kind') or 'object'} {by_name(metadata) or '(unnamed)'}"
            problem = str(error) if isinstance(error, NumazonesError) else repr(error)
            _log.warning("%s cannot be read and counts as gone: %s", name, problem)
            kind, version = str(body.get("kind") or ""), str(body.get("apiVersion") or "")
            return Unreadable(self._key(metadata), metadata, problem, kind, version)


JSON: Decoder[dict[str, Any]] = Decoder(lambda body: body)
"""Plain mappings, nothing left out."""
