"""Reading a node of a running cluster: its NodeResourceTopology, the configuration resource, its pods.

The plugin publishes one zone per pool: type, parent, CPU and memory amounts, shared, reserved and isolated
CPUs. Who sits in which pool is not published. So the node is made from the record of who followed it, where
there is one; else its containers are placed once more, in the order in which their pods were created, except
those that could not be created by their pods' statuses. Either outcome is held against the published pools: a
node whose pools come out differently is *unknown*, never guessed at. The same goes for a cold start that may
be going on.

A rejected container is in the record before its pod's status reports the rejection. Until then the status
does not say either whether a later attempt succeeded, so the container stays as recorded if that explains
the pools.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.quantity import InvalidQuantity
from numazones.cpuset import CPUSet, InvalidCPUSet
from numazones.errors import NumazonesError, UnmodelledFeature
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.pod import Pod
from numazones_topology_aware.admission import create_missing, missing
from numazones_topology_aware.config import Configuration, select
from numazones_topology_aware.hardware import CPUDetails, Hardware
from numazones_topology_aware.node import Node
from numazones_topology_aware.pools import Pool, PoolKind
from numazones_topology_aware.record import node_from_record
from numazones_topology_aware.sandbox import PodDevice

TOPOLOGY_AWARE = "topology-aware"
BALLOONS = "balloons"
_POLICY = "TopologyPolicy"
_CONFIGURATION_KIND = "TopologyAwarePolicy"
_MILLI = 1000

Devices = Mapping[str, Mapping[str, Iterable[PodDevice]]]
"""Pod uid → container → what the kubelet's pod-resources service lists."""


class InvalidTopology(NumazonesError):
    """An object is not a NodeResourceTopology of the policy; the message names the zone and the field."""


@dataclass(frozen=True, slots=True)
class PublishedPool:
    """One zone of the policy's NodeResourceTopology."""

    name: str
    kind: PoolKind
    parent: str
    """Empty: the root."""
    cpu_capacity: int
    """Milli-CPU of sharable and reserved CPUs; isolated ones don't count."""
    cpu_available: int
    """Milli-CPU of free shared capacity."""
    memory_capacity: int
    """Bytes."""
    memory_available: int
    memory_nodes: int
    """Mask of NUMA nodes."""
    shared: CPUSet
    """Shared CPUs left."""
    reserved: CPUSet
    isolated: CPUSet
    """All isolated CPUs, but only while one of them is free; else none."""


def policy_of(topology: Mapping[str, Any]) -> str | None:
    """Return the policy that maintains a NodeResourceTopology: ``topology-aware``, ``balloons``, or None."""
    attributes = _attributes(topology)
    name = attributes.get(_POLICY)
    return name if name in {TOPOLOGY_AWARE, BALLOONS} else None


def published_pools(topology: Mapping[str, Any]) -> tuple[PublishedPool, ...]:
    """The pools of a NodeResourceTopology, in the policy's own order: children before their parents.

    Raises:
        InvalidTopology: the object is not the topology-aware policy's.
        UnmodelledFeature: it is the balloons policy's.
    """
    policy = policy_of(topology)
    if policy == BALLOONS:
        raise UnmodelledFeature(
            "the balloons policy assigns CPUs on the node, but is not modelled, so decisions about pods "
            "here are unknown"
        )
    if policy is None:
        raise InvalidTopology(
            f"the NodeResourceTopology has no attribute {_POLICY}: {TOPOLOGY_AWARE}; "
            "another exporter maintains it"
        )
    return tuple(_pool(zone) for zone in _items(topology, "zones"))


def configuration_of(
    resources: Iterable[Mapping[str, Any]], *, node: str, labels: Mapping[str, str]
) -> Configuration:
    """The configuration that a node's plugin uses, out of all TopologyAwarePolicy resources of its namespace.

    Raises:
        StartFailed: the resource has an invalid field; the message has its path.
        UnmodelledFeature: there is no resource for the node, and so the plugin does not run there, or waits.
    """
    chosen = select(resources, node=node, labels=labels)
    if chosen is None:
        raise UnmodelledFeature(
            f"there is no {_CONFIGURATION_KIND} for node {node} (node.{node}, its group's, or default if "
            "it has no group), so what the plugin does there is unknown"
        )
    name = (chosen.get("metadata") or {}).get("name")
    return Configuration.from_spec(chosen.get("spec") or {}, path=f"{_CONFIGURATION_KIND} {name}: spec")


def node_from_cluster(
    hardware: Hardware,
    config: Configuration,
    topology: Mapping[str, Any],
    pods: Iterable[Pod],
    devices: Devices | None = None,
    *,
    uncreated: Mapping[str, Collection[str]] | None = None,
    silent: Collection[str] = (),
    record: Mapping[str, Any] | None = None,
) -> Node:
    """Return the node as its published pools, its pods and perhaps a record describe it.

    Args:
        hardware: the machine. Isolated CPUs that the topology names are added, and clusters where it has
            pools of dies. Which memory is movable is the caller's to say.
        config: the plugin's configuration.
        topology: the node's NodeResourceTopology.
        pods: the pods that run on the node.
        devices: which devices they got; None: not known.
        uncreated: pod uid → containers that the runtime could not create so far.
        silent: uids of pods whose statuses do not say yet which containers exist.
        record: who held what when the node was last followed (``record_of``). One that does not explain the
            published pools is passed over.

    Raises:
        StartFailed: the plugin would not start with this configuration on this machine.
        InvalidTopology: the object is not the policy's.
        UnmodelledFeature: balloons; or the node is in a state that its pods don't explain, and where.
    """
    published = published_pools(topology)
    fresh = Node.fresh(_complete(hardware, published), config)
    _check_tree(fresh, published)
    ordered = sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))
    if record is not None:
        # An old or damaged record proves nothing: its pods alone may explain the pools.
        for kept in (silent, ()) if silent else ((),):
            with suppress(NumazonesError):
                node = node_from_record(fresh, record, ordered)
                node = _with_pods(node, ordered, devices, uncreated or {}, kept)
                check_published(node, published)
                return node
    node = _with_pods(fresh, ordered, devices, uncreated or {})
    check_published(node, published)
    return node


def _with_pods(
    node: Node,
    pods: Iterable[Pod],
    devices: Devices | None,
    uncreated: Mapping[str, Collection[str]],
    kept: Collection[str] = (),
) -> Node:
    """The node after the pods' missing containers were created, except those that could not be so far.

    Of pods to be kept, by uid, those that the node has already stay as they are.
    """
    for pod in pods:
        failed = uncreated.get(pod.uid, ())
        if pod.uid not in node.sandboxes or (pod.uid not in kept and _creates_any(node, pod, failed)):
            known = None if devices is None else devices.get(pod.uid, {})
            node = create_missing(node, pod, known, uncreated=failed).node
    return node


def _creates_any(node: Node, pod: Pod, uncreated: Collection[str]) -> bool:
    """Return whether containers of a previously tried pod have been created since, by its status."""
    for container in missing(node, pod):
        if container.name not in uncreated:
            return True
        if container.kind is not ContainerKind.APP:
            return False  # nothing starts before init containers have ended and sidecars run
    return False


def check_published(node: Node, published: Iterable[PublishedPool]) -> None:
    """Compare a node with the pools that are published of it.

    Raises:
        UnmodelledFeature: they differ, and where; or a cold start may be going on.
    """
    _check_cold_starts(node)
    found = tuple(published)
    if len(found) != len(node.pools):
        _check_tree(node, found)
    _check_pools(node, found)


def _complete(hardware: Hardware, published: tuple[PublishedPool, ...]) -> Hardware:
    """Return the hardware with what the published pools say of it."""
    isolated = hardware.isolated
    for pool in published:
        isolated |= pool.isolated
    details = hardware.details
    if not details and any(pool.kind is PoolKind.DIE for pool in published):
        # Dies are pools where one has several clusters; which, matters on hybrid machines only.
        details = {cpu.id: CPUDetails(cluster=cpu.core) for cpu in hardware.machine.cpus}
    return Hardware(
        machine=hardware.machine,
        details=details,
        caches=hardware.caches,
        present=hardware.present,
        isolated=isolated,
        efficient=hardware.efficient,
        movable=hardware.movable,
        devices=hardware.devices,
    )


def _check_tree(node: Node, published: tuple[PublishedPool, ...]) -> None:
    """Make sure that the pools that follow from machine and configuration are those that are published."""
    names = [pool.name for pool in node.pools]
    if names != [pool.name for pool in published]:
        raise UnmodelledFeature(
            f"the policy publishes the pools {', '.join(pool.name for pool in published) or '(none)'}, but "
            f"the machine has {', '.join(names)}: too little is known about its dies, clusters or L3 caches"
        )
    for pool, zone in zip(node.pools, published, strict=True):
        capacity = _MILLI * (pool.sharable | pool.reserved).bit_count()
        if capacity != zone.cpu_capacity or pool.reserved != zone.reserved:
            raise UnmodelledFeature(
                f"pool {pool.name} is published with {zone.cpu_capacity}m of CPU and reserved CPUs "
                f"{cpuset.format(zone.reserved) or '(none)'}, but the machine and the configuration give "
                f"{capacity}m and {cpuset.format(pool.reserved) or '(none)'}: the node's isolated or "
                "available CPUs differ from those known here"
            )


def _check_cold_starts(node: Node) -> None:
    for name, grant in node.grants.items():
        if grant.cold_start:
            raise UnmodelledFeature(
                f"container {node.containers[name].full_name} has a cold start; whether it is still under "
                "way, and so where its memory is, cannot be seen from outside"
            )


def _check_pools(node: Node, published: tuple[PublishedPool, ...]) -> None:
    for pool, zone in zip(node.pools, published, strict=True):
        if (differing := _difference(node, pool, zone)) is not None:
            raise UnmodelledFeature(
                f"according to its NodeResourceTopology, {differing}, but placing the running pods in order "
                "of creation gives a different result: containers came and went in another order, could not "
                "be resized, or are unknown"
            )


def _difference(node: Node, pool: Pool, zone: PublishedPool) -> str | None:
    shared = node.cpus.sharable[pool.id]
    if shared != zone.shared:
        return f"pool {pool.name} has the shared CPUs {cpuset.format(zone.shared) or '(none)'}"
    if node.cpus.free(pool) != zone.cpu_available:
        return f"pool {pool.name} has {zone.cpu_available}m of CPU available"
    if node.free_memory(pool) != zone.memory_available:
        return f"pool {pool.name} has {quantity.format_bytes(zone.memory_available)} of memory available"
    return None


def _pool(zone: Mapping[str, Any]) -> PublishedPool:
    name = str(zone.get("name") or "")
    try:
        kind = PoolKind(str(zone.get("type")))
    except ValueError as error:
        raise InvalidTopology(
            f"zone {name!r} has the type {zone.get('type')!r}, which no pool has"
        ) from error
    attributes = _attributes(zone)
    amounts = {str(item.get("name")): item for item in _items(zone, "resources")}
    cpu, memory = amounts.get("cpu") or {}, amounts.get("memory") or {}
    try:
        return PublishedPool(
            name=name,
            kind=kind,
            parent=str(zone.get("parent") or ""),
            cpu_capacity=quantity.parse(cpu["capacity"]).milli(),
            cpu_available=quantity.parse(cpu["available"]).milli(),
            memory_capacity=quantity.parse(memory["capacity"]).value(),
            memory_available=quantity.parse(memory["available"]).value(),
            memory_nodes=cpuset.parse(attributes.get("memory set", "")),
            shared=cpuset.parse(attributes.get("shared cpuset", "")),
            reserved=cpuset.parse(attributes.get("reserved cpuset", "")),
            isolated=cpuset.parse(attributes.get("isolated cpuset", "")),
        )
    except KeyError as error:
        raise InvalidTopology(f"zone {name!r} lacks an amount of cpu or memory: {error.args[0]}") from error
    except (InvalidCPUSet, InvalidQuantity) as error:
        raise InvalidTopology(f"zone {name!r}: {error}") from error


def _attributes(owner: Mapping[str, Any]) -> dict[str, str]:
    return {str(item.get("name")): str(item.get("value") or "") for item in _items(owner, "attributes")}


def _items(owner: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = owner.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidTopology(f"{key} of a NodeResourceTopology is not a list of mappings: {items!r:.80}")
    return items
