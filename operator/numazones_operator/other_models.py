"""A node on which another model than the kubelet places pods: what it decides from, kept up to date.

Koordinator writes on each pod what it gave it, so a node follows from its objects and its pods at any time.
The topology-aware policy publishes only what its pools have left; who sits where follows from the order in
which pods came and went. That order is followed here, and every state that the policy publishes is held
against it: what was not seen to happen makes the node unknown, once that has lasted.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numazones import placement
from numazones.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError, UnmodelledFeature
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import Model, PolicyNode
from numazones.pod import Pod
from numazones.policies.koordinator.node import Node as KoordinatorNode
from numazones.policies.koordinator.scheduler import Scheduler
from numazones.policies.topology_aware.admission import admit, remove
from numazones.policies.topology_aware.live import PublishedPool, check_published, published_pools
from numazones.policies.topology_aware.node import Node as TopologyAwareNode

Body = Mapping[str, Any]
_Event = tuple[str, Pod | None]
"""Uid of a pod, and the pod that was bound; None: it has ended."""

_MOST_RECENT = 64
_MOST_EVENTS = 256
"""So many are followed ahead of what the policy's pools show."""
_MOST_TRIED = 200
"""So many events are played in other orders before a contradiction counts as one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What nodes of other models read beyond their own objects."""

    configurations: tuple[Body, ...] = ()
    """All TopologyAwarePolicy resources."""
    scheduler: Scheduler = field(default_factory=Scheduler)
    """How koord-scheduler is set up."""


@dataclass(slots=True)
class OtherModel:
    """What is known of one node's placement model, where that is not the kubelet."""

    topology: Body | None = None
    """Its NodeResourceTopology, where that shows another model."""
    device: Body | None = None
    """Its Device object (Koordinator)."""
    recent: deque[PolicyNode] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))
    """The states that were told last: what decided may have known more or less."""
    _read_from: tuple[Any, ...] = ()
    _followed: "_Koordinated | _Followed | None" = None

    @property
    def known(self) -> bool:
        """Whether any object of another model is left."""
        return self.topology is not None or self.device is not None

    def shown_by(self, node: ClusterNode) -> bool:
        """Whether another model than the kubelet decides there, or may."""
        try:
            return placement.shown(node.body, self.topology) is not Model.KUBELET
        except NumazonesError:
            return True

    def state(
        self,
        node: ClusterNode,
        kubelet: KubeletNode | None,
        pods: Sequence[ClusterPod],
        surroundings: Surroundings,
        *,
        now: float,
        settle: float,
    ) -> PolicyNode:
        """Return what the node's model decides from.

        Args:
            node: the node, which shows another model.
            kubelet: what its zones say; None: nothing.
            pods: those bound to it that have not ended.
            surroundings: the rest that it reads.
            now: seconds, monotonic.
            settle: for how many of them published pools may contradict what was seen to happen.

        Raises:
            NumazonesError: it is not known; the message says why.
        """
        held = {pod.kubelet_uid: placement.readable(pod) for pod in pods}
        if self._followed is None or self._outdated(node, kubelet, surroundings):
            self._follow(node, kubelet, pods, surroundings)
        elif isinstance(self._followed, _Followed):
            agrees = self._followed.agrees(self.topology or {}, now)
            if not agrees and self.contradicted(now, settle=settle):
                self._follow(node, kubelet, pods, surroundings)
        assert self._followed is not None  # noqa: S101 - for the type checker
        state = self._followed.state(held)
        if not self.recent or self.recent[-1] is not state:
            self.recent.append(state)
        return state

    def bound(self, pod: ClusterPod) -> None:
        """Take in a pod's binding, or that one which was rejected has started after all."""
        self._take(pod.kubelet_uid, pod.admission)

    def ended(self, uid: str) -> None:
        """Take in a pod's end; ``uid`` as the kubelet knows it."""
        self._take(uid, None)

    def _take(self, uid: str, pod: Pod | None) -> None:
        if isinstance(self._followed, _Followed):
            try:
                self._followed.take(uid, pod)
            except NumazonesError:
                self._followed = None  # read anew, which says why where it fails again

    def contradicted(self, now: float, *, settle: float) -> bool:
        """Whether published pools have contradicted what was seen for too long just now."""
        followed = self._followed
        return isinstance(followed, _Followed) and now - followed.since(now) >= settle

    def _outdated(self, node: ClusterNode, kubelet: KubeletNode | None, surroundings: Surroundings) -> bool:
        read_from = self._sources(node, kubelet, surroundings)
        return len(read_from) != len(self._read_from) or any(
            new is not old and new != old for new, old in zip(read_from, self._read_from, strict=True)
        )

    def _sources(
        self, node: ClusterNode, kubelet: KubeletNode | None, surroundings: Surroundings
    ) -> tuple[Any, ...]:
        """All that is read but once; pools change with every pod, and are held against what is followed."""
        machine = None if kubelet is None else kubelet.kubelet
        topology = None if isinstance(self._followed, _Followed) else self.topology
        return (node.body, machine, self.device, surroundings.configurations, topology)

    def _follow(
        self,
        node: ClusterNode,
        kubelet: KubeletNode | None,
        pods: Sequence[ClusterPod],
        surroundings: Surroundings,
    ) -> None:
        self._followed = None
        model = placement.shown(node.body, self.topology)
        found = placement.seen(
            node.body,
            self.topology,
            pods=pods if model is Model.TOPOLOGY_AWARE else (),
            kubelet_node=kubelet,
            device=self.device,
            configurations=surroundings.configurations,
            scheduler=surroundings.scheduler,
        )
        if isinstance(found, TopologyAwareNode):
            self._followed = _Followed(found)
        elif found is not None:
            self._followed = _Koordinated(found)
        self._read_from = self._sources(node, kubelet, surroundings)


class _Koordinated:
    """A node of Koordinator's with the pods that it has at any time."""

    def __init__(self, empty: KoordinatorNode) -> None:
        self._node = empty
        self._bound: dict[str, Pod] = {}

    def state(self, pods: Mapping[str, Pod]) -> KoordinatorNode:
        """Return the node with exactly these pods (by uid)."""
        for uid in self._bound.keys() - pods.keys():
            self._node = self._node.remove(uid)
        for uid, pod in pods.items():
            if self._bound.get(uid) != pod:
                self._node = self._node.bind(pod)
        self._bound = dict(pods)
        return self._node


class _Followed:
    """A node of the topology-aware policy: the state that it published last, and what has happened since."""

    def __init__(self, published: TopologyAwareNode) -> None:
        self._events: list[_Event] = []
        """What the published pools do not show."""
        self._states = [published]
        """The published one, then that after each of the events."""
        self._published: Body | None = None
        self._contradicted: float | None = None
        self._tried: tuple[Body | None, int] = (None, 0)

    def take(self, uid: str, pod: Pod | None) -> None:
        """Take in that a pod was bound, or ended (None).

        Raises:
            NumazonesError: what comes of it is not known.
        """
        if len(self._events) >= _MOST_EVENTS:
            raise UnmodelledFeature(f"the policy's pools do not show the last {_MOST_EVENTS} events")
        self._events.append((uid, pod))
        self._states.append(_after(self._states[-1], uid, pod))

    def agrees(self, topology: Body, now: float) -> bool:
        """Whether the pools that are published are those after some of the events; these are settled then."""
        if topology is self._published and self._contradicted is None:
            return True
        pools = published_pools(topology)
        if self._settle(pools) or self._settle_otherwise(topology, pools):
            self._published, self._contradicted = topology, None
            return True
        self._contradicted = now if self._contradicted is None else self._contradicted
        return False

    def _settle(self, pools: tuple[PublishedPool, ...]) -> bool:
        """Drop the events that the pools show, as many as can be."""
        for count, state in reversed(list(enumerate(self._states))):
            if _shows(pools, state):
                del self._states[:count]
                del self._events[:count]
                return True
        return False

    def _settle_otherwise(self, topology: Body, pools: tuple[PublishedPool, ...]) -> bool:
        """The same, had the node heard of some events at once, and so in another order."""
        attempt = (topology, len(self._events))
        if attempt == self._tried:
            return False
        self._tried = attempt
        found = _Search(self._events, pools).from_(0, self._states[0])
        if found is None:
            return False
        settled, state = found
        try:
            self._restart(state, self._events[settled:])
        except NumazonesError:
            return False
        return True

    def _restart(self, state: TopologyAwareNode, events: list[_Event]) -> None:
        self._events, self._states = [], [state]
        for uid, pod in events:
            self.take(uid, pod)

    def since(self, now: float) -> float:
        """Return since when pools contradict what was seen; ``now`` while they do not."""
        return now if self._contradicted is None else self._contradicted

    def state(self, pods: Mapping[str, Pod]) -> TopologyAwareNode:
        """Return the node after all that has happened, without pods that are not among these (by uid)."""
        state = self._states[-1]
        for uid in state.sandboxes.keys() - pods.keys():
            state = remove(state, uid)
        return state


class _Search:
    """Looks for batches in which a node may have heard of events, so that pools come out as published."""

    def __init__(self, events: list[_Event], pools: tuple[PublishedPool, ...]) -> None:
        self._events = events
        self._pools = pools
        self._left = _MOST_TRIED

    def from_(self, start: int, state: TopologyAwareNode) -> tuple[int, TopologyAwareNode] | None:
        """Return how many events the pools show, and the state after them; None: it was not found out."""
        for end in range(start + 1, len(self._events) + 1):
            batch = self._events[start:end]
            ordered = _as_heard(batch)
            if len(batch) > 1 and ordered == batch:
                continue  # no other than one by one
            self._left -= len(ordered)
            if self._left < 0:
                return None
            after = state
            try:
                for uid, pod in ordered:
                    after = _after(after, uid, pod)
            except NumazonesError:
                continue
            found = (end, after) if _shows(self._pools, after) else self.from_(end, after)
            if found is not None:
                return found
        return None


def _as_heard(batch: list[_Event]) -> list[_Event]:
    """The events in the order of a kubelet that hears of them at once: what is gone first, then by creation.

    What came and went meanwhile it never sees.
    """
    gone = {uid for uid, pod in batch if pod is None}
    came = [(uid, pod) for uid, pod in batch if pod is not None and uid not in gone]
    return [
        *((uid, pod) for uid, pod in batch if pod is None),
        *sorted(came, key=lambda event: event[1].created),
    ]


def _after(state: TopologyAwareNode, uid: str, pod: Pod | None) -> TopologyAwareNode:
    return remove(state, uid) if pod is None else admit(state, pod).node


def _shows(pools: tuple[PublishedPool, ...], state: TopologyAwareNode) -> bool:
    try:
        check_published(state, pools)
    except NumazonesError:
        return False
    return True
