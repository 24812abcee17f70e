"""A dump: what ``kubectl get nodes,pods,numazones,… -A -o json`` prints, and the nodes in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, Self

from numazones import timestamp
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.cluster import UNDECIDED, ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.placement import Unknown, models
from numazones.placement.kubelet import KUBELET
from numazones.sharing import Sharing

Object = Mapping[str, Any]

OBJECTS_MISSING = "ObjectsMissing"
"""Reason of a node on which another model than the kubelet decides, from objects that were not read."""

_EPOCH = "1970-01-01T00:00:00Z"


class InvalidDump(NumazonesError):
    """A dump lacks what an answer needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Dump:
    """The objects of a dump: pods as far as placement is concerned, all others as they are."""

    others: Mapping[str, Sequence[Object]]
    """Kind → objects."""
    pods: Sequence[ClusterPod]
    sharing: Sharing
    """What the pods are made of."""

    @classmethod
    def of(cls, items: Iterable[Object]) -> Self:
        """Read objects one by one; the bodies of pods, which are many and large, are not kept.

        Raises:
            NumazonesError: an object cannot be read.
        """
        others: dict[str, list[Object]] = {}
        sharing = Sharing()
        pods = []
        for item in items:
            if item.get("kind") == "Pod":
                pods.append(sharing.pod(item))
            else:
                others.setdefault(item.get("kind", ""), []).append(item)
        return cls(others, pods, sharing)

    def of_kind(self, kind: str) -> Sequence[Object]:
        """Return the objects of a kind, pods aside."""
        return self.others.get(kind, ())

    @property
    def nodes(self) -> Sequence[Object]:
        """The nodes.

        Raises:
            InvalidDump: there are none.
        """
        if "Node" not in self.others:
            raise InvalidDump("the dump holds no nodes; kubectl get nodes,pods,numazones -A -o json has them")
        return self.others["Node"]

    @property
    def priority_classes(self) -> dict[str, int]:
        """Name of each PriorityClass → its value."""
        return {body["metadata"]["name"]: int(body["value"]) for body in self.of_kind("PriorityClass")}

    @property
    def moment(self) -> datetime:
        """The latest time at which something in it was made, started or renewed.

        Raises:
            numazones.timestamp.InvalidTimestamp: it is none.
        """
        times = [_EPOCH]
        for pod in self.pods:
            times += (pod.created, pod.started)
        for item in chain.from_iterable(self.others.values()):
            times.append((item.get("metadata") or {}).get("creationTimestamp") or "")
            times.append((item.get("spec") or {}).get("renewTime") or "")
        return timestamp.parse(max(times))


def nodes_of(items: Iterable[Object], pods: Callable[[], Iterable[Object]]) -> list[ClusterNode]:
    """Read the nodes of a dump alone, without their pods.

    Args:
        items: its objects without the pods.
        pods: gives the pods, where the state of a node depends on them, as with some models.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    dump = Dump.of(items)
    return read_nodes(dump, lambda: map(dump.sharing.pod, pods()))


def read_nodes(dump: Dump, pods: Callable[[], Iterable[ClusterPod]]) -> list[ClusterNode]:
    """Read the nodes; ``pods`` is asked once at most.

    Raises:
        InvalidDump: there are none.
        NumazonesError: an object cannot be read.
    """
    zones = _zones_by_node(dump.of_kind("NUMAZone"))
    topologies = _by_name(dump.of_kind("NodeResourceTopology"))

    @cache
    def bound() -> dict[str, list[ClusterPod]]:
        found: dict[str, list[ClusterPod]] = {}
        for pod in pods():
            if pod.active:
                found.setdefault(pod.node, []).append(pod)
        return found

    def bound_to(node: str) -> Iterator[ClusterPod]:
        yield from bound().get(node, ())

    deciding = _models_by_node(dump.of_kind("NUMAZone"))
    nodes = []
    for body in dump.nodes:
        node = ClusterNode.from_api(body)
        if node.name in zones:
            node = _with_zones(node, zones[node.name], dump.sharing)
        topology = topologies.get(node.name)
        try:
            model = models.model_shown(body, topology)
            if models.is_kubelet(model):
                missing = _what_is_missing(deciding.get(node.name, KUBELET))
                if missing:
                    node = node.with_placement(Unknown(OBJECTS_MISSING, missing))
            else:
                objects = models.NodeObjects(
                    node=body,
                    topology=topology,
                    pods=tuple(bound_to(node.name)),
                    kubelet=node.state,
                    others=_others_of(dump, model, node.name),
                )
                node = node.with_placement(model.read(objects))
        except NumazonesError as error:
            node = node.with_placement(Unknown(UNDECIDED, str(error)))
        nodes.append(node)
    return nodes


def _models_by_node(zones: Iterable[Object]) -> dict[str, str]:
    """Name of a node → the model that decides there, as its zones say it."""
    found = {}
    for zone in zones:
        model = ((zone.get("status") or {}).get("placement") or {}).get("model")
        if model:
            found[str((zone.get("spec") or {}).get("nodeName"))] = str(model)
    return found


def _what_is_missing(name: str) -> str:
    """Say what has not been read of a node on which nothing shows a model; empty where nothing is missing.

    ``name``: the model that decides there, as the node's zones say it.
    """
    if name == KUBELET:
        return ""
    model = models.models().get(name)
    if model is None:
        return (
            f"the placement model {name} decides on the node, as its NUMAZones say, and is not installed "
            "here; use a version of numazones that has it"
        )
    return (
        f"{model.decider} decides on the node, as its NUMAZones say, but nothing of what it decides from has "
        f"been read; dump {models.resources_read(model)} as well"
    )


def _zones_by_node(bodies: Iterable[Object]) -> dict[str, list[NUMAZone]]:
    zones: dict[str, list[NUMAZone]] = {}
    for body in bodies:
        zone = NUMAZone.from_api(body)
        zones.setdefault(zone.spec.node_name, []).append(zone)
    return zones


def _with_zones(node: ClusterNode, zones: Sequence[NUMAZone], sharing: Sharing) -> ClusterNode:
    for zone in zones:
        if zone.status is not None and zone.status.silence is not None:
            return node.with_placement(Unknown("ExporterSilent", zone.status.silence.message))
    try:
        return node.with_state(node_from_zones(zones, remember=sharing.remember))
    except NumazonesError as error:
        return node.with_placement(Unknown("ZonesUnreadable", str(error)))


def _others_of(dump: Dump, model: models.Model, node: str) -> dict[str, Sequence[Object]]:
    """The objects that a model reads of a node; of kinds with one per node, the node's alone."""
    return {
        kind.kind: [
            body for body in dump.of_kind(kind.kind) if not kind.of_node or body["metadata"]["name"] == node
        ]
        for kind in model.objects
    }


def _by_name(bodies: Iterable[Object]) -> dict[str, Object]:
    return {body["metadata"]["name"]: body for body in bodies}
