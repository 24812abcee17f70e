"""The merge of hints as the specification states it: every combination is tried, the best one kept."""

from collections.abc import Sequence
from itertools import product

from numazones import cpuset
from numazones.kubelet.hints import Hint
from numazones.kubelet.topology_manager import TopologyManager


def slow_merge(manager: TopologyManager, lists: Sequence[Sequence[Hint]]) -> Hint:
    """Try every combination of one hint per resource, and keep the best as the specification ranks them."""
    single = manager.policy == "single-numa-node"
    if single:
        lists = [
            [
                hint
                for hint in hints
                if hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)
            ]
            for hints in lists
        ]
    narrowest = [
        [hint.affinity.bit_count() for hint in hints if hint.affinity is not None] for hints in lists
    ]
    need = max((min(counts) for counts in narrowest if counts), default=0)
    best: Hint | None = None
    for combination in product(*lists):
        masks = [hint.affinity for hint in combination if hint.affinity is not None]
        merged = manager.numa_mask
        for mask in masks:
            merged &= mask
        preferred = all(hint.preferred for hint in combination) and len(set(masks)) <= 1
        candidate = Hint(merged, preferred)
        if merged and (best is None or better(manager, candidate, best, need)):
            best = candidate
    best = best or Hint(manager.numa_mask, False)
    return Hint(None, best.preferred) if single and best.affinity == manager.numa_mask else best


def better(manager: TopologyManager, candidate: Hint, best: Hint, need: int) -> bool:
    """Return whether a candidate replaces the best so far."""
    assert candidate.affinity is not None
    assert best.affinity is not None
    if candidate.preferred != best.preferred:
        return candidate.preferred
    size, best_size = candidate.affinity.bit_count(), best.affinity.bit_count()
    if not candidate.preferred and best_size == need != size:
        return False
    if not candidate.preferred and best_size < need and size != best_size:
        return best_size < size <= need
    return fitter(manager, candidate.affinity, best.affinity)


def fitter(manager: TopologyManager, mask: int, other: int) -> bool:
    if mask.bit_count() != other.bit_count():
        return mask.bit_count() < other.bit_count()
    if manager.prefer_closest and distance(manager, mask) != distance(manager, other):
        return distance(manager, mask) < distance(manager, other)
    return mask < other


def distance(manager: TopologyManager, mask: int) -> float:
    ids = list(cpuset.ids(mask))
    pairs = [manager.distances[one][other] for one in ids for other in ids]
    return sum(pairs) / len(pairs)
