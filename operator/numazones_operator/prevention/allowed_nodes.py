"""Nodes that a pod released from the admission gate may go to."""

from enum import Enum, auto
from typing import NamedTuple

CHOICE = 4
"""A pod is released to so many nodes at most: the scheduler, which looks at what predictions do not cover,
has a choice, and little room is held in vain."""


class NodeRole(Enum):
    """Role of a release's nodes for the pod."""

    ONLY = auto()
    """It may go to no others."""
    RATHER = auto()
    """It prefers them."""
    ANYWHERE = auto()
    """Room is held there, and the scheduler chooses as it likes."""


class AllowedNodes(NamedTuple):
    """Nodes that a pod may go to."""

    reason: str
    """Why it is released, as metrics count it."""
    nodes: tuple[str, ...] = ()
    """Where room is held for it, the best first."""
    reach: NodeRole = NodeRole.ANYWHERE
    without: tuple[str, ...] = ()
    """Nodes that it may not go to."""

    @property
    def named(self) -> tuple[str, ...]:
        """The nodes that its affinity names."""
        return () if self.reach is NodeRole.ANYWHERE else self.nodes
