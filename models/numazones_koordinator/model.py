"""Koordinator as a placement model: how a node shows it, and where its parts are.

The entry point names ``MODEL``; the rules are loaded when a node shows the model, since most clusters have
kubelets alone.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numazones.placement import ADMITTED
from numazones.placement.models import BoundPod, NodeObjects, Object, ObjectKind, kubelet_verdict, metadata_of
from numazones_koordinator.identity import DECIDER, DEVICE, NAME, SOURCE

if TYPE_CHECKING:
    from numazones_koordinator.follower import Follower
    from numazones_koordinator.placement import KoordinatorPlacement

_PREFIXES = ("node.koordinator.sh/", "kubelet.koordinator.sh/")
_WRITTEN_ON_PODS = "scheduling.koordinator.sh/"


class Koordinator:
    """koord-scheduler places pods on NUMA nodes, and writes on each pod what it gave it."""

    name = NAME
    decider = DECIDER
    source = SOURCE
    objects: Sequence[ObjectKind] = (DEVICE,)
    settings: Mapping[str, str] = {
        "scheduler": "spec.schedulerName of the pods that Koordinator's scheduler places; about others its "
        "nodes' kubelets are asked"
    }
    node_annotations: Sequence[str] = (_PREFIXES[0],)
    pod_annotations: Sequence[str] = (_WRITTEN_ON_PODS,)
    pod_marks: Sequence[str] = ("koordinator.sh/",)
    eviction_cost = "scheduling.koordinator.sh/eviction-cost"
    places_every_pod = False
    tells_namespaces_apart = False

    def mark(self, node: Object, topology: Object | None) -> str | None:
        """Return the first label of the Node, or annotation of its NodeResourceTopology, of Koordinator's."""
        labels = metadata_of(node).get("labels") or {}
        notes = {} if topology is None else metadata_of(topology).get("annotations") or {}
        return next((str(key) for key in (*labels, *notes) if str(key).startswith(_PREFIXES)), None)

    def read(self, objects: NodeObjects) -> "KoordinatorPlacement":
        """Read a node from its objects and its pods.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        from numazones_koordinator.placement import read  # noqa: PLC0415 - see the docstring above

        return read(objects)

    def follow(self, objects: NodeObjects) -> "Follower":
        """Read a node that is asked again and again.

        Raises:
            NumazonesError: the objects don't tell, or contradict each other.
        """
        from numazones_koordinator.follower import Follower  # noqa: PLC0415 - see the docstring above

        return Follower(objects)

    def verdict(self, pod: BoundPod) -> str | None:
        """Return what the kubelet did with a pod that the scheduler placed; None while that is unknown."""
        return kubelet_verdict(pod)

    def outcome(self, verdict: str, pod: BoundPod) -> str:
        """Return the verdict, and of an admitted pod what the scheduler wrote on it that it gave it."""
        from numazones_koordinator.placement import written_outcome  # noqa: PLC0415 - see the docstring above

        return written_outcome(verdict, pod.annotations) if verdict == ADMITTED else verdict

    def simulation(self) -> Any:
        """Return its part of a simulated cluster: koordlet and koord-scheduler."""
        from numazones_koordinator import simulation  # noqa: PLC0415 - see the docstring above

        return simulation.SIMULATION


MODEL = Koordinator()
