"""Events on pods when a verdict changes, kept to a rate: people read them, and etcd stores them.

kopf posts the events. A pod's first verdict is worth an event only where it is bad news, and a verdict that
swings back and forth is told at most once per interval.
"""

import time
from collections.abc import Callable
from typing import Any

import kopf

from numazones.cluster import ClusterPod
from numazones.prediction import ADMISSIBLE, INADMISSIBLE, Prediction
from numazones_operator.metrics import Metrics
from numazones_operator.pacing import TokenBucket

_BURST = 10
_LONGEST_MESSAGE = 1024

Post = Callable[..., None]


class Announcements:
    """Decides which changes of verdict become events."""

    def __init__(
        self,
        *,
        rate: float,
        interval: float,
        metrics: Metrics,
        post: Post = kopf.event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rate`` in events per second, ``interval`` in seconds between events on one pod."""
        self._bucket = TokenBucket(rate, rate * _BURST, clock=clock)
        self._interval = interval
        self._metrics = metrics
        self._post = post
        self._clock = clock
        self._told: dict[str, float] = {}

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
        self._post(
            reference(pod),
            type="Normal" if prediction.verdict == ADMISSIBLE else "Warning",
            reason=f"Admission{prediction.verdict}"
            if prediction.verdict == "Unknown"
            else prediction.verdict,
            message=f"NUMA placement: {prediction.sentence}"[:_LONGEST_MESSAGE],
        )

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._told.pop(uid, None)


def reference(pod: ClusterPod) -> dict[str, Any]:
    """Return what an event refers to."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
    }
