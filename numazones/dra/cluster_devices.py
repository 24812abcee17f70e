"""All objects of dynamic resource allocation that the scheduler decides from, as one value for all nodes.

The scheduler is at least as new as the newest kubelet, so that one names the allocator's rules; its feature
gates are taken to be the defaults.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import Allocated, AllocationOutcome, AllocationUnknown
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Key, PublishedDevice, Slice
from numazones.dra.rules import AllocatorRules, UnknownRules, rules
from numazones.dra.slices import AllocationNode, DeviceSlices
from numazones.dra.uses import PodClaim

NO_CLAIMS: Final = "no ResourceClaims were read, so it is not known which devices are taken"


@dataclass(frozen=True, slots=True, eq=False)
class ClusterDevices:
    """Inputs of the scheduler's allocator."""

    slices: DeviceSlices
    published: Mapping[Key, PublishedDevice]
    classes: Mapping[str, DeviceClass]
    claims: Mapping[str, DeviceClaim] | None
    """NAMESPACE/NAME → claim; None: not known."""
    templates: Mapping[str, DeviceClaim]
    """NAMESPACE/NAME of a ResourceClaimTemplate → what it makes."""
    rules: AllocatorRules | str
    """Those of the scheduler, or why they are not known."""
    version: str
    """Release of the newest kubelet."""
    allocated: AllocatedDevices = field(default_factory=AllocatedDevices)

    @property
    def minor(self) -> int:
        """The minor release of the newest kubelet; 0: not known."""
        return (*_numbers(self.version), 0, 0)[1]

    @classmethod
    def of(
        cls,
        slices: Sequence[Slice],
        classes: Iterable[DeviceClass],
        claims: Iterable[DeviceClaim] | None,
        templates: Iterable[DeviceClaim] = (),
        *,
        version: str,
    ) -> Self:
        """Put the objects of a cluster together.

        Args:
            slices: in the order in which they are listed.
            classes: all DeviceClasses.
            claims: all ResourceClaims; None: not known.
            templates: ResourceClaimTemplates, as far as they are known.
            version: of the newest kubelet; empty: not known.
        """
        known = None if claims is None else {one.full_name: one for one in claims}
        found = allocator_rules(version)
        return cls(
            DeviceSlices(slices),
            {device.key: device for one in slices for device in one.devices},
            {one.name: one for one in classes},
            known,
            {one.full_name: one for one in templates},
            found,
            version,
            AllocatedDevices.of_claims(() if known is None else known.values(), shares=shares_devices(found)),
        )

    def allocate(self, place: AllocationNode, claims: Sequence[DeviceClaim]) -> AllocationOutcome:
        """Return which devices claims would get on a node."""
        if isinstance(self.rules, str):
            return AllocationUnknown(self.rules)
        if self.claims is None:
            return AllocationUnknown(NO_CLAIMS)
        from numazones.dra.allocator import Allocator  # noqa: PLC0415 - few pods have claims

        return Allocator(self.slices, self.classes, self.allocated, self.rules).allocate(place, claims)

    def read(self, one: PodClaim) -> DeviceClaim | None:
        """Return the claim of a pod, or what its template makes; None: neither is known."""
        if one.claim:
            return (self.claims or {}).get(one.claim)
        return self.templates.get(one.template)

    def settled(self, one: PodClaim) -> PodClaim:
        """Return the claim by its template as long as it has nothing that the template does not say.

        So pods of one template still share an answer once their claims are made.
        """
        made, template = self.read(one), self.templates.get(one.template)
        if made is None or template is None or made.allocated:
            return one
        same = (made.requests, made.constraints, made.configurations) == (
            template.requests,
            template.constraints,
            template.configurations,
        )
        return one._replace(claim="") if same else one

    def without(self, names: Iterable[str]) -> "ClusterDevices":
        """Return the same once claims are deleted; shares of devices stay taken."""
        known = self.claims or {}
        gone = {name: known[name] for name in names if name in known}
        held = [one for claim in gone.values() for one in claim.allocations if not (one.share or one.admin)]
        left = {name: claim for name, claim in known.items() if name not in gone} if gone else self.claims
        return replace(self, claims=left, allocated=self.allocated.without(one.device for one in held))

    def after(self, outcome: Allocated, named: Iterable[str] = ()) -> "ClusterDevices":
        """Return the same with devices allocated.

        ``named``: NAMESPACE/NAME of the claims in it that other pods may use, too.
        """
        made = {one.full_name: one.allocations for one in outcome.made}
        claims = self.claims or {}
        held = {
            name: replace(claims[name], allocated=True, allocations=made[name])
            for name in named
            if name in made and name in claims
        }
        if held:
            claims = ChainMap(held, *(claims.maps if isinstance(claims, ChainMap) else (claims,)))
        more = AllocatedDevices.of_claims(DeviceClaim("", "", allocations=one) for one in made.values())
        return replace(self, claims=claims, allocated=self.allocated.with_more(more))


def newest(versions: Iterable[str]) -> str:
    """Return the newest of kubelets' versions; those that are no version are left out.

    >>> newest(["v1.35.4", "v1.36.2", "v1.9.0", "mine"])
    'v1.36.2'
    """
    readable = [(numbers, text) for text in versions if (numbers := _numbers(text))]
    return max(readable, default=((), ""))[1]


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.removeprefix("v").split(".")[:2]
    return tuple(map(int, parts)) if len(parts) > 1 and all(part.isdecimal() for part in parts) else ()


def shares_devices(found: AllocatorRules | str) -> bool:
    """Return whether pods can share devices (DRAConsumableCapacity); not where the rules are not known."""
    return isinstance(found, AllocatorRules) and found.consumable


def allocator_rules(version: str) -> AllocatorRules | str:
    """Return the rules of the scheduler that goes with kubelets of a version, or why they are not known."""
    if not version:
        return "the scheduler's release is unknown, because no Node reports its kubelet's version"
    try:
        return rules(version)
    except UnknownRules as error:
        return str(error)
