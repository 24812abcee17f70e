"""OpenShift's workload partitioning: a kubelet that keeps reserved CPUs to itself without saying so.

It is no field of KubeletConfiguration. The kubelet takes reserved CPUs out of the shared set where it finds
``/etc/kubernetes/openshift-workload-pinning`` when it starts, and offers CPU shares for the platform's pods
as a resource of its Node (``kubelet/managed`` of OpenShift). Exporters of release 0.2 take such a node for
one whose sources contradict each other.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from numazones import cpuset
from numazones.api.meta import Condition
from numazones.api.numazone import READY, NUMAZone

CPU_SHARES = "management.workload.openshift.io/cores"
"""The resource of a Node under workload partitioning."""
CONSISTENT = "Consistent"
"""Type of the condition that says whether the sources of a zone agree."""


def is_partitioned(node: Mapping[str, Any]) -> bool:
    """Return whether a Node is under workload partitioning.

    >>> is_partitioned({"status": {"capacity": {"management.workload.openshift.io/cores": "16k"}}})
    True
    """
    return CPU_SHARES in ((node.get("status") or {}).get("capacity") or {})


def with_partitioning(zones: Iterable[NUMAZone], node: Mapping[str, Any]) -> list[NUMAZone]:
    """Return a node's zones, corrected where an old exporter took partitioning for a contradiction."""
    found = list(zones)
    if not is_partitioned(node) or any(zone.status is None or zone.status.cpus is None for zone in found):
        return found
    reserved = cpuset.union(
        cpuset.parse(zone.status.cpus.reserved) for zone in found if zone.status and zone.status.cpus
    )
    expected = (
        f"CPUs {cpuset.format(reserved)} are online, but not in cpu_manager_state; "
        "was the kubelet restarted since the change?"
    )
    return [_corrected(zone) if _complains_of(zone, expected) else zone for zone in found]


def _complains_of(zone: NUMAZone, message: str) -> bool:
    """Return whether one contradiction is all that keeps a zone from being ready."""
    conditions = {one.type: one for one in zone.status.conditions} if zone.status else {}
    ready, consistent = conditions.get(READY), conditions.get(CONSISTENT)
    return (
        ready is not None
        and consistent is not None
        and ready.reason == consistent.reason
        and consistent.message == message
    )


def _corrected(zone: NUMAZone) -> NUMAZone:
    status = zone.status
    if status is None or status.kubelet is None:
        return zone
    conditions = (
        Condition(type=READY, status="True", reason="Complete"),
        Condition(type=CONSISTENT, status="True", reason="SourcesAgree"),
        *(one for one in status.conditions if one.type not in {READY, CONSISTENT}),
    )
    kubelet = status.kubelet.model_copy(update={"workload_partitioning": True})
    return zone.model_copy(
        update={"status": status.model_copy(update={"conditions": conditions, "kubelet": kubelet})}
    )
