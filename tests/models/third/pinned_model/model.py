"""What the entry point names."""

from collections.abc import Mapping, Sequence
from typing import Any

from numazones.kubelet.rejection import CREATE_CONTAINER_ERROR
from numazones.placement import ADMITTED
from numazones.placement.models import BoundPod, NodeObjects, Object, ObjectKind, rejected_by_kubelet
from pinned_model import placement
from pinned_model.identity import DECIDER, LABEL, NAME, NODES, SOURCE


class Pinned:
    """An agent gives pods their CPUs as the runtime creates them."""

    name = NAME
    decider = DECIDER
    source = SOURCE
    objects: Sequence[ObjectKind] = (NODES,)
    settings: Mapping[str, str] = {}
    node_annotations: Sequence[str] = ()
    pod_annotations: Sequence[str] = ()
    pod_marks: Sequence[str] = ("pinned.example/",)
    eviction_cost = "pinned.example/eviction-cost"
    places_every_pod = True
    tells_namespaces_apart = False

    def mark(self, node: Object, _topology: Object | None) -> str | None:
        return LABEL if LABEL in ((node.get("metadata") or {}).get("labels") or {}) else None

    def read(self, objects: NodeObjects) -> placement.PinnedPlacement:
        return placement.read(objects)

    def follow(self, objects: NodeObjects) -> placement.Follower:
        return placement.Follower(objects)

    def verdict(self, pod: BoundPod) -> str | None:
        if rejection := rejected_by_kubelet(pod):
            return rejection
        if pod.create_error:
            return CREATE_CONTAINER_ERROR if DECIDER in pod.create_error else None
        return ADMITTED if pod.node and pod.phase != "Pending" else None

    def outcome(self, verdict: str, _pod: BoundPod) -> str:
        return verdict

    def simulation(self) -> Any:
        from pinned_model import simulation  # noqa: PLC0415 - programs have no simulator

        return simulation.SIMULATION


MODEL = Pinned()
