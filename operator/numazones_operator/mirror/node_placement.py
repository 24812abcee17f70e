"""A node on which another placement model than the kubelet's decides: what it decides from, kept up to date.

How a node follows from its objects and from what happens there is the model's to know (``Follower``); here
it is fed, and read anew when what it was read from has changed, or when what the model publishes has
contradicted what was seen to happen for too long.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import Placement, models
from numazones.placement.kubelet import KubeletPlacement
from numazones.placement.models import Follower, Model, NodeObjects, Object, ObjectKind, PodEvent

_MAX_RECENT = 64


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What models read of nodes beyond the nodes' own objects."""

    others: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    """Kind → all objects of it, of the kinds that concern all nodes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """MODEL.NAME → value, as people have set them."""


@dataclass(slots=True)
class NodePlacement:
    """What is known of one node's placement model, where that is not the kubelet's."""

    topology: Object | None = None
    """Its NodeResourceTopology, where that shows another model."""
    objects: dict[str, Object] = field(default_factory=dict)
    """Kind → the node's own object, of the kinds that models have one per node of."""
    recent: deque[Placement] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    """The latest placements: what decided may have known more or less."""
    _model: Model | None = None
    _follower: Follower | None = None

    @property
    def known(self) -> bool:
        """Whether any object of another model is left."""
        return self.topology is not None or bool(self.objects)

    @property
    def places_every_pod(self) -> bool:
        """Whether the model that decided last decides about pods of every kind."""
        return self._model is not None and self._model.places_every_pod

    def shown_by(self, node: ClusterNode) -> bool:
        """Whether another model than the kubelet's decides there, or may."""
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
        surroundings: Surroundings,
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
            surroundings: the rest that models read.
            record: what was published of the state that cannot be rebuilt from objects, as JSON.
            now: seconds, monotonic.
            settle: for how many of them what is published may contradict what was seen to happen.

        Raises:
            NumazonesError: it is not known; the message says why.
        """
        pods = tuple(node.pods.values())
        held = {pod.uid: pod for pod in models.readable(pods)}
        objects = self._objects(node, pods, zones, surroundings)
        model = models.model_shown(node.body, self.topology)
        if (
            self._follower is None
            or model is not self._model
            or self._follower.outdated(objects)
            or (not self._follower.agrees(self.topology or {}, now) and self.contradicted(now, settle=settle))
        ):
            self._follow(model, replace(objects, record=models.parse_record(record)))
        assert self._follower is not None  # noqa: S101 - for the type checker
        placement = self._follower.placement(held, kubelet)
        if not self.recent or self.recent[-1].key != placement.key:
            self.recent.append(placement)
        return placement

    def record(self) -> Object | None:
        """Return what of the state cannot be rebuilt from objects; None: all can be, or nothing is known."""
        return None if self._follower is None else self._follower.record()

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
        if self._follower is not None:
            try:
                self._follower.take(event)
            except NumazonesError:
                self._follower = None  # read anew, which says why where it fails again

    def contradicted(self, now: float, *, settle: float) -> bool:
        """Whether what is published has contradicted what was seen for too long just now."""
        return self._follower is not None and now - self._follower.contradicted_since(now) >= settle

    def _objects(
        self,
        node: ClusterNode,
        pods: Sequence[ClusterPod],
        zones: KubeletNode | None,
        surroundings: Surroundings,
    ) -> NodeObjects:
        own = {kind: (body,) for kind, body in self.objects.items()}
        return NodeObjects(
            node=node.body,
            topology=self.topology,
            pods=pods,
            kubelet=zones,
            others={**surroundings.others, **own},
            settings=surroundings.settings,
        )

    def _follow(self, model: Model, objects: NodeObjects) -> None:
        self._model, self._follower = model, None
        self._follower = model.follow(objects)
