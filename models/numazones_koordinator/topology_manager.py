"""Merging hints of several resources to one set of NUMA nodes.

Rules: ``frameworkext/topologymanager``. Released code walks over every combination of one hint per list,
the last list fastest, and keeps the best so far. Among *preferred* combinations, where all sets are equal,
that comes to one walk over the sets that all lists prefer. Where no combination is preferred the outcome
depends on the order of the walk (``combination``); lists are then in the order of their names, those of
NUMA amounts before those of devices (upstream's order is random).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from numazones import cpuset
from numazones_koordinator.annotations import Exclusive, TopologyPolicy
from numazones_koordinator.books import Use
from numazones_koordinator.combination import Found, Offer, Walk, replaces
from numazones_koordinator.status import SchedulerCrash, unschedulable


class Hint(NamedTuple):
    """A set of NUMA nodes that could serve (None: any), with how good it is."""

    numas: int | None
    preferred: bool
    score: int = 0
    unsatisfied: bool = False
    """The set does not hold what is asked."""


Hints: TypeAlias = Mapping[str, Sequence[Hint]]
"""Resource or device type → hints; an empty list: it can be had nowhere."""

_MERGED_POLICIES = frozenset(
    {TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE}
)
_INDIFFERENT = (Hint(None, preferred=True),)
_IMPOSSIBLE = (Hint(None, preferred=False, unsatisfied=True),)


@dataclass(frozen=True, slots=True)
class Exclusivity:
    """Sets of NUMA nodes that a pod avoids because of how others use them."""

    required: bool
    uses: tuple[Use, ...]
    """Of the NUMA nodes 0, 1, … as released code lists them: it asks by id."""

    def violated_by(self, numas: int) -> bool:
        """Return whether the set mixes pods of one NUMA node with pods that span several.

        Raises:
            SchedulerCrash: an id is not below the number of NUMA nodes.
        """
        if not self.required:
            return False
        if numas.bit_count() == 1:
            return self._use(numas.bit_length() - 1) is Use.SHARED
        return any(self._use(numa) is Use.SINGLE for numa in cpuset.ids(numas))

    def _use(self, numa: int) -> Use:
        if numa >= len(self.uses):
            raise SchedulerCrash(
                f"koord-scheduler crashes: it looks up NUMA node {numa} in a list of {len(self.uses)}; "
                "the node's NUMA ids have gaps, and the pod requires exclusivity, which is the default"
            )
        return self.uses[numa]


def exclusivity(word: str, uses: Iterable[Use]) -> Exclusivity:
    """Return the exclusivity that a pod asks for; words other than Required ask for none."""
    return Exclusivity(word == Exclusive.REQUIRED, tuple(uses))


@dataclass(frozen=True, slots=True)
class Merging:
    """Merge of the hints of one pod on one node.

    Raises:
        SchedulerCrash: the policy is none that the scheduler knows.
    """

    policy: str
    numa_ids: tuple[int, ...]
    exclusive: Exclusivity

    def __post_init__(self) -> None:
        if self.policy not in _MERGED_POLICIES:
            raise SchedulerCrash(
                f"koord-scheduler crashes: {self.policy!r} is not a NUMA topology policy; use BestEffort, "
                "Restricted or SingleNUMANode"
            )

    @property
    def every(self) -> int:
        """All NUMA nodes."""
        return _mask(self.numa_ids)

    @property
    def gaps(self) -> bool:
        """Return whether ids have gaps that may crash the scheduler, somewhere in its walk."""
        return self.exclusive.required and self.every.bit_length() > len(self.exclusive.uses)

    def preferred_hint(self, providers: Sequence[Hints | None]) -> Hint | None:
        """The best set that all lists prefer, if that can be told by these hints alone.

        Asked with the hints up to some size: further, larger sets could not change it.
        """
        if self.gaps:
            return None
        lists, impossible = _lists(providers)
        if impossible:
            return None
        best = _best_preferred(self._eligible(lists), self.every, self.exclusive)
        return None if best is None else self._policy_outcome(best)

    def best(self, providers: Sequence[Hints | None]) -> Hint:
        """The best set of NUMA nodes, by all hints.

        Raises:
            Rejected: the policy admits none.
            SchedulerCrash: see ``Exclusivity``.
        """
        lists, impossible = _lists(providers)
        if self.policy == TopologyPolicy.BEST_EFFORT:
            best = self._policy_outcome(self._best_combination(lists))
            self.exclusive.violated_by(best.numas or self.every)
            return best
        if impossible:
            if self.policy == TopologyPolicy.RESTRICTED:
                self.exclusive.violated_by(self.every)
            raise unschedulable(*(f"Unsatisfied NUMA {name}" for name in impossible))
        best = self._policy_outcome(self._best_combination(self._eligible(lists)))
        if best.numas is not None:
            self.exclusive.violated_by(best.numas)
        if not best.preferred:
            separator = "," if self.policy == TopologyPolicy.SINGLE_NUMA_NODE else " & "
            raise unschedulable(f"Unaligned NUMA Hint cause {separator.join(_summaries(providers))}")
        return best

    def _eligible(self, lists: Sequence[Sequence[Hint]]) -> Sequence[Sequence[Hint]]:
        """The hints that the policy looks at."""
        if self.policy != TopologyPolicy.SINGLE_NUMA_NODE:
            return lists
        return [[hint for hint in hints if _single(hint)] for hints in lists]

    def _policy_outcome(self, best: Hint) -> Hint:
        """Return what the policy makes of the best combination."""
        if self.policy == TopologyPolicy.BEST_EFFORT and best.unsatisfied:
            return Hint(self.every, preferred=False)
        if self.policy == TopologyPolicy.SINGLE_NUMA_NODE and best.numas == self.every:
            return Hint(None, best.preferred)
        return best

    def _best_combination(self, lists: Sequence[Sequence[Hint]]) -> Hint:
        """Return the best combination; if none is preferred, it matters under BestEffort only."""
        reached = self.every
        if self.gaps:
            narrowed = _reachable(lists, self.every)
            for numas in narrowed:
                self.exclusive.violated_by(numas)
            reached = min(narrowed, default=self.every)
        best = _best_preferred(lists, self.every, self.exclusive)
        if best is not None:
            return best
        if self.policy != TopologyPolicy.BEST_EFFORT:
            return Hint(reached, preferred=False)
        if any(hints is _IMPOSSIBLE for hints in lists):
            return Hint(self.every, preferred=False, unsatisfied=True)
        return _walk_outcome(lists, self.every)


@lru_cache(maxsize=256)
def _mask(numa_ids: tuple[int, ...]) -> int:
    """Return the set of some NUMA nodes; cached, as machines are of few kinds and each decision needs it."""
    return cpuset.of(numa_ids)


def _lists(providers: Sequence[Hints | None]) -> tuple[list[Sequence[Hint]], list[str]]:
    """Return the lists to merge, and the resources that no NUMA node has."""
    lists: list[Sequence[Hint]] = []
    impossible: list[str] = []
    for hints in providers:
        if not hints:
            lists.append(_INDIFFERENT)
            continue
        for name, offered in sorted(hints.items()):
            lists.append(offered or _IMPOSSIBLE)
            if not offered:
                impossible.append(name)
    return lists, impossible


def _summaries(providers: Sequence[Hints | None]) -> list[str]:
    """Return what each resource prefers, in words."""
    return sorted(_summary(name, offered) for hints in providers for name, offered in (hints or {}).items())


def _single(hint: Hint) -> bool:
    return hint.preferred and (hint.numas is None or hint.numas.bit_count() == 1)


def _best_preferred(lists: Sequence[Sequence[Hint]], every: int, exclusive: Exclusivity) -> Hint | None:
    """The best set that every list prefers, unless exclusivity demotes it."""
    scores: dict[int, int] | None = None
    for hints in lists:
        offered: dict[int, int] = {}
        for hint in hints:
            if not hint.preferred:
                continue
            if hint.numas is None:
                break
            offered[hint.numas] = hint.score
        else:
            scores = offered if scores is None else _score_sums(scores, offered)
    if scores is None:
        return None if exclusive.violated_by(every) else Hint(every, preferred=True)
    best: Found | None = None
    for numas, score in scores.items():
        # Devices may hint at NUMA nodes that the node does not list.
        inside = numas & every
        if inside and not exclusive.violated_by(inside):
            whole = inside == numas
            found = Found(inside, score if whole else 0, not whole)
            if best is None or replaces(found, best):
                best = found
    return None if best is None else Hint(best.numas, True, best.score, best.unsatisfied)


def _score_sums(scores: Mapping[int, int], offered: Mapping[int, int]) -> dict[int, int]:
    return {numas: score + offered[numas] for numas, score in scores.items() if numas in offered}


def _walk_outcome(lists: Sequence[Sequence[Hint]], every: int) -> Hint:
    """The outcome of the walk over all combinations, none of which is preferred."""
    offers = [
        [
            Offer(
                every if hint.numas is None else hint.numas,
                hint.numas is not None,
                hint.score,
                hint.unsatisfied,
            )
            for hint in hints
        ]
        for hints in lists
    ]
    found = Walk(offers).outcome(Found(every, 0, unsatisfied=False))
    return Hint(found.numas, False, found.score, found.unsatisfied)


def _reachable(lists: Sequence[Sequence[Hint]], every: int) -> set[int]:
    """All sets that combinations come to, but the empty one."""
    reached = {every}
    for hints in lists:
        reached = {
            narrowed
            for numas in reached
            for hint in hints
            if (narrowed := numas if hint.numas is None else numas & hint.numas)
        }
    return reached


def _summary(name: str, hints: Sequence[Hint]) -> str:
    possible = [hint for hint in hints if not hint.unsatisfied]
    preferred = " ".join(mask_text(hint.numas) for hint in possible if hint.preferred)
    return f"{name} prefer [{preferred}] among [{' '.join(mask_text(hint.numas) for hint in possible)}]"


def mask_text(numas: int | None) -> str:
    """A set as the scheduler's messages print it: binary, in an even number of digits most of the time."""
    if numas is None:
        return "<nil>"
    width = 2
    for digits in range(64, 2, -2):
        if numas > 1 << (digits - 2):
            width = digits
            break
    return format(numas, f"0{width}b")
