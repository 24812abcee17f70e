"""Taking CPUs in even shares from several NUMA nodes (distribute-cpus-across-numa, KEP-2902).

Rules: ``cpumanager/cpu_assignment`` of kubelet 1.36: the combination of NUMA nodes, as few as
possible, that leaves free CPUs most evenly. A quirk is kept: the search holds references into lists
that it goes on overwriting (see ``_Slice``). What 1.37 and 1.38 changed is in the strategy.
"""

from collections.abc import Callable, Iterable, Sequence
from math import sqrt, trunc
from typing import NamedTuple

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet import effort
from numazones.kubelet.cpu_packing import CPUSelection, PackingStrategy, not_enough, take_packed
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.rejection import KubeletHang, Rejection


class _Slice:
    """A Go slice: appending writes into spare room of the shared array, which other slices may see.

    The distributed search keeps slices of the best combination found while later combinations are
    appended into the same arrays. Combinations of 4, 6 to 8, 10 to 16 … members therefore change
    after they were chosen. Room doubles from 1, as in Go.
    """

    __slots__ = ("array", "length", "room")

    def __init__(self, array: list[int], length: int, room: int) -> None:
        self.array = array
        self.length = length
        self.room = room

    def append(self, item: int) -> "_Slice":
        if self.length < self.room:
            self.array[self.length : self.length + 1] = [item]
            return _Slice(self.array, self.length + 1, self.room)
        array = [*self.array[: self.length], item]
        return _Slice(array, len(array), max(1, 2 * self.room))

    def items(self) -> list[int]:
        return self.array[: self.length]


def _each_combination(items: Sequence[int], size: int, visit: Callable[[_Slice], bool]) -> None:
    """Visit every combination in index order until ``visit`` returns False."""

    def extend(chosen: _Slice, start: int, left: int) -> bool:
        if left == 0:
            return visit(chosen)
        return all(
            extend(chosen.append(items[index]), index + 1, left - 1)
            for index in range(start, len(items) - left + 1)
        )

    if size >= 1:
        extend(_Slice([], 0, 0), 0, size)


def take_distributed(
    topology: CPUTopology, strategy: PackingStrategy, available: CPUSet, count: int, *, width: int = 0
) -> CPUSet:
    """Choose ``count`` of the available CPUs, a multiple of the group; ``width`` as for ``take``.

    Raises:
        Rejection: there are not enough, or the distribution miscounts.
        KubeletHang: the distribution would never end.
    """
    if count < 1:
        return 0
    claim = CPUSelection(topology, available, count)
    if count > claim.free.bit_count():
        raise not_enough(count, available)
    numas = claim.numas()
    free = {numa: free for free, numa, _ in numas}
    sizes = _sizes(topology, strategy.group, count, len(free))
    if strategy.keeps_width and sizes.start < width < sizes.stop:
        sizes = range(width, sizes.stop)
    for size in sizes:
        effort.check_distribution(count, len(numas), size)
        search = _Search(topology, strategy, free, count, size)
        found = search.run([numa for _, numa, _ in numas])
        if found is not None:
            return _hand_out(claim, strategy, *found)
    return take_packed(topology, strategy, available, count)


def _sizes(topology: CPUTopology, group: int, count: int, free_numas: int) -> range:
    """Return how many NUMA nodes are worth trying, from the nominal size of a node."""
    groups = -(-topology.all_cpus.bit_count() // group)
    per_numa = -(-groups // len(topology.numas))
    needed = -(-count // group)
    return range(-(-needed // per_numa), min(needed, free_numas) + 1)


class _Pattern(NamedTuple):
    """Pattern that decides the balance of a combination."""

    share: int
    """CPUs that each NUMA node of the combination gives in any case."""
    after: tuple[int, ...]
    """Free CPUs per NUMA node of the combination, its even share taken."""
    places: tuple[int, ...]
    """The combination as indexes into ``after``."""
    others: tuple[int, ...]
    """Free CPUs of the NUMA nodes that are not in it."""


class _Search:
    """The search for the best-balanced combination of a given number of NUMA nodes."""

    def __init__(
        self, topology: CPUTopology, strategy: PackingStrategy, free: dict[int, int], count: int, size: int
    ) -> None:
        self.topology = topology
        self.strategy = strategy
        self.free = free
        self.group = strategy.group
        self.count = count
        self.size = size
        self.share = count // size // self.group * self.group
        self.best_balance = float("inf")
        self.best_in_one_socket = False
        self.best: tuple[_Slice, list[int]] | None = None
        # Equal numbers of free CPUs give equal balances, so each pattern is weighed once.
        self.weighed: dict[_Pattern, tuple[float, list[int]]] = {}

    def run(self, numas: list[int]) -> tuple[list[int], list[int]] | None:
        """Return the chosen NUMA nodes and those that take the remainder; None if no combination serves.

        A NUMA node whose CPUs belong to several sockets may be listed, and then chosen, repeatedly.
        """
        _each_combination(numas, self.size, self._weigh)
        if self.best is None:
            return None
        return self.best[0].items(), self.best[1]

    def _share(self, counts: Sequence[int]) -> int:
        """Return what each NUMA node of a combination is to give, from how much of each is free."""
        if not self.strategy.prefers_one_socket:
            return self.share
        return min(self.share, min(counts) // self.group * self.group)

    def _weigh(self, combination: _Slice) -> bool:
        by_socket = self.strategy.prefers_one_socket
        if self.best_balance == 0 and (not by_socket or self.best_in_one_socket):
            return False
        members = combination.items()
        distinct = list(dict.fromkeys(members))
        counts = [self.free[numa] for numa in members]
        share = self._share(counts)
        if (
            sum(free // self.group for free in counts) * self.group < self.count
            or min(counts) < share
            or (len(distinct) < self.size and sum(self.free[numa] for numa in distinct) < self.count)
        ):
            return True
        pattern = _Pattern(
            share,
            after=tuple(self.free[numa] - share * members.count(numa) for numa in distinct),
            places=tuple(distinct.index(numa) for numa in members),
            others=tuple(sorted(free for numa, free in self.free.items() if numa not in distinct)),
        )
        if pattern not in self.weighed:
            self.weighed[pattern] = self._balance(pattern)
        balance, remainder = self.weighed[pattern]
        in_one_socket = by_socket and self.topology.socket_count(cpuset.of(distinct)) == 1
        better = balance < self.best_balance
        if in_one_socket != self.best_in_one_socket:
            better = in_one_socket
        if better:
            self.best_balance, self.best_in_one_socket = balance, in_one_socket
            self.best = (self._kept(combination), [distinct[place] for place in remainder])
        return True

    def _kept(self, chosen: _Slice) -> _Slice:
        """Return what the kubelet keeps of a combination: a reference, or a copy."""
        return _Slice(chosen.items(), chosen.length, 0) if self.strategy.copies_combinations else chosen

    def _balance(self, pattern: _Pattern) -> tuple[float, list[int]]:
        """Return the best balance, and the places that take the remainder."""
        share, after, places, others = pattern
        remainder = self.count - share * self.size
        if remainder == 0:
            return _deviation((*after, *others)), []
        able = [place for place in places if after[place] >= self.group]
        best = float("inf")
        chosen: _Slice | None = None

        def weigh(subset: _Slice) -> bool:
            nonlocal best, chosen
            takers = subset.items()
            left = list(after)
            if self._takeable(left[place] for place in takers) < remainder:
                return True
            self._deal(left, takers, remainder)
            balance = _deviation((*left, *others))
            if balance < best:
                best, chosen = balance, self._kept(subset)
            return True

        for size in range(len(able), 0, -1):
            _each_combination(able, size, weigh)
        return best, [] if chosen is None else chosen.items()

    def _takeable(self, left: Iterable[int]) -> int:
        """Return how many CPUs some NUMA nodes have left over; until 1.38 also what is less than a group."""
        if not self.strategy.counts_whole_groups:
            return sum(left)
        return sum(free // self.group for free in left) * self.group

    def _deal(self, left: list[int], takers: list[int], remainder: int) -> None:
        """Take the remainder group by group from the takers in turn."""
        while remainder > 0:
            before = remainder
            for place in takers:
                if remainder == 0:
                    break
                if left[place] >= self.group:
                    left[place] -= self.group
                    remainder -= self.group
            if remainder == before:
                raise _endless(self.count)


def _endless(count: int) -> KubeletHang:
    return KubeletHang(
        f"distributing {count} CPUs across NUMA nodes never ends: every NUMA node that the kubelet "
        "tries has less than a whole core left over; free whole cores or reserve whole cores on this node"
    )


def _hand_out(claim: CPUSelection, strategy: PackingStrategy, chosen: list[int], takers: list[int]) -> CPUSet:
    """Take an even share from each chosen NUMA node, then the remainder in turn."""
    topology, group, count = claim.topology, strategy.group, claim.need
    share = count // len(chosen) // group * group
    if strategy.prefers_one_socket:
        free = min((topology.numa_cpus[numa] & claim.free).bit_count() for numa in chosen)
        share = min(share, free // group * group)
    for numa in chosen:
        claim.take(_take_or_nothing(claim, strategy, topology.numa_cpus[numa], share))
    remainder = count - share * len(chosen)
    while remainder > 0:
        before = remainder
        for numa in takers:
            if remainder == 0:
                break
            cpus = topology.numa_cpus[numa]
            if (cpus & claim.free).bit_count() < group:
                continue
            claim.take(_take_or_nothing(claim, strategy, cpus, group))
            remainder -= group
        if remainder == before:
            raise _endless(count)
    if claim.need > 0:
        raise Rejection(f"accounting error, not enough CPUs allocated, remaining: {claim.need}")
    if claim.need < 0:
        raise Rejection(f"accounting error, too many CPUs allocated, remaining: {claim.need}")
    return claim.taken


def _take_or_nothing(claim: CPUSelection, strategy: PackingStrategy, cpus: CPUSet, count: int) -> CPUSet:
    try:
        return take_packed(claim.topology, strategy, cpus & claim.free, count)
    except Rejection:
        return 0


def _deviation(values: Sequence[int]) -> float:
    """Return the standard deviation; mean and result are rounded to three decimals, halves away from zero."""
    mean = _round_half_away(sum(values) / len(values) * 1000) / 1000
    return _round_half_away(sqrt(sum((value - mean) ** 2 for value in values) / len(values)) * 1000) / 1000


def _round_half_away(value: float) -> float:
    whole = trunc(value)
    return float(whole + (1 if value >= 0 else -1)) if abs(value - whole) >= 0.5 else float(whole)  # noqa: PLR2004


def take(
    topology: CPUTopology, strategy: PackingStrategy, available: CPUSet, count: int, *, width: int = 0
) -> CPUSet:
    """Choose ``count`` of the available CPUs.

    ``width``: the number of NUMA nodes that the Topology Manager chose; 0: none.

    Raises:
        Rejection: there are not enough, or the distribution miscounts.
        KubeletHang: the distribution would never end.
    """
    if strategy.distributed and count % strategy.group == 0:
        return take_distributed(topology, strategy, available, count, width=width)
    return take_packed(topology, strategy, available, count)
