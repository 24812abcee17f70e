"""Writes AdmissionPredictions: only what changed, only while leading, within ``--write-rate``.

Of several predictions for one pod that wait to be written, the latest is written and the others never are.
Changes of verdict go before changes of mere numbers. What the API server holds is known from a watch, so
that a replica that takes over writes only what differs, and what somebody else changed is put right.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.placement import ADMITTED
from numazones.placement.model import kubelet_verdict
from numazones.prediction.forecast import Prediction
from numazones_client import (
    AlreadyExists,
    APIError,
    Client,
    Forbidden,
    Invalid,
    NamespaceTerminating,
    NotFound,
    Unreachable,
)
from numazones_client.reflector import Backoff
from numazones_client.resources import ADMISSION_PREDICTIONS
from numazones_client.table import Table
from numazones_operator.events import COMPONENT
from numazones_operator.faults import ObjectFaults, of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.predictions.admission_predictions import (
    NameOf,
    PublishedPrediction,
    digest,
    object_of,
    status_of,
    with_outcome,
    with_status,
)
from numazones_operator.predictions.verdict_events import VerdictEvents
from numazones_operator.rate_limit import TokenBucket
from numazones_operator.verification.rejection_advice import advice_of, explanation_of
from numazones_operator.verification.verifier import Verification

_WORKERS = 16
_ADVICE_RATE = 2.0
"""Rejections per second for which advice is worked out, which takes some hundredths of a second."""
_MAX_TRIES = 5

_log = logging.getLogger(__name__)


class _Status(NamedTuple):
    """Status to publish; the same for all pods of a kind."""

    body: dict[str, Any]
    digest: str

    @classmethod
    def of(cls, body: dict[str, Any]) -> "_Status":
        """Return a status."""
        return cls(body, digest(body))


@dataclass(slots=True)
class _Request:
    """Write that is due for one pod."""

    pod: ClusterPod
    prediction: Prediction | None
    status: _Status | None
    """None: what is published already, with the pod's outcome."""
    since: float
    tries: int = 0


@dataclass
class PredictionPublisher:
    """Keeps the API server's AdmissionPredictions equal to the predictions."""

    client: Client
    _: KW_ONLY
    rate: float
    """Writes per second."""
    metrics: Metrics
    verdict_events: VerdictEvents
    pod_of: Callable[[str], ClusterPod | None]
    """Gives the pod of a UID, if it is still there."""
    expects: Callable[[str], bool] = lambda _uid: False
    """Returns whether a pod's outcome is waited for, so that ``take_outcome`` will be called."""
    name_of: NameOf = lambda _node, _uid: ""
    recommendation_for: Callable[[str], str] = lambda _uid: ""
    """Names the recommendation in force that makes room for the pod of a UID."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)
    clock: Callable[[], float] = time.monotonic
    published: Table[PublishedPrediction] = field(init=False)
    _writes: bool = field(init=False, default=False)
    _bucket: TokenBucket = field(init=False)
    _advice: TokenBucket = field(init=False)
    _urgent: dict[str, _Request] = field(init=False, default_factory=dict)
    _normal: dict[str, _Request] = field(init=False, default_factory=dict)
    _writing: dict[str, str] = field(init=False, default_factory=dict)
    """Key → UID of the pod that is being written about."""
    _latest: dict[str, tuple[ClusterPod, Prediction]] = field(init=False, default_factory=dict)
    """Key → the pod that waits, and what is to be read there."""
    _unexplained: dict[str, Prediction | None] = field(init=False, default_factory=dict)
    """UID → what was published for a pod whose prediction was wrong, until it is known why."""
    _outcomes: set[str] = field(init=False, default_factory=set)
    """UIDs of pods of which is written, or about to be, what became of them."""
    _waiting: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._bucket = TokenBucket(self.rate, 2 * self.rate, clock=self.clock)
        self._advice = TokenBucket(_ADVICE_RATE, 10 * _ADVICE_RATE, clock=self.clock)
        self.published = Table(
            lambda item: item.key,
            self._take_published,
            outdated=lambda known, item: item.version < known.version,
        )

    @property
    def depth(self) -> int:
        """Return how many objects wait to be written or are being written."""
        return len(self._urgent) + len(self._normal) + len(self._writing)

    def offer(self, pods: Iterable[ClusterPod], prediction: Prediction, since: float) -> None:
        """Take the latest prediction for pods; ``since`` when its cause was seen, monotonic seconds."""
        made: dict[str, _Status] = {}
        for pod in pods:
            self._latest[pod.full_name] = (pod, prediction)
            if self._writes:
                recommendation = self.recommendation_for(pod.uid)
                if recommendation not in made:
                    made[recommendation] = self._status(prediction, recommendation)
                self._enqueue(_Request(pod, prediction, made[recommendation], since))

    def refresh(self, uid: str) -> None:
        """Write again about a pod that waits, for which a recommendation was made or has ended."""
        pod = self.pod_of(uid)
        latest = None if pod is None else self._latest.get(pod.full_name)
        if latest is not None and latest[0].uid == uid:
            self.offer(latest[:1], latest[1], self.clock())

    def take_outcome(self, pod: ClusterPod, verification: Verification) -> None:
        """Take the outcome of a prediction; an admission is written only where a prediction is published."""
        waited, prediction = self._latest.pop(pod.full_name, (pod, None))
        if waited.uid != pod.uid:
            prediction = None
        if self._writes and verification.actual == ADMITTED and pod.uid not in self._unexplained:
            self.verdict_events.take_admission(pod)
        prediction = self._unexplained.pop(pod.uid, prediction)
        if verification.accuracy is None:  # another one follows, which says why
            self._unexplained[pod.uid] = prediction
        if not self._writes:
            return
        if verification.actual == ADMITTED and not self._is_published(pod):
            self._drop_request(pod)
            return
        self._outcomes.add(pod.uid)
        advice: tuple[str, ...] = ()
        if verification.actual != ADMITTED and self._advice.take():
            advice = advice_of(verification, self.pod_of)
        why = explanation_of(verification)
        if why:
            self.verdict_events.take_rejection(
                pod, verification.actual, why=why[-1], advice=next(iter(advice), "")
            )
        status = status_of(prediction, verification, advice=advice, name_of=self.name_of)
        self._enqueue(_Request(pod, prediction, _Status.of(status), self.clock()))

    def complete(self, pod: ClusterPod) -> None:
        """Add the outcome to what is published for a pod whose binding nobody saw; call it on changes."""
        known = self.published.get(pod.full_name)
        if not self._writes or known is None or known.pod_uid != pod.uid or known.has_outcome:
            return
        actual = kubelet_verdict(pod)
        if actual is None or pod.uid in self._outcomes or self.expects(pod.uid):
            return
        self._outcomes.add(pod.uid)
        if actual == ADMITTED:
            self.verdict_events.take_admission(pod)
        waited, prediction = self._latest.pop(pod.full_name, (pod, None))
        if waited.uid != pod.uid:
            prediction = None
        status = None if prediction is None else _Status.of(with_outcome(status_of(prediction), pod, actual))
        self._enqueue(_Request(pod, None, status, self.clock()))

    def forget(self, pod: ClusterPod) -> None:
        """Drop everything about a pod that is gone."""
        key = pod.full_name
        latest = self._latest.get(key)
        if latest is not None and latest[0].uid == pod.uid:
            del self._latest[key]
        self._drop_request(pod)
        self._unexplained.pop(pod.uid, None)
        self._outcomes.discard(pod.uid)
        self.verdict_events.forget(pod.uid)

    async def run(self) -> None:
        """Write what differs and what is offered until cancelled, when another replica writes."""
        self._writes = True
        now = self.clock()
        for pod, prediction in list(self._latest.values()):
            if self._is_waiting(pod):  # the outcome of others may be published already
                with self.faults.of(of_pod(pod)):
                    self.offer([pod], prediction, now)
        for item in self.published:
            self._complete_published(item)
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(_WORKERS):
                    workers.create_task(self._work(), name=f"writer {number}")
        finally:
            self._writes = False
            self._urgent.clear()
            self._normal.clear()
            self._outcomes.clear()

    async def wait_until_written(self, patience: float) -> None:
        """Wait until everything is written, for ``patience`` seconds at most."""
        deadline = self.clock() + patience
        # Several queues and workers have to be idle at once, so looking now and then is simplest.
        while self.depth and self._writes and self.clock() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _enqueue(self, request: _Request) -> None:
        key = request.pod.full_name
        known = self.published.get(key)
        waiting = self._urgent.get(key) or self._normal.get(key)
        same = request.status is not None and _says(known, request.pod, request.status)
        if same and waiting is None and key not in self._writing:
            return
        if waiting is not None and waiting.pod.uid == request.pod.uid:
            request.since = min(request.since, waiting.since)
        body = {} if request.status is None else request.status.body
        urgent = known is None or known.verdict != body.get("verdict") or "outcome" in body
        self._urgent.pop(key, None)
        self._normal.pop(key, None)
        (self._urgent if urgent else self._normal)[key] = request
        self._waiting.set()

    def _take_published(self, old: PublishedPrediction | None, new: PublishedPrediction | None) -> None:
        """Write again what somebody else has changed or deleted."""
        if new is not None and not new.has_outcome:
            self._complete_published(new)
        item = new or old
        latest = None if item is None else self._latest.get(item.key)
        if latest is None or not self._writes:
            return
        pod, prediction = latest
        status = self._status(prediction, self.recommendation_for(pod.uid))
        if (new is None or new.digest != status.digest) and self._is_waiting(pod):
            self._enqueue(_Request(pod, prediction, status, self.clock()))

    def _status(self, prediction: Prediction, recommendation: str) -> _Status:
        return _Status.of(status_of(prediction, name_of=self.name_of, recommendation=recommendation))

    def _complete_published(self, item: PublishedPrediction) -> None:
        pod = self.pod_of(item.pod_uid)
        if pod is not None:
            with self.faults.of(of_pod(pod)):
                self.complete(pod)

    def _is_published(self, pod: ClusterPod) -> bool:
        """Return whether a prediction for a pod is published, or about to be."""
        known = self.published.get(pod.full_name)
        published = known is not None and known.pod_uid == pod.uid
        return published or self._writing.get(pod.full_name) == pod.uid

    def _drop_request(self, pod: ClusterPod) -> None:
        for queue in (self._urgent, self._normal):
            request = queue.get(pod.full_name)
            if request is not None and request.pod.uid == pod.uid:
                del queue[pod.full_name]

    def _exists(self, pod: ClusterPod) -> bool:
        return self.pod_of(pod.uid) is not None

    def _is_waiting(self, pod: ClusterPod) -> bool:
        """Return whether a pod with a prediction still has no node."""
        now = self.pod_of(pod.uid)
        return now is not None and not now.node

    def _next_request(self) -> tuple[str, _Request] | None:
        """Take the first request whose object is not being written."""
        for queue in (self._urgent, self._normal):
            for key in queue:
                if key not in self._writing:
                    return key, queue.pop(key)
        return None

    async def _work(self) -> None:
        backoff = Backoff()
        while True:
            found = self._next_request()
            if found is None:
                self._waiting.clear()
                await self._waiting.wait()
                continue
            key, request = found
            self._writing[key] = request.pod.uid
            try:
                await self._bucket.wait()
                with self.faults.of(of_pod(request.pod)):
                    await self._write(key, request)
                backoff.reset()
            except APIError as error:
                self.metrics.count_write(ADMISSION_PREDICTIONS, error)
                self._retry(key, request, error)
                await asyncio.sleep(max(backoff.delay(), error.retry_after or 0.0))
            finally:
                del self._writing[key]
                if self._urgent or self._normal:
                    self._waiting.set()

    async def _write(self, key: str, request: _Request) -> None:
        if not self._exists(request.pod):
            return
        status = request.status or _Status.of(await self._status_with_outcome(request.pod))
        known = self.published.get(key)
        if _says(known, request.pod, status):
            return
        if known is None or known.pod_uid != request.pod.uid:
            await self._create(request, known)
            known = None
        verdict = str(status.body.get("verdict") or "")
        same_verdict = known is not None and known.verdict == verdict and known.changed
        changed = known.changed if known is not None and same_verdict else _now()
        written = await self.client.apply(
            ADMISSION_PREDICTIONS,
            with_status(request.pod, {**status.body, "changed": changed}),
            field_manager=COMPONENT,
            namespace=request.pod.namespace,
            subresource="status",
        )
        self.metrics.count_write(ADMISSION_PREDICTIONS)
        self.metrics.lag_seconds.observe(self.clock() - request.since)
        self.published.put(PublishedPrediction.from_api(written))
        if request.prediction is not None and request.pod.uid not in self._outcomes:
            before = "" if known is None else known.verdict
            self.verdict_events.take_verdict(request.pod, request.prediction, before=before)

    async def _status_with_outcome(self, pod: ClusterPod) -> dict[str, Any]:
        """Return the status that an earlier leader published, with the outcome."""
        body = await self.client.get(ADMISSION_PREDICTIONS, pod.name, namespace=pod.namespace)
        return with_outcome(body.get("status") or {}, pod, kubelet_verdict(pod) or ADMITTED)

    async def _create(self, request: _Request, known: PublishedPrediction | None) -> None:
        """Create the object; one of an earlier pod of the same name is deleted first."""
        pod = request.pod
        if known is not None:
            await self._delete(pod)
        try:
            await self.client.create(ADMISSION_PREDICTIONS, object_of(pod), namespace=pod.namespace)
            self.metrics.count_write(ADMISSION_PREDICTIONS)
        except AlreadyExists:
            found = PublishedPrediction.from_api(
                await self.client.get(ADMISSION_PREDICTIONS, pod.name, namespace=pod.namespace)
            )
            if found.pod_uid != pod.uid:
                await self._delete(pod)
                await self.client.create(ADMISSION_PREDICTIONS, object_of(pod), namespace=pod.namespace)

    async def _delete(self, pod: ClusterPod) -> None:
        try:
            await self.client.delete(ADMISSION_PREDICTIONS, pod.name, namespace=pod.namespace)
        except NotFound:
            return

    def _retry(self, key: str, request: _Request, error: APIError) -> None:
        """Try again later, unless the pod or its namespace is gone, or a newer request waits."""
        known = self.published.get(key)
        if isinstance(error, NotFound) and known is not None:
            self.published.remove(known)  # somebody deleted the object; it is made again
        request.tries += 1
        hopeless = isinstance(error, Invalid | Forbidden) or request.tries >= _MAX_TRIES
        waiting = key in self._urgent or key in self._normal
        if waiting or isinstance(error, NamespaceTerminating) or not self._exists(request.pod):
            return
        if hopeless and not isinstance(error, Unreachable):
            _log.warning("could not write the prediction for pod %s: %s", key, error)
            return
        self._normal[key] = request


def _says(known: PublishedPrediction | None, pod: ClusterPod, status: _Status) -> bool:
    """Return whether the API server already has that status for the pod."""
    return known is not None and known.pod_uid == pod.uid and known.digest == status.digest


def _now() -> str:
    return timestamp.format(datetime.now(UTC))
