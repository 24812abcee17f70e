"""Devices that the scheduler would allocate to a pod on a node, joined with what the kubelet would give it.

Two deciders that know nothing of each other: the scheduler's allocator chooses the devices of claims
(``numazones.dra.allocator``), the kubelet the CPUs, memory and plugin devices; no policy brings them together
(kubelet 1.36). Both are asked here, and one answer says where everything lies. What the allocator cannot say
is Unknown, by its reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Self

from numazones import cpuset
from numazones.apimachinery.answer import or_left_out
from numazones.cluster import device_allocation, scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import PodKind
from numazones.dra.allocation import Allocated, AllocationFailed, DoesNotFit
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import NO_CLAIMS, ClusterDevices, made_claims
from numazones.dra.devices import PublishedDevice
from numazones.dra.extended_resources import classes_by_resource, extended_claim
from numazones.dra.rules import serves_extended_resources
from numazones.dra.slices import AllocationNode
from numazones.dra.uses import PodClaim
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.shortfall import name_numas
from numazones.wording import enumeration

CLAIMS_UNALLOCATED: Final = (
    f"it claims devices through resourceClaims, which its kubelet ignores: {scheduling.ALLOCATOR_DECIDES}"
)
ALIGNED, ALIGNMENT_UNKNOWN, NOT_ALIGNED = "aligned", "unknown", "notAligned"
_WORDS: Final = {ALIGNED: "aligned", ALIGNMENT_UNKNOWN: "alignment not known", NOT_ALIGNED: "not aligned"}
"""From the best to the worst."""
CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""The scheduler's words where a node has not the devices."""

Users = tuple[tuple[str, str], ...]
"""(container, request of a claim that it uses; empty: all of them)."""


@dataclass(frozen=True, slots=True)
class ForeseenDevice:
    """A device that the scheduler would allocate."""

    request: Annotated[str, "Request of the claim; REQUEST/ALTERNATIVE if it has alternatives."]
    driver: Annotated[str, "Its driver."]
    pool: Annotated[str, "Its pool, often named after the node."] = field(compare=False)
    device: Annotated[str, "Its name."]
    numa: Annotated[int | None, "NUMA node of the device; null if its driver does not report one."]
    pcie_roots: Annotated[
        tuple[str, ...],
        "PCIe root complexes of the device; left out if its driver reports none.",
        or_left_out,
    ] = ()
    containers: Annotated[
        tuple[str, ...], "Containers that use it; left out if none names it.", or_left_out
    ] = ()

    @property
    def full_name(self) -> str:
        """DRIVER/DEVICE."""
        return f"{self.driver}/{self.device}"


Shares = tuple[tuple[str, tuple[int, ...]], ...]
"""(container, NUMA nodes on which the kubelet gives it something)."""


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where a container's devices and the rest of it would be."""

    container: Annotated[str, "Name of the container; empty if only the pod as a whole is known."]
    numas: Annotated[tuple[int, ...], "NUMA nodes on which the kubelet gives it something."]
    devices: Annotated[tuple[str, ...], "Its devices, as DRIVER/DEVICE."]
    alignment: Annotated[str, "aligned, notAligned or unknown."]
    sentence: Annotated[str, "The alignment in words."]

    @classmethod
    def of(cls, container: str, numas: tuple[int, ...], devices: Sequence[ForeseenDevice]) -> Self:
        """Say whether one NUMA node has all of it."""
        near = {one.numa for one in devices}
        together = len({*numas, *near} - {None}) < 2  # noqa: PLR2004 - one NUMA node, or none
        alignment = (ALIGNMENT_UNKNOWN if None in near else ALIGNED) if together else NOT_ALIGNED
        rest = f"CPUs and memory on {name_numas(cpuset.of(numas))}" if numas else "CPUs of the shared pool"
        sentence = f"{enumeration(list(_places(devices)))}, {rest}: {_WORDS[alignment]}"
        return cls(container, numas, tuple(one.full_name for one in devices), alignment, sentence)


def _places(devices: Iterable[ForeseenDevice]) -> Iterator[str]:
    by_numa: dict[int | None, list[str]] = {}
    for one in devices:
        by_numa.setdefault(one.numa, []).append(one.full_name)
    for numa, names in by_numa.items():
        where = "an unknown NUMA node" if numa is None else name_numas(1 << numa)
        yield f"{enumeration(names)} on {where}"


@dataclass(frozen=True, slots=True)
class ForeseenAllocation:
    """Allocation of a pod's claims that have none yet, and what it was made from."""

    known: ClusterDevices
    allocated: Allocated
    named: tuple[str, ...]
    """NAMESPACE/NAME of the claims that other pods may use, too."""


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """Devices that a pod would get on a node, or why it gets none there, or why that is not known."""

    fits: bool | None
    """True if the node has the devices; None: not known."""
    reason: str = ""
    """Why not, in one sentence."""
    message: str = ""
    """In the scheduler's words."""
    devices: tuple[ForeseenDevice, ...] = ()
    zones: tuple[int, ...] = ()
    """NUMA nodes on which the kubelet gives it something."""
    shares: Shares = ()
    """The same by container, of one that has several; none: only of the pod is that known."""
    several: bool = False
    """True if it has several containers that run at a time."""
    aborts: bool = False
    """True if an error here makes the scheduler give up on the pod, whatever other nodes have."""
    allocation: "ForeseenAllocation | None" = field(default=None, compare=False, repr=False)
    """Allocation; None: nothing is known, or the pod does not fit."""
    elsewhere: bool = field(default=False, compare=False)
    """True if other nodes see the difference, too."""

    @property
    def after(self) -> ClusterDevices | None:
        """The cluster's devices once these are allocated; None if they do not fit."""
        found = self.allocation
        return None if found is None else found.known.after(found.allocated, found.named)

    @property
    def made(self) -> tuple[DeviceClaim, ...]:
        """The pod's claims as far as they would hold devices that are allocated now."""
        return () if self.allocation is None else made_claims(self.allocation.allocated)

    @property
    def containers(self) -> tuple[ContainerPlace, ...]:
        """Where each container's devices and the rest of it are, of those that use devices.

        A device that no container uses counts only where none uses any.
        """
        if not self.devices:
            return ()
        if not (self.several and self.shares):
            return (self._whole(),)
        found = tuple(
            ContainerPlace.of(name, numas, used)
            for name, numas in self.shares
            if (used := [one for one in self.devices if name in one.containers])
        )
        return found or (self._whole(),)

    def _whole(self) -> ContainerPlace:
        """The pod as one; of several containers apart it is not known which uses what."""
        used = [one for one in self.devices if one.containers] or self.devices
        whole = ContainerPlace.of("", self.zones, used)
        if whole.alignment == NOT_ALIGNED and self.several:
            sentence = whole.sentence.replace(_WORDS[NOT_ALIGNED], _WORDS[ALIGNMENT_UNKNOWN])
            return replace(whole, alignment=ALIGNMENT_UNKNOWN, sentence=sentence)
        return whole

    @property
    def alignment(self) -> str:
        """Return whether for each container one NUMA node has its devices and all that it has exclusively."""
        if not self.fits:
            return ALIGNMENT_UNKNOWN
        order = tuple(_WORDS)
        return max((one.alignment for one in self.containers), key=order.index, default=ALIGNED)

    @property
    def sentence(self) -> str:
        """Where devices and the rest lie, or why there are none."""
        if not self.fits:
            return self.reason
        return "; ".join(
            f"container {one.container}: {one.sentence}" if one.container else one.sentence
            for one in self.containers
        )


def alignment_rank(alignment: str) -> int:
    """Return what nodes are sorted by that would admit a pod, the best first; empty: it needs no devices."""
    return tuple(_WORDS).index(alignment) if alignment else 0


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
    why = CLAIMS_UNALLOCATED if kind.claims else scheduling.unallocated(kind.amounts, node)
    if not why:
        return None
    if node.cluster_devices is None:
        return _unknown(kind, node, zones, why)
    try:
        found = _Question(kind, node, node.cluster_devices, zones or ()).answer()
    except _NotKnown as error:
        found = _unknown(kind, node, zones, f"{why}; {error}")
        return replace(found, aborts=True) if isinstance(error, _Aborted) else found
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


class _NotKnown(Exception):
    """Raised when the allocation is not known; the message says why."""


class _Aborted(_NotKnown):
    """The scheduler gives up on the pod."""


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
            raise _Aborted(f"the scheduler gives up on the pod: {outcome.message}")
        raise _NotKnown(outcome.reason)

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
            raise _NotKnown(NO_CLAIMS)
        found = self._known.read(one)
        if found is None and one.claim:
            raise _NotKnown(f"ResourceClaim {one.claim} is not known")
        if found is None:
            raise _NotKnown(
                f"ResourceClaimTemplate {one.template} is not known, and no claim was created from it"
            )
        return found

    def _hold(self, claim: DeviceClaim, users: Users) -> str | None:
        """Take in what a claim holds; return the node where that is, if it is another one."""
        for one in claim.allocations:
            device = self._known.published.get(one.device)
            if device is None or not device.node:
                raise _NotKnown(
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
            raise _NotKnown("extended resources served by DeviceClasses are off before Kubernetes 1.36")
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


def _unknown(kind: PodKind, node: ClusterNode, zones: tuple[int, ...] | None, why: str) -> DeviceAnswer:
    """Say why nothing is foreseen, and where free devices are."""
    if zones is not None:
        classes = frozenset() if kind.claims else scheduling.classes_asked(kind.amounts, node)
        if known := device_allocation.outlook(node, zones, classes):
            why = f"{why}; {known}"
    return DeviceAnswer(None, why, zones=zones or ())
