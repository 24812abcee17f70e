"""Rank pools for a container, in the order of the released code (``compareScores``).

Pools that don't fit are not left out, they only come last. The code's comparison is no order in two
cases; then the result depends on the sorting algorithm, and Go's is used: one pool has enough isolated
but not enough shared CPUs and another the reverse; and pools lie both above and below the level that an
unlimited burstable container wants, where the mirrored comparison names the wrong winner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from numazones.kubelet.demand import QOSClass
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.cpu_state import CPUState
from numazones_topology_aware.go_sort import go_sorted
from numazones_topology_aware.memory import Offer
from numazones_topology_aware.memory_types import PRESERVE
from numazones_topology_aware.policy import Policy
from numazones_topology_aware.pools import LEVELS, Pool, PoolKind
from numazones_topology_aware.request import Request

_MILLI = 1000

MEMORY_TO_BURST = "memory to burst into"
# What the elements of a standing's keys stand for, in order.
_FIRST = (
    "affinity",
    "topology hints",
    "topology hints",
    "depth, among equal topology hints",
    "lower id, among equal topology hints",
    "a memory offer",
    "exactly the wanted types of memory",
    MEMORY_TO_BURST,
)
_BURST = ("the wanted topology level", "CPU to burst into", "lower id")
_LAST = (
    "CPU up to the limit",
    "fewer NUMA nodes",
    "all wanted types of memory",
    "CPUs of the wanted priority",
    "depth",
    "more isolated CPUs",
    "lower id, among equal isolated CPUs",
    "CPUs of normal priority",
    "more sliceable CPUs",
    "lower id, among equal sliceable CPUs",
    "fewer colocated containers",
    "more shared CPUs",
    "lower id",
)
ENOUGH = "enough free CPUs"
CONTRADICTION = "the order of comparison: the code's rules contradict each other"


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a pool."""

    pool: Pool
    isolated: int
    """Isolated CPUs left over; 0 where none are wanted."""
    shared: int
    """Milli-CPU left over."""
    free: int
    """Milli-CPU free before."""
    priority: int
    """Milli-CPU left over on CPUs of the wanted priority."""
    colocated: int
    affinity: float
    hints: tuple[float, float] | None
    """Product of all hint scores, and of those that are not zero; None without hints."""
    offer: Offer | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores by pool id, and pool ids from best to worst."""

    scores: tuple[Score, ...]
    order: tuple[int, ...]
    contradictory: bool
    """The comparison was no order, so that the result hangs on the sorting algorithm."""
    standings: "tuple[_Standing, ...]" = field(repr=False)
    """In the order of the ranking."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Per place but the last, what put the pool before the next one."""
        return tuple(_reason(one, other) for one, other in pairwise(self.standings))


def cpu_score(
    policy: Policy, state: CPUState, request: Request, pool: Pool, free: int
) -> tuple[int, int, int]:
    """Isolated, shared and priority capacities of a score, from the free shared capacity."""
    cpu = request.cpu
    part = cpu.fraction or (0 if cpu.full else 1)
    isolated = state.isolated[pool.id].bit_count() - cpu.full if cpu.isolate else 0
    shared = free - part
    if not cpu.isolate or isolated < 0:
        shared -= _MILLI * cpu.full
    preferred = _preferred_cpus(policy, cpu.priority) & state.sharable[pool.id]
    return isolated, shared, _MILLI * (preferred.bit_count() - cpu.full) - part


def _preferred_cpus(policy: Policy, priority: Priority) -> int:
    """CPUs that count for a priority: for high all P-cores, which on a plain machine are all CPUs."""
    if priority is Priority.HIGH:
        return policy.topology.performance
    if priority is Priority.LOW and policy.topology.efficient:
        return policy.topology.efficient
    return 0 if priority is Priority.NONE else policy.cpus.classes[priority]


@dataclass(frozen=True, slots=True)
class _Standing:
    """A pool's score as it is compared: larger is better."""

    pool: int
    isolated: bool
    shared: bool
    first: tuple[Any, ...]
    level: int
    """Number of its level."""
    burst: tuple[int, ...]
    """Of an unlimited burstable container; decides all that is left."""
    last: tuple[Any, ...]

    def key(self) -> tuple[Any, ...]:
        return self.isolated, self.shared, self.first, self.burst, self.last


def rank(
    policy: Policy, request: Request, qos: QOSClass, scores: Sequence[Score], target: PoolKind
) -> Ranking:
    """Order the pools.

    ``target`` is the level that an unlimited burstable container of this kind goes to.
    """
    unlimited = qos is QOSClass.BURSTABLE and request.cpu.limit is None
    wanted = LEVELS[target]
    standings = [_standing(policy, request, qos, score, wanted if unlimited else None) for score in scores]
    precedes = _comparison(wanted if unlimited else None)
    contradictory = _contradictory(standings, wanted if unlimited else None, precedes)
    if contradictory:
        ordered = go_sorted(standings, precedes)
    else:
        ordered = sorted(standings, key=_Standing.key, reverse=True)
    return Ranking(
        tuple(scores),
        tuple(one.pool for one in ordered),
        contradictory,
        tuple(ordered),
    )


def _standing(policy: Policy, request: Request, qos: QOSClass, score: Score, wanted: int | None) -> _Standing:
    pool = score.pool
    level = LEVELS[pool.kind]
    burst: tuple[int, ...] = ()
    last: tuple[Any, ...] = ()
    if wanted is None:
        last = _last(request, qos, score)
    else:
        burst = (int(level == wanted), score.free if level == wanted else 0, -pool.id)
    return _Standing(
        pool.id, score.isolated >= 0, score.shared >= 0, _first(policy, request, score), level, burst, last
    )


def _first(policy: Policy, request: Request, score: Score) -> tuple[Any, ...]:
    """Affinity, hints, memory."""
    pool = score.pool
    all_hints, some_hints = score.hints or (0.0, 0.0)
    hinted = bool(all_hints or some_hints)
    offered = fits = room = 0
    if score.offer is not None:
        offered = 1
        fits = int(policy.memory.types_of(score.offer.zone) == request.memory_types)
        if request.memory != request.memory_limit:
            capacity = policy.memory.capacity(pool.memory_of(request.memory_types))
            room = int(capacity >= request.memory_limit) if request.memory_limit else capacity
    return (
        score.affinity,
        all_hints,
        0.0 if all_hints else some_hints,
        pool.depth if hinted else 0,
        -pool.id if hinted else 0,
        offered,
        fits,
        room,
    )


def _last(request: Request, qos: QOSClass, score: Score) -> tuple[Any, ...]:
    """Return the criteria after affinity, hints and memory."""
    pool, cpu = score.pool, request.cpu
    types = request.memory_types
    isolated = max(score.isolated, 0) if cpu.isolate else 0
    sliceable = max(score.shared, 0) if cpu.full else 0
    enough = score.priority >= 0
    limited = qos is QOSClass.BURSTABLE and cpu.limit is not None
    return (
        limited and score.free >= (cpu.limit or 0),
        -score.offer.zone.bit_count() if score.offer is not None else 0,
        types not in {0, PRESERVE} and pool.memory_types & types == types,
        enough if cpu.priority in {Priority.LOW, Priority.HIGH} else False,
        pool.depth,
        isolated,
        -pool.id if isolated else 0,
        enough if cpu.priority is Priority.NORMAL else False,
        sliceable,
        -pool.id if sliceable else 0,
        -score.colocated,
        score.shared,
        -pool.id,
    )


def _contradictory(
    standings: Sequence[_Standing], wanted: int | None, precedes: Callable[[_Standing, _Standing], bool]
) -> bool:
    """Return whether each of two pools comes before the other."""
    fits = {(one.isolated, one.shared) for one in standings}
    levels = {one.level for one in standings}
    possible = {(True, False), (False, True)} <= fits or (
        wanted is not None and min(levels) < wanted < max(levels)
    )
    return possible and any(
        precedes(one, other) and precedes(other, one) for one, other in combinations(standings, 2)
    )


def _comparison(wanted: int | None) -> Callable[[_Standing, _Standing], bool]:
    """The code's comparison, contradictions included: whether one pool comes before another."""

    def precedes(one: _Standing, other: _Standing) -> bool:
        if (one.isolated and not other.isolated) or (one.shared and not other.shared):
            return True
        if (other.isolated and not one.isolated) or (other.shared and not one.shared):
            return False
        if one.first != other.first:
            return one.first > other.first
        if wanted is not None:
            return _precedes_on_level(one, other, wanted)
        return one.last > other.last

    return precedes


def _precedes_on_level(one: _Standing, other: _Standing, wanted: int) -> bool:
    if wanted in {one.level, other.level}:
        return one.burst > other.burst
    if (one.level - wanted) * (other.level - wanted) < 0:
        return True  # right where the one lies below the wanted level, wrong where the other does
    return one.pool < other.pool


def _reason(one: _Standing, other: _Standing) -> str:
    """Return why one pool comes before the next."""
    if (one.isolated, one.shared) != (other.isolated, other.shared):
        return ENOUGH if one.isolated >= other.isolated and one.shared >= other.shared else CONTRADICTION
    for names, ours, theirs in (
        (_FIRST, one.first, other.first),
        (_BURST, one.burst, other.burst),
        (_LAST, one.last, other.last),
    ):
        for name, mine, its in zip(names, ours, theirs, strict=False):
            if mine != its:
                return name if mine > its else CONTRADICTION
    return CONTRADICTION
