"""A node on which another placement model than the kubelet's decides: what it decides from, kept up to date.

How a node follows from its objects and from what happens there is the model's to know (``Follower``); here
it is fed, and read anew when what it was read from has changed, or when what the model publishes has
contradicted what was seen to happen for too long. A node of a model that follows nothing is read every time.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import Placement, models
from numazones.placement.kubelet import KubeletPlacement, PlacementAboveKubelet
from numazones.placement.model import (
    EventFollower,
    Follower,
    Model,
    NodeObjects,
    Object,
    ObjectKind,
    PodEvent,
    readable,
)

_MAX_RECENT = 64


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Objects that models read besides the nodes' own."""

    others: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Kind → all objects of it, of the kinds that concern all nodes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """MODEL.NAME → value, as people have set them."""


@dataclass(slots=True)
class NodePlacement:
    """State of one node's placement model, if it is not the kubelet's."""

    topology: Object | None = None
    """Its NodeResourceTopology, where that shows another model."""
    objects: dict[str, Object] = field(default_factory=dict)
    """Kind → the node's own object, of the kinds that models have one per node of."""
    recent: deque[Placement] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    """The latest placements: what decided may have known more or less."""
    _model: Model | None = field(init=False, default=None)
    _follower: Follower | None = field(init=False, default=None)
    _events: EventFollower | None = field(init=False, default=None)
    """The follower, where it is one of events."""
    _read_from: tuple[Any, ...] = field(init=False, default=())
    """What the follower was made from, pods aside."""

    @property
    def known(self) -> bool:
        """Return whether any object of another model is left."""
        return self.topology is not None or bool(self.objects)

    @property
    def places_every_pod(self) -> bool:
        """Return whether the model that decided last decides about pods of every kind."""
        return self._model is not None and self._model.places_every_pod

    def shown_by(self, node: ClusterNode) -> bool:
        """Return whether a model other than the kubelet's decides there, or may."""
        found = self.model_of(node)
        return found is None or not models.is_kubelet(found)

    def model_of(self, node: ClusterNode) -> Model | None:
        """Return the model that decides there; None: more than one is shown."""
        try:
            return models.model_shown(node.body, self.topology)
        except NumazonesError:
            return None

    def read(
        self,
        node: ClusterNode,
        zones: KubeletNode | None,
        kubelet: KubeletPlacement | None,
        inputs: ModelInputs,
        record: str = "",
        *,
        now: float,
        settle: float,
    ) -> Placement:
        """Return what the node's model decides from.

        Args:
            node: the node, which shows another model, with its pods.
            zones: what its zones say, old ones too; None: nothing.
            kubelet: what its kubelet decides from now; None: that is not known.
            inputs: the rest that models read.
            record: what was published of the state that cannot be rebuilt from objects, as JSON.
            now: seconds, monotonic.
            settle: for how many of them what is published may contradict what was seen to happen.

        Raises:
            NumazonesError: it is not known; the message says why.
        """
        pods = tuple(node.pods.values())
        held = {pod.uid: pod for pod in readable(pods)}
        objects = self._objects(node, pods, zones, inputs)
        model = models.model_shown(node.body, self.topology)
        if model.follow is None:
            self._model, self._follower, self._events = model, None, None
            placement = model.read(objects)
        else:
            follower = self._follower
            if (
                follower is None
                or model is not self._model
                or self._outdated(objects)
                or (self._disagrees(now) and self.contradicted(now, settle=settle))
            ):
                published = replace(objects, record=models.parse_record(record))
                follower = self._follow(model, model.follow, published)
            placement = follower.placement(held)
        if isinstance(placement, PlacementAboveKubelet):
            placement = replace(placement, beneath=kubelet)
        if not self.recent or self.recent[-1].key != placement.key:
            self.recent.append(placement)
        return placement

    def _follow(
        self, model: Model, follow: Callable[[NodeObjects], Follower], objects: NodeObjects
    ) -> Follower:
        self._model, self._follower, self._events = model, None, None
        self._follower = follower = follow(objects)
        self._events = follower if isinstance(follower, EventFollower) else None
        self._read_from = self._sources(objects)
        return follower

    def _disagrees(self, now: float) -> bool:
        """Return whether the model's published state contradicts the observed events."""
        return self._events is not None and not self._events.agrees(self.topology or {}, now)

    def _sources(self, objects: NodeObjects) -> tuple[Any, ...]:
        """Return what a follower is made from, except pods; one of events compares what is published."""
        machine = None if objects.kubelet is None else objects.kubelet.kubelet
        kinds = () if self._model is None else self._model.objects
        others = tuple(tuple(objects.others.get(kind.kind, ())) for kind in kinds)
        topology = objects.topology if self._events is None else None
        return (objects.node, machine, others, topology)

    def _outdated(self, objects: NodeObjects) -> bool:
        """Return whether the API server's objects differ from those that the follower was made from."""
        pairs = zip(self._sources(objects), self._read_from, strict=True)
        return any(new is not old and new != old for new, old in pairs)

    def record(self) -> Object | None:
        """Return what of the state cannot be rebuilt from objects; None: all can be, or nothing is known."""
        return None if self._events is None else self._events.record()

    def take_object(self, kind: ObjectKind, body: Object | None) -> None:
        """Take in the node's own object of a kind that models read; None: it is gone."""
        if body is None:
            self.objects.pop(kind.kind, None)
        else:
            self.objects[kind.kind] = body

    def take_bound(self, pod: ClusterPod) -> None:
        """Take in a pod's binding, or that rejected containers of it have been created after all."""
        self._take(PodEvent(pod.kubelet_uid, pod.admission, pod.uncreated))

    def take_ended(self, uid: str) -> None:
        """Take in a pod's end; ``uid`` as the kubelet knows it."""
        self._take(PodEvent(uid, None))

    def _take(self, event: PodEvent) -> None:
        if self._events is not None:
            try:
                self._events.take(event)
            except NumazonesError:
                self._follower = self._events = None  # read anew, which says why where it fails again

    def contradicted(self, now: float, *, settle: float) -> bool:
        """Return whether the published state has contradicted the observed events for too long by now."""
        return self._events is not None and now - self._events.contradicted_since(now) >= settle

    def _objects(
        self,
        node: ClusterNode,
        pods: Sequence[ClusterPod],
        zones: KubeletNode | None,
        inputs: ModelInputs,
    ) -> NodeObjects:
        own = {kind: (body,) for kind, body in self.objects.items()}
        return NodeObjects(
            node=node.body,
            topology=self.topology,
            pods=pods,
            kubelet=zones,
            others={**inputs.others, **own},
            settings=inputs.settings,
        )
