"""The outcome of the topology manager's walk over all combinations of hints, without walking.

The walk takes one hint of each list, the last list fastest, and keeps the best set so far: one with fewer
NUMA nodes replaces it, or as many with lower ids *whatever the score*, or as many with a higher score. So
the outcome depends on the order, and eight NUMA nodes have millions of combinations. But combinations that
agree in what they have narrowed down to so far go on alike; a run over some of them is summarised by the few
sets that could be the first to replace the best one, each with what the rest of the run makes of it.
Summaries of runs that follow each other are joined.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias


class Offer(NamedTuple):
    """One hint of a list."""

    numas: int
    """All NUMA nodes where the hint names none."""
    named: bool
    score: int
    unsatisfied: bool


class Found(NamedTuple):
    """A combination, as far as the walk compares it."""

    numas: int
    score: int
    unsatisfied: bool


_Run: TypeAlias = tuple[tuple[Found, Found], ...]
"""(set that may replace the best one, what is best at the end if it does), in the order of the walk."""


class Walk:
    """The walk over the combinations of some lists."""

    def __init__(self, lists: Sequence[Sequence[Offer]]) -> None:
        self.lists = lists
        self._runs: dict[tuple[int, int, int, int, bool], _Run] = {}

    def outcome(self, start: Found) -> Found:
        """Return what is best after the walk, beginning with all NUMA nodes."""
        return _after(self._run(0, start.numas, 0, 0, unsatisfied=False), start)

    def _run(self, depth: int, numas: int, score: int, widest: int, *, unsatisfied: bool) -> _Run:
        """Return the outcome of all combinations that begin with hints that come to a set.

        ``score`` is that of the hints that are this very set, ``widest`` the size of the largest named one.
        """
        if not numas:
            return ()
        if depth == len(self.lists):
            differs = widest not in {0, numas.bit_count()}
            found = Found(numas, score, unsatisfied or differs)
            return ((found, found),)
        key = depth, numas, score, widest, unsatisfied
        if key not in self._runs:
            run: _Run = ()
            for offer in self.lists[depth]:
                narrowed = numas & offer.numas
                kept = score if narrowed == numas else 0
                own = offer.score if offer.named and offer.numas == narrowed else 0
                size = offer.numas.bit_count() if offer.named else 0
                rest = self._run(
                    depth + 1,
                    narrowed,
                    kept + own,
                    max(widest, size),
                    unsatisfied=unsatisfied or offer.unsatisfied,
                )
                run = _join(run, rest)
            self._runs[key] = run
        return self._runs[key]


def _after(run: _Run, best: Found) -> Found:
    """Return what is best after a run."""
    return next((end for found, end in run if replaces(found, best)), best)


def _join(first: _Run, second: _Run) -> _Run:
    """Join two runs, one after the other."""
    joined = [(found, _after(second, end)) for found, end in first]
    for found, end in second:
        if not any(_covers(earlier, found) for earlier, _ in joined):
            joined.append((found, end))
    return tuple(joined)


def _covers(earlier: Found, later: Found) -> bool:
    """Return whether the earlier set has replaced whatever the later one would replace."""
    one, other = earlier.numas.bit_count(), later.numas.bit_count()
    if one != other:
        return one < other
    return earlier.numas <= later.numas and earlier.score >= later.score


def replaces(new: Found, best: Found) -> bool:
    """Return whether a set replaces an equally preferred one: fewer NUMA nodes, else lower ids, or score."""
    one, other = new.numas.bit_count(), best.numas.bit_count()
    if one != other:
        return one < other
    return new.numas < best.numas or new.score > best.score
