"""The documents that all viewers see, each as it goes over the wire, with the version that it changed in.

A viewer is a number: the version it has seen, as in a watch of the Kubernetes API. One that is slow misses
versions in between, not documents, and costs no memory.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MAX_GONE = 1000
"""Keys of removed documents that are kept for those who have seen the document."""
_CHUNK_BYTES = 256 * 1024
"""About as many bytes are put into one message."""

_GONE = b"null"


class VersionedDocuments:
    """Key → document, each with the version that it changed in."""

    def __init__(self) -> None:
        self.version = 0
        self._documents: dict[str, tuple[int, bytes]] = {}
        """Key → (version, JSON), those that changed last at the end."""
        self._gone = 0
        self._horizon = 0
        """Who has seen less than this may show documents that were removed, and nobody knows which."""
        self._notified = 0
        self._changed = asyncio.Event()

    def put(self, documents: Mapping[str, Any]) -> None:
        """Add or replace documents; those that are equal to what is there change nothing."""
        for key, document in documents.items():
            self._put(key, json.dumps(document, separators=(",", ":")).encode())

    def remove(self, keys: Iterable[str]) -> None:
        """Remove documents; the others stay."""
        for key in keys:
            if self._documents.get(key, (0, _GONE))[1] != _GONE:
                self._put(key, _GONE)
        if self._gone > _MAX_GONE:
            self._documents = {key: item for key, item in self._documents.items() if item[1] != _GONE}
            self._gone = 0
            self._horizon = self.version

    def clear(self) -> None:
        """Remove everything; every viewer has to begin anew."""
        self._documents.clear()
        self._gone = 0
        self.version += 1
        self._horizon = self.version

    def notify(self) -> None:
        """Wake those who wait for a change."""
        self._notified = self.version
        self._changed.set()
        self._changed.clear()

    async def wait_for_change(self, seen: int) -> None:
        """Wait until viewers were notified of a later version than ``seen``, or notified again."""
        if self._notified <= seen:
            await self._changed.wait()

    def is_expired(self, seen: int) -> bool:
        """Return whether a viewer of this version must start again, as a watch does after 410 Gone."""
        return not self._horizon <= seen <= self.version

    def changes_since(self, seen: int) -> Iterator[bytes]:
        """Return what has changed since a version, as JSON objects, the oldest change first.

        They are of moderate size, and each is put together when it is asked for.
        """
        found = []
        for key, (version, body) in reversed(self._documents.items()):
            if version <= seen:
                break
            found.append((key, body))
        return _chunks(reversed(found))

    def _put(self, key: str, body: bytes) -> None:
        before = self._documents.get(key)
        if before is not None:
            if before[1] == body:
                return
            self._gone -= before[1] == _GONE
            del self._documents[key]
        self.version += 1
        self._gone += body == _GONE
        self._documents[key] = (self.version, body)


def _chunks(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    chunk: list[bytes] = []
    size = 0
    for key, body in entries:
        chunk.append(json.dumps(key).encode() + b":" + body)
        size += len(chunk[-1])
        if size > _CHUNK_BYTES:
            yield b"{" + b",".join(chunk) + b"}"
            chunk, size = [], 0
    if chunk:
        yield b"{" + b",".join(chunk) + b"}"
