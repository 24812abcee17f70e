"""The four verbs: reads a request, decides, answers, and remembers what the next request needs.

kube-scheduler keeps what it assumed, and the pods it nominated, to itself or in the API; what was promised
here is in the room that is held. Nothing else is kept between two requests but the pods that were rejected.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.prediction.forecast import NodeAnswer, relevant
from numazones.prediction.node_choice import Ranking
from numazones.rebalance import preemption
from numazones_client import Client
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.extender import decisions, messages
from numazones_operator.prevention.extender.allowance import Allowance
from numazones_operator.prevention.extender.binding import Binder
from numazones_operator.prevention.extender.messages import (
    FilterAnswer,
    FilterRequest,
    NodeVictims,
    PreemptRequest,
    UnreadableRequest,
)
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.rejected_pods import RejectedPods
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_operator.prevention.extender.verdicts import CurrentVerdicts
from numazones_operator.prevention.held_room import HeldRoom

MAX_NAMES = 100_000
"""Nodes that requests under way may name together; 20 µs of the operator's time each."""
LEAST_SAMPLE = 100
"""A scheduler that looks at a part of the nodes only offers at least so many (``numFeasibleNodesToFind``)."""

_MIRROR_LAG = 0.5
"""Seconds by which the mirror may be behind that of the scheduler."""
_LOOK_AGAIN = 0.01

_WINDOW = 10.0
_ORDINARY = 20
"""Attempts within a window that are ordinary, in addition to one for each change of a bound pod."""
_MAX_PODS = 10_000

_log = logging.getLogger(__name__)


class Extender:
    """Answers kube-scheduler."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        held: HeldRoom,
        *,
        unknown: UnknownNodes,
        ranking: Callable[[], Ranking],
        metrics: ExtenderMetrics,
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Answer from what the parts given know.

        ``ranking`` tells which nodes are the best; ``ready``: True once everything was listed;
        ``wall``: the time of day that pods are annotated with.
        """
        self._ranking = ranking
        self._state = state
        self._held = held
        self._unknown = unknown
        self._metrics = metrics
        self._ready = ready
        self._verdicts = CurrentVerdicts(state, held)
        self._names = Allowance(MAX_NAMES, "node names")
        self._repetitions = SchedulingRetries(clock=clock)
        self.rejected = RejectedPods(
            client, state, held, self._verdicts, unknown=unknown, metrics=metrics, clock=clock, wall=wall
        )
        self._binder = Binder(
            client, state, held, verdict=self._verdicts.on, unknown=unknown, metrics=metrics
        )

    async def filter(self, body: bytes) -> Any:
        """Return which nodes would admit the pod, and why the others would not."""
        request = messages.filter_request(body)
        names = messages.names_of(request)
        with self._names.share(len(names)):
            return await self._filter(request, names)

    async def _filter(self, request: FilterRequest, names: list[str]) -> FilterAnswer:
        pod = self._pod(request.pod)
        if not self._ready():
            return messages.filter_error("numazones has not finished reading the cluster")
        asked = self._state.nodes_to_ask(pod, names)
        if not asked:
            return messages.filter_answer(request, names, {})
        self._count_repetition(pod)
        if names == [pod.nominated]:
            await self._let_victims_go(pod)
        verdicts = await self._verdicts.of(pod, asked)
        sifted = decisions.sift(verdicts, self._unknown)
        passing = sifted.passing
        if len(asked) < len(names):
            left_out = sifted.reasons.keys()
            passing = tuple(name for name in names if name not in left_out)
        self._count_reasons(sifted.reasons)
        if passing:
            self.rejected.discard(pod.uid)
        else:
            await self._reject(pod, frozenset(names))
        return messages.filter_answer(request, passing, sifted.reasons)

    async def prioritize(self, body: bytes) -> Any:
        """Return the scores of the best nodes; the others have none, which is 0 to the scheduler."""
        request = messages.filter_request(body)
        names = messages.names_of(request)
        pod = self._pod(request.pod)
        if not relevant(pod):
            return []
        with self._names.share(len(names)):
            verdicts = await self._verdicts.of(pod, names)
        scores = decisions.scores(self._ranking().keys(pod, verdicts, self._state.node))
        return [messages.HostPriority(name, score) for name, score in scores.items()]

    async def preempt(self, body: bytes) -> Any:
        """Return the nodes on which the pod would be admitted once the scheduler's victims are gone.

        A node without victims passes: which pods another extender will name there is not known.
        """
        request = messages.preempt_request(body)
        with self._names.share(len(request.victims)):
            return self._preempt(request)

    def _preempt(self, request: PreemptRequest) -> Any:
        pod = self._pod(request.pod)
        asked = self._state.nodes_to_ask(pod, request.victims)
        if not asked:
            return messages.preempt_answer(request.victims)
        held = self._held.by_node(pod)
        kept = {
            node: victims
            for node, victims in request.victims.items()
            if node not in asked
            or not victims.uids
            or self._would_admit(pod, node, victims, held.get(node, []))
        }
        self._metrics.vetoed.inc(len(request.victims) - len(kept))
        return messages.preempt_answer(kept)

    async def bind(self, body: bytes) -> Any:
        """Bind the pod; the error is empty if the API server has bound it."""
        try:
            request = messages.bind_request(body)
        except UnreadableRequest as error:
            return {"Error": str(error)}
        if not self._ready():
            return {"Error": "numazones has not finished reading the cluster"}
        return {"Error": await self._binder.bind(request)}

    def take_fault(self, body: bytes, error: Exception) -> str:
        """Note what answering a request raised as a fault of its pod; return it in words."""
        try:
            request = json.loads(body)
            metadata = (request.get("Pod") or {}).get("metadata") or {}
            name, namespace, uid = (
                metadata.get(key.lower()) or request.get(f"Pod{key}") or ""
                for key in ("Name", "Namespace", "UID")
            )
        except (ValueError, AttributeError, RecursionError):
            name = namespace = uid = ""
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
        return self._state.faults.take(about, error)

    def _pod(self, body: dict[str, Any]) -> ClusterPod:
        try:
            pod = self._state.sharing.pod(body)
        except (NumazonesError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableRequest(f"the pod in the request cannot be read: {error!r}") from error
        if not pod.uid:
            raise UnreadableRequest(
                "the pod in the request has no metadata.uid; only pods that the API server has stored "
                "have one"
            )
        return pod

    def _would_admit(self, pod: ClusterPod, name: str, victims: NodeVictims, held: list[ClusterPod]) -> bool:
        node = self._state.node(name)
        after = None if node is None else preemption.without(node, victims.uids)
        if after is None:
            return False
        others = [other for other in held if other.uid not in victims.uids]
        return self._verdicts.at(pod, after, others).answer is NodeAnswer.ADMITS

    async def _let_victims_go(self, pod: ClusterPod) -> None:
        """Wait a moment where victims of a preemption are gone to the scheduler, but not yet to the mirror.

        The scheduler asks about the nominated node alone once its filters pass there. Rejected, the pod
        would go elsewhere, and its victims would have been evicted for nothing.
        """
        end = time.monotonic() + _MIRROR_LAG
        while time.monotonic() < end:
            node = self._state.node(pod.nominated)
            if node is None or not any(other.deleting for other in node.pods.values()):
                return
            if self._verdicts.on(pod, pod.nominated).answer is NodeAnswer.ADMITS:
                return
            await asyncio.sleep(_LOOK_AGAIN)

    async def _reject(self, pod: ClusterPod, named: frozenset[str]) -> None:
        """Note that no node passed, and whether one was left out that would have, as by sampling.

        Of fewer nodes than a sample has, the scheduler's own filters took the others away.
        """
        self.rejected.add(pod)
        self._metrics.rejected_pods.inc()
        if len(named) < LEAST_SAMPLE:
            return
        anywhere = await self._verdicts.passing(pod, lambda verdict: verdict.answer is NodeAnswer.ADMITS)
        if any(name not in named for name in anywhere):
            self._metrics.sampled.inc()

    def _count_repetition(self, pod: ClusterPod) -> None:
        beyond = self._repetitions.count(pod.uid, changes=self._state.bound_pod_changes)
        if beyond:
            self._metrics.repeated.inc()
        if beyond == 1:
            _log.warning(
                "pod %s is retried over and over because something keeps requeuing it", pod.full_name
            )

    def _count_reasons(self, reasons: Mapping[str, str]) -> None:
        for reason, number in Counter(reasons.values()).items():
            self._metrics.rejected_nodes.labels(reason).inc(number)


class SchedulingRetries:
    """Counts attempts by pod, in windows of ten seconds: some are tried again and again.

    That happens when something changes a pod, or a node, at every attempt (specs/scheduler-extender.md,
    section 4: 610 attempts in 10 s); each stops the scheduler for all other pods. A status update or the end
    of any bound pod has all that wait tried again as well: where pods come and go, that is ordinary.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[float, int, int]] = {}
        """UID → when its window began, how many changes there had been then, and attempts since."""

    def count(self, uid: str, *, changes: int) -> int:
        """Count an attempt; return how many of this window are beyond the ordinary.

        ``changes``: of bound pods, ever.
        """
        now = self._clock()
        begun, before, number = self._windows.get(uid, (now, changes, 0))
        if now - begun >= _WINDOW:
            begun, before, number = now, changes, 0
        if len(self._windows) >= _MAX_PODS:
            self._windows = {key: one for key, one in self._windows.items() if now - one[0] < _WINDOW}
        if len(self._windows) < _MAX_PODS or uid in self._windows:
            self._windows[uid] = (begun, before, number + 1)
        return max(0, number + 1 - _ORDINARY - (changes - before))
