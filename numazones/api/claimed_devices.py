"""The dynamic resources (DRA) that zones say containers hold, as podresources listed them.

The kubelet lists all devices of a claim for each container that uses one of its requests (1.36,
``GetDynamicResources``): where several containers share a claim by requests, each is said to hold all of it;
``numazones.dra.uses`` tells them apart.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from numazones.api.numazone import NUMAZone

if TYPE_CHECKING:  # many nodes have no such devices
    from numazones.dra.devices import Key

ClaimedDevices: TypeAlias = "Mapping[str, Mapping[str, frozenset[Key]]]"
"""Pod uid → container → devices."""


def claimed_devices(zones: Iterable[NUMAZone]) -> ClaimedDevices:
    """Return what the containers of a node's pods hold through claims.

    >>> claimed_devices([])
    {}
    """
    found: dict[str, dict[str, frozenset[Key]]] = {}
    for zone in zones:
        status = zone.status
        if status is None:
            continue
        holders = [one for one in status.assignments if one.devices]
        if not holders:
            continue
        plugins = {(device.resource, device.id) for device in status.devices}
        for holder in holders:
            keys = frozenset(
                (held.resource, *_pool_and_device(one))
                for held in holder.devices
                for one in held.ids
                if (held.resource, one) not in plugins
            )
            if keys:
                of_pod = found.setdefault(holder.uid, {})
                of_pod[holder.container] = of_pod.get(holder.container, frozenset()) | keys
    return found


def _pool_and_device(text: str) -> tuple[str, str]:
    """Pools' names may have slashes, devices' have none."""
    pool, _, device = text.rpartition("/")
    return pool, device
