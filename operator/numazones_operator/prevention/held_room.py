"""The room that is held for pods on their way to a node, so that one slot is never promised twice.

Between the moment a pod is given a choice of nodes and the moment the mirror shows it on one, no node counts
it. Three kinds of pods are on their way: those that the gate released, for a minute, on every node they may
go to; those whose binding is under way; and those that a scheduler nominated for a node, which count for
pods that are not more important, as in kube-scheduler (``RunFilterPluginsWithNominatedPods``, 1.36). What
this process did itself is known at once; the rest is read from the pods, so that it outlives a restart and
is known to other processes. A pod's word that the gate released it counts only where an admission policy
keeps everybody else from writing that (``AdmissionPolicies.proves``): whoever may create a pod could hold any
room by it otherwise. Pods that NUMA placement does not concern hold room only on nodes that may
reject even those. Whatever is held ends by itself.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field

from numazones.cluster.cluster import ClusterPod
from numazones.errors import ObjectFault
from numazones.prediction.held_room import MAX_NODES, ArrivalPath, Hold, by_node, release_ends
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState

BINDING_SECONDS = 60.0
"""Seconds after which a binding that the watch does not show no longer holds room."""
NOMINATION_SECONDS = 600.0
"""Seconds for which a nomination holds room: victims may take minutes to end."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """A pod that this process sent on its way."""

    pod: ClusterPod
    nodes: tuple[str, ...]
    way: ArrivalPath
    until: float
    mirrored: bool
    """Whether the mirror knew the pod then: if so, and it no longer does, the pod is gone."""


@dataclass
class HeldRoom:
    """Pods on their way to nodes."""

    state: ClusterState
    _: KW_ONLY
    proven: Callable[[ClusterPod], bool] = lambda _pod: False
    """Returns whether only the operator can have written a pod's annotation that it was released."""
    clock: Callable[[], float] = time.monotonic
    """Measures how long room is held."""
    wall: Callable[[], float] = time.time
    """The time of day that pods are marked with."""
    _own: dict[str, _Hold] = field(init=False, default_factory=dict)
    _nominated: dict[str, tuple[str, float]] = field(init=False, default_factory=dict)
    """UID → node that the pod is nominated for, and since when that is known here."""
    _chosen: dict[str, tuple[ClusterPod, tuple[str, ...]]] = field(init=False, default_factory=dict)
    """UID → a released pod, and the nodes that its affinity leaves it."""

    def hold(self, pod: ClusterPod, nodes: Iterable[str], way: ArrivalPath, *, seconds: float) -> None:
        """Hold room for a pod on every one of the nodes, until the mirror shows where it is."""
        mirrored = self.state.pods.get(pod.uid) is not None
        self._own[pod.uid] = _Hold(pod, tuple(nodes), way, self.clock() + seconds, mirrored)

    def drop(self, uid: str) -> None:
        """Hold nothing more for a pod that this process sent on its way."""
        self._own.pop(uid, None)

    def without_faulty(self, coming: Sequence[ClusterPod], fault: ObjectFault) -> list[ClusterPod]:
        """Return the pods that come without the one at fault, for which no room can be held there.

        Raises:
            ObjectFault: none of those for which room is held is at fault.
        """
        at_fault = {one.uid for one in fault.objects[:1] if isinstance(one, ClusterPod)}
        rest = [pod for pod in coming if pod.uid not in at_fault]
        if len(rest) == len(coming):
            raise fault
        self.state.faults.take_all([(fault.objects[0], fault)])
        return rest

    def holds(self, uid: str) -> bool:
        """Return whether this process released the pod, and the mirror does not show yet where it went."""
        return uid in self.uids()

    def uids(self) -> AbstractSet[str]:
        """Return all pods of which ``holds`` is true."""
        self._forget()
        return self._own.keys()

    def by_node(self, asking: ClusterPod | None = None) -> dict[str, list[ClusterPod]]:
        """Return node → pods that may be on their way to it, whom a pod that asks has to leave room."""
        return by_node(self.on_their_way(asking))

    def on_their_way(self, asking: ClusterPod | None = None) -> Iterator[Hold]:
        """Yield the room that is held, whom a pod that asks has to leave it."""
        self._forget()
        own = (hold.pod.uid for hold in self._own.values())
        uids = dict.fromkeys((*own, *self.state.on_their_way))
        for uid in uids:
            if asking is not None and uid == asking.uid:
                continue
            hold = self._own.get(uid)
            if hold is not None:
                yield Hold(hold.pod, hold.nodes, hold.way, self._time_of(hold.until))
                continue
            yield from self._shown_by(self.state.on_their_way[uid], asking)

    def _shown_by(self, pod: ClusterPod, asking: ClusterPod | None) -> tuple[Hold, ...]:
        """Return the room that a pod itself shows to be held; where it raises, that of its nomination."""
        try:
            found = self._nomination(pod, asking) or self._release(pod)
        except Exception as error:  # noqa: BLE001 - it concerns this pod alone
            self.state.faults.take(of_pod(pod), error)
            found = Hold(pod, (pod.nominated,), ArrivalPath.NOMINATED) if pod.nominated else None
        return () if found is None else (found,)

    def _nomination(self, pod: ClusterPod, asking: ClusterPod | None) -> Hold | None:
        """Return the room that a pod is nominated for, where that counts for who asks."""
        if not pod.nominated:
            return None
        if asking is not None and (pod.priority or 0) < (asking.priority or 0):
            return None
        now = self.clock()
        known = self._nominated.get(pod.uid)
        if known is None or known[0] != pod.nominated:
            known = self._nominated[pod.uid] = (pod.nominated, now)
        until = known[1] + NOMINATION_SECONDS
        if now >= until or not self.state.nodes_to_ask(pod, [pod.nominated]):
            return None
        return Hold(pod, (pod.nominated,), ArrivalPath.NOMINATED, self._time_of(until))

    def _release(self, pod: ClusterPod) -> Hold | None:
        """Return the room that a pod was released to, not long ago."""
        until = release_ends(pod, self.wall())
        if until is None or not self.proven(pod):
            return None
        known = self._chosen.get(pod.uid)
        if known is None or known[0] is not pod:
            selects = pod.constraints.selects
            nodes = [node.name for node in self.state.all_nodes() if selects(node.name, node.labels)]
            asked = self.state.nodes_to_ask(pod, nodes)
            known = self._chosen[pod.uid] = (pod, tuple(asked) if len(asked) <= MAX_NODES else ())
        return Hold(pod, known[1], ArrivalPath.RELEASED, until) if known[1] else None

    def _time_of(self, moment: float) -> float:
        """Return the time of day at a moment of the clock, seconds since the epoch."""
        return self.wall() + moment - self.clock()

    def _forget(self) -> None:
        """Drop what has ended: the pod has a node, or is gone, or its time is up."""
        now = self.clock()
        for uid, hold in list(self._own.items()):
            pod = self.state.pods.get(uid)
            gone = hold.mirrored if pod is None else bool(pod.node) or pod.terminal or pod.deleting
            if gone or now >= hold.until:
                del self._own[uid]
        for remembered in (self._nominated, self._chosen):
            for uid in remembered.keys() - self.state.on_their_way.keys():
                del remembered[uid]
