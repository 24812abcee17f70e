"""Mirrors one resource of the API server into memory, and recovers from everything that breaks a mirror.

Kubernetes' own informers set the rules (client-go ``tools/cache``; "Efficient detection of changes" of the
API concepts): list page by page, watch from the list's version, continue from the last event or bookmark,
list again after 410 Gone. A list replaces what was mirrored, so that objects which vanished while nobody
watched are found. A stream that says nothing, not even a bookmark, counts as dead.

kopf's own event cache is not used for this: after a 410 it never learns of vanished objects, and its
indexes do not scale to whole clusters.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from numazones_client import APIError, Client, Decoder, Gone, Resource, UnknownResource, Unreachable
from numazones_client.decoding import BOOKMARK, DELETED
from numazones_operator.metrics import WatchMetrics
from numazones_operator.tables import Table

T = TypeVar("T")

_log = logging.getLogger(__name__)

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 30.0
_OPTIONAL_DELAY = 60.0
# The longest that events are taken in without letting other tasks of the loop run.
_SLICE = 0.02
# A watch that ends sooner than this has done no work; starting the next at once would be a busy loop.
_SHORT_WATCH = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a reflector is; seconds."""

    duration: float = 300.0
    """How long one watch lasts; the server ends it, jitter keeps watches of one client apart."""
    silence: float = 90.0
    """How long a stream may say nothing before it counts as dead; servers send bookmarks every minute."""
    page_size: int = 500


class Backoff:
    """Growing delays with full jitter: many clients that lost one server do not return as one."""

    def __init__(self, *, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """Start again with short delays, after something worked."""
        self._failures = 0

    def delay(self) -> float:
        """Return how long to wait after one more failure, in seconds."""
        ceiling: float = min(_FIRST_DELAY * 2**self._failures, _LONGEST_DELAY)
        self._failures = min(self._failures + 1, 16)
        return ceiling * (0.5 + self._draw() / 2)


class Reflector(Generic[T]):
    """Keeps one table equal to one resource of the API server."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        decoder: Decoder[T],
        table: Table[T],
        metrics: WatchMetrics,
        namespace: str = "",
        label_selector: str = "",
        pace: Pace | None = None,
        optional: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``optional``: a cluster that does not know the resource counts as one without such objects."""
        self._client = client
        self._resource = resource
        self._decoder = decoder
        self._table = table
        self._metrics = metrics
        self._namespace = namespace
        self._label_selector = label_selector
        self._pace = pace or Pace()
        self._optional = optional
        self._draw = draw
        self._backoff = Backoff(draw=draw)
        self._version = ""
        self.synced = asyncio.Event()
        self.problem = "it has not been listed yet"
        """Why the mirror may be behind; empty while it is current."""

    @property
    def name(self) -> str:
        """What is mirrored, as RBAC and people call it."""
        return self._resource.full_name

    async def run(self) -> None:
        """Mirror until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                _log.info("%s: the version is too old, listing again", self.name)
                self._metrics.restarted(self.name, "expired")
                self._version = ""
            except UnknownResource as error:
                self._version = ""
                await self._wait_for_resource(error)
            except APIError as error:
                await self._wait_after(error)

    async def _list(self) -> None:
        """Take in a list page by page, so that it is never in memory as a whole; then drop the rest."""
        seen: set[str] = set()
        version = ""
        started = time.monotonic()
        async for page in self._client.pages(
            self._resource,
            decoder=self._decoder,
            namespace=self._namespace,
            label_selector=self._label_selector,
            limit=self._pace.page_size,
        ):
            for item in page.items:
                self._table.put(item)
                seen.add(self._table.key(item))
            version = page.resource_version
            await asyncio.sleep(0)
        self._table.retain(seen)
        self._metrics.listed(self.name, time.monotonic() - started)
        self._version = version
        self._current()

    async def _watch(self) -> None:
        """Take in one stream. One that broke after some events ends like any other."""
        duration = self._pace.duration * (1 + self._draw())
        started = slice_started = time.monotonic()
        events = 0
        reason = "ended"
        try:
            async for event in self._client.watch(
                self._resource,
                resource_version=self._version,
                decoder=self._decoder,
                namespace=self._namespace,
                label_selector=self._label_selector,
                duration=duration,
                silence=self._pace.silence,
            ):
                events += 1
                if event.type == BOOKMARK or event.object is None:
                    self._current()
                elif event.type == DELETED:
                    self._table.remove(event.object)
                else:
                    self._table.put(event.object)
                self._version = event.resource_version or self._version
                if time.monotonic() - slice_started > _SLICE:
                    await asyncio.sleep(0)
                    slice_started = time.monotonic()
        except Unreachable as error:
            if not events:
                raise
            reason = "broken"
            _log.info("%s: %s", self.name, error)
        self._metrics.restarted(self.name, reason)
        if events or time.monotonic() - started >= _SHORT_WATCH:
            self._current()
        else:
            await asyncio.sleep(self._backoff.delay())

    def _current(self) -> None:
        self._backoff.reset()
        self.problem = ""
        self.synced.set()

    async def _wait_for_resource(self, error: UnknownResource) -> None:
        if self._optional:
            self._table.retain(frozenset())
            self._current()
            await asyncio.sleep(_OPTIONAL_DELAY * (1 + self._draw()))
            return
        await self._wait_after(error)

    async def _wait_after(self, error: APIError) -> None:
        delay = max(self._backoff.delay(), error.retry_after or 0.0)
        self.problem = str(error)
        self._metrics.restarted(self.name, "unreachable" if isinstance(error, Unreachable) else "rejected")
        _log.warning("%s: %s; trying again in %.1f s", self.name, error, delay)
        await asyncio.sleep(delay)
