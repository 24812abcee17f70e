"""The devices of device plugins: what podresources call allocatable, joined with who holds them.

podresources and the checkpoint list healthy devices only; an unhealthy one is seen while a container holds
it, and not otherwise. NUMA nodes come from podresources, and for held devices from the checkpoint. A device
without topology, or whose NUMA nodes the machine does not have, belongs to no zone: it is listed in the
node's first zone, and no zone counts it.
"""

from dataclasses import dataclass

from numazones.api.snapshot import KnownDevice
from numazones_exporter.holdings import Holdings
from numazones_exporter.observation import DEVICE_CHECKPOINT, PODRESOURCES, Observation
from numazones_node.problems import Problem


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """All devices of the node."""

    devices: tuple[KnownDevice, ...]
    resources_without_devices: frozenset[str]
    """Resources of plugins that list no healthy device, none of whose devices is held."""
    allocatable_known: bool
    """Whether the healthy devices and their NUMA nodes could be read; else only devices in use are known."""
    problems: tuple[Problem, ...] = ()


def devices_of(observation: Observation, holdings: Holdings) -> NodeDevices:
    """Return all devices, by resource and id."""
    numas: dict[tuple[str, str], int] = {}
    registered = {} if observation.devices is None else observation.devices.registered
    offer = observation.podresources
    if offer is None:
        healthy = {(resource, device) for resource, ids in registered.items() for device in ids}
    else:
        numas = {(device.resource, device.id): device.numa for device in offer.allocatable_devices}
        healthy = set(numas)
    for holding in holdings.containers:
        for device in holding.resources.devices:
            numas.setdefault((device.resource, device.id), device.numa)
    return NodeDevices(
        devices=tuple(KnownDevice(*key, numas[key], healthy=key in healthy) for key in sorted(numas)),
        resources_without_devices=frozenset(registered) - {resource for resource, _ in numas}
        if offer is not None
        else frozenset(),
        allocatable_known=offer is not None or observation.devices is None,
        problems=tuple(_unknown_topology_problems(observation)),
    )


def _unknown_topology_problems(observation: Observation) -> list[Problem]:
    """Report that the checkpoint alone does not say on which NUMA nodes free devices are."""
    if observation.podresources is not None or observation.devices is None:
        return []
    if not any(observation.devices.registered.values()):
        return []
    message = (
        f"{DEVICE_CHECKPOINT} does not tell the NUMA nodes of free devices; devices are counted "
        "once podresources can be read"
    )
    return [Problem(PODRESOURCES, "DeviceTopologyUnknown", message)]
