"""Decides which changes of a pod's verdict become events on it, and when.

A pod's first verdict is worth an event only where no node admits it. A change for the better is posted at
once, so that the last event on a pod is never worse than its state; a change for the worse is posted at most
once per interval, and held back until then: if it is over by that time, nobody was disturbed. ``Unknown`` is
held back longer, for zones of healthy nodes may contradict each other for seconds.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, UNKNOWN, Prediction
from numazones_operator.events import NORMAL, WARNING, EventPoster
from numazones_operator.faults import ObjectFaults, of_pod

_REASONS = {
    ADMISSIBLE: "AdmissionPossible",
    INADMISSIBLE: "AdmissionImpossible",
    UNKNOWN: "AdmissionUnknown",
}
_BAD = frozenset({INADMISSIBLE, UNKNOWN})
_UNKNOWN_DELAY = 30.0
"""Seconds for which a pod's verdict is Unknown before that is worth an event."""
_PERIOD = 0.5


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A bad verdict that is posted later, if it lasts."""

    pod: ClusterPod
    prediction: Prediction
    due: float


@dataclass
class VerdictEvents:
    """Posts events when verdicts change, and when the kubelet has decided."""

    events: EventPoster
    _: KW_ONLY
    interval: float
    """Seconds between bad verdicts that are posted on one pod."""
    detail: Callable[[ClusterPod, Prediction], str] = lambda _pod, _prediction: ""
    """Gives what there is to add, now, to a prediction that no node admits the pod."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    clock: Callable[[], float] = time.monotonic
    _last: dict[str, str] = field(init=False, default_factory=dict)
    """UID → the verdict that is known of the pod, by its last event or because none was due."""
    _bad_at: dict[str, float] = field(init=False, default_factory=dict)
    """UID → when a bad verdict was posted last."""
    _delayed: dict[str, _Delayed] = field(init=False, default_factory=dict)

    def take_verdict(self, pod: ClusterPod, prediction: Prediction, *, before: str) -> None:
        """Take a pod's verdict; ``before`` is the one that was published earlier, or empty."""
        uid, verdict = pod.uid, prediction.verdict
        last = self._last.setdefault(uid, before)
        self._delayed.pop(uid, None)
        if verdict == last:
            return
        if not last and verdict != INADMISSIBLE:
            self._last[uid] = verdict if verdict == ADMISSIBLE else ""
            return
        if verdict in _BAD:
            self._post_when_due(pod, prediction)
        else:
            self._post_verdict(pod, prediction)

    def take_admission(self, pod: ClusterPod) -> None:
        """Post that a kubelet has admitted a pod, if the last verdict that was posted was bad."""
        self._delayed.pop(pod.uid, None)
        if self._last.get(pod.uid) in _BAD:
            self._last[pod.uid] = ADMISSIBLE
            message = f"the kubelet on {pod.node} admitted the pod"
            self.events.post(of_pod(pod), type=NORMAL, reason="Admitted", message=message)

    def take_rejection(self, pod: ClusterPod, reason: str, *, why: str, advice: str) -> None:
        """Post the explanation of a rejection; the kubelet's own message says little."""
        self._delayed.pop(pod.uid, None)
        message = f"{reason}: {why}" + (f"; {advice}" if advice else "")
        self.events.post(of_pod(pod), type=WARNING, reason="RejectionExplained", message=message)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        for known in (self._last, self._bad_at, self._delayed):
            known.pop(uid, None)

    def post_due(self) -> None:
        """Post the bad verdicts that have lasted for long enough."""
        now = self.clock()
        for uid, delayed in list(self._delayed.items()):
            if now >= delayed.due:
                del self._delayed[uid]
                with self.faults.of(of_pod(delayed.pod)):
                    self._post_verdict(delayed.pod, delayed.prediction)

    async def run(self) -> None:
        """Post what becomes due until cancelled."""
        while True:
            self.post_due()
            await asyncio.sleep(_PERIOD)

    def _post_when_due(self, pod: ClusterPod, prediction: Prediction) -> None:
        now = self.clock()
        due = self._bad_at.get(pod.uid, now - self.interval) + self.interval
        if prediction.verdict == UNKNOWN:
            due = max(due, now + _UNKNOWN_DELAY)
        if due <= now:
            self._post_verdict(pod, prediction)
        else:
            self._delayed[pod.uid] = _Delayed(pod, prediction, due)

    def _post_verdict(self, pod: ClusterPod, prediction: Prediction) -> None:
        bad = prediction.verdict in _BAD
        detail = self.detail(pod, prediction) if prediction.verdict == INADMISSIBLE else ""
        if self.events.post(
            of_pod(pod),
            type=WARNING if bad else NORMAL,
            reason=_REASONS[prediction.verdict],
            message=f"NUMA placement: {prediction.sentence}{detail}",
        ):
            self._last[pod.uid] = prediction.verdict
            if bad:
                self._bad_at[pod.uid] = self.clock()
