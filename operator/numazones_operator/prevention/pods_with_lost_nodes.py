"""Helps pods that the gate released to nodes which are all lost since: nobody waits for ever because of us.

Kubernetes lets nobody widen the affinity of a released pod. One that has never had a node, and that a
ReplicaSet, ReplicationController or StatefulSet replaces, loses nothing when it is evicted: its successor
waits at the gate anew. So it is, if ``--admission-gate-replace`` says so and all nodes have been lost for a
minute; the eviction names UID and resource version, so that a pod which is bound or changed meanwhile stays.
Of all others, such as a Job's, which would count it as a failure, an event says what to do.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.waiting import is_replaced, lost_nodes, told_of_loss
from numazones_client import APIError, Client, Conflict, NotFound
from numazones_client.resources import PODS
from numazones_operator.events import NORMAL, WARNING, EventPoster
from numazones_operator.faults import of_pod
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState

PATIENCE = 60.0
"""Seconds for which all nodes have to be lost: some come back, after a restart."""
LOST = "AdmissionGateNodesLost"
"""Reason of the event on a pod that its owner, or somebody, has to make anew."""
REPLACED = "AdmissionGateReplaced"
"""Reason of the event on a pod that was evicted for it."""

_PERIOD = 5.0
_log = logging.getLogger(__name__)


@dataclass
class PodsWithLostNodes:
    """Looks after them on the replica that leads."""

    client: Client
    state: ClusterState
    events: EventPoster
    _: KW_ONLY
    replaces: bool
    """False if no pods are evicted."""
    metrics: Metrics
    leads: Callable[[], bool] = lambda: True
    """Returns whether no other replica can lead at this moment; asked right before each eviction."""
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(init=False, default_factory=dict)
    """UID of a pod whose nodes are all lost → since when that is known."""
    _told: set[str] = field(init=False, default_factory=set)

    def count(self) -> int:
        """Return how many pods wait for nodes that are all lost."""
        return sum(uid in self.state.on_their_way for uid in self._since)

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_PERIOD)

    async def look(self) -> None:
        """Evict, or tell of, the pods whose nodes have been lost for long enough."""
        now = self.clock()
        lost: dict[str, tuple[ClusterPod, tuple[str, ...]]] = {}
        for uid, pod in list(self.state.on_their_way.items()):
            with self.state.faults.of(of_pod(pod)):
                if not pod.nominated and (nodes := lost_nodes(pod, self.state.all_nodes())):
                    lost[uid] = (pod, nodes)
            await asyncio.sleep(0)
        self._since = {uid: self._since.get(uid, now) for uid in lost}
        self._told &= lost.keys()
        for uid, (pod, nodes) in lost.items():
            with self.state.faults.of(of_pod(pod)):
                if now - self._since[uid] >= PATIENCE and self.leads():
                    await self._help(pod, nodes)

    async def _help(self, pod: ClusterPod, nodes: tuple[str, ...]) -> None:
        """Evict a pod, or tell what to do about it."""
        if not (self.replaces and is_replaced(pod)):
            self._tell(pod, told_of_loss(pod, nodes))
        elif problem := await self._replace(pod, nodes):
            self._tell(pod, f"{told_of_loss(pod, nodes)}; the operator could not evict it: {problem}")

    async def _replace(self, pod: ClusterPod, nodes: tuple[str, ...]) -> str:
        """Evict a pod if it still has never had a node; return why that failed."""
        try:
            body = await self.client.get(PODS, pod.name, namespace=pod.namespace)
            metadata, spec = body["metadata"], body["spec"]
            if metadata["uid"] != pod.uid or spec.get("nodeName") or metadata.get("deletionTimestamp"):
                return ""
            version = metadata["resourceVersion"]
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid, resource_version=version)
        except (NotFound, Conflict) as error:
            self.metrics.count_write(PODS, error)
            _log.info("pod %s was not evicted: %s", pod.full_name, error)
            return ""
        except APIError as error:
            self.metrics.count_write(PODS, error)
            return str(error)
        self.metrics.count_write(PODS)
        self.metrics.released_pods_replaced.inc()
        self.events.post(
            of_pod(pod),
            type=NORMAL,
            reason=REPLACED,
            message="evicted before it got a node, because all nodes that the gate had released it to "
            f"({', '.join(nodes)}) are gone, cordoned or tainted; its owner creates a replacement, "
            "which waits at the gate",
        )
        return ""

    def _tell(self, pod: ClusterPod, message: str) -> None:
        if pod.uid in self._told:
            return
        if self.events.post(of_pod(pod), type=WARNING, reason=LOST, message=message):
            self._told.add(pod.uid)
