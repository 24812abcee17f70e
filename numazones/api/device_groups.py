"""Devices of plugins that are too many to be listed one by one.

Plugins that share a GPU by its memory, or that offer a device file to virtual machines, announce tens of
thousands of devices; a list of them would exceed what etcd takes. Of such a resource zones list groups:
devices that are close to the same NUMA nodes, as healthy as each other, and held by the same containers. The
kubelet tells such devices apart by nothing but chance, so readers of zones decide as exactly by number.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from numazones.api.meta import Condition
from numazones.api.numazone import DEVICES_COUNTED
from numazones.api.snapshot import KnownDevice, NodeSnapshot
from numazones.wording import pluralize

_MOST_LISTED = 1 << 19
"""Bytes that a node's devices take in one zone, at most; etcd takes objects of 1.5 MiB."""
_MOST_HELD = 1024
"""Devices of a resource that one container holds, at most, where they are listed."""
_AROUND = 64
"""Bytes of a listed device beside its id and the name of its resource: its zones, health and holder."""

_Device = tuple[str, str]
"""(resource, id)"""


def grouped(snapshot: NodeSnapshot) -> NodeSnapshot:
    """Return the snapshot with groups in place of too many devices, and a condition that names them."""
    resources = _too_many(snapshot)
    if not resources:
        return snapshot
    holders = _holders(snapshot, resources)
    members: dict[tuple[str, int, bool, bool, tuple[int, ...]], int] = {}
    for device in snapshot.devices:
        if device.resource in resources:
            key = _key(device, holders)
            members[key] = members.get(key, 0) + 1
    groups = {key: f"group-{number}" for number, key in enumerate(sorted(members))}
    held: dict[int, set[_Device]] = {}
    for (resource, *_, indices), name in zip(groups, groups.values(), strict=True):
        for index in indices:
            held.setdefault(index, set()).add((resource, name))
    kept = tuple(device for device in snapshot.devices if device.resource not in resources)
    return replace(
        snapshot,
        devices=(
            *kept,
            *(
                KnownDevice(resource, groups[key], numa, healthy, registered, count=members[key])
                for key in groups
                for resource, numa, healthy, registered, _ in [key]
            ),
        ),
        holders=tuple(
            replace(
                holder,
                devices=frozenset(one for one in holder.devices if one[0] not in resources)
                | held.get(index, set()),
            )
            for index, holder in enumerate(snapshot.holders)
        ),
        conditions=(*snapshot.conditions, _condition(snapshot, resources)),
    )


def _key(
    device: KnownDevice, holders: Mapping[_Device, tuple[int, ...]]
) -> tuple[str, int, bool, bool, tuple[int, ...]]:
    """What the kubelet tells a device from others by."""
    holding = holders.get((device.resource, device.id), ())
    return device.resource, device.numa, device.healthy, device.registered, holding


def _too_many(snapshot: NodeSnapshot) -> frozenset[str]:
    """Return the resources whose devices are grouped: the largest, until the others are small enough."""
    sizes: dict[str, int] = {}
    for device in snapshot.devices:
        size = len(device.resource) + len(device.id) + _AROUND
        sizes[device.resource] = sizes.get(device.resource, 0) + size
    found = set(_held_by_the_thousand(snapshot))
    total = sum(size for resource, size in sizes.items() if resource not in found)
    for resource in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if total <= _MOST_LISTED:
            break
        if resource not in found:
            found.add(resource)
            total -= sizes[resource]
    return frozenset(found)


def _held_by_the_thousand(snapshot: NodeSnapshot) -> Iterator[str]:
    for holder in snapshot.holders:
        counts: dict[str, int] = {}
        for resource, _ in holder.devices:
            counts[resource] = counts.get(resource, 0) + 1
        yield from (resource for resource, count in counts.items() if count > _MOST_HELD)


def _holders(snapshot: NodeSnapshot, resources: Iterable[str]) -> dict[_Device, tuple[int, ...]]:
    """Return device → positions of the containers that hold it."""
    found: dict[_Device, tuple[int, ...]] = {}
    for index, holder in enumerate(snapshot.holders):
        for device in holder.devices:
            if device[0] in resources:
                found[device] = (*found.get(device, ()), index)
    return found


def _condition(snapshot: NodeSnapshot, resources: frozenset[str]) -> Condition:
    counts = dict.fromkeys(sorted(resources), 0)
    for device in snapshot.devices:
        if device.resource in resources:
            counts[device.resource] += 1
    listed = ", ".join(f"{resource} has {pluralize(count, 'device')}" for resource, count in counts.items())
    return Condition(
        type=DEVICES_COUNTED,
        status="True",
        reason="TooManyToList",
        message=f"{listed}: counted by NUMA node, health and holder, not listed by id",
    )
