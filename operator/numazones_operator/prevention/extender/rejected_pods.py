"""Has a rejected pod tried again when a node would take it, and only then.

kube-scheduler tries a pod again upon events of nodes and pods, never upon those of custom resources, and a
node's zones are what our verdicts come from. A patch of an annotation on the waiting pod makes it try at once
(specs/scheduler-extender.md, section 4). Of many pods that wait for one slot only the first is woken.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from operator import itemgetter

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import NodeVerdict, PodKind
from numazones_client import APIError, Client, NotFound
from numazones_client.resources import PODS
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.extender.decisions import may_take
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_operator.prevention.extender.verdicts import CurrentVerdicts
from numazones_operator.prevention.held_room import HeldRoom

TRY_AGAIN = "numazones.io/admissible-since"
"""Annotation of a pod that no node admitted: when one would again."""

_PERIOD = 0.2
_UNCHANGED_PERIOD = 1.0
"""Seconds after which one looks again though no node has changed: held room ends by time alone."""
_UNSEEN_SECONDS = 60.0
"""Seconds for which a pod is remembered that the mirror does not show."""

_log = logging.getLogger(__name__)


@dataclass
class RejectedPods:
    """The pods that filter rejected on every node, until one would take them."""

    client: Client
    state: ClusterState
    held: HeldRoom
    verdicts: CurrentVerdicts
    _: KW_ONLY
    unknown: UnknownNodes
    """Treatment of nodes of unknown state."""
    metrics: ExtenderMetrics
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    """The time of day that pods are annotated with."""
    _rejected: dict[str, float] = field(init=False, default_factory=dict)
    """UID → when it was rejected last, by the clock."""
    _woken: set[str] = field(init=False, default_factory=set)
    _seen: tuple[int, float] = field(init=False, default=(-1, 0.0))
    """What the state's version was when one looked last, and when that was."""

    def add(self, pod: ClusterPod) -> None:
        """Remember a pod that no node takes."""
        self._rejected[pod.uid] = self.clock()
        self._woken.discard(pod.uid)

    def discard(self, uid: str) -> None:
        """Forget a pod: a node takes it."""
        self._rejected.pop(uid, None)
        self._woken.discard(uid)

    async def run(self) -> None:
        """Wake pods until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD)
            await self.look()

    async def look(self) -> None:
        """Wake pods, unless one has just looked and no node has changed since."""
        now = self.clock()
        if self._seen[0] != self.state.version or now - self._seen[1] >= _UNCHANGED_PERIOD:
            self._seen = (self.state.version, now)
            await self.wake()

    async def wake(self) -> None:
        """Wake the pods that a node would take now, the more important first, then the older ones."""
        faults = self.state.faults
        asked = faults.over(self._waiting(), lambda pod: (-(pod.priority or 0), pod.created, pod.full_name))
        nodes_of: dict[PodKind | None, list[str]] = {}
        promised = self.held.by_node()
        for pod, _ in sorted(asked, key=itemgetter(1)):
            with faults.of(of_pod(pod)):
                await self._wake(pod, nodes_of, promised)

    async def _wake(
        self,
        pod: ClusterPod,
        nodes_of: dict[PodKind | None, list[str]],
        promised: dict[str, list[ClusterPod]],
    ) -> None:
        kind = PodKind.of(pod, by_namespace=self.state.namespaces_matter, allocated=True)
        if kind not in nodes_of:
            nodes_of[kind] = await self.verdicts.passing(pod, self._may_take)
        node = self._first(pod, nodes_of[kind], promised)
        if node is None:
            self._woken.discard(pod.uid)
            return
        promised.setdefault(node, []).append(pod)
        if pod.uid not in self._woken:
            await self._annotate(pod)

    def _waiting(self) -> Iterable[ClusterPod]:
        now = self.clock()
        known = {uid: self.state.pods.get(uid) for uid in self._rejected}
        for uid in [uid for uid, pod in known.items() if pod is None and self._is_unseen(uid, now)]:
            self.discard(uid)
        pods = (pod for pod in known.values() if pod is not None)
        for pod, over in self.state.faults.over(
            pods, lambda pod: bool(pod.node) or pod.terminal or pod.deleting
        ):
            if over:
                self.discard(pod.uid)
            else:
                yield pod

    def _is_unseen(self, uid: str, now: float) -> bool:
        return now - self._rejected[uid] > _UNSEEN_SECONDS

    def _first(
        self, pod: ClusterPod, names: Iterable[str], promised: dict[str, list[ClusterPod]]
    ) -> str | None:
        for name in names:
            others = [other for other in promised.get(name, ()) if other.uid != pod.uid]
            if self._may_take(self.verdicts.beside(pod, name, others)):
                return name
        return None

    def _may_take(self, verdict: NodeVerdict) -> bool:
        return may_take(verdict, self.unknown)

    async def _annotate(self, pod: ClusterPod) -> None:
        moment = timestamp.format_micro(datetime.fromtimestamp(self.wall(), UTC))
        metadata = {"uid": pod.uid, "annotations": {TRY_AGAIN: moment}}
        try:
            await self.client.patch(PODS, pod.name, {"metadata": metadata}, namespace=pod.namespace)
        except NotFound:
            self.discard(pod.uid)
        except APIError as error:
            _log.warning(
                "could not make the scheduler retry pod %s, which a node would admit now: %s",
                pod.full_name,
                error,
            )
        else:
            self._woken.add(pod.uid)
            self.metrics.woken.inc()
