"""Definition of a placement model, in addition to its decisions on a node: a value with defaults.

A small model names how a node shows it and how it reads one. What only some can do, such as following what
happens on a node, is a protocol of its own. The registry is ``numazones.placement.models``.
"""

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from numazones.kubelet.config import BEST_EFFORT, POLICY_NONE
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.placement import ADMITTED, Placement, UnreadableNode

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
    """Pod that is bound to a node, as a model reads it."""

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
        """Return the pod that placement decides about; None if it cannot be read, see ``problem``."""

    @property
    def problem(self) -> str:
        """Return why it cannot be read."""

    @property
    def phase(self) -> str:
        """``status.phase``."""

    @property
    def reason(self) -> str:
        """``status.reason``."""

    @property
    def acknowledged(self) -> bool:
        """Return whether its status shows that the kubelet admitted it."""

    @property
    def create_error(self) -> str:
        """Return the runtime's error for a container that it does not create; empty for none."""

    @property
    def uncreated(self) -> tuple[str, ...]:
        """Containers that the runtime does not create."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Those that are kept (``Model.pod_annotations`` among them)."""


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """Objects of the API server about one node."""

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
    """What the operator published of a state that objects don't tell (``EventFollower.record``)."""

    def own(self, kind: ObjectKind) -> Object | None:
        """Return the node's own object of a kind ``of_node``; None: it has none."""
        return next(iter(self.others.get(kind.kind, ())), None)


class PodEvent(NamedTuple):
    """Event of a pod on a node."""

    uid: str
    """As the kubelet knows it."""
    pod: Pod | None
    """Bound, or its missing containers were created; None: it has ended."""
    uncreated: tuple[str, ...] = ()
    """Containers that are still missing, by its status."""


class Follower(Protocol):
    """A node's placement, kept up to date as its pods come and go; not a value.

    It is made anew when other objects that it was read from have changed.
    """

    def placement(self, pods: Mapping[str, Pod]) -> Placement:
        """Return the state after all that has happened, with these pods (UID → pod) at most.

        Raises:
            NumazonesError: it is not known.
        """


@runtime_checkable
class EventFollower(Follower, Protocol):
    """A follower to whom it matters in which order pods came and went."""

    def take(self, event: PodEvent) -> None:
        """Take in what has happened to a pod.

        Raises:
            NumazonesError: what comes of it is not known.
        """

    def agrees(self, topology: Object, now: float) -> bool:
        """Return whether the model's published state agrees with the events; ``now``: monotonic seconds."""

    def contradicted_since(self, now: float) -> float:
        """Return since when it does not agree; ``now`` while it does."""

    def record(self) -> Object | None:
        """Return what of the state cannot be rebuilt from objects, as JSON; None: all can be."""


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


def runtime_verdict(pod: BoundPod, *words: str) -> str | None:
    """Return what became of a pod whose containers a model places as they are created; None: not known yet.

    One that the model rejects waits, and one of the words is in what the runtime says then; another reason to
    wait for ever, such as a mount that fails, tells nothing about the model.
    """
    rejection = rejected_by_kubelet(pod)
    if rejection:
        return rejection
    if pod.create_error:
        by_model = any(word in pod.create_error.lower() for word in words)
        return CREATE_CONTAINER_ERROR if by_model else None
    return ADMITTED if pod.node and pod.phase != "Pending" else None


def on_demand(where: str) -> Callable[..., Any]:
    """Return a function that is loaded when it is called first; ``where``: as MODULE:NAME.

    Most clusters have kubelets alone, so the rules of other models are not loaded with their names.
    """

    def call(*arguments: Any) -> Any:
        return pkgutil.resolve_name(where)(*arguments)

    return call


def _shows_nothing(_node: Object, _topology: Object | None) -> None:
    return None


def _writes_nothing(verdict: str, _annotations: Mapping[str, str]) -> str:
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A placement model."""

    name: str
    """In lower case, as columns and metrics show it."""
    decider: str
    """Who decides, as sentences name it."""
    source: str
    """The same in one word in CamelCase, as the reasons of an AdmissionPrediction name it."""

    mark: Callable[[Object, Object | None], str | None] = _shows_nothing
    """Returns what shows on a Node and its NodeResourceTopology that the model decides; None: nothing."""
    read: Callable[[NodeObjects], Placement]
    """Reads the state of a node.

    Raises a NumazonesError where the objects don't tell, or contradict each other; its message says which.
    """
    follow: Callable[[NodeObjects], Follower] | None = None
    """Reads the state of a node, for somebody who will see what happens there; None: ``read`` does."""
    verdict: Callable[[BoundPod], str | None] = kubelet_verdict
    """Returns what a pod's status says: Admitted, or the reason of the rejection; None: nothing yet."""
    outcome: Callable[[str, Mapping[str, str]], str] = _writes_nothing
    """Returns what became of a pod, by verdict and annotations: the verdict, and what is written."""

    objects: Sequence[ObjectKind] = ()
    """The kinds of objects that it reads."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Name of a setting that the model needs to know → what it says, for people."""
    node_annotations: Sequence[str] = ()
    """Beginnings of the annotations that it reads of nodes."""
    pod_annotations: Sequence[str] = ()
    """Beginnings of the annotations of pods that tell what became of them."""
    pod_marks: Sequence[str] = ()
    """Parts of the names of labels and annotations by which pods tell it what they want."""
    eviction_cost: str = ""
    """The annotation that says what evicting a pod costs; empty: it has none."""
    places_every_pod: bool = False
    """Whether it places pods, too, that ask for no NUMA placement."""
    tells_namespaces_apart: bool = False
    """Whether equal pods of different namespaces and priorities may be placed differently."""
    filtered_by_scheduler: bool = False
    """Whether a scheduler asks the model before it chooses the node: nothing is rejected there."""
    movable: bool = False
    """Whether plans may move pods from and to its nodes: what they gain is provable there."""


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


def labels_of(body: Object) -> Object:
    """Return an object's labels."""
    return metadata_of(body).get("labels") or {}


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
