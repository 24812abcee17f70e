"""Devices and amounts that claims hold already, as the scheduler's plugin counts them.

Rules: ``pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go`` of Kubernetes 1.36. Access for
administration holds nothing. It does not matter whether a pod uses the claim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from numazones.dra.claims import DeviceClaim
from numazones.dra.devices import Key


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that are taken, and what is taken of shared ones."""

    devices: frozenset[Key] = frozenset()
    """Those that nobody else can have."""
    shared: frozenset[Key] = frozenset()
    """Those that have been allocated at least once in a part."""
    capacity: Mapping[Key, Mapping[str, int]] = field(default_factory=dict, hash=False)
    """Shared device → capacity → amount taken, in nano units."""

    @classmethod
    def of_claims(cls, claims: Iterable[DeviceClaim], *, shares: bool = True) -> "AllocatedDevices":
        """Return what claims hold together.

        Args:
            claims: those with an allocation, and more.
            shares: whether devices can be shared (DRAConsumableCapacity).
        """
        devices: set[Key] = set()
        shared: set[Key] = set()
        capacity: dict[Key, dict[str, int]] = {}
        for claim in claims:
            for one in claim.allocations:
                if one.admin:
                    continue
                if not (shares and one.share):
                    devices.add(one.device)
                    continue
                shared.add(one.device)
                if one.consumes:
                    amounts = capacity.setdefault(one.device, {})
                    for name, amount in one.consumed.items():
                        amounts[name] = amounts.get(name, 0) + amount.nanos
        return cls(frozenset(devices), frozenset(shared), capacity)

    def with_more(self, more: "AllocatedDevices") -> "AllocatedDevices":
        """Return the sum of both."""
        capacity = {key: dict(amounts) for key, amounts in self.capacity.items()}
        for key, amounts in more.capacity.items():
            taken = capacity.setdefault(key, {})
            for name, amount in amounts.items():
                taken[name] = taken.get(name, 0) + amount
        return AllocatedDevices(self.devices | more.devices, self.shared | more.shared, capacity)

    def holds(self, device: Key) -> bool:
        """Return whether any claim holds a device or a part of it."""
        return device in self.devices or device in self.shared or device in self.capacity
