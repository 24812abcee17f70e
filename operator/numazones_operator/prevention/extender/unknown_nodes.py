"""Treatment of nodes with unknown NUMA state; separate, since the settings name it."""

from enum import StrEnum


class UnknownNodes(StrEnum):
    """Treatment of nodes with unknown NUMA state."""

    LAST_RESORT = "last-resort"
    """They pass only where no node is known to admit the pod."""
    ALLOW = "allow"
    """They pass, behind those that are known to admit it."""
    REJECT = "reject"
    """They never pass."""
