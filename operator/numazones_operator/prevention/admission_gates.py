"""The scheduling gate ``numazones.io/admission``: a pod waits until some node would admit it.

A ReplicaSet answers a rejected pod with a new one, which is rejected again, hundreds of times. Pods that
carry the gate, in namespaces that opt in, are not scheduled before a node would admit them, and then only to
such nodes (``release_patch``).

The more important go first, by priority and then by age, as in the scheduler's queue; a less important pod
leaves a node alone that a more important one could use, and a pod that fits nowhere keeps nobody waiting.
Pods that were released but have no node yet hold room on every node they may go to, so that ten pods are
never released for one slot; a pod joins them only where all are admitted whichever of them come, and in
whatever order (``numazones.prediction.arrivals``). Gates of others go first: until ours is the last one, a
pod holds no room. A pod for which the scheduler still has to find devices (DRA) is not limited to such nodes,
but prefers them. Pods that no kubelet's managers are concerned with go at once, but not to nodes that place
pods of every kind and have no room for them (``unconcerned_pods``). A pod that is known to be inadmissible
waits: released, it would be rejected and replaced, for ever; unless the scheduler would make room for it
(``preempting_releases``). Where nothing is known for a while, as when exporters are down, it is released as
it is. A pod whose gate nobody takes away gets an event that says why.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.waiting import GATE, OPT_IN
from numazones.prediction.forecast import ADMISSIBLE, UNKNOWN, Kind, devices_to_allocate, relevant
from numazones.prediction.held_room import RELEASE_SECONDS, Way
from numazones_client import APIError, Client, Conflict, Invalid, NotFound
from numazones_client.client import STRATEGIC_MERGE_PATCH
from numazones_client.resources import PODS
from numazones_client.table import Table
from numazones_operator.events import WARNING, EventPoster, pod_reference
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.prevention import unconcerned_pods
from numazones_operator.prevention.arrivals_by_node import ArrivalsByNode
from numazones_operator.prevention.held_room import HeldRoom
from numazones_operator.prevention.preempting_releases import PreemptingReleases, names
from numazones_operator.prevention.release import CHOICE, Reach, Release
from numazones_operator.prevention.release_patch import HOSTNAME, Target, release_patch

NOT_SERVED = "AdmissionGateNotServed"
"""Reason of the event that tells why nobody opens a gate."""
SWITCHED_OFF = (
    "the operator runs without --admission-gate; apply manifests/components/operator-admission-gate"
)
AT_ONCE = 32
"""Requests under way at the same time."""

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

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Round:
    """What one walk along the waiting pods has found out."""

    tasks: asyncio.TaskGroup
    """Where requests are under way."""
    started: float
    held: dict[str, list[ClusterPod]]
    counted: float
    """When ``held`` was."""
    sliced: float
    placing: frozenset[str]
    """Nodes that may also reject pods that NUMA placement does not concern elsewhere."""
    open: dict[tuple[Kind, bool], list[str]] = field(default_factory=dict)
    """Kind, and whether whichever pods end → nodes that may still have room for pods of the kind, best first;
    within a round there is never more."""
    unforeseen: int = -_HIGHEST
    """The highest priority of a pod without a prediction so far; the less important wait for that."""
    closed: set[tuple[Kind, int, bool]] = field(default_factory=set)
    """Kinds and priorities of which no further pod finds a node, with the same."""
    passed_over: dict[Kind, ClusterPod] = field(default_factory=dict)
    """Kind → the most important pod of it that goes on waiting."""
    failure: APIError | None = None

    def count(self, held: dict[str, list[ClusterPod]], now: float) -> None:
        """Take what is held at this moment."""
        self.held, self.counted = held, now


class AdmissionGates:
    """Releases gated pods."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        forecasts: LiveForecasts,
        held: HeldRoom,
        namespaces: Table[NamespaceLabels],
        events: EventPoster,
        *,
        enabled: bool,
        may_go: Callable[[ClusterPod, str], bool],
        preempting: PreemptingReleases,
        changed: asyncio.Event,
        timeout: float,
        metrics: Metrics,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Release pods by what the parts given know.

        Args:
            client: how pods are patched.
            state: the cluster.
            forecasts: where each waiting pod would be admitted, the nodes that are preferred first.
            held: the room held for pods on their way.
            namespaces: which of them opt in.
            events: where events on pods are posted.
            enabled: whether pods are released at all; if not, events on them say so.
            may_go: asked whether a pod may be released to a node; a plan may keep it for another pod.
            preempting: asked where less important pods would have to leave for a pod.
            changed: set when forecasts have changed; cleared here.
            timeout: seconds after which a pod is released of which nothing is known; 0: never.
            metrics: where releases are counted.
            leads: whether no other replica can lead at this moment; asked right before each release.
            clock: measures the timeout, in seconds.
            wall: the time of day, which released pods are marked with.
        """
        self._client = client
        self._state = state
        self._forecasts = forecasts
        self._held = held
        self._namespaces = namespaces
        self._events = events
        self._enabled = enabled
        self._may_go = may_go
        self._preempting = preempting
        self._changed = changed
        self._timeout = timeout
        self._metrics = metrics
        self._leads = leads
        self._clock = clock
        self._wall = wall
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._arrivals = ArrivalsByNode()
        self._reported: dict[str, str] = {}
        """UID → why its gate is not served, as the event on the pod said."""
        self._unknown_since: dict[str, float] = {}
        """UID of a pod of which nothing is known → since when."""
        self._uncertain_since: dict[str, float] = {}
        """UID of a pod that nodes admit as things stand, but none for certain → since when."""

    async def run(self) -> None:
        """Release pods until cancelled."""
        while True:
            try:
                ended = await self.release()
            except APIError as error:
                _log.warning("gated pods could not be released: %s", error)
                await asyncio.sleep(_PERIOD)
                continue
            if not ended:
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(_PERIOD):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def release(self) -> bool:
        """Release every gated pod that can go now, the most important first; post events on the others.

        Return whether everybody had a turn; else call again at once.

        Raises:
            APIError: the API server cannot be asked, or does not let us.
        """
        self._report_unserved()
        waiting = sorted(self._releasable_pods(), key=_importance)
        uids = {pod.uid for pod in waiting}
        for since in (self._unknown_since, self._uncertain_since):
            for uid in since.keys() - uids:
                del since[uid]
        if not waiting:
            self._arrivals.clear()
            return True
        now = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            this = _Round(
                tasks,
                started=now,
                held=self._held.by_node(),
                counted=now,
                sliced=now,
                placing=self._state.placing_every_pod,
            )
            ended = await self._walk(waiting, this)
        if this.failure is not None:
            raise this.failure
        return ended

    async def _walk(self, waiting: Sequence[ClusterPod], this: _Round) -> bool:
        """Have each pod's turn; return whether all had it."""
        for pod in waiting:
            await self._pause(this)
            if this.failure is not None or time.monotonic() - this.started > _ROUND:
                return this.failure is not None
            concerned = relevant(pod)
            release = self._release_now(pod, this) if concerned else self._release_unconcerned(pod, this)
            if release is not None:
                await self._start(pod, release, this)
            elif self._is_overdue(pod, known=self._is_known(pod) if concerned else self._all_known(this)):
                await self._start(pod, Release("timeout"), this)
            else:
                await self._preempt(pod, this)
        return True

    def _release_now(self, pod: ClusterPod, this: _Round) -> Release | None:
        """Return where a pod may go now; None if nowhere."""
        nodes = self._free_nodes(pod, this)
        if not nodes and self._has_waited_for_certainty(pod):
            nodes = self._free_nodes(pod, this, certain=False)
        if not nodes:
            return None
        if sure := self._with_devices(pod, nodes):
            return Release("admissible", sure, Reach.ONLY)
        return Release("devices", nodes, Reach.RATHER)

    def _has_waited_for_certainty(self, pod: ClusterPod) -> bool:
        """Whether a pod has waited long enough for a node that admits it whichever pods end.

        What another pod frees may lead a kubelet to reject a pod of several containers. Where no pod ends, it
        would wait for that for ever, beside room that it fits.
        """
        prediction = self._forecasts.prediction_of(pod.uid)
        if prediction is None or prediction.verdict != ADMISSIBLE:
            self._uncertain_since.pop(pod.uid, None)
            return False
        now = self._clock()
        return now - self._uncertain_since.setdefault(pod.uid, now) >= PATIENCE_SECONDS

    def _release_unconcerned(self, pod: ClusterPod, this: _Round) -> Release | None:
        """Return the same for a pod that most nodes admit unasked."""
        kind = Kind.of(pod, by_namespace=self._state.namespaces_matter)
        if kind is None or not this.placing:
            return Release(unconcerned_pods.REASON)
        if (kind, _priority(pod), True) in this.closed:
            return None

        def has_room(node: ClusterNode) -> bool:
            free = self._may_go(pod, node.name) and self._has_room(kind, node, this)
            return free and not self._is_wanted(node, pod, this)

        asked = [node for name in sorted(this.placing) if (node := self._state.node(name)) is not None]
        others = (node for node in self._state.all_nodes() if node.name not in this.placing)
        release = unconcerned_pods.release_of(kind, asked, others, has_room)
        if release is None:
            this.closed.add((kind, _priority(pod), True))
            this.passed_over.setdefault(kind, pod)
        return release

    async def _preempt(self, pod: ClusterPod, this: _Round) -> None:
        """Release the pod to where the scheduler makes room for it, if it does so anywhere."""
        victims = await self._preempting.victims_for(pod, this.held)
        if victims is not None and victims.node not in self._held.by_node():
            _log.info("pod %s may preempt %s on %s", pod.full_name, ", ".join(names(victims)), victims.node)
            await self._start(pod, Release("preemption", (victims.node,), Reach.ONLY), this)

    async def _pause(self, this: _Round) -> None:
        """Let others run if this has gone on for a while; count anew what is held if that was long ago."""
        now = time.monotonic()
        if now - this.sliced > _SLICE:
            await asyncio.sleep(0)
            this.sliced = now = time.monotonic()
        if now - this.counted > _FRESH:
            this.count(self._held.by_node(), now)

    def _is_known(self, pod: ClusterPod) -> bool:
        """Whether something is predicted for a pod."""
        prediction = self._forecasts.prediction_of(pod.uid)
        return prediction is not None and prediction.verdict != UNKNOWN

    def _all_known(self, this: _Round) -> bool:
        """Whether all nodes are known that may reject pods of every kind."""
        nodes = map(self._state.node, this.placing)
        return all(node is None or node.known is not None for node in nodes)

    def _is_overdue(self, pod: ClusterPod, *, known: bool) -> bool:
        """Whether for long enough nothing has been known of a pod's chances."""
        if known:
            self._unknown_since.pop(pod.uid, None)
            return False
        now = self._clock()
        since = self._unknown_since.setdefault(pod.uid, now)
        return bool(self._timeout) and now - since >= self._timeout

    def _gated_pods(self) -> Iterator[ClusterPod]:
        gated = self._state.gated.values()
        return (pod for pod in list(gated) if GATE in pod.constraints.scheduling_gates)

    def _releasable_pods(self) -> Iterator[ClusterPod]:
        """Yield the pods that nobody else holds back, and that have not been released already."""
        on_their_way = self._held.uids()
        for pod in self._gated_pods():
            others = len(pod.constraints.scheduling_gates) > 1
            if not others and self._objection(pod) is None and pod.uid not in on_their_way:
                yield pod

    def gated_pod_counts(self) -> tuple[int, int]:
        """How many gated pods wait for a node that admits them, and how many nobody releases."""
        served = [self._objection(pod) is None for pod in self._gated_pods()]
        return served.count(True), served.count(False)

    def _objection(self, pod: ClusterPod) -> str | None:
        """Why a pod's gate is not released here; None if it is, empty while that is not known."""
        if not self._enabled:
            return SWITCHED_OFF
        namespace = self._namespaces.get(pod.namespace)
        if namespace is None:
            return ""
        if namespace.labels.get(OPT_IN[0]) == OPT_IN[1]:
            return None
        return f"namespace {pod.namespace} does not opt in; label it {OPT_IN[0]}={OPT_IN[1]}"

    def _report_unserved(self) -> None:
        """Post an event, once, on each pod whose gate this operator does not take away."""
        for uid in self._reported.keys() - self._state.gated.keys():
            del self._reported[uid]
        for pod in self._gated_pods():
            objection = self._objection(pod)
            if objection:
                self._report(pod, objection)

    def _report(self, pod: ClusterPod, objection: str) -> None:
        if self._reported.get(pod.uid) == objection:
            return
        message = f"nobody takes its scheduling gate {GATE} away: {objection}"
        if self._events.post(pod_reference(pod), type=WARNING, reason=NOT_SERVED, message=message):
            self._reported[pod.uid] = objection

    def _free_nodes(self, pod: ClusterPod, this: _Round, *, certain: bool = True) -> tuple[str, ...]:
        """Return nodes that admit the pod beside all that may be on their way to them, best first.

        If ``certain``, they do so whichever other pods end; else, if none does.
        """
        priority, forecast = _priority(pod), self._forecasts.forecast_of(pod.uid)
        if forecast is None or self._forecasts.prediction_of(pod.uid) is None:
            if pod.admission is not None:
                this.unforeseen = max(this.unforeseen, priority)
            return ()
        kind = forecast.kind
        if priority < this.unforeseen or (kind, priority, certain) in this.closed:
            return ()
        if (kind, certain) not in this.open:
            this.open[kind, certain] = self._forecasts.ranked(pod.uid)
        found = self._first_free(pod, kind, this, certain=certain)
        if not found:
            this.passed_over.setdefault(kind, pod)
        return found

    def _first_free(self, pod: ClusterPod, kind: Kind, this: _Round, *, certain: bool) -> tuple[str, ...]:
        """Return the first open nodes that the pod may be released to; strike those off that are full."""
        found: list[str] = []
        still_open: list[str] = []
        asked, kept = 0, False
        for name in this.open[kind, certain]:
            asked += 1
            if not self._may_go(pod, name):
                still_open.append(name)
                kept = True  # by a plan, perhaps for another pod of the kind
                continue
            node = self._state.node(name)
            if node is None or not self._has_room(kind, node, this, certain=certain):
                continue
            still_open.append(name)
            if not self._is_wanted(node, pod, this):
                found.append(name)
                if len(found) == CHOICE:
                    break
        this.open[kind, certain][:asked] = still_open
        if not found and not kept:
            this.closed.add((kind, _priority(pod), certain))
        return tuple(found)

    def _has_room(self, kind: Kind, node: ClusterNode, this: _Round, *, certain: bool = True) -> bool:
        """Whether a node admits a pod whichever of those on their way to it come, and in whatever order."""
        held = this.held.get(node.name, ())
        arrivals = self._arrivals.at(node, held, by_namespace=self._state.namespaces_matter)
        return arrivals.admits(kind) if certain else arrivals.admits_unless_pods_end(kind)

    def _with_devices(self, pod: ClusterPod, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes for which no devices of dynamic resource allocation have to be found first.

        Which nodes have devices for a pod is for the scheduler's allocator to say. To be limited to others
        would have it wait for ever.
        """
        claims = pod.resource_claims
        found = ((name, self._state.node(name)) for name in nodes)
        return tuple(
            name
            for name, node in found
            if node is None or not devices_to_allocate(pod.requests, node, claims=claims, zones=None)
        )

    def _is_wanted(self, node: ClusterNode, pod: ClusterPod, this: _Round) -> bool:
        """Whether a more important pod, which goes on waiting so far, could use the node."""
        return any(
            _priority(other) > _priority(pod)
            and self._may_go(other, node.name)
            and self._has_room(kind, node, this)
            for kind, other in this.passed_over.items()
        )

    async def _start(self, pod: ClusterPod, release: Release, this: _Round) -> None:
        """Hold the room, and release the pod while others have their turn."""
        self._held.hold(pod, release.nodes, Way.RELEASED, seconds=RELEASE_SECONDS)
        for name in release.nodes:
            this.held.setdefault(name, []).append(pod)
        await self._slots.acquire()
        task = this.tasks.create_task(self._release(pod, release, this))
        task.add_done_callback(lambda _task: self._slots.release())

    async def _release(self, pod: ClusterPod, release: Release, this: _Round) -> None:
        if not self._leads():  # another replica counts what is on its way by now
            self._held.drop(pod.uid)
            return
        try:
            await self._patch(pod, release)
        except (NotFound, Conflict) as error:
            self._held.drop(pod.uid)
            self._metrics.count_write(PODS, error)
            _log.info("pod %s was not released: %s", pod.full_name, error)
        except Invalid as error:
            self._held.drop(pod.uid)
            self._metrics.count_write(PODS, error)
            self._report(pod, str(error))
        except APIError as error:
            self._held.drop(pod.uid)
            self._metrics.count_write(PODS, error)
            this.failure = error
        else:
            self._metrics.count_write(PODS)
            self._count(pod, release.reason)

    async def _patch(self, pod: ClusterPod, release: Release) -> None:
        affinity: dict[str, Any] = {}
        version = ""
        has_own = pod.constraints.node_affinity is not None or pod.constraints.prefers_nodes
        if has_own and (release.named or release.without):
            body = await self._client.get(PODS, pod.name, namespace=pod.namespace)
            affinity = (body["spec"].get("affinity") or {}).get("nodeAffinity") or {}
            version = body["metadata"]["resourceVersion"]
        now = _time_text(self._wall())
        patch = release_patch(
            pod.uid,
            self._targets(release.named),
            affinity=affinity,
            only=release.reach is Reach.ONLY,
            without=release.without,
            version=version,
            now=now,
        )
        await self._client.patch(
            PODS, pod.name, patch, namespace=pod.namespace, media_type=STRATEGIC_MERGE_PATCH
        )

    def _count(self, pod: ClusterPod, reason: str) -> None:
        self._metrics.gates_released.labels(reason).inc()
        if reason == "timeout":
            self._events.post(
                pod_reference(pod),
                type=WARNING,
                reason="AdmissionGateTimeout",
                message="released by --admission-gate-timeout: nobody knows whether a node would admit it",
            )

    def _targets(self, nodes: tuple[str, ...]) -> list[Target]:
        found = ((name, self._state.node(name)) for name in nodes)
        return [Target(name, None if node is None else node.labels.get(HOSTNAME)) for name, node in found]


def _importance(pod: ClusterPod) -> tuple[int, str, str, str]:
    """What pods are sorted by, the most important first."""
    return -_priority(pod), pod.created, pod.namespace, pod.name


def _priority(pod: ClusterPod) -> int:
    return pod.priority or 0


def _time_text(moment: float) -> str:
    return timestamp.format(datetime.fromtimestamp(moment, UTC))
