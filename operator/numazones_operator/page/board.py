"""What all viewers see, each document once and as it goes over the wire, with the version that it changed in.

A viewer is a number: the version it has seen. One that is slow misses versions in between, not documents, and
costs no memory. The board is as large as what it shows, whoever looks.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_GONE = 1000
"""Names of gone documents that are kept for those who have not heard."""
_PARCEL = 256 * 1024
"""Bytes that are put into one message, about."""

_GONE = b"null"


class Board:
    """A flat map of documents with a history of one number each."""

    def __init__(self) -> None:
        self.version = 0
        self._documents: dict[str, tuple[int, bytes]] = {}
        """Key → (version, JSON), those that changed last at the end."""
        self._gone = 0
        self._horizon = 0
        """Who has seen less than this may show documents that are gone, and nobody knows which."""
        self._announced = 0
        self._changed = asyncio.Event()

    def show(self, documents: Mapping[str, Any]) -> None:
        """Take documents in; those that are shown already, just so, are no news."""
        for key, document in documents.items():
            self._put(key, json.dumps(document, separators=(",", ":")).encode())

    def take_down(self, keys: Iterable[str]) -> None:
        """Show some documents no longer."""
        for key in keys:
            if self._documents.get(key, (0, _GONE))[1] != _GONE:
                self._put(key, _GONE)
        if self._gone > _MOST_GONE:
            self._documents = {key: item for key, item in self._documents.items() if item[1] != _GONE}
            self._gone = 0
            self._horizon = self.version

    def wipe(self) -> None:
        """Show nothing, and keep nothing."""
        self._documents.clear()
        self._gone = 0
        self.version += 1
        self._horizon = self.version

    def announce(self) -> None:
        """Wake those who wait for news."""
        self._announced = self.version
        self._changed.set()
        self._changed.clear()

    async def news(self, seen: int) -> None:
        """Wait until more was announced than what was seen, or something was announced again."""
        if self._announced <= seen:
            await self._changed.wait()

    def forgot(self, seen: int) -> bool:
        """Whether someone who has seen a version must begin anew."""
        return not self._horizon <= seen <= self.version

    def since(self, seen: int) -> Iterator[bytes]:
        """Return what changed after a version and until now, as JSON objects, the oldest change first.

        They are of moderate size, and each is put together when it is asked for.
        """
        found = []
        for key, (version, body) in reversed(self._documents.items()):
            if version <= seen:
                break
            found.append((key, body))
        return _parcels(reversed(found))

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


def _parcels(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    parcel: list[bytes] = []
    size = 0
    for key, body in entries:
        parcel.append(json.dumps(key).encode() + b":" + body)
        size += len(parcel[-1])
        if size > _PARCEL:
            yield b"{" + b",".join(parcel) + b"}"
            parcel, size = [], 0
    if parcel:
        yield b"{" + b",".join(parcel) + b"}"
