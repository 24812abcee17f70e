"""Rules of the scheduler's structured allocator: which implementation decides, by release and feature gates.

Kubernetes 1.36 has three implementations and takes the first that supports all enabled features; a release
differs from another by the features that are on and by the quirks named here. The reference is 1.36.3. The
allocator of 1.34 and 1.35 takes pools in random order; an answer is given where every order leads to it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from numazones.errors import NumazonesError

STABLE, INCUBATING, EXPERIMENTAL = "stable", "incubating", "experimental"
ADMIN_ACCESS: Final = "DRAAdminAccess"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"
PARTITIONABLE: Final = "DRAPartitionableDevices"
TAINTS: Final = "DRADeviceTaints"
BINDING: Final = "DRADeviceBindingConditions"
CLAIM_STATUS: Final = "DRAResourceClaimDeviceStatus"
CONSUMABLE: Final = "DRAConsumableCapacity"
LISTS: Final = "DRAListTypeAttributes"
OLDEST, NEWEST = 34, 36
_EXTENDED_SINCE: Final = 36
_ON_BY_DEFAULT: Mapping[int, frozenset[str]] = {
    34: frozenset({ADMIN_ACCESS, PRIORITIZED_LIST, CLAIM_STATUS}),
    35: frozenset({ADMIN_ACCESS, PRIORITIZED_LIST, CLAIM_STATUS}),
    36: frozenset({ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, TAINTS, BINDING, CLAIM_STATUS, CONSUMABLE}),
}
_VERSION = re.compile(r"v?1\.([0-9]{1,3})(?:\D.*)?")


class UnknownRules(NumazonesError):
    """It is not known how the allocator of a release, or with a feature, decides; the message says which."""


@dataclass(frozen=True, slots=True)
class AllocatorRules:
    """What the allocator does; made by ``rules``."""

    implementation: str = INCUBATING
    admin_access: bool = True
    prioritized_list: bool = True
    partitionable: bool = True
    taints: bool = True
    binding: bool = True
    consumable: bool = True
    lists: bool = False
    """Whether constraints take lists as sets."""
    lists_in_selectors: bool = False
    sorted: bool = True
    """Whether pools and their slices are taken in the order of their names; otherwise pools are in random
    order, and slices in the order in which they are listed."""
    combinations: bool = True
    """Whether the devices of one request are tried in ascending order; otherwise in all orders."""
    loses_alternative: bool = False
    """Whether a request for all devices within alternatives goes on with the first one (1.35)."""

    @property
    def checks_capacity(self) -> bool:
        """Whether a request for capacity is an error without the feature; otherwise it is ignored."""
        return self.implementation != STABLE

    @property
    def distinct(self) -> bool:
        """Whether there are constraints for distinct values."""
        return self.consumable


def rules(version: str = "1.36", gates: Mapping[str, bool] | None = None) -> AllocatorRules:
    """Return the rules of a scheduler.

    Args:
        version: its release, such as ``v1.36.2``.
        gates: its feature gates as far as they differ from the defaults.

    Raises:
        UnknownRules: the release is older than 1.34, or its allocator has a feature that is not modelled.

    >>> rules("v1.36.2").implementation
    'incubating'
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise UnknownRules(f"{version!r:.40} is not a Kubernetes version; write one such as v1.36.2")
    minor = min(int(found[1]), NEWEST)
    if minor < OLDEST:
        raise UnknownRules(
            f"the allocator of Kubernetes 1.{minor} is not modelled; the oldest one modelled is 1.{OLDEST}"
        )
    configured = {**dict.fromkeys(_ON_BY_DEFAULT[minor], True), **(gates or {})}
    on = {name for name, value in configured.items() if value}
    if minor < NEWEST:
        return _older(minor, on)
    return of_features(on - {LISTS}, lists_in_selectors=LISTS in on)


def serves_extended_resources(minor: int) -> bool:
    """Return whether DeviceClasses serve extended resources (DRAExtendedResource, on since 1.36)."""
    return minor >= _EXTENDED_SINCE


def of_features(
    on: set[str], *, lists_in_selectors: bool = False, implementation: str | None = None
) -> AllocatorRules:
    """Return the rules of 1.36's allocator with these features.

    Args:
        on: feature gates that are on, ``DRAListTypeAttributes`` only where the allocator gets it too.
        lists_in_selectors: whether expressions may read lists.
        implementation: the one to use; None: the first that supports the features.
    """
    binding = BINDING in on and CLAIM_STATUS in on
    if implementation is None:
        beyond = EXPERIMENTAL if LISTS in on else INCUBATING if binding or CONSUMABLE in on else STABLE
        implementation = beyond
    stable = implementation == STABLE
    return AllocatorRules(
        implementation=implementation,
        admin_access=ADMIN_ACCESS in on,
        prioritized_list=PRIORITIZED_LIST in on,
        partitionable=PARTITIONABLE in on,
        taints=TAINTS in on,
        binding=binding and not stable,
        consumable=CONSUMABLE in on and not stable,
        lists=LISTS in on and implementation == EXPERIMENTAL,
        lists_in_selectors=lists_in_selectors,
        sorted=not stable,
        combinations=not stable,
    )


def _older(minor: int, on: set[str]) -> AllocatorRules:
    beyond = sorted(
        on & {PARTITIONABLE, TAINTS, CONSUMABLE, LISTS, *([BINDING] if CLAIM_STATUS in on else [])}
    )
    if beyond:
        raise UnknownRules(f"the allocator of Kubernetes 1.{minor} is not modelled with {beyond[0]} enabled")
    return AllocatorRules(
        implementation=INCUBATING,
        admin_access=ADMIN_ACCESS in on,
        prioritized_list=PRIORITIZED_LIST in on,
        partitionable=False,
        taints=False,
        binding=False,
        consumable=False,
        sorted=False,
        combinations=False,
        loses_alternative=minor == 35,  # noqa: PLR2004 - that release alone
    )
