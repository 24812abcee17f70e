"""The Topology Manager: merging hints, four policies, two scopes (KEP-693).

The kubelet walks over every combination of hints, one per resource: a product that grows beyond all
bounds. The order of its walk does not matter, since its comparison is a total preorder, so the
winner is found directly: first among masks that every resource prefers; only if there are none,
under best-effort, among all intersections, which are counted with sums over supersets (the number of
ways to reach an intersection) instead of being listed.

KEP-6007's tie-break (``prefer-most-allocated-numa-node``) is not transitive and therefore is
applied as the kubelet does it, in one pass over the candidates by increasing NUMA id.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, compress
from operator import add, mul, or_, sub

from numazones import cpuset
from numazones.kubelet import cures, effort, go
from numazones.kubelet.config import (
    BEST_EFFORT,
    POLICY_NONE,
    SCOPE_POD,
    SINGLE_NUMA_NODE,
    InvalidConfiguration,
    KubeletConfiguration,
    option_unavailable,
)
from numazones.kubelet.hints import Hint, ResourceHints, masks_of_size
from numazones.kubelet.machine import Machine
from numazones.kubelet.rejection import KubeletCrash
from numazones.kubelet.versions import (
    ALLOCATION_STRATEGY,
    MAX_ALLOWABLE,
    PREFER_CLOSEST,
    PREFER_MOST_ALLOCATED,
    SCORE_WEIGHTS,
    TOPOLOGY_ALPHA_OPTIONS,
    TOPOLOGY_BETA_OPTIONS,
)

TieBreaker = Callable[[int, int], bool]
"""Whether the first of two NUMA ids is to be preferred to the second; False: undecided as well."""
Scorer = Callable[[str, int], int]
"""(resource, NUMA mask) → how much of it is allocated there, in per cent, at least 1; 0: not known."""

MOST_ALLOCATED, LEAST_ALLOCATED, NO_STRATEGY = "most-allocated", "least-allocated", "none"
_STRATEGIES = {MOST_ALLOCATED: -1, LEAST_ALLOCATED: 1, NO_STRATEGY: 0}
_MAX_WEIGHT = 100
_Weighed = tuple[int, int, int]
"""(NUMA mask, sum of weights, sum of weighted scores) of some hints merged."""

DEFAULT_MAX_NUMA_NODES = 8


@dataclass(frozen=True, slots=True)
class TopologyManager:
    """Values that the Topology Manager derives from configuration and machine when the kubelet starts."""

    policy: str
    pod_scope: bool
    numa_mask: int
    prefer_closest: bool = False
    prefer_most_allocated: bool = False
    distances: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    """NUMA id → distances, indexed by NUMA id as the kubelet does."""
    unmaskable: tuple[int, ...] = ()
    """Ids of NUMA nodes that the kubelet's sets cannot hold."""
    strategy: int = 0
    """numa-allocation-strategy: the sign with which scores sort; 0: they don't count."""
    weights: Mapping[str, int] = field(default_factory=dict, hash=False)
    """numa-score-weights: resource → weight; 1 for the others."""

    @classmethod
    def start(cls, config: KubeletConfiguration, machine: Machine) -> "TopologyManager":
        """Set the policy up.

        Raises:
            InvalidConfiguration: as the kubelet rejects it.
        """
        if config.topology_manager_policy == POLICY_NONE:
            return cls(POLICY_NONE, pod_scope=False, numa_mask=machine.numa_mask)
        options = _Options.read(config)
        closest = PREFER_CLOSEST in options.on
        if closest and any(node.distances is None for node in machine.numa_nodes):
            raise InvalidConfiguration(
                "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
            )
        if len(machine.numa_nodes) > options.max_allowable:
            raise InvalidConfiguration(
                f"unsupported on machines with more than {options.max_allowable} NUMA Nodes",
                cure=_many_nodes_cure(machine),
            )
        return cls(
            policy=config.topology_manager_policy,
            pod_scope=config.topology_manager_scope == SCOPE_POD,
            numa_mask=machine.numa_mask,
            prefer_closest=closest and config.topology_manager_policy != SINGLE_NUMA_NODE,
            prefer_most_allocated=(
                PREFER_MOST_ALLOCATED in options.on and config.topology_manager_policy == SINGLE_NUMA_NODE
            ),
            strategy=options.strategy,
            weights=options.weights,
            distances={node.id: node.distances or () for node in machine.numa_nodes},
            unmaskable=machine.unmaskable,
        )

    def check(self) -> None:
        """Raise ``KubeletCrash`` where the kubelet would crash on every pod, whatever the pod asks for."""
        effort.check_ids(self.unmaskable, f"topologyManagerPolicy {self.policy}")

    def merge(
        self,
        hints: Sequence[ResourceHints],
        tie_breaker: TieBreaker | None = None,
        score: Scorer | None = None,
    ) -> tuple[Hint, bool]:
        """Return the merged hint, and whether the policy admits it.

        A rejected hint is worked out only under best-effort, which never rejects.

        Raises:
            KubeletCrash: distances of NUMA nodes with gaps in their ids would be compared.
            KubeletHang: there are too many combinations of hints.
        """
        single = self.policy == SINGLE_NUMA_NODE
        if not single:
            _check_combinations(hints)
        candidates = self._preferred_masks(hints, single=single)
        if candidates is None:
            return Hint(None if single else self.numa_mask, True), True
        if candidates:
            affinity = self._choose(candidates, hints, tie_breaker, score)
            if single and affinity == self.numa_mask:
                return Hint(None, True), True
            return Hint(affinity, True), True
        if self.policy == BEST_EFFORT:
            return self.merge_non_preferred(hints, score), True
        return Hint(None, False), False

    def _preferred_masks(self, hints: Iterable[ResourceHints], *, single: bool) -> set[int] | None:
        """Return the masks that every resource prefers; None if no resource cares."""
        common: set[int] | None = None
        for resource in hints:
            if resource.any_numa is True:
                continue
            masks = resource.preferred
            if single:
                masks = tuple([mask for mask in masks if mask & mask - 1 == 0])
            common = set(masks) if common is None else common.intersection(masks)
            if not common:
                return common
        return common

    def _choose(
        self,
        candidates: set[int],
        hints: Iterable[ResourceHints],
        tie_breaker: TieBreaker | None,
        score: Scorer | None,
    ) -> int:
        if len(candidates) == 1:
            return next(iter(candidates))
        if self.prefer_most_allocated and tie_breaker is not None:
            return _best_in_one_pass(candidates, tie_breaker)
        if self.prefer_closest:
            self._check_distances(candidates)
        if self.strategy and score is not None:
            scores = self._scores(candidates, hints, score)
            return min(candidates, key=lambda mask: (*self._width(mask), scores[mask], mask))
        return min(candidates, key=lambda mask: (*self._width(mask), mask))

    def _width(self, mask: int) -> tuple[int, int]:
        """Return the sorting key of structure: fewer nodes, then, if so configured, nearer to each other."""
        return mask.bit_count(), self._distance(mask) if self.prefer_closest else 0

    def _scores(
        self, candidates: Iterable[int], hints: Iterable[ResourceHints], score: Scorer
    ) -> dict[int, int]:
        """Return what sorts masks that every resource prefers by how much of them is allocated."""
        resources = [resource.resource for resource in hints if resource.any_numa is None]
        merged = {}
        for mask in candidates:
            weighed = (mask, 0, 0)
            for resource in resources:
                weighed = self._weighed(weighed, resource, mask, score)
            merged[mask] = self._sign(weighed)
        return merged

    def _weighed(self, merged: _Weighed, resource: str, mask: int, score: Scorer) -> _Weighed:
        """Merge one hint with others."""
        common, weights, sums = merged
        value, weight = score(resource, mask), self.weights.get(resource, 1)
        if not value:
            weight = 0
        return common & mask, weights + weight, sums + weight * value

    def _sign(self, merged: _Weighed) -> int:
        """Return the weighted average of scores, rounded down, with the sign of the strategy."""
        _, weights, sums = merged
        return self.strategy * (sums // weights) if weights else 0

    def _distance(self, mask: int) -> int:
        """Return how far NUMA nodes are from each other; those beyond don't count, see _check_distances."""
        ids = [numa for numa in cpuset.ids(mask) if numa < len(self.distances)]
        return sum(self.distances[origin][target] for origin in ids for target in ids)

    @property
    def _beyond(self) -> int:
        """NUMA nodes whose ids are no indexes of lists of distances, since there are gaps in the ids."""
        return self.numa_mask >> len(self.distances) << len(self.distances)

    def _check_distances(self, candidates: Iterable[int]) -> None:
        """The kubelet indexes lists of distances by NUMA id, which fails where ids have gaps."""
        beyond = self._beyond
        masks = list(candidates)
        sizes = [mask.bit_count() for mask in masks]
        for mask in masks:
            if mask & beyond and sizes.count(mask.bit_count()) > 1:
                raise KubeletCrash(
                    "the kubelet would crash: prefer-closest-numa-nodes compares distances of NUMA nodes "
                    f"{cpuset.format(mask)}, but the ids of this machine's NUMA nodes have gaps"
                )

    def merge_non_preferred(self, hints: Sequence[ResourceHints], score: Scorer | None = None) -> Hint:
        """Return the merged hint where no mask is preferred by every resource."""
        lists = [
            (resource.resource, (*resource.preferred, *resource.others()))
            for resource in hints
            if resource.any_numa is None
        ]
        # A resource without any hint cannot be had; it spoils the preference but restricts nothing.
        lists = [(resource, listed) for resource, listed in lists if listed]
        masks = [listed for _, listed in lists]
        if not masks:
            return Hint(self.numa_mask, False)
        widest_need = max([min(map(int.bit_count, listed)) for listed in masks])
        scores: dict[int, int] = {}
        if self.strategy and score is not None:
            scores = self._best_scores(lists, score)
            intersections = list(scores)
        else:
            at_once = self._best_of_size(masks, widest_need)
            if at_once is not None:
                return Hint(at_once, False)
            intersections = self._intersections(masks)
        if not intersections:
            return Hint(self.numa_mask, False)
        if self.prefer_closest:
            self._check_distances(intersections)

        def rank(mask: int) -> tuple[bool, int, int, int | None, int]:
            """Order by size: as needed, then the next smaller ones, then the next larger."""
            size, distance = self._width(mask)
            return size > widest_need, abs(size - widest_need), distance, scores.get(mask), mask

        return Hint(min(intersections, key=rank), False)

    def _best_scores(self, lists: Iterable[tuple[str, Iterable[int]]], score: Scorer) -> dict[int, int]:
        """Return every non-empty intersection of one mask per list, with what sorts the best way to it."""
        merged: set[_Weighed] = {(self.numa_mask, 0, 0)}
        for resource, masks in lists:
            found = {self._weighed(before, resource, mask, score) for before in merged for mask in masks}
            merged = {weighed for weighed in found if weighed[0]}
        best: dict[int, int] = {}
        for weighed in merged:
            sign = self._sign(weighed)
            best[weighed[0]] = min(sign, best.get(weighed[0], sign))
        return best

    def _best_of_size(self, lists: Sequence[tuple[int, ...]], size: int) -> int | None:
        """Return the best intersection of so many nodes if it shows without making them all, else None.

        An intersection is a subset of some mask of every list. If the best set for which that holds is
        itself listed, it is an intersection, of itself and the masks around it, and no other is better.
        """
        if self.prefer_closest and self._beyond:
            return None  # all of them are needed to see whether the kubelet would crash
        reachable = self.numa_mask
        for masks in lists:
            reachable &= reduce(or_, masks)
        candidates = sorted([mask for mask, _ in masks_of_size(reachable, size)])
        if self.prefer_closest:
            candidates.sort(key=self._distance)
        for candidate in candidates:
            if all(any(not candidate & ~mask for mask in reversed(masks)) for masks in lists):
                return candidate if any(candidate in masks for masks in lists) else None
        return None

    def _intersections(self, lists: Sequence[tuple[int, ...]]) -> list[int]:
        """Return every non-empty intersection of one mask per list."""
        subsets = [0]
        for numa in cpuset.ids(reduce(or_, chain.from_iterable(lists))):
            subsets += [mask | 1 << numa for mask in subsets]
        sums = {}
        for masks in set(lists):  # types of memory have the same hints
            listed = set(masks)
            sums[masks] = _over_supersets(add, [int(mask in listed) for mask in subsets])
        ways = reduce(lambda ways, listed: list(map(mul, ways, listed)), map(sums.__getitem__, lists))
        return [mask for mask in compress(subsets, _over_supersets(sub, ways)) if mask]


_MAX_COUNTED = 12
"""NUMA nodes up to which hints are counted; of more, about all sets serve."""


def _check_combinations(hints: Sequence[ResourceHints]) -> None:
    """Reject lists of hints whose combinations the kubelet would not get through."""
    caring = [resource for resource in hints if resource.any_numa is None]
    if effort.merging([resource.most for resource in caring]) > effort.PATIENCE:
        effort.check_merge(
            {
                resource.resource: resource.length if resource.nodes <= _MAX_COUNTED else resource.most
                for resource in caring
            }
        )


def _best_in_one_pass(candidates: Iterable[int], tie_breaker: TieBreaker) -> int:
    """Compare the best so far with the next candidate, by increasing NUMA id; ties keep the lower id."""
    ordered = sorted(candidates)
    best = ordered[0]
    for candidate in ordered[1:]:
        if tie_breaker(candidate.bit_length() - 1, best.bit_length() - 1):
            best = candidate
    return best


def _over_supersets(operation: Callable[[int, int], int], counts: list[int]) -> list[int]:
    """Replace each entry by the sum over its supersets; ``sub`` instead of ``add`` goes back.

    Every round deals with the lowest bit of the index and makes it the highest one, so that after as many
    rounds as there are bits each is where it was.
    """
    for _ in range(len(counts).bit_length() - 1):
        lacking, having = counts[::2], counts[1::2]
        counts = [*map(operation, lacking, having), *having]
    return counts


@dataclass(frozen=True, slots=True)
class _Options:
    """The policy options, read."""

    on: frozenset[str] = frozenset()
    max_allowable: int = DEFAULT_MAX_NUMA_NODES
    strategy: int = 0
    weights: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, config: KubeletConfiguration) -> "_Options":
        """Read them as the kubelet does."""
        _check_available(config)
        options = dict(config.topology_manager_policy_options)
        limit, strategy = options.pop(MAX_ALLOWABLE, None), options.pop(ALLOCATION_STRATEGY, None)
        weights = options.pop(SCORE_WEIGHTS, "")
        on = set()
        for name, value in options.items():
            try:
                if go.parse_bool(value):
                    on.add(name)
            except ValueError as error:
                raise InvalidConfiguration(f"bad value for option {go.quote(name)}: {error}") from error
        return cls(
            frozenset(on),
            DEFAULT_MAX_NUMA_NODES if limit is None else _max_allowable(limit),
            _strategy(strategy or NO_STRATEGY),
            _weights(weights),
        )


def _check_available(config: KubeletConfiguration) -> None:
    """Reject options that the release does not know, or that a gate hides."""
    known = config.release.topology_options
    alpha, beta = config.gate(TOPOLOGY_ALPHA_OPTIONS), config.gate(TOPOLOGY_BETA_OPTIONS)
    for name, _ in config.topology_manager_policy_options:
        if name not in known:
            raise InvalidConfiguration(
                f"unknown Topology Manager Policy option: {go.quote(name)}",
                cure=cures.known_option(name, known),
            )
        hidden = option_unavailable(known[name], alpha=alpha, beta=beta)
        if hidden is not None:
            subject = f"Topology Manager Policy {hidden.value.capitalize()}-level Options"
            if config.release.writes_topology_texts_in_lower_case:
                subject = subject.lower()
            raise InvalidConfiguration(f"{subject} not enabled, but option {go.quote(name)} provided")


def _strategy(value: str) -> int:
    if value not in _STRATEGIES:
        known = " ".join(map(go.quote, sorted(_STRATEGIES)))
        raise InvalidConfiguration(
            f"bad value for option {go.quote(ALLOCATION_STRATEGY)}: {go.quote(value)} "
            f"must be one of [{known}]"
        )
    return _STRATEGIES[value]


def _weights(value: str) -> dict[str, int]:
    """Read ``resource=weight,…``; blanks and empty entries are allowed."""
    weights: dict[str, int] = {}
    for entry in filter(None, map(str.strip, value.split(","))):
        name, found, weight = map(str.strip, entry.partition("="))
        if not found:
            raise _bad_weights(f"invalid weight entry {go.quote(entry)}: expected resource=weight")
        if not name:
            raise _bad_weights(f"empty resource name in weight entry {go.quote(entry)}")
        try:
            weights[name] = go.parse_int(weight)
        except ValueError as error:
            raise _bad_weights(f"invalid weight value for {go.quote(name)}: {error}") from error
    for name, number in sorted(weights.items()):
        if not 0 <= number <= _MAX_WEIGHT:
            raise _bad_weights(
                f"weight for {go.quote(name)} must be in range [0, {_MAX_WEIGHT}], got {number}"
            )
    return weights


def _bad_weights(problem: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"bad value for option {go.quote(SCORE_WEIGHTS)}: {problem}")


def _max_allowable(value: str) -> int:
    try:
        limit = go.parse_int(value)
    except ValueError as error:
        raise InvalidConfiguration(
            f"unable to convert policy option to integer {go.quote(MAX_ALLOWABLE)}: {error}"
        ) from error
    if limit < DEFAULT_MAX_NUMA_NODES:
        raise InvalidConfiguration(
            f"the minimum value of {go.quote(MAX_ALLOWABLE)} should not be less than {DEFAULT_MAX_NUMA_NODES}"
        )
    return limit


def _many_nodes_cure(machine: Machine) -> str:
    """Return what lets the kubelet start: the option, unless pods with CPUs would then take ages."""
    holding = sum(1 for cpus in machine.cpus_of_numa.values() if cpus)
    if machine.unmaskable or effort.cpu_walk(holding, machine.all_cpus.bit_count()) > effort.PATIENCE:
        return cures.NO_ALIGNMENT
    return cures.allowed_numa_nodes(len(machine.numa_nodes))
