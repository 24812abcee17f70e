"""Ask the scheduler's allocator which devices a pod would get on a node.

A module of its own: many clusters have no such devices, and what the allocator reads is slow to import.
"""

from typing import Any

from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.pod_kind import PodKind
from numazones.dra.allocation import Allocated, AllocationFailed, DoesNotFit
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import NO_CLAIMS, ClusterDevices
from numazones.dra.devices import PublishedDevice
from numazones.dra.extended_resources import classes_by_resource, extended_claim
from numazones.dra.rules import serves_extended_resources
from numazones.dra.slices import AllocationNode
from numazones.dra.uses import PodClaim
from numazones.kubelet.demand import ContainerKind
from numazones.prediction.device_answer import (
    CANNOT_ALLOCATE,
    DeviceAnswer,
    ForeseenAllocation,
    ForeseenDevice,
    Users,
)


class AnswerNotKnown(Exception):
    """Raised when the allocation is not known; the message says why."""


class PodGivenUp(AnswerNotKnown):
    """The scheduler gives up on the pod."""


def allocator_answer(
    kind: PodKind, node: ClusterNode, known: ClusterDevices, zones: tuple[int, ...]
) -> DeviceAnswer:
    """Return which devices the allocator gives a pod on a node, or why it gives none.

    ``zones``: NUMA nodes that the kubelet would give the pod something of.

    Raises:
        AnswerNotKnown: that is not known.
    """
    return _Question(kind, node, known, zones).answer()


class _Question:
    """One pod on one node."""

    def __init__(
        self, kind: PodKind, node: ClusterNode, known: ClusterDevices, zones: tuple[int, ...]
    ) -> None:
        self._kind, self._node, self._known, self._zones = kind, node, known, zones
        self._held: list[ForeseenDevice] = []
        """Devices of claims that have an allocation."""

    def answer(self) -> DeviceAnswer:
        """Ask the allocator."""
        asked: list[DeviceClaim] = []
        named = []
        users: list[Users] = []
        for one in self._kind.claimed:
            claim = self._claim(one)
            if claim.allocated:
                if (other := self._hold(claim, one.users)) is not None:
                    return self._refusal(f"claim {claim.full_name} is allocated on node {other}", "")
                continue
            asked.append(claim)
            users.append(one.users)
            if not one.template:
                named.append(claim.full_name)
        for claim, mapped in self._extended():
            asked.append(claim)
            users.append(mapped)
        outcome = self._known.allocate(AllocationNode(self._node.name, self._node.labels), asked)
        if isinstance(outcome, Allocated):
            return self._fitting(outcome, named, users)
        if isinstance(outcome, DoesNotFit):
            return self._refusal(outcome.reason, outcome.message or CANNOT_ALLOCATE)
        if isinstance(outcome, AllocationFailed):
            raise PodGivenUp(f"the scheduler gives up on the pod: {outcome.message}")
        raise AnswerNotKnown(outcome.reason)

    def _fitting(self, outcome: Allocated, named: list[str], users: list[Users]) -> DeviceAnswer:
        given = [one for claim in outcome.claims for one in claim.devices]
        foreseen = [
            _foreseen(one.request, one.device, used)
            for claim, used in zip(outcome.claims, users, strict=True)
            for one in claim.devices
        ]
        return DeviceAnswer(
            True,
            devices=(*self._held, *foreseen),
            zones=self._zones,
            allocation=ForeseenAllocation(self._known, outcome, tuple(named)),
            elsewhere=bool(named) or any(not one.device.node for one in given),
        )

    def _refusal(self, reason: str, message: str) -> DeviceAnswer:
        return DeviceAnswer(False, reason, message or reason, zones=self._zones)

    def _claim(self, one: PodClaim) -> DeviceClaim:
        if self._known.claims is None:
            raise AnswerNotKnown(NO_CLAIMS)
        found = self._known.read(one)
        if found is None and one.claim:
            raise AnswerNotKnown(f"ResourceClaim {one.claim} is not known")
        if found is None:
            raise AnswerNotKnown(
                f"ResourceClaimTemplate {one.template} is not known, and no claim was created from it"
            )
        return found

    def _hold(self, claim: DeviceClaim, users: Users) -> str | None:
        """Take in what a claim holds; return the node where that is, if it is another one."""
        for one in claim.allocations:
            device = self._known.published.get(one.device)
            if device is None or not device.node:
                raise AnswerNotKnown(
                    f"the node of device {'/'.join(one.device)} of claim {claim.full_name} is unknown"
                )
            if device.node != self._node.name:
                return device.node
            self._held.append(_foreseen(one.request, device, users))
        return None

    def _extended(self) -> list[tuple[DeviceClaim, Users]]:
        """The claim that the scheduler makes of extended resources, and who uses it; or none."""
        made = any(not one.name for one in self._kind.claimed)
        if made or not scheduling.unallocated(self._kind.amounts, self._node):
            return []
        if not serves_extended_resources(self._known.minor):
            raise AnswerNotKnown("extended resources served by DeviceClasses are off before Kubernetes 1.36")
        pod = self._kind.admission
        mapped = classes_by_resource(self._known.classes.values())
        found = extended_claim(_spec(self._kind), mapped, self._node.allocatable)
        users = tuple((one.container, one.request) for one in found.mappings)
        return [(found.claim(pod.namespace, pod.name), users)] if found.requests else []


def _spec(kind: PodKind) -> dict[str, Any]:
    """The pod's spec as far as extended resources are concerned."""
    parts: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for one in kind.admission.containers:
        body: dict[str, Any] = {
            "name": one.name,
            "resources": {"requests": {name: str(amount.value()) for name, amount in one.requests}},
        }
        if one.kind is ContainerKind.SIDECAR:
            body["restartPolicy"] = "Always"
        parts["containers" if one.kind is ContainerKind.APP else "initContainers"].append(body)
    return dict(parts)


def _foreseen(request: str, device: PublishedDevice, users: Users) -> ForeseenDevice:
    main = request.partition("/")[0]
    names = dict.fromkeys(name for name, used in users if used in ("", main))
    return ForeseenDevice(
        request, device.driver, device.pool, device.name, device.numa, device.pcie_root, tuple(names)
    )
