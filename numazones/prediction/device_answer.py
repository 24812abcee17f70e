"""Devices that the scheduler would allocate to a pod on a node, joined with what the kubelet would give it.

Two deciders that know nothing of each other: the scheduler's allocator chooses the devices of claims
(``numazones.dra.allocator``), the kubelet the CPUs, memory and plugin devices; no policy brings them together
(kubelet 1.36). Both are asked here, and one answer says where everything lies. What the allocator cannot say
is Unknown, by its reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from numazones import cpuset
from numazones.cluster import device_allocation, scheduling
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.pod_kind import PodKind
from numazones.dra.allocation import Allocated, AllocationFailed, DoesNotFit
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import NO_CLAIMS, ClusterDevices
from numazones.dra.devices import PublishedDevice
from numazones.dra.extended_resources import classes_by_resource, extended_claim
from numazones.dra.slices import Place
from numazones.dra.uses import PodClaim
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.shortfall import name_numas
from numazones.wording import enumeration

CLAIMS_UNALLOCATED: Final = (
    f"it claims devices by resourceClaims, which its kubelet does not look at: {scheduling.ALLOCATOR_DECIDES}"
)
ALIGNED, NOT_ALIGNED, ALIGNMENT_UNKNOWN = "aligned", "notAligned", "unknown"
CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""The scheduler's words where a node has not the devices."""
_EXTENDED_SINCE: Final = (36, "extended resources served by DeviceClasses are off before Kubernetes 1.36")


@dataclass(frozen=True, slots=True)
class ForeseenDevice:
    """A device that the scheduler would allocate."""

    request: Annotated[str, "Request of the claim; of alternatives, REQUEST/ALTERNATIVE."]
    driver: Annotated[str, "Its driver."]
    pool: Annotated[str, "Its pool, often named like the node."] = field(compare=False)
    device: Annotated[str, "Its name."]
    numa: Annotated[int | None, "NUMA node where it is; null if its driver does not say."]

    @property
    def full_name(self) -> str:
        """DRIVER/DEVICE."""
        return f"{self.driver}/{self.device}"


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
    """NUMA nodes that the kubelet gives it something of."""
    containers: int = 1
    aborts: bool = False
    """True if an error here makes the scheduler give up on the pod, whatever other nodes have."""
    after: ClusterDevices | None = field(default=None, compare=False, repr=False)
    """The cluster's devices once these are allocated."""
    elsewhere: bool = field(default=False, compare=False)
    """True if other nodes see the difference, too."""

    @property
    def alignment(self) -> str:
        """Return whether one NUMA node has the devices and all that the kubelet gives exclusively.

        Of several containers on several NUMA nodes it is not known which uses what.
        """
        numas = {one.numa for one in self.devices}
        involved = {*self.zones, *numas} - {None}
        if len(involved) > 1:
            return NOT_ALIGNED if self.containers == 1 else ALIGNMENT_UNKNOWN
        return ALIGNMENT_UNKNOWN if None in numas else ALIGNED

    @property
    def sentence(self) -> str:
        """Where devices and the rest lie, or why there are none."""
        if not self.fits:
            return self.reason
        if not self.devices:
            return ""
        words = {ALIGNED: "aligned", NOT_ALIGNED: "not aligned", ALIGNMENT_UNKNOWN: "alignment not known"}
        rest = (
            f"CPUs and memory on {name_numas(cpuset.of(self.zones))}"
            if self.zones
            else "CPUs of the shared pool"
        )
        return f"{enumeration(list(self._places()))}, {rest}: {words[self.alignment]}"

    def _places(self) -> Iterator[str]:
        by_numa: dict[int | None, list[str]] = {}
        for one in self.devices:
            by_numa.setdefault(one.numa, []).append(one.full_name)
        for numa, names in by_numa.items():
            where = "a NUMA node that is not known" if numa is None else name_numas(1 << numa)
            yield f"{enumeration(names)} on {where}"


def device_answer(kind: PodKind, node: ClusterNode, zones: tuple[int, ...] | None) -> DeviceAnswer | None:
    """Return which devices the scheduler would allocate to a pod on a node; None: it needs none.

    Args:
        kind: the pod's.
        node: one that the scheduler's other filters let through.
        zones: NUMA nodes that the kubelet would give it something of; None: the kubelet rejects it.
    """
    requests = dict(kind.requests)
    why = CLAIMS_UNALLOCATED if kind.claims else scheduling.unallocated(requests, node)
    if not why or kind.allocated:
        return None
    if node.cluster_devices is None:
        return _unknown(kind, requests, node, zones, why)
    try:
        return _Question(kind, requests, node, node.cluster_devices, zones or ()).answer()
    except _NotKnown as error:
        found = _unknown(kind, requests, node, zones, f"{why}; {error}")
        return replace(found, aborts=True) if isinstance(error, _Aborted) else found


class _NotKnown(Exception):
    """Raised when the allocation is not known; the message says why."""


class _Aborted(_NotKnown):
    """The scheduler gives up on the pod."""


class _Question:
    """One pod on one node."""

    def __init__(
        self,
        kind: PodKind,
        requests: Mapping[str, int],
        node: ClusterNode,
        known: ClusterDevices,
        zones: tuple[int, ...],
    ) -> None:
        self._kind, self._requests, self._node, self._known, self._zones = kind, requests, node, known, zones
        self._held: list[ForeseenDevice] = []
        """Devices of claims that have an allocation."""

    def answer(self) -> DeviceAnswer:
        """Ask the allocator."""
        asked = []
        named = []
        for one in self._kind.claimed:
            claim = self._claim(one)
            if claim.allocated:
                if (other := self._hold(claim)) is not None:
                    return self._refusal(f"claim {claim.full_name} is allocated on node {other}", "")
                continue
            asked.append(claim)
            if not one.template:
                named.append(claim.full_name)
        asked += self._extended()
        outcome = self._known.allocate(Place(self._node.name, self._node.labels), asked)
        if isinstance(outcome, Allocated):
            return self._fitting(outcome, named)
        if isinstance(outcome, DoesNotFit):
            return self._refusal(outcome.reason, outcome.message or CANNOT_ALLOCATE)
        if isinstance(outcome, AllocationFailed):
            raise _Aborted(f"the scheduler gives up on the pod: {outcome.message}")
        raise _NotKnown(outcome.reason)

    def _fitting(self, outcome: Allocated, named: list[str]) -> DeviceAnswer:
        given = [one for claim in outcome.claims for one in claim.devices]
        return DeviceAnswer(
            True,
            devices=(*self._held, *(_foreseen(one.request, one.device) for one in given)),
            zones=self._zones,
            containers=sum(one.kind is not ContainerKind.INIT for one in self._kind.admission.containers),
            after=self._known.after(outcome, named) if given else self._known,
            elsewhere=bool(named) or any(not one.device.node for one in given),
        )

    def _refusal(self, reason: str, message: str) -> DeviceAnswer:
        return DeviceAnswer(False, reason, message or reason, zones=self._zones)

    def _claim(self, one: PodClaim) -> DeviceClaim:
        claims = self._known.claims
        if claims is None:
            raise _NotKnown(NO_CLAIMS)
        if one.claim:
            if one.claim not in claims:
                raise _NotKnown(f"ResourceClaim {one.claim} is not known")
            return claims[one.claim]
        if one.template not in self._known.templates:
            raise _NotKnown(
                f"ResourceClaimTemplate {one.template} is not known, and no claim was made from it"
            )
        return self._known.templates[one.template]

    def _hold(self, claim: DeviceClaim) -> str | None:
        """Take in what a claim holds; return the node where that is, if it is another one."""
        for one in claim.allocations:
            device = self._known.published.get(one.device)
            if device is None or not device.node:
                raise _NotKnown(
                    f"it is not known on which node {'/'.join(one.device)} of claim {claim.full_name} is"
                )
            if device.node != self._node.name:
                return device.node
            self._held.append(_foreseen(one.request, device))
        return None

    def _extended(self) -> list[DeviceClaim]:
        """The claim that the scheduler makes of extended resources; none where there are none."""
        if not scheduling.unallocated(self._requests, self._node):
            return []
        minor, problem = _EXTENDED_SINCE
        if self._known.minor < minor:
            raise _NotKnown(problem)
        pod = self._kind.admission
        mapped = classes_by_resource(self._known.classes.values())
        found = extended_claim(_spec(self._kind), mapped, self._node.allocatable)
        return [found.claim(pod.namespace, pod.name)] if found.requests else []


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


def _foreseen(request: str, device: PublishedDevice) -> ForeseenDevice:
    return ForeseenDevice(request, device.driver, device.pool, device.name, device.numa)


def _unknown(
    kind: PodKind,
    requests: Mapping[str, int],
    node: ClusterNode,
    zones: tuple[int, ...] | None,
    why: str,
) -> DeviceAnswer:
    """Say why nothing is foreseen, and where free devices are."""
    if zones is not None:
        classes = frozenset() if kind.claims else scheduling.classes_asked(requests, node)
        if known := device_allocation.outlook(node, zones, classes):
            why = f"{why}; {known}"
    return DeviceAnswer(None, why, zones=zones or ())
