"""Devices that the scheduler still has to allocate, in addition to a pod's CPUs.

Devices of dynamic resource allocation are outside the Topology Manager (kubelet 1.36): whatever the policy,
nothing brings them and the pod's CPUs together. So it is told where free devices are and what the kubelet
would do by itself; which of the devices the allocator would choose is not.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from numazones import cpuset
from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.machine import name_numas
from numazones.wording import enumeration

if TYPE_CHECKING:  # many clusters have no such devices
    from numazones.dra.devices import PublishedDevice

NOT_GUARANTEED = "alignment is not guaranteed, because the kubelet's policies do not consider such devices"


def outlook(node: ClusterNode, zones: Collection[int], classes: Collection[str] = ()) -> str:
    """Return where free devices of a node are, and where a pod's CPUs would be; empty: no devices are known.

    Args:
        node: one whose placement would admit the pod.
        zones: NUMA nodes that the pod would get something of there.
        classes: DeviceClasses whose devices the pod asks for; none: not known.
    """
    if node.dra is None or not node.dra.devices:
        return ""
    if node.dra.incomplete:
        drivers = enumeration(sorted(node.dra.incomplete))
        free = f"its free devices are unknown, because ResourceSlices of {drivers} are missing"
    else:
        free = _free([node.dra.devices[key] for key in sorted(node.dra.available)], node, classes)
    where = f"on {name_numas(cpuset.of(zones))}" if zones else "on no NUMA node in particular"
    return f"{node.name} would place the pod {where}, and {free}; {NOT_GUARANTEED}"


def _free(free: "list[PublishedDevice]", node: ClusterNode, classes: Collection[str]) -> str:
    """Say which free devices the node has by NUMA node, of the classes where it is known which these mean."""
    meant = _meant(node, free, classes)
    found = free if meant is None else meant
    if not found:
        of_class = "" if meant is None else f" of DeviceClass {enumeration(sorted(classes))}"
        return f"has no free devices{of_class}"
    drivers = dict.fromkeys(device.driver for device in found)
    return "has free " + enumeration(
        [f"{driver} devices ({_by_numa(one for one in found if one.driver == driver)})" for driver in drivers]
    )


def _meant(
    node: ClusterNode, free: "list[PublishedDevice]", classes: Collection[str]
) -> "list[PublishedDevice] | None":
    """The devices that one of the classes selects; None where that is not known."""
    known = [node.device_selectors.get(name) for name in classes]
    if not known:
        return None
    found = []
    for device in free:
        answers = [None if one is None else one.selects(device) for one in known]
        if None in answers:
            return None
        if any(answers):
            found.append(device)
    return found


def _by_numa(devices: "Iterable[PublishedDevice]") -> str:
    """Count devices by NUMA node, those of an unknown one last: ``2 on NUMA node 0, 1 somewhere``."""
    counts = Counter(device.numa for device in devices)
    known = sorted(numa for numa in counts if numa is not None)
    parts = [f"{counts[numa]} on {name_numas(1 << numa)}" for numa in known]
    if counts[None]:
        parts.append(f"{counts[None]} on an unknown NUMA node")
    return ", ".join(parts)
