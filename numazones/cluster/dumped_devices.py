"""Devices of dynamic resource allocation (DRA) in a dump: those of each node, and what claims allocate from.

A module of its own: many clusters have none, and what is read of them is slow to import.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numazones.api.numazone import NUMAZone
from numazones.cluster.cluster import ClusterNode
from numazones.dra.claims import KIND as CLAIM
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices, newest
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.extended_resources import classes_by_resource
from numazones.dra.inventory import Inventory

ObjectsByKind = Mapping[str, Sequence[Mapping[str, Any]]]
"""Kind → objects."""


def with_devices(
    nodes: Sequence[ClusterNode], zones: Iterable[NUMAZone], objects: ObjectsByKind, complete: Container[str]
) -> list[ClusterNode]:
    """Return the nodes with what is known of DeviceClasses and devices.

    ``zones`` are those of all nodes; ``complete``: kinds that were read completely.

    Raises:
        NumazonesError: an object cannot be read.
    """
    classes = [DeviceClass.from_api(body) for body in objects.get("DeviceClass", ())]
    resources, selectors = classes_by_resource(classes), {one.name: one for one in classes}
    with_classes = partial(replace, device_classes=resources, device_selectors=selectors)
    slices = [Slice.from_api(body) for body in objects.get("ResourceSlice", ())]
    if not slices:
        return [with_classes(node) for node in nodes]
    claims = [DeviceClaim.from_api(body) for body in objects.get(CLAIM, ())]
    devices = Inventory(slices, claims)
    cluster_devices = ClusterDevices.of(
        slices,
        classes,
        # Claims that were not read may have devices.
        claims if claims or CLAIM in complete else None,
        map(DeviceClaim.from_api, objects.get("ResourceClaimTemplate", ())),
        version=newest(_kubelet_versions(nodes, zones)),
    )
    return [with_classes(node, dra=devices.of(node.name), cluster_devices=cluster_devices) for node in nodes]


def _kubelet_versions(nodes: Iterable[ClusterNode], zones: Iterable[NUMAZone]) -> Iterator[str]:
    """Yield what Nodes and NUMAZones say."""
    for node in nodes:
        if node.kubelet_version:
            yield node.kubelet_version
    for zone in zones:
        kubelet = zone.status and zone.status.kubelet
        if kubelet and kubelet.version:
            yield kubelet.version
