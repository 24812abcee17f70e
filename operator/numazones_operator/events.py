"""Posts the operator's events, all of them: within one rate, counted, and never in anybody's way.

People read events, and etcd stores them, so what would exceed the rate is dropped and counted; whoever posts
an event is told, and may try again later. ``kopf.event`` would do the posting, but only inside a handler for
the object in question, at any rate, and past the metrics.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from numazones.apimachinery import timestamp
from numazones.wording import visible
from numazones_client import APIError, Client
from numazones_client.resources import EVENTS
from numazones_operator.faults import ObjectReference
from numazones_operator.metrics.registry import Metrics
from numazones_operator.rate_limit import TokenBucket

COMPONENT = "numazones-operator"
NORMAL = "Normal"
WARNING = "Warning"

_BURST_SECONDS = 10
"""Seconds' worth of events that are let through at once after a quiet time."""
_MAX_MESSAGE = 1024
_MAX_NAME = 200
"""Of the object's name as the beginning of the event's."""
_MAX_INSTANCE = 128

_log = logging.getLogger(__name__)


class EventPoster:
    """Takes events from all parts of the operator and posts them one after the other."""

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        rate: float,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rate`` in events per second; ``identity`` of this replica."""
        self._client = client
        self._identity = identity
        self._metrics = metrics
        self._bucket = TokenBucket(rate, rate * _BURST_SECONDS, clock=clock)
        # Grows no faster than the rate, however long the server does not answer.
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def post(self, about: ObjectReference, *, type: str, reason: str, message: str) -> bool:  # noqa: A002
        """Post an event, if that keeps within the rate; return whether it does."""
        if not self._bucket.take():
            self._metrics.events_dropped.inc()
            return False
        self._queue.put_nowait(
            event(about, type=type, reason=reason, message=message, instance=self._identity)
        )
        return True

    async def run(self) -> None:
        """Post events until cancelled; one that cannot be posted is lost, as events may be."""
        while True:
            body = await self._queue.get()
            try:
                await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])
                self._metrics.count_write(EVENTS)
            except APIError as error:
                self._metrics.count_write(EVENTS, error)
                _log.info("could not post an event: %s", error)


def object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Return the reference to an object as the API server returned it."""
    metadata = body["metadata"]
    reference = {"apiVersion": str(body["apiVersion"]), "kind": str(body["kind"])}
    return reference | {key: str(metadata[key]) for key in ("namespace", "name", "uid") if metadata.get(key)}


def event(
    about: ObjectReference,
    *,
    type: str,  # noqa: A002 - as the API calls it
    reason: str,
    message: str,
    instance: str,
) -> dict[str, Any]:
    """Return an Event on an object; on one without a namespace, it is kept in ``default``."""
    now = timestamp.format(datetime.now(UTC))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": about.get("namespace") or "default",
            "generateName": f"{about['name'][:_MAX_NAME]}.",
        },
        "involvedObject": dict(about),
        "type": type,
        "reason": reason,
        # Names and messages of others may be in it, and people read events in terminals.
        "message": visible(message[:_MAX_MESSAGE])[:_MAX_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:_MAX_INSTANCE],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
