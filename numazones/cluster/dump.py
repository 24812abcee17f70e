"""A dump: what ``kubectl get nodes,pods,numazones,… -A -o json`` prints, and the nodes in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, Self

from numazones.api.claimed_devices import claimed_devices
from numazones.api.meta import InvalidResource
from numazones.api.numazone import UNKNOWN_MODEL, NUMAZone, ZonePlacement
from numazones.api.workload_partitioning import with_partitioning
from numazones.api.zones import OptionUnknown, node_from_zones
from numazones.apimachinery import timestamp
from numazones.cluster.cluster import NO_ZONES, UNDECIDED, Cluster, ClusterNode, ClusterPod
from numazones.cluster.sharing import Sharing
from numazones.errors import NumazonesError
from numazones.placement import Unknown, UnreadableNode, models
from numazones.placement.kubelet import KubeletPlacement
from numazones.placement.model import TOPOLOGY_KIND, Model, NodeObjects
from numazones.wording import enumeration

Object = Mapping[str, Any]

_EPOCH = "1970-01-01T00:00:00Z"
_DEVICE_KINDS = frozenset({"DeviceClass", "ResourceSlice"})
"""Without objects of these kinds, nothing is known of devices of dynamic resource allocation."""


OBJECTS_MISSING = "ObjectsMissing"
"""Reason of a node whose zones name a placement model, where what that decides from has not been read."""


OPTION_UNKNOWN = "OptionUnknown"
"""Reason of a node whose kubelet has a policy option that is not modelled."""
ZONES_UNREADABLE = "ZonesUnreadable"
"""Reason of a node whose zones cannot be used otherwise."""


def zones_unreadable(error: NumazonesError) -> Unknown:
    """Return why a node is unknown whose zones cannot be turned into a state."""
    return Unknown(OPTION_UNKNOWN if isinstance(error, OptionUnknown) else ZONES_UNREADABLE, str(error))


def _zones_not_dumped(node: str) -> Unknown:
    """Return why a node is unknown in a dump without any NUMAZones."""
    return Unknown(
        NO_ZONES.reason,
        f"the dump has no NUMAZones of {node}; add numazones to kubectl get, or check that the exporter "
        "is running there",
    )


class ObjectsMissing(UnreadableNode):
    """Raised when objects that a node's placement model needs were not read; says what to dump."""


class InvalidDump(NumazonesError):
    """A dump lacks what an answer needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Dump:
    """The objects of a dump: pods as far as placement is concerned, all others as they are."""

    others: Mapping[str, Sequence[Object]]
    """Kind → objects; neither pods nor NUMAZones."""
    zones: Sequence[NUMAZone | InvalidResource]
    """The NUMAZones; in place of one that is invalid, why."""
    pods: Sequence[ClusterPod]
    sharing: Sharing
    """Template of the pods."""
    complete: frozenset[str] = frozenset()
    """Kinds that were read completely, even if there are no such objects."""

    @classmethod
    def of(cls, items: Iterable[Object], complete: frozenset[str] = frozenset()) -> Self:
        """Read objects one by one; the bodies of pods and NUMAZones, which are many and large, are not kept.

        Raises:
            NumazonesError: an object cannot be read.
        """
        others: dict[str, list[Object]] = {}
        sharing = Sharing()
        pods, zones = [], []
        for item in items:
            kind = item.get("kind", "")
            if kind == "Pod":
                pods.append(sharing.pod(item))
            elif kind == NUMAZone.RESOURCE.kind:
                zones.append(_zone(item))
            else:
                others.setdefault(kind, []).append(_without_images(item) if kind == "Node" else item)
        return cls(others, zones, pods, sharing, complete)

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
            raise InvalidDump(
                "the cluster or dump has no nodes; dump them with kubectl get nodes,pods,numazones -A -o json"
            )
        return self.others["Node"]

    @property
    def priority_classes(self) -> dict[str, int]:
        """Name of each PriorityClass → its value."""
        return {body["metadata"]["name"]: int(body["value"]) for body in self.of_kind("PriorityClass")}

    @property
    def moment(self) -> datetime:
        """The latest time at which something in it was made, started or renewed.

        Raises:
            numazones.apimachinery.timestamp.InvalidTimestamp: it is none.
        """
        times = [_EPOCH]
        for pod in self.pods:
            times += (pod.created, pod.started)
        for zone in self.zones:
            if isinstance(zone, NUMAZone):
                times.append(zone.metadata.creation_timestamp or "")
        for item in chain.from_iterable(self.others.values()):
            times.append((item.get("metadata") or {}).get("creationTimestamp") or "")
            times.append((item.get("spec") or {}).get("renewTime") or "")
        return timestamp.parse(max(times))


def _zone(body: Object) -> NUMAZone | InvalidResource:
    try:
        return NUMAZone.from_api(body)
    except InvalidResource as error:
        return error


def _without_images(node: Object) -> Object:
    """Return a Node without the list of its images, which is most of it, and which nobody reads here."""
    status = node.get("status")
    if not isinstance(status, Mapping):
        return node
    return {**node, "status": {key: value for key, value in status.items() if key != "images"}}


def cluster_from_api(objects: Object | Iterable[Object]) -> Cluster:
    """Read a cluster from objects as kubectl prints them.

    Args:
        objects: what ``kubectl get nodes,pods,numazones -A -o json`` prints, or its items.

    Raises:
        InvalidDump: it is not a list of objects, or has no nodes.
        NumazonesError: an object cannot be read.

    >>> list(cluster_from_api([{"kind": "Node", "metadata": {"name": "worker-1"}}]).nodes)
    ['worker-1']
    """
    dump = Dump.of(items_of(objects))
    return Cluster.of(read_nodes(dump, lambda: dump.pods), dump.pods)


def items_of(objects: Object | Iterable[Object]) -> list[Object]:
    """Return the objects of a list as kubectl prints it; of the objects themselves, a list.

    Raises:
        InvalidDump: it is neither.
    """
    found: Any = objects.get("items") if isinstance(objects, Mapping) else objects
    items: list[Object] = list(found) if isinstance(found, Iterable) else []
    if not isinstance(found, Iterable) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidDump(
            "cluster is not a list of objects: pass what kubectl get nodes,pods,numazones -A -o json prints"
        )
    return items


def nodes_of(
    items: Iterable[Object],
    pods: Callable[[], Iterable[Object]],
    complete: frozenset[str] = frozenset(),
) -> list[ClusterNode]:
    """Read the nodes of a dump alone, without their pods.

    ``items`` are its objects without the pods; ``pods`` gives them where the state of a node depends on them;
    ``complete``: kinds that were read completely.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    dump = Dump.of(items, complete)
    return read_nodes(dump, lambda: map(dump.sharing.pod, pods()))


def read_nodes(dump: Dump, pods: Callable[[], Iterable[ClusterPod]]) -> list[ClusterNode]:
    """Read the nodes; ``pods`` is asked once at most.

    Raises:
        InvalidDump: there are none.
        NumazonesError: an object cannot be read.
    """
    zones = _zones_by_node(dump.zones)
    topologies = _by_name(dump.of_kind("NodeResourceTopology"))

    @cache
    def bound() -> dict[str, list[ClusterPod]]:
        found: dict[str, list[ClusterPod]] = {}
        for pod in pods():
            if pod.active:
                found.setdefault(pod.node, []).append(pod)
        return found

    zones_read = bool(zones) or NUMAZone.RESOURCE.kind in dump.complete

    def bound_to(node: str) -> Iterator[ClusterPod]:
        yield from bound().get(node, ())

    nodes = []
    for body in dump.nodes:
        node = ClusterNode.from_api(body)
        own = zones.get(node.name, ())
        if own:
            node = _with_zones(node, with_partitioning(own, body), dump.sharing)
        elif not zones_read:
            node = node.with_placement(_zones_not_dumped(node.name))
        nodes.append(_with_model(node, body, topologies.get(node.name), own, dump, bound_to))
    if not _DEVICE_KINDS & dump.others.keys():
        return nodes
    from numazones.cluster.dumped_devices import with_devices  # noqa: PLC0415 - many clusters have none

    return with_devices(nodes, chain.from_iterable(zones.values()), dump.others, dump.complete)


def _with_model(
    node: ClusterNode,
    body: Object,
    topology: Object | None,
    zones: Sequence[NUMAZone],
    dump: Dump,
    bound_to: Callable[[str], Iterable[ClusterPod]],
) -> ClusterNode:
    """The node with what another placement model than the kubelet's decides from, where one is shown."""
    published = _published_placement(zones)
    try:
        model = models.model_shown(body, topology)
        if published is not None:
            _check_published(published, model, topology, dump, node.name)
        if models.is_kubelet(model):
            return node
        objects = NodeObjects(
            node=body,
            topology=topology,
            pods=tuple(bound_to(node.name)),
            kubelet=node.state,
            others=_others_of(dump, model, node.name),
            record=None if published is None else models.parse_record(published.record),
        )
        return node.with_placement(model.read(objects))
    except ObjectsMissing as error:
        return node.with_placement(Unknown(OBJECTS_MISSING, str(error)))
    except NumazonesError as error:
        return node.with_placement(Unknown(UNDECIDED, str(error)))


def _zones_by_node(zones: Iterable[NUMAZone | InvalidResource]) -> dict[str, list[NUMAZone]]:
    found: dict[str, list[NUMAZone]] = {}
    for zone in zones:
        if isinstance(zone, InvalidResource):
            raise zone
        found.setdefault(zone.spec.node_name, []).append(zone)
    return found


def _with_zones(node: ClusterNode, zones: Sequence[NUMAZone], sharing: Sharing) -> ClusterNode:
    for zone in zones:
        if zone.status is not None and zone.status.silence is not None:
            return node.with_placement(Unknown("ExporterSilent", zone.status.silence.message))
    try:
        state = node_from_zones(zones, remember=sharing.remember)
        return replace(node, placement=KubeletPlacement(state), claimed=claimed_devices(zones))
    except NumazonesError as error:
        return node.with_placement(zones_unreadable(error))


def _published_placement(zones: Iterable[NUMAZone]) -> ZonePlacement | None:
    """Return the operator's statement about a node's placement model, with the record of the lowest zone."""
    by_numa = sorted(zones, key=lambda zone: zone.spec.numa_id)
    return next((found for zone in by_numa if zone.status and (found := zone.status.placement)), None)


def _check_published(
    published: ZonePlacement, shown: Model, topology: Object | None, dump: Dump, node: str
) -> None:
    """Make sure that the objects show the model of which the zones say that it decides.

    A dump often lacks them; what would be said without them is that the kubelet admits every pod.

    Raises:
        UnreadableNode: they don't.
        ObjectsMissing: they are not there, or nobody here can read them; the message says what to do.
    """
    if published.model == UNKNOWN_MODEL:
        raise UnreadableNode(published.unknown)
    model, decider = models.model(published.model), published.decider or published.model
    if models.is_kubelet(model):
        raise ObjectsMissing(
            f"the node's pods are placed by {decider}, which this installation does not support; install the "
            f"placement model {published.model}"
        )
    here = {kind for kind, found in _others_of(dump, model, node).items() if found}
    known = here | ({TOPOLOGY_KIND} if topology is not None else set())
    missing = [kind for kind in published.objects if kind not in known]
    if missing:
        raise ObjectsMissing(
            f"{decider} places the node's pods, but the objects that it reads are missing: "
            f"{enumeration(missing)}; dump {enumeration(map(models.resource_name, missing))} as well"
        )
    if models.is_kubelet(shown):
        raise UnreadableNode(
            f"the node's NUMAZones say that {decider} places its pods, but nothing else indicates this; "
            "if it was removed from the node, check that the operator is running: it corrects the NUMAZones"
        )


def _others_of(dump: Dump, model: Model, node: str) -> dict[str, Sequence[Object]]:
    """The objects that a model reads of a node; of kinds with one per node, the node's alone."""
    return {
        kind.kind: [
            body for body in dump.of_kind(kind.kind) if not kind.of_node or body["metadata"]["name"] == node
        ]
        for kind in model.objects
    }


def _by_name(bodies: Iterable[Object]) -> dict[str, Object]:
    return {body["metadata"]["name"]: body for body in bodies}
