"""The scheduling gate ``numazones.io/admission``: a pod waits until some node would admit it.

A ReplicaSet answers a rejected pod with a new one, which is rejected again, hundreds of times. Pods that
carry the gate, in namespaces that opt in, are not scheduled before a node would admit them, and then only to
such nodes (``gate_removal_patch``).

The more important go first, by priority and then by age, as in the scheduler's queue; a less important pod
leaves a node alone that a more important one could use, and a pod that fits nowhere keeps nobody waiting.
Pods that were released but have no node yet hold room on every node they may go to, so that ten pods are
never released for one slot; a pod joins them only where all are admitted whichever of them come, and in
whatever order (``numazones.prediction.arrivals``). Gates of others go first: until ours is the last one, a
pod holds no room. Where devices (DRA) are foreseen, a pod goes to nodes that have them, near its CPUs if any
has; where they are not, it is not limited to such nodes, but prefers them. Pods that no kubelet's managers
are concerned with go at once, but not to nodes that place pods of every kind and have no room for them
(``shared_pool_pods``). A pod that is known to be inadmissible waits: released, it would be rejected and
replaced, for ever; unless the scheduler would make room for it (``preempting_releases``). Where nothing is
known for a while, as when exporters are down, it is released as it is, but not to nodes that reject it, or
would as they were last known. A pod whose gate nobody takes away gets an event that says why, and so does one
whose release the API server refuses: it is tried again later and later, while the others go on
(``release_requests``).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import ObjectFault
from numazones.prediction.arrivals import Arrivals
from numazones.prediction.device_answer import alignment_rank
from numazones.prediction.forecast import (
    ADMISSIBLE,
    UNKNOWN,
    NodeAnswer,
    NodeVerdict,
    PodKind,
    alignment_of,
    relevant,
)
from numazones.prediction.held_room import MAX_NODES, RELEASE_SECONDS, ArrivalPath
from numazones_client import APIError, Unreachable
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.prevention import shared_pool_pods
from numazones_operator.prevention.allowed_nodes import CHOICE, AllowedNodes, NodeRole
from numazones_operator.prevention.arrivals_by_node import ArrivalsByNode
from numazones_operator.prevention.gate_remover import GateRemover
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.prevention.preempting_pods import PreemptingPods, names
from numazones_operator.prevention.release_requests import FailedReleases, ReleaseRequests
from numazones_operator.prevention.removable_gates import RemovableGates

_PERIOD = 1.0
_ROUND = 1.0
"""Seconds after which a round ends, so that whoever came meanwhile has its turn."""
_SLICE = 0.005
"""Seconds of deciding after which others have their turn; a request needs several turns."""
_HIGHEST = 1 << 31
"""Above all priorities."""
PATIENCE_SECONDS = 30.0
"""For so long a pod waits for a node that admits it whichever other pods end meanwhile."""
_FRESH = 0.1
"""Seconds for which what is held is not counted anew."""
_WAIT = 1.0
"""Seconds that a round waits for its last requests."""
_UNANSWERED_SECONDS = 5.0
"""Seconds for which room is held for a pod that may have been released, until the mirror shows it."""

_Importance: TypeAlias = tuple[int, str, str, str]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Round:
    """Findings of one walk along the waiting pods."""

    started: float
    held: dict[str, list[ClusterPod]]
    counted: float
    """When ``held`` was."""
    sliced: float
    placing: frozenset[str]
    """Nodes that may also reject pods that NUMA placement does not concern elsewhere."""
    open: dict[tuple[PodKind, bool], list[str]] = field(default_factory=dict)
    """Kind, and whether whichever pods end → nodes that may still have room for pods of the kind, best first;
    within a round there is never more."""
    unforeseen: int = -_HIGHEST
    """The highest priority of a pod without a prediction so far; the less important wait for that."""
    closed: set[tuple[PodKind, int, bool]] = field(default_factory=set)
    """Kinds and priorities of which no further pod finds a node, with the same."""
    passed_over: dict[PodKind, ClusterPod] = field(default_factory=dict)
    """Kind → the most important pod of it that goes on waiting."""
    requests: list[asyncio.Task[None]] = field(default_factory=list)
    """Those that were begun."""
    failure: APIError | None = None
    """Why the API server cannot be asked at all."""

    def count(self, held: dict[str, list[ClusterPod]], now: float) -> None:
        """Take what is held at this moment."""
        self.held, self.counted = held, now


@dataclass(slots=True)
class AdmissionGates:
    """Releases gated pods."""

    state: ClusterState
    forecasts: LiveForecasts
    """Where each waiting pod would be admitted, the nodes that are preferred first."""
    held: HeldRoom
    """The room held for pods on their way."""
    served: RemovableGates
    writer: GateRemover
    preempting: PreemptingPods
    """Asked where less important pods would have to leave for a pod."""
    may_go: Callable[[ClusterPod, str], bool]
    """Asked whether a pod may be released to a node; a plan may keep it for another pod."""
    changed: asyncio.Event
    """Set when forecasts have changed; cleared here."""
    timeout: float
    """Seconds after which a pod is released of which nothing is known; 0: never."""
    clock: Callable[[], float] = time.monotonic
    """Measures the timeout, in seconds."""
    _requests: ReleaseRequests = field(init=False, default_factory=ReleaseRequests)
    _failed: FailedReleases = field(init=False, default_factory=FailedReleases)
    _arrivals: ArrivalsByNode = field(init=False, default_factory=ArrivalsByNode)
    _unknown_since: dict[str, float] = field(init=False, default_factory=dict)
    """UID of a pod of which nothing is known → since when."""
    _uncertain_since: dict[str, float] = field(init=False, default_factory=dict)
    """UID of a pod that nodes admit as things stand, but none for certain → since when."""

    async def run(self) -> None:
        """Release pods until cancelled."""
        try:
            await self._run()
        finally:
            await self._requests.cancel()

    async def _run(self) -> None:
        while True:
            try:
                ended = await self.release()
            except APIError as error:
                _log.warning("could not release gated pods: %s", error)
                await asyncio.sleep(max(_PERIOD, error.retry_after or 0.0))
                continue
            if not ended:
                continue
            self.changed.clear()
            try:
                async with asyncio.timeout(_PERIOD):
                    await self.changed.wait()
            except TimeoutError:
                continue

    async def release(self) -> bool:
        """Release every gated pod that can go now, the most important first; post events on the others.

        Return whether everybody had a turn; else call again at once.

        Raises:
            APIError: the API server cannot be asked at all.
        """
        self.served.report_unserved()
        waiting = [pod for _, pod in sorted(self._releasable_pods(), key=itemgetter(0))]
        uids = {pod.uid for pod in waiting}
        self._failed.retain(uids | self.held.uids())
        for since in (self._unknown_since, self._uncertain_since):
            for uid in since.keys() - uids:
                del since[uid]
        if not waiting:
            self._arrivals.clear()
            return True
        now = time.monotonic()
        this = _Round(
            started=now,
            held=self.held.by_node(),
            counted=now,
            sliced=now,
            placing=self.state.placing_every_pod,
        )
        ended = await self._walk(waiting, this)
        if this.requests:
            await asyncio.wait(this.requests, timeout=_WAIT)
        if this.failure is not None:
            raise this.failure
        return ended

    async def _walk(self, waiting: Sequence[ClusterPod], this: _Round) -> bool:
        """Have each pod's turn; return whether all had it."""
        for pod in waiting:
            await self._pause(this)
            if this.failure is not None or time.monotonic() - this.started > _ROUND:
                return this.failure is not None
            try:
                if self._failed.may_try(pod.uid, self.clock()):
                    await self._decide(pod, this)
            except Exception as error:  # noqa: BLE001 - it concerns this pod alone
                problem = self.state.faults.take(of_pod(pod), error)
                self.served.report(pod, problem)
                self._failed.end(pod.uid, self.clock(), failed=True)
        return True

    async def _decide(self, pod: ClusterPod, this: _Round) -> None:
        """Release a pod if it can go now."""
        concerned = relevant(pod)
        release = self._release_now(pod, this) if concerned else self._release_unconcerned(pod, this)
        if release is not None:
            await self._start(pod, release, this)
            return
        known = self._is_known(pod) if concerned else self._all_known(this)
        overdue = self._is_overdue(pod, known=known)
        if overdue and (release := self._release_unknown(pod)) is not None:
            await self._start(pod, release, this)
        else:
            await self._preempt(pod, this)

    def _release_unknown(self, pod: ClusterPod) -> AllowedNodes | None:
        """Return where a pod may go of which nothing has been known for long; None if nowhere.

        Nodes that are known to reject it, or would as they were last known, are left out, and so are those
        whose zones are expected. A pod about which something raised goes nowhere.
        """
        verdicts = self._verdicts(pod)
        barred = tuple(
            name
            for name, one in verdicts.items()
            if one.answer is NodeAnswer.REJECTS or (one.answer is NodeAnswer.UNKNOWN and not one.may_admit)
        )
        if self.forecasts.raised(pod.uid):
            return None
        if not barred:
            return AllowedNodes("timeout")
        few = tuple(islice((name for name, one in verdicts.items() if one.may_admit), CHOICE))
        if not few:
            return None
        if len(barred) <= MAX_NODES:
            return AllowedNodes("timeout", without=barred)
        return AllowedNodes("timeout", few, NodeRole.ONLY)

    def _release_now(self, pod: ClusterPod, this: _Round) -> AllowedNodes | None:
        """Return where a pod may go now; None if nowhere."""
        nodes = self._free_nodes(pod, this)
        if not nodes and self._has_waited_for_certainty(pod):
            nodes = self._free_nodes(pod, this, certain=False)
        if not nodes:
            return None
        verdicts = self._verdicts(pod)
        known = {name: verdicts[name] for name in nodes if name in verdicts}
        if sure := [name for name, one in known.items() if one.answer is NodeAnswer.ADMITS]:
            ranks = {name: alignment_rank(alignment_of(known[name])) for name in sure}
            nearest = tuple(name for name in sure if ranks[name] == min(ranks.values()))
            return AllowedNodes("admissible", nearest, NodeRole.ONLY)
        return AllowedNodes("devices", nodes, NodeRole.RATHER)

    def _verdicts(self, pod: ClusterPod) -> Mapping[str, NodeVerdict]:
        forecast = self.forecasts.forecast_of(pod.uid)
        return {} if forecast is None else forecast.verdicts

    def _has_waited_for_certainty(self, pod: ClusterPod) -> bool:
        """Return whether a pod has waited long enough for a node that admits it whichever pods end.

        What another pod frees may lead a kubelet to reject a pod of several containers. Where no pod ends, it
        would wait for that for ever, beside room that it fits.
        """
        prediction = self.forecasts.prediction_of(pod.uid)
        if prediction is None or prediction.verdict != ADMISSIBLE:
            self._uncertain_since.pop(pod.uid, None)
            return False
        now = self.clock()
        return now - self._uncertain_since.setdefault(pod.uid, now) >= PATIENCE_SECONDS

    def _release_unconcerned(self, pod: ClusterPod, this: _Round) -> AllowedNodes | None:
        """Return the same for a pod that most nodes admit unasked."""
        kind = PodKind.of(pod, by_namespace=self.state.namespaces_matter)
        if kind is None or not this.placing:
            return AllowedNodes(shared_pool_pods.REASON)
        if (kind, _priority(pod), True) in this.closed:
            return None

        def has_room(node: ClusterNode) -> bool:
            found = self.state.faults.over([pod], lambda pod: self._may_take(pod, kind, node, this))
            return any(free for _, free in found)

        asked = [node for name in sorted(this.placing) if (node := self.state.node(name)) is not None]
        others = (node for node in self.state.all_nodes() if node.name not in this.placing)
        release = shared_pool_pods.nodes_allowed_to(kind, asked, others, has_room)
        if release is None:
            this.closed.add((kind, _priority(pod), True))
            this.passed_over.setdefault(kind, pod)
        return release

    def _may_take(self, pod: ClusterPod, kind: PodKind, node: ClusterNode, this: _Round) -> bool:
        free = self.may_go(pod, node.name) and self._has_room(kind, node, this)
        return free and not self._is_wanted(node, pod, this)

    async def _preempt(self, pod: ClusterPod, this: _Round) -> None:
        """Release the pod to where the scheduler makes room for it, if it does so anywhere."""
        victims = await self.preempting.victims_for(pod, this.held)
        if victims is not None and victims.node not in self.held.by_node():
            _log.info("pod %s may preempt %s on %s", pod.full_name, ", ".join(names(victims)), victims.node)
            await self._start(pod, AllowedNodes("preemption", (victims.node,), NodeRole.ONLY), this)

    async def _pause(self, this: _Round) -> None:
        """Let others run if this has gone on for a while; count anew what is held if that was long ago."""
        now = time.monotonic()
        if now - this.sliced > _SLICE:
            await asyncio.sleep(0)
            this.sliced = now = time.monotonic()
        if now - this.counted > _FRESH:
            this.count(self.held.by_node(), now)

    def _is_known(self, pod: ClusterPod) -> bool:
        """Return whether there is a prediction for a pod."""
        prediction = self.forecasts.prediction_of(pod.uid)
        return prediction is not None and prediction.verdict != UNKNOWN

    def _all_known(self, this: _Round) -> bool:
        """Return whether all nodes are known that may reject pods of every kind."""
        nodes = map(self.state.node, this.placing)
        return all(node is None or node.known is not None for node in nodes)

    def _is_overdue(self, pod: ClusterPod, *, known: bool) -> bool:
        """Return whether nothing has been known of a pod's chances for long enough."""
        if known:
            self._unknown_since.pop(pod.uid, None)
            return False
        now = self.clock()
        since = self._unknown_since.setdefault(pod.uid, now)
        return bool(self.timeout) and now - since >= self.timeout

    def _releasable_pods(self) -> Iterator[tuple[_Importance, ClusterPod]]:
        """Yield the pods that nobody else holds back, and that have not been released already."""
        on_their_way = self.held.uids()
        for pod in self.served.pods():
            with self.state.faults.of(of_pod(pod)):
                others = len(pod.constraints.scheduling_gates) > 1
                if not others and self.served.objection(pod) is None and pod.uid not in on_their_way:
                    yield _importance(pod), pod

    def _free_nodes(self, pod: ClusterPod, this: _Round, *, certain: bool = True) -> tuple[str, ...]:
        """Return nodes that admit the pod beside all that may be on their way to them, best first.

        If ``certain``, they do so whichever other pods end; else, if none does.
        """
        priority, forecast = _priority(pod), self.forecasts.forecast_of(pod.uid)
        if forecast is None or self.forecasts.prediction_of(pod.uid) is None:
            if pod.admission is not None:
                this.unforeseen = max(this.unforeseen, priority)
            return ()
        kind = forecast.kind
        if priority < this.unforeseen or (kind, priority, certain) in this.closed:
            return ()
        if (kind, certain) not in this.open:
            this.open[kind, certain] = self.forecasts.ranked(pod.uid)
        found = self._first_free(pod, kind, this, certain=certain)
        if not found:
            this.passed_over.setdefault(kind, pod)
        return found

    def _first_free(self, pod: ClusterPod, kind: PodKind, this: _Round, *, certain: bool) -> tuple[str, ...]:
        """Return the first open nodes that the pod may be released to; strike those off that are full."""
        found: list[str] = []
        still_open: list[str] = []
        asked, kept = 0, False
        for name in this.open[kind, certain]:
            asked += 1
            if not self.may_go(pod, name):
                still_open.append(name)
                kept = True  # by a plan, perhaps for another pod of the kind
                continue
            free = None
            with self.state.faults.of(of_pod(pod)):
                free = self._is_free(name, pod, kind, this, certain=certain)
            if free is None:
                continue
            still_open.append(name)
            if free:
                found.append(name)
                if len(found) == CHOICE:
                    break
        this.open[kind, certain][:asked] = still_open
        if not found and not kept:
            this.closed.add((kind, _priority(pod), certain))
        return tuple(found)

    def _is_free(
        self, name: str, pod: ClusterPod, kind: PodKind, this: _Round, *, certain: bool
    ) -> bool | None:
        """Return whether no more important pod could use a node with room for the pod; None: it has none."""
        node = self.state.node(name)
        if node is None or not self._has_room(kind, node, this, certain=certain):
            return None
        # What raises about it among the pods on their way must raise now, not in the turn of the next one.
        self._arrivals_at(node, [*this.held.get(name, ()), pod])
        return not self._is_wanted(node, pod, this)

    def _has_room(self, kind: PodKind, node: ClusterNode, this: _Round, *, certain: bool = True) -> bool:
        """Return whether a node admits a pod, whichever of those on their way to it come, in any order."""
        arrivals = self._arrivals_at(node, this.held.get(node.name, ()))
        if arrivals is None:
            return False
        return arrivals.admits(kind) if certain else arrivals.admits_unless_pods_end(kind)

    def _arrivals_at(self, node: ClusterNode, coming: Sequence[ClusterPod]) -> Arrivals | None:
        """Return a node with the pods on their way to it; None: too many leave it to tell.

        No room is held there for pods on their way about which something raises.
        """
        others, by_namespace = self.state.alternatives(node.name, apart=False), self.state.namespaces_matter
        while others is not None:
            try:
                return self._arrivals.at(node, coming, others=others, by_namespace=by_namespace)
            except ObjectFault as fault:
                coming = self.held.without_faulty(coming, fault)
        return None

    def _is_wanted(self, node: ClusterNode, pod: ClusterPod, this: _Round) -> bool:
        """Return whether a more important pod, which still waits, could use the node."""
        return any(
            _priority(other) > _priority(pod)
            and self.may_go(other, node.name)
            and self._has_room(kind, node, this)
            for kind, other in this.passed_over.items()
        )

    async def _start(self, pod: ClusterPod, release: AllowedNodes, this: _Round) -> None:
        """Hold the room, and release the pod while others have their turn."""
        self.held.hold(pod, release.nodes, ArrivalPath.RELEASED, seconds=RELEASE_SECONDS)
        for name in release.nodes:
            this.held.setdefault(name, []).append(pod)
        this.requests.append(await self._requests.start(self._release(pod, release, this)))

    async def _release(self, pod: ClusterPod, release: AllowedNodes, this: _Round) -> None:
        with self.state.faults.of(of_pod(pod)):
            await self._write(pod, release, this)

    async def _write(self, pod: ClusterPod, release: AllowedNodes, this: _Round) -> None:
        patience, asked = self._failed.begin(pod.uid), time.monotonic()
        released, problem, away = False, None, False
        try:
            released = await self.writer.write(pod, release, patience=patience)
        except APIError as error:
            problem, away = error, self.writer.is_server_away(error, asked)
        except Exception as error:  # noqa: BLE001 - it concerns this pod alone
            self.served.report(pod, self.state.faults.take(of_pod(pod), error))
        finally:
            unasked = away and isinstance(problem, Unreachable)
            self._failed.end(pod.uid, self.clock(), failed=not released and not unasked)
        if away:
            this.failure = problem
        elif problem is not None:
            self.served.report(pod, str(problem))
        if isinstance(problem, Unreachable) and problem.sent:
            self.held.hold(pod, release.nodes, ArrivalPath.RELEASED, seconds=_UNANSWERED_SECONDS)
        elif not released:
            self.held.drop(pod.uid)


def _importance(pod: ClusterPod) -> _Importance:
    """Return the sort key of pods, the most important first."""
    return -_priority(pod), pod.created, pod.namespace, pod.name


def _priority(pod: ClusterPod) -> int:
    return pod.priority or 0
