"""Topology hints: which sets of NUMA nodes could serve a request, and which of them are preferred.

A hint of the kubelet is a set of NUMA nodes with a flag "preferred" (KEP-693). All hints of a
resource come from one walk over all sets of NUMA nodes, 2**n of them; most decisions are settled
among the preferred ones alone, so the others are only worked out when something asks for them.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

from numazones import cpuset
from numazones.kubelet.rejection import KubeletHang

# More sets of NUMA nodes than this can be walked neither here nor by the kubelet.
_MAX_SETS = 1 << 20


class Hint(NamedTuple):
    """An affinity to a set of NUMA nodes (a mask; None: no affinity), preferred or not."""

    affinity: int | None
    preferred: bool


class ResourceHints(NamedTuple):
    """The hints of one resource.

    ``any_numa`` True: the resource does not care; False: it cannot be had at all; None: it can be
    had on the masks listed (if none is listed, it cannot be had).
    """

    resource: str
    preferred: tuple[int, ...] = ()
    others: Callable[[], tuple[int, ...]] = tuple
    any_numa: bool | None = None
    nodes: int = 0
    """Over how many NUMA nodes hints are made."""

    @property
    def most(self) -> int:
        """How many hints there are at most."""
        return (1 << self.nodes) - 1 if self.nodes else 1

    @property
    def length(self) -> int:
        """How many hints there are."""
        return len(self.preferred) + len(self.others()) or 1

    def all(self) -> tuple[Hint, ...]:
        """Every hint, narrow ones first, as the kubelet lists them."""
        if self.any_numa is not None:
            return (Hint(None, self.any_numa),)
        hints = [Hint(mask, True) for mask in self.preferred] + [Hint(mask, False) for mask in self.others()]
        if not hints:
            return (Hint(None, False),)
        return tuple(sorted(hints, key=lambda hint: enumeration_order(hint.affinity or 0)))


def indifferent(resource: str) -> ResourceHints:
    """Return the hints of a resource without a preference."""
    return ResourceHints(resource, any_numa=True)


def unsatisfiable(resource: str) -> ResourceHints:
    """Return the hints of a resource that no set of NUMA nodes can provide."""
    return ResourceHints(resource, any_numa=False)


@lru_cache(maxsize=512)
def masks_of_size(numa_mask: int, size: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return all sets of ``size`` nodes of a set: mask, and positions of its members in the ascending set.

    Raises:
        KubeletHang: there are too many.
    """
    ids = tuple(cpuset.ids(numa_mask))
    if comb(len(ids), size) > _MAX_SETS:
        raise KubeletHang(f"the kubelet would hang: it tries all sets of {len(ids)} NUMA nodes")
    return tuple(
        (sum(1 << ids[position] for position in positions), positions)
        for positions in combinations(range(len(ids)), size)
    )


@lru_cache(maxsize=4096)
def positions_in(numa_mask: int, mask: int) -> tuple[int, ...]:
    """Return the positions of the members of one set of NUMA nodes in another, which is ascending."""
    return tuple([position for position, numa in enumerate(cpuset.ids(numa_mask)) if mask >> numa & 1])


def enumeration_order(mask: int) -> tuple[int, tuple[int, ...]]:
    """Return the key that sorts masks into the order in which the kubelet visits them."""
    return mask.bit_count(), tuple(cpuset.ids(mask))
