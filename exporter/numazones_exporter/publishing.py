"""Publishes this node's NUMAZones, with as few writes as possible.

Written is what differs from what the API server holds: its objects are listed at the start (so a
restart writes nothing), after any failure, when one was deleted (``WatchedZones``), and every
``RESYNC_SECONDS`` in case somebody else changed one. Writes are server-side applies: labels, owner and
spec through the object, everything else through its status. All zones of one reading carry one snapshot
id, which the zones' builder derives from their content. Zones that disagree in it tell readers that they
are being written, or that writing was interrupted: so the zones of a node are written at the same time, and
the next attempt completes the rest.

What the operator says of a silent exporter is left to it: it takes that back within seconds. What is still
there after ``RESYNC_SECONDS`` of work was left by an operator that is gone, and is removed.

The times at which conditions changed are kept here, not by the builder, which knows no time: a
condition whose status stays keeps the time that the API server holds.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from numazones.api.meta import NODE_LABEL, TRANSITION_TIME, Transitions, stamp, transitions
from numazones.api.numazone import NUMAZone
from numazones.apimachinery import timestamp
from numazones.errors import NumazonesError
from numazones_client import APIError, Client, NotFound, Resource
from numazones_client.resources import NUMAZONES
from numazones_exporter.metrics import ExporterMetrics

FIELD_MANAGER = "numazones-exporter"
RESYNC_SECONDS = 600.0
_SILENCE = "silence"
_PLACEMENT = "placement"
_DYNAMIC_RESOURCES = "dynamicResources"
"""Fields of a zone's status that are the operator's."""
_MAX_CONCURRENT_WRITES = 16
"""Zones that are written at the same time; each takes a connection."""


class MissingOwner(NumazonesError):
    """The Node that zones must belong to is not known; the message names it and the cure."""


class Publisher(Protocol):
    """Keeps one kind of object current."""

    async def publish(self, zones: Sequence[NUMAZone]) -> int:
        """Write what differs; return the number of writes. Raises ``NumazonesError``."""
        ...

    def forget(self) -> None:
        """Ask what the API server holds before the next publishing."""
        ...


@dataclass(frozen=True, slots=True)
class _PublishedZone:
    """State of one zone on the API server, as far as this program writes it."""

    identity: str
    """Canonical JSON of our label, the owners and the spec."""
    status: str
    """Canonical JSON of the status without transition times, and without what the operator writes."""
    since: Transitions
    """Status of each condition, and since when."""
    silent: bool
    """Whether the operator's mark of a silent exporter is on it."""


class ObjectWriter:
    """Applies and deletes objects under one field manager, and counts every attempt."""

    def __init__(self, client: Client, metrics: ExporterMetrics) -> None:
        self.client = client
        self._metrics = metrics

    async def apply(
        self,
        kind: str,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        force: bool = True,
    ) -> None:
        """Apply the body, which the metric calls ``kind``; without ``force`` others keep their fields."""
        try:
            await self.client.apply(
                resource,
                body,
                field_manager=FIELD_MANAGER,
                namespace=namespace,
                subresource=subresource,
                force=force,
            )
        except APIError as error:
            self._count(kind, error)
            raise
        self._count(kind, None)

    async def remove(self, kind: str, resource: Resource, name: str, field: str) -> None:
        """Take a field out of an object's status, whoever put it there."""
        try:
            await self.client.patch(resource, name, {"status": {field: None}}, subresource="status")
        except APIError as error:
            self._count(kind, error)
            raise
        self._count(kind, None)

    async def delete(self, kind: str, resource: Resource, name: str) -> None:
        """Delete an object; one that is gone already counts as deleted."""
        try:
            await self.client.delete(resource, name)
        except NotFound as error:
            self._count(kind, error)
        except APIError as error:
            self._count(kind, error)
            raise
        else:
            self._count(kind, None)

    def _count(self, kind: str, error: APIError | None) -> None:
        result = "ok" if error is None else str(error.code) if error.code else "unreachable"
        self._metrics.api_writes.labels(kind, result).inc()


@dataclass
class ZonePublisher:
    """Publishes the zones of one node."""

    writer: ObjectWriter
    node_name: str
    _: KW_ONLY
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    _published: dict[str, _PublishedZone] | None = field(init=False, default=None)
    _listed_at: float = field(init=False, default=0.0)
    _first_listed_at: float | None = field(init=False, default=None)

    async def publish(self, zones: Sequence[NUMAZone]) -> int:
        """Write what differs, delete zones that vanished; return the number of writes.

        Raises:
            MissingOwner: a zone has no owner reference.
            APIError: a request failed; what was written stays, the next call completes it.
        """
        if self._published is None or self.clock() - self._listed_at >= RESYNC_SECONDS:
            self._published = await self._list()
            self._listed_at = self.clock()
            self._first_listed_at = (
                self._listed_at if self._first_listed_at is None else self._first_listed_at
            )
        for zone in zones:
            if not zone.metadata.owner_references:
                raise MissingOwner(
                    f"cannot publish {zone.metadata.name}: the API server did not return the UID of Node "
                    f"{self.node_name}, which owns it"
                )
        try:
            return await self._apply_all(zones, self._published)
        except BaseException:
            # What the server made of the request is unknown, so it is asked before the next attempt.
            self.forget()
            raise

    def forget(self) -> None:
        """Ask what the API server holds before the next publishing."""
        self._published = None

    async def _list(self) -> dict[str, _PublishedZone]:
        items = await self.writer.client.list(NUMAZONES, label_selector=f"{NODE_LABEL}={self.node_name}")
        return {item["metadata"]["name"]: _published_zone(item) for item in items}

    async def _apply_all(self, zones: Sequence[NUMAZone], published: dict[str, _PublishedZone]) -> int:
        slots = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)

        async def apply_zone(zone: NUMAZone) -> int:
            async with slots:
                return await self._apply_zone(zone, published)

        # Every request may finish: what has arrived need not be written again.
        results = await asyncio.gather(*map(apply_zone, zones), return_exceptions=True)
        writes = 0
        for result in results:
            if isinstance(result, BaseException):
                raise result
            writes += result
        for name in sorted(published.keys() - {zone.metadata.name for zone in zones}):
            await self.writer.delete("NUMAZone", NUMAZONES, name)
            del published[name]
            writes += 1
        return writes

    async def _apply_zone(self, zone: NUMAZone, published: dict[str, _PublishedZone]) -> int:
        body = zone.to_api()
        name = zone.metadata.name
        status = body.pop("status", {})
        before = published.get(name)
        desired = _published_zone({**body, "status": status})
        writes = 0
        if before is None or before.identity != desired.identity:
            await self.writer.apply("NUMAZone", NUMAZONES, body)
            writes += 1
        if before is None or before.status != desired.status:
            conditions = status.get("conditions", ())
            stamp(conditions, before.since if before is not None else {}, timestamp.format(self.now()))
            since = transitions(conditions)
            head = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": name}}
            await self.writer.apply("NUMAZone", NUMAZONES, {**head, "status": status}, subresource="status")
            desired = replace(desired, since=since, silent=before is not None and before.silent)
            writes += 1
        elif before is not None:
            desired = before
        if before is not None and before.silent and self._is_settled():
            await self.writer.remove("NUMAZone", NUMAZONES, name, _SILENCE)
            desired = replace(desired, silent=False)
            writes += 1
        published[name] = desired
        return writes

    def _is_settled(self) -> bool:
        """Return whether an operator would have removed its mark long ago, so that none is left."""
        return self._first_listed_at is not None and self.clock() - self._first_listed_at >= RESYNC_SECONDS


def canonical(value: Any) -> str:
    """Write JSON so that equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _published_zone(body: Mapping[str, Any]) -> _PublishedZone:
    metadata = body["metadata"]
    status = dict(body.get("status") or {})
    silence = status.pop(_SILENCE, None)
    status.pop(_PLACEMENT, None)
    status.pop(_DYNAMIC_RESOURCES, None)
    conditions = status.get("conditions") or []
    if conditions:
        status["conditions"] = [
            {key: value for key, value in condition.items() if key != TRANSITION_TIME}
            for condition in conditions
        ]
    return _PublishedZone(
        identity=canonical(
            [
                (metadata.get("labels") or {}).get(NODE_LABEL),
                metadata.get("ownerReferences") or [],
                body.get("spec"),
            ]
        ),
        status=canonical(status),
        since=transitions(conditions),
        silent=silence is not None,
    )
