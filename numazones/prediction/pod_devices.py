"""Join the devices that the scheduler would allocate to a pod on a node with what the kubelet would give it.

Two deciders that know nothing of each other: the scheduler's allocator chooses the devices of claims
(``numazones.dra.allocator``), the kubelet the CPUs, memory and plugin devices; no policy brings them together
(kubelet 1.36). Both are asked here, and one answer says where everything lies. What the allocator cannot say
is Unknown, by its reason.
"""

from dataclasses import replace
from typing import Final

from numazones.cluster import device_allocation, scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.kubelet.demand import ContainerKind
from numazones.prediction.device_answer import DeviceAnswer, Shares

_CLAIMS_UNALLOCATED: Final = (
    f"it claims devices through resourceClaims, which its kubelet ignores: {scheduling.ALLOCATOR_DECIDES}"
)


def device_answer(
    kind: PodKind, node: ClusterNode, zones: tuple[int, ...] | None, shares: Shares = ()
) -> DeviceAnswer | None:
    """Return which devices the scheduler would allocate to a pod on a node; None: it needs none.

    Args:
        kind: the pod's.
        node: one that the scheduler's other filters let through.
        zones: NUMA nodes that the kubelet would give it something of; None: the kubelet rejects it.
        shares: the same by container; none: that is not known, or there is but one.
    """
    if kind.allocated:
        return None
    why = _CLAIMS_UNALLOCATED if kind.claims else scheduling.unallocated(kind.amounts, node)
    if not why:
        return None
    if node.cluster_devices is None:
        return _unknown(kind, node, zones, why)
    from numazones.prediction.allocator_answer import (  # noqa: PLC0415 - many clusters have no such devices
        AnswerNotKnown,
        PodGivenUp,
        allocator_answer,
    )

    try:
        found = allocator_answer(kind, node, node.cluster_devices, zones or ())
    except AnswerNotKnown as error:
        found = _unknown(kind, node, zones, f"{why}; {error}")
        return replace(found, aborts=True) if isinstance(error, PodGivenUp) else found
    running = {one.name for one in kind.admission.containers if one.kind is not ContainerKind.INIT}
    kept = tuple(one for one in shares if one[0] in running)
    return replace(found, shares=kept, several=len(running) > 1)


def pod_devices(
    pod: ClusterPod, node: ClusterNode, zones: tuple[int, ...] = (), shares: Shares = ()
) -> DeviceAnswer | None:
    """Return the same for a pod that may need no devices, as most do, or cannot be read."""
    if not (pod.resource_claims or scheduling.unallocated(pod.requests, node)):
        return None
    kind = PodKind.of(pod)
    return None if kind is None else device_answer(kind, node, zones, shares)


def _unknown(kind: PodKind, node: ClusterNode, zones: tuple[int, ...] | None, why: str) -> DeviceAnswer:
    """Say why nothing is foreseen, and where free devices are."""
    if zones is not None:
        classes = frozenset() if kind.claims else scheduling.classes_asked(kind.amounts, node)
        if known := device_allocation.outlook(node, zones, classes):
            why = f"{why}; {known}"
    return DeviceAnswer(None, why, zones=zones or ())
