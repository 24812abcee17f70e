"""Events on pods when a verdict changes, kept to a rate: people read them, and etcd stores them.

A pod's first verdict is worth an event only where it is bad news. Good news after bad is told at once, so
that the last event on a pod is never worse than its state; bad news is told at most once per interval, and
held back until then: if it is over by that time, nobody was disturbed. ``Unknown`` is held back longer, for
zones of healthy nodes may contradict each other for seconds. ``kopf.event`` would do the posting, but works
only inside a handler for the object in question.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from numazones import timestamp
from numazones.cluster import ClusterPod
from numazones.prediction import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones_client import APIError, Client
from numazones_client.resources import EVENTS
from numazones_operator.metrics.registry import Metrics
from numazones_operator.rate_limit import TokenBucket

COMPONENT = "numazones-operator"

_REASONS = {
    ADMISSIBLE: "AdmissionPossible",
    INADMISSIBLE: "AdmissionImpossible",
    UNKNOWN: "AdmissionUnknown",
}
_BAD = frozenset({INADMISSIBLE, UNKNOWN})
_UNKNOWN_PATIENCE = 30.0
"""Seconds for which a pod's verdict is Unknown before that is worth an event."""
_PERIOD = 0.5
_BURST = 10
_LONGEST_MESSAGE = 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    """Bad news that waits."""

    pod: ClusterPod
    prediction: Prediction
    due: float


class Announcements:
    """Decides what becomes an event, and posts it."""

    def __init__(
        self,
        client: Client,
        *,
        identity: str,
        rate: float,
        interval: float,
        metrics: Metrics,
        aside: Callable[[ClusterPod, Prediction], str] = lambda _pod, _prediction: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rate`` in events per second, ``interval`` in seconds between bad news on one pod.

        ``aside`` tells what there is to add, now, to a prediction that no node admits the pod.
        """
        self._client = client
        self._identity = identity
        self._bucket = TokenBucket(rate, rate * _BURST, clock=clock)
        self._interval = interval
        self._metrics = metrics
        self._aside = aside
        self._clock = clock
        self._last: dict[str, str] = {}
        """UID → the verdict that is known of the pod by its last event, or by silence."""
        self._told: dict[str, float] = {}
        """UID → when bad news was told."""
        self._held: dict[str, _Held] = {}
        # As long as the bucket lets through at once; more cannot wait.
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def verdict(self, pod: ClusterPod, prediction: Prediction, *, before: str) -> None:
        """Tell of a verdict; ``before`` is the one that was published earlier, or empty."""
        uid, verdict = pod.uid, prediction.verdict
        last = self._last.setdefault(uid, before)
        self._held.pop(uid, None)
        if verdict == last:
            return
        if not last and verdict != INADMISSIBLE:
            self._last[uid] = verdict if verdict == ADMISSIBLE else ""
            return
        if verdict in _BAD:
            self._hold(pod, prediction)
        else:
            self._tell_verdict(pod, prediction)

    def admitted(self, pod: ClusterPod) -> None:
        """Tell that a kubelet has admitted a pod, if the last that was told was bad."""
        self._held.pop(pod.uid, None)
        if self._last.get(pod.uid) in _BAD:
            self._last[pod.uid] = ADMISSIBLE
            self.tell(pod, kind="Normal", reason="Admitted", message=f"the kubelet of {pod.node} admitted it")

    def rejected(self, pod: ClusterPod, reason: str, *, why: str, advice: str) -> None:
        """Explain a rejection, of which the kubelet says little."""
        self._held.pop(pod.uid, None)
        cure = f"; {advice}" if advice else ""
        self.tell(pod, kind="Warning", reason="RejectionExplained", message=f"{reason}: {why}{cure}")

    def tell(self, pod: ClusterPod, *, kind: str, reason: str, message: str) -> bool:
        """Post an event, if that keeps within the rate; ``kind`` Normal or Warning. Returns whether it is."""
        if not self._bucket.take():
            self._metrics.events_dropped.inc()
            return False
        self._queue.put_nowait(event(pod, kind=kind, reason=reason, message=message, instance=self._identity))
        return True

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        for known in (self._last, self._told, self._held):
            known.pop(uid, None)

    def release(self) -> None:
        """Tell the bad news that has been held back for long enough."""
        now = self._clock()
        for uid, held in list(self._held.items()):
            if now >= held.due:
                del self._held[uid]
                self._tell_verdict(held.pod, held.prediction)

    async def run(self) -> None:
        """Post events until cancelled; one that cannot be posted is lost, as events may be."""
        while True:
            self.release()
            try:
                async with asyncio.timeout(_PERIOD):
                    body = await self._queue.get()
            except TimeoutError:
                continue
            await self._post(body)

    async def _post(self, body: dict[str, Any]) -> None:
        try:
            await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])
            self._metrics.count_write(EVENTS)
        except APIError as error:
            self._metrics.count_write(EVENTS, error)
            _log.info("an event was lost: %s", error)

    def _hold(self, pod: ClusterPod, prediction: Prediction) -> None:
        now = self._clock()
        due = self._told.get(pod.uid, now - self._interval) + self._interval
        if prediction.verdict == UNKNOWN:
            due = max(due, now + _UNKNOWN_PATIENCE)
        if due <= now:
            self._tell_verdict(pod, prediction)
        else:
            self._held[pod.uid] = _Held(pod, prediction, due)

    def _tell_verdict(self, pod: ClusterPod, prediction: Prediction) -> None:
        bad = prediction.verdict in _BAD
        aside = self._aside(pod, prediction) if prediction.verdict == INADMISSIBLE else ""
        message = f"NUMA placement: {prediction.sentence}{aside}"
        if self.tell(
            pod, kind="Warning" if bad else "Normal", reason=_REASONS[prediction.verdict], message=message
        ):
            self._last[pod.uid] = prediction.verdict
            if bad:
                self._told[pod.uid] = self._clock()


def event(pod: ClusterPod, *, kind: str, reason: str, message: str, instance: str) -> dict[str, Any]:
    """Return an Event on a pod."""
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return event_on(about, kind=kind, reason=reason, message=message, instance=instance)


def event_on(
    about: Mapping[str, str], *, kind: str, reason: str, message: str, instance: str
) -> dict[str, Any]:
    """Return an Event on an object, given as an ObjectReference; those of no namespace go to ``default``."""
    now = timestamp.format(datetime.now(UTC))
    namespace = about.get("namespace") or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": f"{about['name'][:200]}."},
        "involvedObject": dict(about),
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
