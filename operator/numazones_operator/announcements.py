"""Events on pods when a verdict changes, kept to a rate: people read them, and etcd stores them.

A pod's first verdict is worth an event only where it is bad news, and a verdict that swings back and forth
is told at most once per interval. ``kopf.event`` would do the posting, but works only inside a handler for
the object in question.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from numazones.cluster import ClusterPod
from numazones.prediction import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones_client import APIError, Client, Resource, Unreachable
from numazones_operator.metrics import Metrics
from numazones_operator.pacing import TokenBucket

EVENTS = Resource("", "v1", "events")
COMPONENT = "numazones-operator"

_REASONS = {
    ADMISSIBLE: "AdmissionPossible",
    INADMISSIBLE: "AdmissionImpossible",
    UNKNOWN: "AdmissionUnknown",
}
_BURST = 10
_LONGEST_MESSAGE = 1024

_log = logging.getLogger(__name__)


class Announcements:
    """Decides which changes of verdict become events, and posts them."""

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        rate: float,
        interval: float,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rate`` in events per second, ``interval`` in seconds between events on one pod."""
        self._client = client
        self._identity = identity
        self._bucket = TokenBucket(rate, rate * _BURST, clock=clock)
        self._interval = interval
        self._metrics = metrics
        self._clock = clock
        self._told: dict[str, float] = {}
        # As long as the bucket lets through at once; more cannot wait.
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def verdict(self, pod: ClusterPod, prediction: Prediction, *, before: str) -> None:
        """Tell of a verdict; ``before`` is the one that was published earlier, or empty."""
        if prediction.verdict == before or (not before and prediction.verdict != INADMISSIBLE):
            return
        now = self._clock()
        told = self._told.get(pod.uid)
        if (told is not None and now - told < self._interval) or not self._bucket.take():
            self._metrics.events_dropped.inc()
            return
        self._told[pod.uid] = now
        self._queue.put_nowait(
            event(
                pod,
                kind="Normal" if prediction.verdict == ADMISSIBLE else "Warning",
                reason=_REASONS[prediction.verdict],
                message=f"NUMA placement: {prediction.sentence}",
                instance=self._identity,
            )
        )

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._told.pop(uid, None)

    async def run(self) -> None:
        """Post events until cancelled; one that cannot be posted is lost, as events may be."""
        while True:
            body = await self._queue.get()
            result = "ok"
            try:
                await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])
            except APIError as error:
                result = "unreachable" if isinstance(error, Unreachable) else str(error.code)
                _log.info("an event was lost: %s", error)
            self._metrics.api_writes.labels(EVENTS.plural, result).inc()


def event(pod: ClusterPod, *, kind: str, reason: str, message: str, instance: str) -> dict[str, Any]:
    """Return an Event on a pod."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": pod.namespace, "generateName": f"{pod.name[:200]}."},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
