"""Outcomes of the pods of a node, which explain a wrong prediction."""

from dataclasses import dataclass, field

from numazones.kubelet.node import Node
from numazones.placement import Placement


@dataclass(frozen=True, slots=True)
class PodOutcomes:
    """Facts known now about the pods that were on a node when another was bound to it."""

    gone: frozenset[str] = frozenset()
    """UIDs of those that have ended, were rejected, or are being deleted."""
    running: frozenset[str] = frozenset()
    """UIDs of those that their kubelet says it runs."""
    zones: Node | None = field(default=None, repr=False)
    """What the node's zones say now."""
    placements: tuple[Placement, ...] = field(default=(), repr=False)
    """Where another model places pods: what it has decided from lately, as far as that was known."""
