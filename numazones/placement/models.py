"""The placement models that are installed, beside the kubelet's, and which of them a node shows.

A model is a package with an entry point of the group ``numazones.models`` that names a ``Model``. What shows
that a model decides on a node is for the model to say; the kubelet decides where none is shown. CONTRIBUTING
tells how to add one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from numazones.apimachinery.documents import OBJECT, UnreadableDocument, read_json
from numazones.errors import NumazonesError
from numazones.kubelet.config import BEST_EFFORT, POLICY_NONE
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement import ADMITTED, Placement, UnreadableNode
from numazones.placement.kubelet import DECIDER, KUBELET, SOURCE, KubeletPlacement

ENTRY_POINTS = "numazones.models"
_TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"

Object = Mapping[str, Any]
"""An API object."""
TOPOLOGY_KIND = "NodeResourceTopology"
"""The kind of objects that show the model of many nodes; every model is given the node's."""


class ObjectKind(NamedTuple):
    """A kind of objects that a model reads beside nodes, pods, zones and NodeResourceTopologies."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    of_node: bool = False
    """Whether there is one per node, which has the node's name; otherwise all of them concern all nodes."""


class BoundPod(Protocol):
    """What a model reads of a pod that is bound to a node."""

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""

    @property
    def node(self) -> str:
        """The node's name."""

    @property
    def kubelet_uid(self) -> str:
        """The UID in the kubelet's own records."""

    @property
    def admission(self) -> Pod | None:
        """What placement decides about; None: it cannot be read, ``problem`` says why."""

    @property
    def problem(self) -> str:
        """Why it cannot be read."""

    @property
    def phase(self) -> str:
        """``status.phase``."""

    @property
    def reason(self) -> str:
        """``status.reason``."""

    @property
    def acknowledged(self) -> bool:
        """Whether its status shows that the kubelet admitted it."""

    @property
    def create_error(self) -> str:
        """What the runtime says to a container that it does not create; empty for none."""

    @property
    def uncreated(self) -> tuple[str, ...]:
        """Containers that the runtime does not create."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Those that are kept (``Model.pod_annotations`` among them)."""


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """What the API server tells of one node."""

    node: Object
    """core/v1 Node; its labels, its annotations as far as models read them, allocatable amounts."""
    topology: Object | None = None
    """Its NodeResourceTopology; None: it has none."""
    pods: Sequence[BoundPod] = ()
    """Those bound to it that have not ended."""
    kubelet: Node | None = None
    """What its NUMAZones say of machine and kubelet; None: it has none that can be read."""
    others: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Kind → objects of the kinds that models ask for; of kinds ``of_node``, the node's alone."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """MODEL.NAME → value, where people have set one."""
    record: Object | None = None
    """What the operator published of a state that cannot be rebuilt from objects (``Follower.record``)."""


class PodEvent(NamedTuple):
    """What has happened to a pod on a node."""

    uid: str
    """As the kubelet knows it."""
    pod: Pod | None
    """Bound, or its missing containers were created; None: it has ended."""
    uncreated: tuple[str, ...] = ()
    """Containers that are still missing, by its status."""


class Follower(Protocol):
    """A node's placement, kept up to date by what happens there; not a value."""

    def outdated(self, objects: NodeObjects) -> bool:
        """Whether what the state was read from, pods aside, is no longer what the API server tells."""

    def take(self, event: PodEvent) -> None:
        """Take in what has happened to a pod.

        Raises:
            NumazonesError: what comes of it is not known.
        """

    def agrees(self, topology: Object, now: float) -> bool:
        """Whether what the model publishes agrees with what has happened; ``now`` in seconds, monotonic."""

    def contradicted_since(self, now: float) -> float:
        """Return since when it does not agree; ``now`` while it does."""

    def placement(self, pods: Mapping[str, Pod], kubelet: KubeletPlacement | None) -> Placement:
        """Return the state after all that has happened, with these pods (UID → pod) at most.

        ``kubelet``: what the node's zones tell of its kubelet now; None: nothing.

        Raises:
            NumazonesError: it is not known.
        """

    def record(self) -> Object | None:
        """Return what of the state cannot be rebuilt from objects, as JSON; None: all can be."""


class Model(Protocol):
    """What a placement model brings along, beside what it decides on a node."""

    @property
    def name(self) -> str:
        """In lower case, as columns and metrics show it."""

    @property
    def decider(self) -> str:
        """Who decides, as sentences name it."""

    @property
    def source(self) -> str:
        """The same in one word in CamelCase, as the reasons of an AdmissionPrediction name it."""

    @property
    def objects(self) -> Sequence[ObjectKind]:
        """The kinds of objects that it reads."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Name of a setting that the model needs to know → what it says, for people."""

    @property
    def node_annotations(self) -> Sequence[str]:
        """Beginnings of the annotations that it reads of nodes."""

    @property
    def pod_annotations(self) -> Sequence[str]:
        """Beginnings of the annotations of pods that tell what became of them."""

    @property
    def pod_marks(self) -> Sequence[str]:
        """Parts of the names of labels and annotations by which pods tell it what they want."""

    @property
    def eviction_cost(self) -> str:
        """The annotation that says what evicting a pod costs; empty: it has none."""

    @property
    def places_every_pod(self) -> bool:
        """Whether it places pods, too, that ask for no NUMA placement."""

    @property
    def tells_namespaces_apart(self) -> bool:
        """Whether equal pods of different namespaces and priorities may be placed differently."""

    def mark(self, node: Object, topology: Object | None) -> str | None:
        """Return what shows on a Node and its NodeResourceTopology that the model decides; None: nothing."""

    def read(self, objects: NodeObjects) -> Placement:
        """Read the state of a node.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other; the message says which.
        """

    def follow(self, objects: NodeObjects) -> Follower:
        """Read the state of a node, for somebody who will see what happens there.

        Raises:
            NumazonesError: as ``read``.
        """

    def verdict(self, pod: BoundPod) -> str | None:
        """Return what a pod's status says: Admitted, or the reason of the rejection; None: nothing yet."""

    def outcome(self, verdict: str, pod: BoundPod) -> str:
        """Return what became of a pod as ``Decision.outcome`` tells it: the verdict, and what is written."""

    def simulation(self) -> Any:
        """Return its part of a simulated cluster (``numazones_simulator.placement_models``)."""


class _Kubelet:
    """The kubelet, who decides where no other model is shown."""

    name = KUBELET
    decider = DECIDER
    source = SOURCE
    objects: Sequence[ObjectKind] = ()
    settings: Mapping[str, str] = {}
    node_annotations: Sequence[str] = ()
    pod_annotations: Sequence[str] = ()
    pod_marks: Sequence[str] = ()
    eviction_cost = ""
    places_every_pod = False
    tells_namespaces_apart = False

    def mark(self, _node: Object, _topology: Object | None) -> str | None:
        """Nothing shows it: it decides where nobody else does."""
        return None

    def read(self, objects: NodeObjects) -> Placement:
        """Return the placement that the zones tell.

        Raises:
            UnreadableNode: there are no zones.
        """
        if objects.kubelet is None:
            raise UnreadableNode("no NUMAZones that can be read have been published for the node")
        return KubeletPlacement(objects.kubelet)

    def follow(self, _objects: NodeObjects) -> Follower:
        """Nobody follows a kubelet's node by events alone: zones tell its state."""
        raise UnreadableNode("the kubelet's state is what the NUMAZones tell")

    def verdict(self, pod: BoundPod) -> str | None:
        """Return what the kubelet did: Admitted, or the reason of its rejection; None: not known yet."""
        return kubelet_verdict(pod)

    def outcome(self, verdict: str, _pod: BoundPod) -> str:
        """Return the verdict: a kubelet writes nothing else."""
        return verdict

    def simulation(self) -> Any:
        """Return None: the simulator is made of kubelets."""
        return None


_THE_KUBELET: Model = _Kubelet()


def kubelet_verdict(pod: BoundPod) -> str | None:
    """Return what the kubelet did: Admitted, or its reason for a rejection; None while that is unknown."""
    rejection = rejected_by_kubelet(pod)
    if rejection:
        return rejection
    if pod.node and (pod.acknowledged or pod.phase in {"Running", "Succeeded"}):
        return ADMITTED
    return None


def rejected_by_kubelet(pod: BoundPod) -> str:
    """Return the reason with which the kubelet rejected a pod; empty if it did not, as far as is known."""
    return pod.reason if pod.phase == "Failed" and pod.reason and not pod.acknowledged else ""


def parse_record(text: str) -> Object | None:
    """Return a published record (``Follower.record``); None: there is none, or it is no JSON object."""
    try:
        found = read_json(text, OBJECT) if text else None
    except UnreadableDocument:
        return None
    return found if isinstance(found, Mapping) else None


@cache
def models() -> Mapping[str, Model]:
    """Return the models that are installed by name, the kubelet's not among them."""
    found = (entry.load() for entry in sorted(entry_points(group=ENTRY_POINTS)))
    return {model.name: model for model in found}


def model(name: str) -> Model:
    """Return the model of a name; the kubelet's for any that is not installed."""
    return models().get(name, _THE_KUBELET)


def model_shown(node: Object, topology: Object | None) -> Model:
    """Tell from a core/v1 Node and its NodeResourceTopology (None: it has none) which model decides there.

    Raises:
        UnreadableNode: they show two.
    """
    marks = [(one, mark) for one in models().values() if (mark := one.mark(node, topology)) is not None]
    if len(marks) > 1:
        shown = " and ".join(f"{one.decider} ({mark})" for one, mark in marks)
        raise UnreadableNode(
            f"the node shows more than one placement model, {shown}: who places pods there is not known; "
            "remove what is left of the one that is gone"
        )
    return marks[0][0] if marks else _THE_KUBELET


def is_kubelet(found: Model) -> bool:
    """Whether no other model than the kubelet's decides."""
    return found is _THE_KUBELET


def object_kinds() -> tuple[ObjectKind, ...]:
    """Return all kinds of objects that models read."""
    return tuple(kind for one in models().values() for kind in one.objects)


def resources_read(*those: Model) -> str:
    """Return what models read beside nodes, pods and zones, as kubectl takes it; of none named, of all."""
    kinds = [kind for one in those or tuple(models().values()) for kind in one.objects]
    return ",".join((_TOPOLOGIES, *(f"{kind.plural}.{kind.group}" for kind in kinds)))


def resource_name(kind: str) -> str:
    """Return how kubectl calls a kind of objects that models read, such as devices.example.com."""
    if kind == TOPOLOGY_KIND:
        return _TOPOLOGIES
    return next((f"{one.plural}.{one.group}" for one in object_kinds() if one.kind == kind), kind)


@cache
def node_annotations() -> tuple[str, ...]:
    """Return the beginnings of all annotations of nodes that models read."""
    return tuple(text for one in models().values() for text in one.node_annotations)


@cache
def pod_annotations() -> tuple[str, ...]:
    """Return the beginnings of all annotations of pods that are needed beside what decides."""
    told = (text for one in models().values() for text in one.pod_annotations)
    return (*told, *eviction_costs())


@cache
def pod_marks() -> tuple[str, ...]:
    """Return the parts of names of labels and annotations by which pods tell models what they want."""
    return tuple(text for one in models().values() for text in one.pod_marks)


@cache
def eviction_costs() -> tuple[str, ...]:
    """Return the annotations that say what evicting a pod costs."""
    return tuple(one.eviction_cost for one in models().values() if one.eviction_cost)


def readable(pods: Iterable[BoundPod]) -> list[Pod]:
    """Return pods as models take them.

    Raises:
        UnreadableNode: one makes no sense, so nobody knows what it holds of its node.
    """
    found = []
    for pod in pods:
        if pod.admission is None:
            raise UnreadableNode(
                f"pod {pod.full_name} on the node cannot be read, so what it holds is not known: "
                f"{pod.problem}"
            )
        found.append(pod.admission)
    return found


def metadata_of(body: Object) -> Object:
    """Return an object's metadata; nothing where there is none that can be read."""
    found = body.get("metadata") or {}
    return found if isinstance(found, Mapping) else {}


def check_kubelet(node: Node | None, decider: str) -> None:
    """Make sure that the kubelet leaves placement to another model: two deciders are not modelled.

    Raises:
        UnreadableNode: the kubelet's managers place pods, too.
    """
    if node is None:
        return
    config = node.config
    if (
        node.kubelet.cpus.static
        or node.memory.free
        or config.topology_manager_policy not in {POLICY_NONE, BEST_EFFORT}
    ):
        raise UnreadableNode(
            f"{decider} and the kubelet's managers both place pods on the node (cpuManagerPolicy "
            f"{config.cpu_manager_policy}, memoryManagerPolicy {config.memory_manager_policy}, "
            f"topologyManagerPolicy {config.topology_manager_policy}), which is not modelled; leave "
            "placement to one of them"
        )


def with_setting(settings: Mapping[str, str], text: str) -> dict[str, str]:
    """Return settings with one more, written MODEL.NAME=VALUE.

    Raises:
        NumazonesError: there is no such model or setting; the message lists those there are.
    """
    key, equals, value = text.partition("=")
    known = {f"{one.name}.{name}" for one in models().values() for name in one.settings}
    if not equals or not value or key not in known:
        raise NumazonesError(
            f"{text!r} is no setting of a placement model; write one of these as NAME=VALUE: "
            f"{', '.join(sorted(known)) or 'none, as no model is installed'}"
        )
    return {**settings, key: value}
