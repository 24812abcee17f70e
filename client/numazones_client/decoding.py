"""What comes back from lists and watches, and how callers choose what to keep of it.

A list page and a watch event arrive as bytes. A ``Decoder`` turns them into values: the default one
gives plain mappings; a caller with fifty thousand pods passes one that keeps a few fields.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    resource_version: str
    """Where a watch continues from."""
    continue_token: str = ""
    """Empty on the last page."""


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One event of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; ERROR never leaves the client."""
    object: T | None
    """The object; None for bookmarks and errors."""
    resource_version: str
    """Where a new watch continues from after this event."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """The Status of an ERROR event."""


class Decoder(Protocol[T]):
    """Turns answers into values. Malformed input raises ValueError."""

    def page(self, body: bytes) -> Page[T]:
        """Decode the body of a list."""
        ...

    def event(self, line: bytes) -> Event[T]:
        """Decode one line of a watch."""
        ...


class JSONDecoder:
    """Plain mappings, nothing left out."""

    def page(self, body: bytes) -> Page[dict[str, Any]]:
        """Decode the body of a list; items get the ``kind`` and ``apiVersion`` that lists leave out."""
        document = json.loads(body)
        metadata = document.get("metadata") or {}
        kind = str(document.get("kind") or "").removesuffix("List")
        version = document.get("apiVersion") or ""
        items = document.get("items") or []
        for item in items:
            item.setdefault("apiVersion", version)
            item.setdefault("kind", kind)
        return Page(items, metadata.get("resourceVersion") or "", metadata.get("continue") or "")

    def event(self, line: bytes) -> Event[dict[str, Any]]:
        """Decode one line of a watch."""
        document = json.loads(line)
        kind = document["type"]
        body = document["object"]
        if kind == ERROR:
            return Event(kind, None, "", body)
        version = (body.get("metadata") or {}).get("resourceVersion") or ""
        return Event(kind, None if kind == BOOKMARK else body, version)


JSON = JSONDecoder()
