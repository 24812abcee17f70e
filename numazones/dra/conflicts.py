"""Conflict over CPUs between dra-driver-cpu and the kubelet's static CPU manager.

The driver's own documentation asks for ``cpuManagerPolicy: none``; neither of the two knows what the other
has given away.
"""

from collections.abc import Container
from typing import Final

CPU_DRIVER: Final = "dra.cpu"
_STATIC = "static"
CURE: Final = (
    "drain the node, set cpuManagerPolicy: none, and remove cpu_manager_state before its kubelet starts "
    "again, or remove the driver from the node"
)


def cpu_conflict(drivers: Container[str], cpu_manager_policy: str) -> str:
    """Return why a node's CPUs may be given out twice; empty where they cannot.

    >>> cpu_conflict({"dra.cpu"}, "none")
    ''
    """
    if CPU_DRIVER not in drivers or cpu_manager_policy != _STATIC:
        return ""
    return (
        f"dra-driver-cpu ({CPU_DRIVER}) gives CPUs to claims while the kubelet's static CPU manager gives "
        "them to Guaranteed pods; neither knows about the other, so two containers may get the same CPUs"
    )
