"""Find changes after which the devices of a pod's claims are on the NUMA node of its CPUs.

No policy of a kubelet sees such devices, so a pod may fit with its GPU far from its CPUs. Another node may be
better; predictions rank the nodes. Where none is, two things help: CPUs freed where the devices are, and a
claim whose devices must be together. Each is tried on a copy: the scheduler's allocator and the kubelet are
asked again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from numazones.advice.changes import MAX_EVICTIONS, Advice, Change, ChangeCost, NodeContext
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.dra.claims import ALL, Constraint, DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices
from numazones.dra.devices import NUMA_NODE, PCIE_ROOT
from numazones.kubelet.admission import remove
from numazones.prediction.device_answer import ALIGNED, DeviceAnswer
from numazones.prediction.forecast import newcomer, place_beside
from numazones.wording import enumeration

_MATCHED: Final = (NUMA_NODE, PCIE_ROOT)
_MAX_NODES: Final = 12
"""Trying changes on copies takes time."""


def aligning_changes(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], names: Sequence[str], around: NodeContext
) -> list[Advice]:
    """Return what would bring a pod's devices to its CPUs.

    ``names``: the nodes to look at, the best first.
    """
    if not names or pod.admission is None:
        return []
    coming = replace(pod, admission=newcomer(pod.admission), uid="", node="", phase="Pending")
    tried = (next(_matched(coming, nodes[name]), None) for name in names[:_MAX_NODES])
    matched = next(filter(None, tried), None)
    return [*([matched] if matched else []), *_freed(coming, nodes[names[0]], around)]


def _answer(pod: ClusterPod, node: ClusterNode) -> DeviceAnswer | None:
    """Return where a pod's devices would be on a node that admits it and has them."""
    placed = place_beside(pod, node)
    found = None if placed is None else placed.devices
    return found if found is not None and found.fits and found.devices else None


def _matched(pod: ClusterPod, node: ClusterNode) -> Iterator[Advice]:
    """Yield the attribute that all devices of a claim would have to share."""
    for attribute in _MATCHED:
        devices, names = _tightened(pod, node.cluster_devices, Constraint(match=attribute))
        found = _answer(pod, replace(node, cluster_devices=devices)) if names else None
        if found is not None and found.alignment == ALIGNED:
            sentence = (
                f"add matchAttribute: {attribute} to {enumeration(names)}; the pod would then get "
                f"{found.sentence}"
            )
            yield Advice(Change.REQUEST, ChangeCost.CONSTRAINT, node.name, sentence)


def _tightened(
    pod: ClusterPod, known: ClusterDevices | None, constraint: Constraint
) -> tuple[ClusterDevices | None, list[str]]:
    """Return the devices with a constraint on the pod's claims of several devices, and their names."""
    if known is None or known.claims is None:
        return known, []
    claims, templates = dict(known.claims), dict(known.templates)
    names = []
    for one in pod.claims:
        claim = claims.get(one.claim) or templates.get(one.template)
        if claim is None or claim.allocated or not _has_several(claim) or constraint in claim.constraints:
            continue
        changed = replace(claim, constraints=(*claim.constraints, constraint))
        for table, name in ((claims, one.claim), (templates, one.template)):
            if name in table:
                table[name] = changed
        kind = "ResourceClaimTemplate" if one.template else "ResourceClaim"
        names.append(f"{kind} {one.template or one.claim}")
    return replace(known, claims=claims, templates=templates), names


def _has_several(claim: DeviceClaim) -> bool:
    asked = [choice.mode == ALL or choice.count > 1 for one in claim.requests for choice in one.choices]
    return len(claim.requests) > 1 or any(asked)


def _freed(pod: ClusterPod, node: ClusterNode, around: NodeContext) -> Iterator[Advice]:
    """Yield the pods that hold the CPUs next to the devices; those with claims are left alone."""
    state = node.state
    if state is None:
        return
    given = 0
    for other in sorted(node.pods.values(), key=lambda one: (one.namespace != pod.namespace, one.full_name)):
        if other.resource_claims or not state.cpus.held_by(other.kubelet_uid):
            continue
        left = node.without_pod(other.uid).with_state(remove(state, other.kubelet_uid))
        found = _answer(pod, left)
        if found is not None and found.alignment == ALIGNED:
            yield _freed_by(other, node, found, around)
            given += 1
        if given == MAX_EVICTIONS:
            return


def _freed_by(other: ClusterPod, node: ClusterNode, found: DeviceAnswer, around: NodeContext) -> Advice:
    objection = around.objection(other)
    cost = ChangeCost.PROTECTED if objection else ChangeCost.REMOVAL
    note = f" (no plan does this: {objection})" if objection else ""
    sentence = f"free the CPUs of {other.full_name}{note}; the pod would then get {found.sentence}"
    return Advice(Change.EVICTION, cost, node.name, sentence)
