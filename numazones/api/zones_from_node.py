"""Turn an admission state into the NUMAZones that describe it: the way back from ``numazones.api.zones``.

Nothing that admission needs is lost: reserved amounts become explicit reservations (``reservedSystemCPUs``,
``reservedMemory``), which a kubelet treats the same as amounts it has worked out itself.
"""

from collections.abc import Iterable, Mapping

from numazones import cpuset
from numazones.api.kubelet_settings import kubelet_settings
from numazones.api.meta import Condition
from numazones.api.numazone import READY, NUMAZone
from numazones.api.snapshot import ContainerHolding, KnownDevice, NodeSnapshot
from numazones.api.zone_building import build_zones
from numazones.kubelet.node import Node


def zones_from_node(
    node: Node,
    *,
    node_name: str,
    pods: Mapping[str, tuple[str, str]],
    version: str = "",
    conditions: Iterable[Condition] = (Condition(type=READY, status="True", reason="Complete"),),
    pods_fingerprint: str = "",
) -> list[NUMAZone]:
    """Return the zones that describe an admission state.

    Args:
        node: the state.
        node_name: name of the Kubernetes node.
        pods: uid → (namespace, name) of the pods that hold something; unknown ones stay nameless.
        version: the kubelet's version; its release where left out.
        conditions: what to say about the zones.
        pods_fingerprint: checksum of the node's pods.

    >>> from numazones import build
    >>> node = build.node(build.machine(numa=2, cores=8, memory="16Gi"))
    >>> [zone.spec.numa_id for zone in zones_from_node(node, node_name="worker-1", pods={})]
    [0, 1]
    """
    numas = node.kubelet.memory.numas
    return build_zones(
        NodeSnapshot(
            node_name=node_name,
            machine=node.machine,
            kubelet=kubelet_settings(node.config, version=version or node.config.release.version),
            reserved_cpus=node.kubelet.cpus.reserved,
            default_cpus=node.cpus.default if node.kubelet.cpus.static else None,
            exclusive_cpus=node.cpus.exclusive_cpus(),
            memory_reserved=_by_numa(numas, node.kubelet.memory.system_reserved),
            memory_assigned=_by_numa(numas, node.memory.reserved),
            machine_state=node.machine_state if node.kubelet.memory.static else None,
            devices=tuple(
                KnownDevice(name, device.id, cpuset.of(device.numa), device.healthy, resource.registered)
                for name, resource in node.kubelet.devices.resources.items()
                for device in resource.devices
            ),
            resources_without_devices=frozenset(
                name for name, resource in node.kubelet.devices.resources.items() if not resource.devices
            ),
            holders=tuple(_holders_of(node, pods)),
            pods_fingerprint=pods_fingerprint,
            conditions=tuple(conditions),
        )
    )


def _by_numa(numas: Iterable[int], columns: Mapping[str, tuple[int, ...]]) -> dict[tuple[int, str], int]:
    return {
        (numa, kind): amount
        for kind, column in columns.items()
        for numa, amount in zip(numas, column, strict=True)
    }


def _holders_of(node: Node, pods: Mapping[str, tuple[str, str]]) -> Iterable[ContainerHolding]:
    held = node.device_assignments
    for uid in sorted(node.pods):
        cpus = node.cpus.assignments.get(uid, {})
        memory = node.memory.assignments.get(uid, {})
        devices = held.get(uid, {})
        whole = (node.cpus.pods.get(uid, 0), node.memory.pods.get(uid, ()))
        if any(whole):
            yield ContainerHolding(*pods.get(uid, ("", "")), uid, "", *whole)
        for container in sorted({*cpus, *memory, *devices}):
            yield ContainerHolding(
                *pods.get(uid, ("", "")),
                uid,
                container,
                cpus.get(container, 0),
                memory.get(container, ()),
                frozenset(
                    (resource, device)
                    for resource, ids in devices.get(container, {}).items()
                    for device in ids
                ),
            )
