"""Mirrors one resource of the API server into memory, and recovers from everything that breaks a mirror.

Kubernetes' own informers set the rules (client-go ``tools/cache``; "Efficient detection of changes" of the
API concepts): list page by page, watch from the list's version, continue from the last event or bookmark,
list again after 410 Gone. A list replaces what was mirrored, so that objects which vanished while nobody
watched are found. A stream that says nothing is opened anew from where it stood: a server that is there
answers, and one that is not is a failure then. Silence itself is none, since API servers without progress
notifications of etcd send no bookmarks for resources that nobody touches.

kopf's own event cache is not used for this: after a 410 it never learns of vanished objects, and its
indexes do not scale to whole clusters.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, Protocol, TypeVar

from numazones.errors import NumazonesError
from numazones_client.client import Client
from numazones_client.decoding import DELETED, Decoder, Event, Unreadable
from numazones_client.errors import APIError, Forbidden, Gone, UnknownResource, Unreachable
from numazones_client.resources import Resource
from numazones_client.table import Table

T = TypeVar("T")

_log = logging.getLogger(__name__)

_FIRST_DELAY = 0.2
_MAX_DELAY = 30.0
_OPTIONAL_DELAY = 60.0
# The longest that events are taken in without letting other tasks of the loop run.
_SLICE = 0.02
# A watch that ends sooner than this has done no work; starting the next at once would be a busy loop.
_SHORT_WATCH = 1.0
NOT_LISTED = "it has not been listed yet"
"""Problem of a mirror that has just been started."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Delays of a reflector, in seconds."""

    duration: float = 300.0
    """How long one watch lasts; the server ends it, jitter keeps watches of one client apart."""
    silence: float = 90.0
    """How long a stream may say nothing before it is opened anew; most servers send bookmarks each minute."""
    page_size: int = 500
    """Objects per page of a list. Whoever must never see half a list asks for more than there are."""


@dataclass(slots=True, eq=False)
class Backoff:
    """Growing delays with full jitter: many clients that lost one server do not return as one."""

    draw: Callable[[], float] = random.random
    _failures: int = field(init=False, default=0)

    def reset(self) -> None:
        """Start again with short delays, after something worked."""
        self._failures = 0

    def delay(self) -> float:
        """Return how long to wait after one more failure, in seconds."""
        ceiling: float = min(_FIRST_DELAY * 2**self._failures, _MAX_DELAY)
        self._failures = min(self._failures + 1, 16)
        return ceiling * (0.5 + self.draw() / 2)


class WatchMetrics(Protocol):
    """Metrics that a reflector reports; ``resource`` as RBAC names it."""

    def count_restart(self, resource: str, reason: str) -> None:
        """Count the end of a watch: ended, broken, expired, rejected or unreachable."""

    def observe_list(self, resource: str, seconds: float) -> None:
        """Record how long a whole list took."""


class _NoMetrics:
    """Reports nothing."""

    def count_restart(self, resource: str, reason: str) -> None:
        pass

    def observe_list(self, resource: str, seconds: float) -> None:
        pass


@dataclass(eq=False, repr=False)
class Reflector(Generic[T]):
    """Keeps one table equal to one resource of the API server."""

    client: Client
    resource: Resource
    _: KW_ONLY
    decoder: Decoder[T]
    """Keeps of each object what is needed; its keys of unreadable objects are the table's."""
    table: Table[T]
    """Where the objects go."""
    metrics: WatchMetrics = field(default_factory=_NoMetrics)
    namespace: str = ""
    """One namespace, empty for all."""
    label_selector: str = ""
    field_selector: str = ""
    pace: Pace = Pace()
    optional: bool = False
    """A cluster that does not know the resource counts as one without such objects."""
    needed: bool = True
    """False: so does one that does not grant the right to list them, until it does."""
    appearance: Callable[[Resource], Awaitable[None]] | None = None
    """Waits until it is worth asking again for a resource that the cluster does not know; None: every one to
    two minutes."""
    quiet: bool = False
    """Log for debugging only, where another mirror of the resource logs the same."""
    unreadable: Callable[[Unreadable], None] = lambda _object: None
    """Called with each object that cannot be read, after it was removed from the table."""
    failed: Callable[[T, Exception], None] = lambda _item, _error: None
    """Called with each object about which the table's owner raised, and the error."""
    draw: Callable[[], float] = random.random
    """Draws from [0, 1)."""
    synced: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set once the resource has been listed."""
    problem: str = field(init=False, default=NOT_LISTED)
    """Why the mirror may be behind; empty while it is current."""
    forbidden: bool = field(init=False, default=False)
    """Whether the mirror is behind because reading the resource is forbidden."""
    _version: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._backoff = Backoff(draw=self.draw)

    @property
    def name(self) -> str:
        """Return the name of the mirrored resource, as RBAC and people use it."""
        return self.resource.full_name

    async def run(self) -> None:
        """Mirror until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                self._note("%s: the resource version is too old, listing again", self.name)
                self.metrics.count_restart(self.name, "expired")
                self._version = ""
            except UnknownResource as error:
                self._version = ""
                await self._wait_for_resource(error)
            except NumazonesError as error:  # also a token that cannot be read just now
                await self._wait_after(error)

    async def _list(self) -> None:
        """Take in a list page by page, so that it is never in memory as a whole; then drop the rest."""
        seen: set[str] = set()
        unreadable: list[Unreadable] = []
        version = ""
        clock = asyncio.get_running_loop().time
        started = clock()
        async for page in self.client.pages(
            self.resource,
            decoder=self.decoder,
            namespace=self.namespace,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
            limit=self.pace.page_size,
        ):
            for item in page.items:
                self._take(self.table.put, item)
                seen.add(self.table.key(item))
            unreadable += page.unreadable
            version = page.resource_version
            if page.continue_token:
                await asyncio.sleep(0)
        self.table.retain(seen)
        for left_out in unreadable:
            self.unreadable(left_out)
        self.metrics.observe_list(self.name, clock() - started)
        self._version = version
        self._mark_current()

    async def _watch(self) -> None:
        """Take in one stream. One that broke after some events ends like any other."""
        clock = asyncio.get_running_loop().time
        started = slice_started = clock()
        events = 0
        reason = "ended"
        try:
            async for event in self.client.watch(
                self.resource,
                resource_version=self._version,
                decoder=self.decoder,
                namespace=self.namespace,
                label_selector=self.label_selector,
                field_selector=self.field_selector,
                duration=self.pace.duration * (1 + self.draw()),
                silence=self.pace.silence,
            ):
                events += 1
                self._handle(event)
                self._version = event.resource_version or self._version
                if clock() - slice_started > _SLICE:
                    await asyncio.sleep(0)
                    slice_started = clock()
        except Unreachable as error:
            if not events:
                raise
            reason = "broken"
            self._note("%s: %s", self.name, error)
        except Gone:
            if not events and clock() - started < _SHORT_WATCH:
                await asyncio.sleep(self._backoff.delay())
            raise
        self.metrics.count_restart(self.name, reason)
        if events or clock() - started >= _SHORT_WATCH:
            self._mark_current()
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.delay())

    def _handle(self, event: Event[T]) -> None:
        if event.unreadable is not None:
            self.table.discard(event.unreadable.key)
            if event.type != DELETED:
                self.unreadable(event.unreadable)
        elif event.object is None:
            self._mark_current()
        elif event.type == DELETED:
            self._take(self.table.remove, event.object)
        else:
            self._take(self.table.put, event.object)

    def _take(self, change: Callable[[T], None], item: T) -> None:
        """Change the table; whatever who is told of it raises concerns this object alone."""
        try:
            change(item)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the mirror of the others
            self.failed(item, error)
            _log.debug("%s: an object could not be processed", self.name, exc_info=error)

    def _note(self, message: str, *arguments: object) -> None:
        _log.log(logging.DEBUG if self.quiet else logging.INFO, message, *arguments)

    def _mark_current(self) -> None:
        self.problem = ""
        self.forbidden = False
        self.synced.set()

    async def _wait_for_resource(self, error: UnknownResource) -> None:
        if self.optional:
            self.table.retain(frozenset())
            self._mark_current()
            clock = asyncio.get_running_loop().time
            started = clock()
            await (self.appearance or self._a_minute)(self.resource)
            if clock() - started >= _SHORT_WATCH:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.delay())  # who serves it may need a moment to do so
            return
        await self._wait_after(error)

    async def _a_minute(self, _resource: Resource) -> None:
        await asyncio.sleep(_OPTIONAL_DELAY * (1 + self.draw()))

    async def _wait_after(self, error: NumazonesError) -> None:
        asked = error.retry_after if isinstance(error, APIError) else None
        delay = max(self._backoff.delay(), asked or 0.0)
        # A problem that lasts, such as a missing right, was logged when it began and would fill the log.
        level = logging.DEBUG if self.quiet or self.problem == str(error) else logging.WARNING
        if isinstance(error, Unreachable):
            self.client.reachability.lost(error)
            level = logging.DEBUG
        self.problem = str(error)
        self.forbidden = isinstance(error, Forbidden)
        if self.forbidden and not self.needed:
            self.synced.set()
        self.metrics.count_restart(self.name, "unreachable" if isinstance(error, Unreachable) else "rejected")
        _log.log(level, "%s: %s; trying again in %.1f s", self.name, error, delay)
        await asyncio.sleep(delay)
