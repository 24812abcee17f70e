"""Hints of both providers: the sets of NUMA nodes that could serve a pod.

Rules: ``nodenumaresource/resource_manager.GetTopologyHints`` and ``deviceshare/topology_hint``. Every set of
NUMA nodes is tried. Amounts: a set that one resource fails on is no hint for any; all hints are preferred
under Restricted, else the smallest. Devices: the smallest sets are preferred, for all types at once, and
sets that give the same GPUs as all NUMA nodes together score highest.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from math import comb

from numazones import cpuset
from numazones.apimachinery.resources import CPU
from numazones.errors import UnmodelledFeature
from numazones_koordinator.amounts import milli, whole
from numazones_koordinator.annotations import TopologyPolicy
from numazones_koordinator.device_books import (
    DeviceAllocation,
    DeviceBooks,
    check_present,
    give,
    minors,
)
from numazones_koordinator.device_inventory import GPU
from numazones_koordinator.device_request import DeviceRequest
from numazones_koordinator.scheduler import ScoringStrategy
from numazones_koordinator.scoring import counts, mean
from numazones_koordinator.status import (
    Code,
    Rejected,
    SchedulerCrash,
    status,
    unresolvable,
    unschedulable,
)
from numazones_koordinator.topology_manager import Hint
from numazones_koordinator.trial import Trials, Uncountable, numa_ids

NO_NUMA_RESOURCES = "node(s) Insufficient NUMA Node resources"
NO_SCOPED_DEVICES = "Insufficient NUMA Scoped Devices"
_SAME_DEVICES = 500
# Sets of one size that are tried at most; upstream would take minutes for more.
_MAX_SETS = 1 << 14
_MAX_NUMA_ID = 63


class NUMAHints:
    """Hints for the resources that NUMA nodes list, worked out size by size.

    Small sets decide most of the time, and a large machine has very many sets.

    Raises:
        Rejected: as Unschedulable, whatever fails inside.
        SchedulerCrash: a NUMA id is beyond what the scheduler's sets hold.
    """

    def __init__(self, trials: Trials, policy: str, *, scored: int | None = None) -> None:
        """Hints for a policy; ``scored`` is the size up to which scores matter (None: all)."""
        host = trials.node.host
        if host.ratio_error:
            raise Rejected(status(Code.ERROR, (host.ratio_error,)))
        if not host.zones:
            raise unschedulable(NO_NUMA_RESOURCES)
        try:
            trials.available()
        except Uncountable:
            raise unschedulable(NO_NUMA_RESOURCES) from None
        if not all(0 <= numa <= _MAX_NUMA_ID for numa in host.numa_ids):
            raise SchedulerCrash("koord-scheduler crashes on NUMA ids that are not between 0 and 63")
        asked = trials.request.amounts
        listed = [name for name in host.capacity if name in asked]
        self.trials = trials
        self.policy = policy
        self.ids = host.numa_ids
        self.lacking = {
            name: cpuset.of([numa for numa, left in trials.left_of(name).items() if not left])
            for name in sorted(listed)
        }
        """Resource → NUMA nodes that have none of it left."""
        self._scorer = _Scorer(trials)
        self._found: dict[str, list[Hint]] = {name: [] for name in self.lacking}
        self._size = 0
        self._all_preferred = policy == TopologyPolicy.RESTRICTED
        self._scored = len(self.ids) if scored is None else scored

    def all(self) -> dict[str, tuple[Hint, ...]]:
        """Every hint, by resource."""
        while self._size < len(self.ids):
            self._extend()
        return {name: tuple(hints) for name, hints in self._found.items()}

    def growing(self) -> Iterator[dict[str, tuple[Hint, ...]]]:
        """Hints up to some size, once every resource has one: larger sets are never preferred to these."""
        while self._size < len(self.ids):
            self._extend()
            if all(self._found.values()):
                yield {name: tuple(hints) for name, hints in self._found.items()}

    def _extend(self) -> None:
        """Try the sets of the next size."""
        self._size += 1
        for numas in masks_of_size(self.ids, self._size):
            wanted = [name for name, lacking in self.lacking.items() if not numas & lacking]
            if wanted and self.trials.fits(numas):
                score = self._scorer.score(numas) if self._size <= self._scored else 0
                preferred, other = Hint(numas, True, score), Hint(numas, False, score)
                for name in wanted:
                    found = self._found[name]
                    smallest = not found or _size(found[0]) == self._size
                    found.append(preferred if smallest or self._all_preferred else other)


class _Scorer:
    """Scores of sets of NUMA nodes for one pod.

    The weights are those of ``scoringStrategy``: the scheduler ignores the NUMA strategy's own.
    """

    def __init__(self, trials: Trials) -> None:
        host = trials.node.host
        scheduler = host.scheduler
        self.strategy = ScoringStrategy(scheduler.numa_scoring.most_allocated, scheduler.scoring.weights)
        self.asked = trials.counted
        self.weighted = [
            (name, weight, host.capacity.get(name, {}), trials.left_of(name))
            for name, weight in self.strategy.weights
            if counts(name, self.asked)
        ]
        """(resource, weight, NUMA id → all of it, NUMA id → what is left of it)"""

    def score(self, numas: int) -> int:
        """Return the score of a set."""
        ids = numa_ids(numas)
        parts = []
        for name, weight, all_, left in self.weighted:
            total = rest = 0
            for numa in ids:
                total += all_.get(numa, 0)
                rest += left[numa]
            count = milli if name == CPU else whole
            used = count(max(0, total - rest))
            parts.append((weight, used + self.asked.get(name, 0), count(total)))
        return mean(self.strategy, parts)


def device_hints(books: DeviceBooks, request: DeviceRequest) -> dict[str, tuple[Hint, ...]]:
    """Hints for the devices asked for, by device type; none if no device's NUMA node is known.

    Raises:
        Rejected: with the reason why all NUMA nodes together cannot serve, even if fewer could.
    """
    ids = books.inventory.numa_ids
    found: list[tuple[int, DeviceAllocation]] = []
    best: DeviceAllocation = {}
    for numas in masks(ids):
        try:
            check_present(books, request)
            _check_placed(books, request, numas)
            given = give(books, request, numas=numas)
        except Rejected:
            if numas.bit_count() == len(ids):
                raise
            continue
        found.append((numas, given))
        if numas.bit_count() == len(ids):
            best = given
    smallest = min((numas.bit_count() for numas, _ in found), default=0)
    hints = tuple(
        Hint(
            numas,
            numas.bit_count() == smallest,
            _SAME_DEVICES if minors(given, GPU) == minors(best, GPU) else 0,
        )
        for numas, given in found
    )
    return dict.fromkeys(request.types, hints) if hints else {}


def _check_placed(books: DeviceBooks, request: DeviceRequest, numas: int) -> None:
    """Reject a set with fewer devices of a type than asked for; one with none at all may pass."""
    placed = books.inventory.device_counts(numas)
    for type_ in request.types:
        if type_ in placed and placed[type_] < request.shares[type_].count:
            raise unresolvable(NO_SCOPED_DEVICES)


def masks(ids: Iterable[int]) -> Iterator[int]:
    """All sets of NUMA nodes but the empty one, small ones first."""
    listed = tuple(ids)
    for size in range(1, len(listed) + 1):
        yield from masks_of_size(listed, size)


@lru_cache(maxsize=256)
def masks_of_size(ids: tuple[int, ...], size: int) -> tuple[int, ...]:
    """All sets of so many NUMA nodes.

    Raises:
        UnmodelledFeature: there are too many.
    """
    if comb(len(ids), size) > _MAX_SETS:
        raise UnmodelledFeature(
            f"{len(ids)} NUMA nodes form too many sets to try, so nothing is predicted for this machine"
        )
    return tuple(cpuset.of(part) for part in combinations(ids, size))


def _size(hint: Hint) -> int:
    return (hint.numas or 0).bit_count()
