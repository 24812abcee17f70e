"""Scores: how much of the weighted resources is, or would be, in use.

Rules: ``nodenumaresource/{scoring,least_allocated,most_allocated}``, ``deviceshare/scoring``. All divisions
drop the fraction.
"""

from collections.abc import Iterable

from numazones_koordinator.amounts import Amounts, Counted, whole
from numazones_koordinator.scheduler import ScoringStrategy

_BEST = 100
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


def score(strategy: ScoringStrategy, *, requested: Counted, capacity: Counted, asked: Counted) -> int:
    """The mean over the weighted resources of a node, or of some NUMA nodes, after the pod's placement.

    Resources without capacity are left out, as are extended resources that the pod does not ask for.
    """
    return mean(
        strategy,
        [
            (weight, requested.get(name, 0) + asked.get(name, 0), capacity.get(name, 0))
            for name, weight in strategy.weights
            if counts(name, asked)
        ],
    )


def mean(strategy: ScoringStrategy, parts: Iterable[tuple[int, int, int]]) -> int:
    """The score of (weight, requested, capacity) of some resources; without capacity one is left out."""
    total = weights = 0
    for weight, requested, capacity in parts:
        if capacity:
            total += weight * _one(strategy, requested, capacity)
            weights += weight
    return total // weights if weights else 0


def score_device(strategy: ScoringStrategy, asked: Amounts, total: Amounts, free: Amounts) -> int:
    """The score of one device."""
    parts = []
    for name, weight in strategy.weights:
        requested = capacity = total.get(name, 0)
        if capacity >= free.get(name, 0):
            requested += asked.get(name, 0) - free.get(name, 0)
        parts.append((weight, whole(requested), whole(capacity)))
    return mean(strategy, parts)


def counts(name: str, asked: Counted) -> bool:
    """Return whether a resource counts in a pod's score."""
    return name in _NATIVE or bool(asked.get(name)) or not _is_extended(name)


def _is_extended(name: str) -> bool:
    """Resources that the scheduler counts by name, and that say nothing about pods without them."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def _one(strategy: ScoringStrategy, requested: int, capacity: int) -> int:
    if strategy.most_allocated:
        return _quotient(min(requested, capacity) * _BEST, capacity)
    if requested > capacity:
        return 0
    return _quotient((capacity - requested) * _BEST, capacity)


def _quotient(number: int, divisor: int) -> int:
    """Divide integers, rounding towards zero as Go does."""
    result = abs(number) // abs(divisor)
    return result if (number < 0) == (divisor < 0) else -result
