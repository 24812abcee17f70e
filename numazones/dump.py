"""A dump: what ``kubectl get nodes,pods,numazones,… -A -o json`` prints, and the nodes in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from numazones import timestamp
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.cluster import UNDECIDED, ClusterNode, ClusterPod, Unknown
from numazones.errors import NumazonesError
from numazones.placement import DECIDERS, model_of, seen
from numazones.sharing import Sharing

_EPOCH = "1970-01-01T00:00:00Z"


class InvalidDump(NumazonesError):
    """A dump lacks what an answer needs; the message says what."""


def moment_of(items: Iterable[Mapping[str, Any]]) -> datetime:
    """Return the moment of a dump: the latest time at which something in it was made, started or renewed.

    Raises:
        numazones.timestamp.InvalidTimestamp: it is none.
    """
    times = [_EPOCH]
    for item in items:
        times.append((item.get("metadata") or {}).get("creationTimestamp") or "")
        times.append((item.get("status") or {}).get("startTime") or "")
        times.append((item.get("spec") or {}).get("renewTime") or "")
    return timestamp.parse(max(times))


def nodes_of(items: Iterable[Mapping[str, Any]]) -> list[ClusterNode]:
    """Read the nodes of a dump alone, without their pods.

    Pods are looked at only where a node's state depends on them, as with Koordinator.

    Raises:
        InvalidDump: it holds no nodes.
        NumazonesError: an object cannot be read.
    """
    kinds, sharing = by_kind(items), Sharing()
    return read_nodes(kinds, lambda: map(sharing.pod, kinds.get("Pod", ())), sharing)


def by_kind(items: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Sort objects by their kinds.

    Raises:
        InvalidDump: there are no nodes among them.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        kinds.setdefault(item.get("kind", ""), []).append(item)
    if "Node" not in kinds:
        raise InvalidDump("the dump holds no nodes; kubectl get nodes,pods,numazones -A -o json has them")
    return kinds


def read_nodes(
    kinds: Mapping[str, Sequence[Mapping[str, Any]]],
    pods: Callable[[], Iterable[ClusterPod]],
    sharing: Sharing,
) -> list[ClusterNode]:
    """Read the nodes; ``pods`` is asked once at most."""
    zones = _zones_by_node(kinds.get("NUMAZone", ()))
    topologies, devices = _by_name(kinds, "NodeResourceTopology"), _by_name(kinds, "Device")

    @cache
    def bound() -> dict[str, list[ClusterPod]]:
        found: dict[str, list[ClusterPod]] = {}
        for pod in pods():
            if pod.active:
                found.setdefault(pod.node, []).append(pod)
        return found

    def bound_to(node: str) -> Iterator[ClusterPod]:
        yield from bound().get(node, ())

    nodes = []
    for body in kinds["Node"]:
        node = ClusterNode.from_api(body)
        if node.name in zones:
            node = _with_zones(node, zones[node.name], sharing)
        try:
            other = seen(
                body,
                topologies.get(node.name),
                pods=bound_to(node.name),
                kubelet_node=node.state,
                device=devices.get(node.name),
                configurations=kinds.get("TopologyAwarePolicy", ()),
            )
        except NumazonesError as error:
            node = node.with_unknown_state(Unknown(UNDECIDED, str(error)))
        else:
            if other is not None:
                node = node.with_policy_state(other, DECIDERS[model_of(other)], beneath=node.state)
        nodes.append(node)
    return nodes


def _zones_by_node(bodies: Iterable[Mapping[str, Any]]) -> dict[str, list[NUMAZone]]:
    zones: dict[str, list[NUMAZone]] = {}
    for body in bodies:
        zone = NUMAZone.from_api(body)
        zones.setdefault(zone.spec.node_name, []).append(zone)
    return zones


def _with_zones(node: ClusterNode, zones: Sequence[NUMAZone], sharing: Sharing) -> ClusterNode:
    for zone in zones:
        if zone.status is not None and zone.status.silence is not None:
            return node.with_unknown_state(Unknown("ExporterSilent", zone.status.silence.message))
    try:
        return node.with_state(node_from_zones(zones, remember=sharing.made))
    except NumazonesError as error:
        return node.with_unknown_state(Unknown("ZonesUnreadable", str(error)))


def _by_name(kinds: Mapping[str, Sequence[Mapping[str, Any]]], kind: str) -> dict[str, Mapping[str, Any]]:
    return {body["metadata"]["name"]: body for body in kinds.get(kind, ())}
