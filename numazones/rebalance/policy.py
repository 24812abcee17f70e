"""A rebalance policy as a value: which pods may move, how many, where to, and for what gain."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from numazones.api.eviction_limits import EvictionLimits
from numazones.errors import NumazonesError
from numazones.rebalance.beneficiaries import Beneficiaries
from numazones.rebalance.protections import Protections


class ReplacementTarget(StrEnum):
    """Place where replacements may go."""

    OTHER = "Other"
    """Another node."""
    SAME = "Same"
    """The node they come from: a restart lets the kubelet align them anew."""
    ANY = "Any"


class InvalidPolicy(NumazonesError):
    """A policy contradicts itself; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that plans obey."""

    protections: Protections = field(default_factory=Protections)
    limits: EvictionLimits = field(default_factory=lambda: EvictionLimits(total=5))
    target: ReplacementTarget = ReplacementTarget.ANY
    beneficiaries: Beneficiaries = field(default_factory=Beneficiaries)
    """Waiting pods that plans make room for."""
    min_gain: int = 1
    """Hysteresis: a plan that gains less is not made."""
    cooldown: timedelta = timedelta(hours=1)
    """How long the pods of an owner rest on a node that one of them left or reached."""

    def __post_init__(self) -> None:
        if self.min_gain < 1:
            raise InvalidPolicy(
                f"minGain {self.min_gain} would allow plans that gain nothing; write 1 or more"
            )

    @property
    def max_evictions(self) -> int:
        """Return how many evictions a plan may have."""
        return _DEFAULT_EVICTIONS if self.limits.total is None else self.limits.total


_DEFAULT_EVICTIONS = 10
"""Where the policy sets no total: the search has to end somewhere."""
