"""A node on which another model than the kubelet places pods: what it decides from, kept up to date.

Koordinator writes on each pod what it gave it, so a node follows from its objects and its pods at any time.
A node of the topology-aware policy follows from what has happened there (``following``): what was not seen to
happen makes it unknown, once that has lasted.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numazones import placement
from numazones.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import Model, PolicyNode
from numazones.pod import Pod
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.scheduler import Scheduler
from numazones_operator.mirror.following import Event, Followed
from numazones_topology_aware.node import Node as TopologyAwareNode

Body = Mapping[str, Any]


_MOST_RECENT = 64


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
    _followed: "_Koordinated | Followed | None" = None

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
        elif isinstance(self._followed, Followed):
            agrees = self._followed.agrees(self.topology or {}, now)
            if not agrees and self.contradicted(now, settle=settle):
                self._follow(node, kubelet, pods, surroundings)
        assert self._followed is not None  # noqa: S101 - for the type checker
        state = self._followed.state(held)
        if not self.recent or self.recent[-1] is not state:
            self.recent.append(state)
        return state

    def bound(self, pod: ClusterPod) -> None:
        """Take in a pod's binding, or that rejected containers of it have been created after all."""
        self._take(Event(pod.kubelet_uid, pod.admission, pod.uncreated))

    def ended(self, uid: str) -> None:
        """Take in a pod's end; ``uid`` as the kubelet knows it."""
        self._take(Event(uid, None))

    def _take(self, event: Event) -> None:
        if isinstance(self._followed, Followed):
            try:
                self._followed.take(event)
            except NumazonesError:
                self._followed = None  # read anew, which says why where it fails again

    def contradicted(self, now: float, *, settle: float) -> bool:
        """Whether published pools have contradicted what was seen for too long just now."""
        followed = self._followed
        return isinstance(followed, Followed) and now - followed.since(now) >= settle

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
        topology = None if isinstance(self._followed, Followed) else self.topology
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
            self._followed = Followed(found)
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
