"""Nodes for a gated Burstable or BestEffort pod without devices, which most nodes admit.

A model that places pods of every kind may find no CPU for such a pod, and reject it. Where a pod may go to
few nodes of such a model, those without room are left out, and it keeps the choice of all others. It cannot
name the many nodes of a large cluster, so there it is released to a few that have room, as others are.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode
from numazones.prediction.forecast import PodKind, is_open
from numazones.prediction.held_room import MAX_NODES
from numazones_operator.prevention.allowed_nodes import CHOICE, AllowedNodes, NodeRole

REASON = "unconcerned"
"""Why such a pod is released."""


def nodes_allowed_to(
    kind: PodKind,
    asked: Sequence[ClusterNode],
    others: Iterable[ClusterNode],
    has_room: Callable[[ClusterNode], bool],
) -> AllowedNodes | None:
    """Return how a pod is released; None: every node that would take it now might reject it.

    ``asked``: the nodes that may reject it; ``others``: those that do not; ``has_room``: True if one of
    ``asked`` admits it in addition to all that may be on their way.
    """
    asked = [node for node in asked if not scheduling.placement_obstacles(kind.constraints, node)]
    if not asked:
        return AllowedNodes(REASON)
    elsewhere = (node.name for node in others if is_open(kind, node))
    if len(asked) <= MAX_NODES:
        free = tuple(node.name for node in asked if has_room(node))
        full = tuple(node.name for node in asked if node.name not in free)
        if free or next(elsewhere, None) is not None:
            return AllowedNodes(REASON, free, NodeRole.ANYWHERE, without=full)
        return None
    emptiest = sorted(asked, key=lambda node: node.pod_count)
    few = tuple(islice((node.name for node in emptiest if has_room(node)), CHOICE))
    few = few or tuple(islice(elsewhere, CHOICE))
    return AllowedNodes(REASON, few, NodeRole.ONLY) if few else None
