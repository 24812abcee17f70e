"""Makes the NUMAZones of a node from its snapshot; nothing else makes zones.

Who holds what is listed in every zone it touches; figures come from ``numazones.api.amounts``. The same
snapshot always gives the same objects in the same order, with a snapshot id made from their content.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from numazones import cpuset
from numazones.api.amounts import amounts_of, headroom_of, summary_of
from numazones.api.device_groups import grouped
from numazones.api.kubelet_settings import keeps_reserved_apart
from numazones.api.meta import NODE_LABEL, TRANSITION_TIME, ObjectMeta, OwnerReference
from numazones.api.numazone import (
    Assignment,
    Cache,
    ContainerName,
    CPUGroup,
    CPUSets,
    DeviceIDs,
    Distance,
    MemoryBlock,
    NUMAZone,
    NUMAZoneSpec,
    NUMAZoneStatus,
    Topology,
    ZoneDevice,
    zone_name,
)
from numazones.api.snapshot import ContainerHolding, KnownDevice, NodeSnapshot
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import Machine, NUMANode


def build_zones(snapshot: NodeSnapshot) -> list[NUMAZone]:
    """Return the node's zones by ascending NUMA id, with one snapshot id made from their content."""
    listed = grouped(snapshot)
    statuses = {node.id: _status(snapshot, listed, node) for node in snapshot.machine.numa_nodes}
    identity = _identity(snapshot.node_name, statuses)
    return [
        NUMAZone(
            metadata=_metadata(snapshot, numa),
            spec=NUMAZoneSpec(node_name=snapshot.node_name, numa_id=numa),
            status=status.model_copy(update={"snapshot": identity}),
        )
        for numa, status in statuses.items()
    ]


def _metadata(snapshot: NodeSnapshot, numa: int) -> ObjectMeta:
    owner = (
        ()
        if snapshot.node_uid is None
        else (OwnerReference(api_version="v1", kind="Node", name=snapshot.node_name, uid=snapshot.node_uid),)
    )
    return ObjectMeta(
        name=zone_name(snapshot.node_name, numa),
        labels={NODE_LABEL: snapshot.node_name},
        owner_references=owner,
    )


def _identity(node_name: str, statuses: Mapping[int, NUMAZoneStatus]) -> str:
    """Hash what the zones say; when a condition last changed is no part of it."""
    content = {}
    for numa, status in statuses.items():
        document = status.to_api()
        for condition in document.get("conditions", ()):
            condition.pop(TRANSITION_TIME, None)
        content[numa] = document
    text = json.dumps([node_name, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _status(snapshot: NodeSnapshot, listed: NodeSnapshot, node: NUMANode) -> NUMAZoneStatus:
    machine, numa = snapshot.machine, node.id
    first = numa == machine.numa_nodes[0].id
    devices = _devices_of(listed.devices, machine, numa, first=first)
    holders = list(_holders_of(listed.holders, devices, machine, numa, first=first))
    named = _named_holders(holders)
    amounts = amounts_of(snapshot, node)
    memory = None if snapshot.machine_state is None else snapshot.machine_state[numa]
    return NUMAZoneStatus(
        zones=len(machine.numa_nodes),
        topology=_topology(snapshot, node),
        kubelet=snapshot.kubelet,
        resources=tuple(item.to_resource() for item in amounts),
        cpus=_cpu_sets(snapshot, machine.cpus_of_numa[numa]),
        memory_group=() if memory is None else tuple(cpuset.ids(memory.cells)),
        memory_assignments=None if memory is None else memory.assignments,
        devices=tuple(_device(device, named, numa) for device in devices),
        assignments=tuple(_assignment(holder, named, numa) for holder in holders),
        headroom=headroom_of(snapshot, numa, amounts),
        summary=summary_of(snapshot, numa, amounts),
        pods_fingerprint=snapshot.pods_fingerprint,
        conditions=listed.conditions,
    )


def _topology(snapshot: NodeSnapshot, node: NUMANode) -> Topology:
    machine = snapshot.machine
    own = machine.cpus_of_numa[node.id]
    members = [machine.by_cpu[cpu] for cpu in cpuset.ids(own)]
    cores = sorted(
        (cpus for (numa, _, _), cpus in machine.cpus_of_core.items() if numa == node.id),
        key=lambda cpus: cpus & -cpus,
    )
    dies = {(cpu.socket, cpu.die) for cpu in members}
    return Topology(
        cpus=cpuset.format(own),
        offline=cpuset.format(snapshot.offline.get(node.id, node.offline)),
        kubelet_id=node.kubelet_id,
        counted_cpus=machine.counted_cpus,
        isolated=cpuset.format(snapshot.isolated & own),
        cores=tuple(cpuset.format(cpus) for cpus in cores),
        sockets=_groups(((cpu.socket, cpu.id) for cpu in members), own),
        dies=_groups(((cpu.die, cpu.id) for cpu in members), own)
        if len(dies) > len({cpu.socket for cpu in members})
        else (),
        caches=tuple(_caches(snapshot, own)),
        distances=tuple(
            Distance(numa_id=other.id, distance=distance)
            for other, distance in zip(machine.numa_nodes, node.distances or (), strict=False)
        ),
    )


def _groups(pairs: Iterable[tuple[int, int]], own: CPUSet) -> tuple[CPUGroup, ...]:
    ordered = sorted(pairs)
    groups = {
        key: cpuset.of(cpu for _, cpu in found) for key, found in groupby(ordered, lambda pair: pair[0])
    }
    return tuple(
        CPUGroup(id=key, cpus=None if cpus == own else cpuset.format(cpus)) for key, cpus in groups.items()
    )


def _caches(snapshot: NodeSnapshot, own: CPUSet) -> Iterator[Cache]:
    """Yield the hardware's caches, then those that only the kubelet knows."""
    seen = {key: cpus & own for key, cpus in snapshot.machine.cpus_of_uncore_cache.items() if cpus & own}
    for cache in sorted(snapshot.caches, key=lambda cache: (cache.level, cache.id)):
        if cpus := cache.cpus & own:
            uncore = seen.get(cache.id) == cpus
            yield _cache(cache.level, cache.id, cpus, own, uncore=uncore)
            if uncore:
                del seen[cache.id]
    for key, cpus in sorted(seen.items()):
        yield _cache(3, key, cpus, own, uncore=True)


def _cache(level: int, key: int, cpus: CPUSet, own: CPUSet, *, uncore: bool) -> Cache:
    return Cache(level=level, id=key, cpus=None if cpus == own else cpuset.format(cpus), uncore=uncore)


def _cpu_sets(snapshot: NodeSnapshot, own: CPUSet) -> CPUSets | None:
    if snapshot.reserved_cpus is None or snapshot.exclusive_cpus is None:
        return None
    reserved = snapshot.reserved_cpus & own
    exclusive = snapshot.exclusive_cpus & own
    if snapshot.default_cpus is None:
        return CPUSets(
            reserved=cpuset.format(reserved),
            exclusive=cpuset.format(exclusive),
            shared=cpuset.format(own & ~reserved & ~exclusive),
        )
    default = snapshot.default_cpus & own
    apart = snapshot.kubelet is not None and keeps_reserved_apart(snapshot.kubelet)
    usual = default & ~reserved if apart else default | reserved
    return CPUSets(
        reserved=cpuset.format(reserved),
        exclusive=cpuset.format(exclusive),
        shared=cpuset.format(default & ~reserved),
        default=None if default == usual else cpuset.format(default),
    )


# Who holds which devices


def _devices_of(
    devices: Iterable[KnownDevice], machine: Machine, numa: int, *, first: bool
) -> list[KnownDevice]:
    """Return the devices listed in a zone; those close to no NUMA node of the machine are in the first."""
    return sorted(
        (
            device
            for device in devices
            if device.numa >> numa & 1 or (first and not device.numa & machine.numa_mask)
        ),
        key=lambda device: (device.resource, device.id),
    )


def _holders_of(
    holders: Iterable[ContainerHolding],
    devices: Iterable[KnownDevice],
    machine: Machine,
    numa: int,
    *,
    first: bool,
) -> Iterator[ContainerHolding]:
    """Yield the containers that touch a zone, with only what they hold there."""
    listed = {(device.resource, device.id) for device in devices}
    for holder in sorted(holders, key=lambda item: (item.namespace, item.pod, item.uid, item.container)):
        part = ContainerHolding(
            holder.namespace,
            holder.pod,
            holder.uid,
            holder.container,
            holder.cpus & machine.cpus_of_numa[numa],
            tuple(
                block
                for block in holder.memory
                if block.affinity >> numa & 1 or (first and not block.affinity & machine.numa_mask)
            ),
            holder.devices & listed,
            holder.claims if first else frozenset(),
        )
        if part.cpus or part.memory or part.devices or part.claims:
            yield part


def _named_holders(holders: Iterable[ContainerHolding]) -> dict[tuple[str, str], ContainerHolding]:
    """Return device → its ``assignedTo``: a container whose names no other container of the zone has."""
    seen: dict[tuple[str, str, str], int] = {}
    holders = list(holders)
    for holder in holders:
        names = (holder.namespace, holder.pod, holder.container)
        seen[names] = seen.get(names, 0) + 1
    named: dict[tuple[str, str], ContainerHolding] = {}
    for holder in holders:
        if holder.pod and seen[holder.namespace, holder.pod, holder.container] == 1:
            named |= dict.fromkeys(holder.devices, holder)
    return named


def _device(device: KnownDevice, named: Mapping[tuple[str, str], ContainerHolding], numa: int) -> ZoneDevice:
    holder = named.get((device.resource, device.id))
    return ZoneDevice(
        resource=device.resource,
        id=device.id,
        count=device.count,
        numa_ids=None if device.numa == 1 << numa else tuple(cpuset.ids(device.numa)),
        healthy=device.healthy,
        registered=device.registered,
        assigned_to=None
        if holder is None
        else ContainerName(namespace=holder.namespace, pod=holder.pod, container=holder.container),
    )


def _assignment(
    holder: ContainerHolding, named: Mapping[tuple[str, str], ContainerHolding], numa: int
) -> Assignment:
    unnamed = {device for device in holder.devices if named.get(device) is not holder} | holder.claims
    return Assignment(
        namespace=holder.namespace,
        pod=holder.pod,
        uid=holder.uid,
        container=holder.container,
        cpus=cpuset.format(holder.cpus),
        memory=tuple(
            MemoryBlock(
                type=block.type,
                bytes=block.size,
                numa_ids=None if block.affinity == 1 << numa else tuple(cpuset.ids(block.affinity)),
            )
            for block in holder.memory
        ),
        devices=tuple(
            DeviceIDs(resource=resource, ids=tuple(device for _, device in found))
            for resource, found in groupby(sorted(unnamed), lambda device: device[0])
        ),
    )
