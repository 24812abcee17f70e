"""One move after which a node takes a waiting pod: the smallest plan, and what people are advised to do.

A pod can leave for another node, or come back to its own, where its replacement may get a place that
leaves more room: either at once, or once the waiting pod has taken its own. The order in which nodes are
tried is that of ``search``, and both halves of a move are those of ``search`` and ``proof``, so that advice
and plans agree.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import About
from numazones.placement import fragmentation
from numazones.prediction.forecast import PodKind
from numazones.rebalance.goals import is_known
from numazones.rebalance.moves import Move, evict, place, replacement, zones_of

_MAX_ASKED = 128
"""So many nodes that have enough of everything are asked whether they take a kind of pod."""


def free_block(node: ClusterNode) -> int:
    """Return the most exclusive CPUs that one zone of a node could still give."""
    return 0 if node.state is None else fragmentation.largest_free_block(node.state)


def fullest_first(
    nodes: Iterable[ClusterNode], block: Callable[[ClusterNode], int] = free_block
) -> list[ClusterNode]:
    """Return the nodes that pods may be moved to, in the order in which they are tried."""
    known = []
    for node in nodes:
        with About(node):
            if is_known(node):
                known.append((block(node), node.name, node))
    return [node for _, _, node in sorted(known, key=itemgetter(0, 1))]


@dataclass(slots=True, eq=False)
class Destinations:
    """The nodes of a cluster that replacements could go to; which of them take a kind is worked out once."""

    _unsorted: Iterable[ClusterNode] = ()
    """Those of the whole cluster."""
    _templates: Mapping[str, ClusterPod] = field(default_factory=dict)
    """Owner UID → a pod made from the owner's template, as ``replacement`` takes them."""
    _nodes: list[ClusterNode] | None = field(init=False, default=None)
    _found: dict[PodKind, tuple[list[ClusterNode], Iterator[ClusterNode]]] = field(
        init=False, default_factory=dict
    )

    def single_move(self, waiting: ClusterPod, pod: ClusterPod, source: ClusterNode) -> Move | None:
        """Return the move of one pod after which its node takes a waiting pod; None where there is none.

        Whether the pod may be evicted at all is not asked here.
        """
        coming = replacement(pod, self._templates)
        freed = evict(source, pod)
        taken = place(freed, waiting).node
        kind = PodKind.of(coming)
        if taken is None or kind is None or coming.constraints.beyond:
            return None
        held = zones_of(source, pod)
        back = place(freed, coming).node
        for node in self._taking(kind, coming, source, back):
            if node is not back:
                return Move(pod, coming, node.name, held)
            if place(back, waiting).node is not None:
                return Move(pod, coming, source.name, held, zones_of(back, coming))
        beside = place(taken, coming).node
        if beside is None:
            return None
        return Move(pod, coming, source.name, held, zones_of(beside, coming), after_pending=True)

    def _taking(
        self, kind: PodKind, coming: ClusterPod, source: ClusterNode, back: ClusterNode | None
    ) -> Iterator[ClusterNode]:
        """Yield the nodes that take a replacement, the fullest first; its own if ``back`` is given."""
        own = None if back is None else (free_block(source), source.name)
        for node in self._others_taking(kind, coming):
            if node.name == source.name:
                continue
            if back is not None and own is not None and own < (free_block(node), node.name):
                own = None
                yield back
            yield node
        if back is not None and own is not None:
            yield back

    def _others_taking(self, kind: PodKind, coming: ClusterPod) -> Iterator[ClusterNode]:
        if self._nodes is None:
            self._nodes = fullest_first(self._unsorted)
        if kind not in self._found:
            self._found[kind] = ([], self._ask(coming, self._nodes))
        known, more = self._found[kind]
        yield from known
        for node in more:
            known.append(node)
            yield node

    @staticmethod
    def _ask(coming: ClusterPod, nodes: Iterable[ClusterNode]) -> Iterator[ClusterNode]:
        """Yield the nodes that take a pod, of the first that have enough of everything."""
        asked = 0
        for node in nodes:
            if scheduling.obstacles(coming.constraints, coming.requests, node):
                continue
            asked += 1
            if asked > _MAX_ASKED:
                return
            if place(node, coming).node is not None:
                yield node
