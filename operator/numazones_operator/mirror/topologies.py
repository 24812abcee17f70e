"""Nodes that have a NodeResourceTopology and no zones: an admission state as good as the amounts allow.

Other exporters publish per NUMA zone how much of each resource is allocatable and available, and the
topology manager's policy, but neither CPUs nor who holds them. A machine of that size is imagined, with
what is not available given away; answers from it are marked approximate.
"""

from collections.abc import Mapping
from typing import Any

from numazones.api.noderesourcetopology import node_from_topology
from numazones.errors import NumazonesError
from numazones.kubelet.node import Node
from numazones.placement import Unknown

TOPOLOGY_UNREADABLE = "TopologyUnreadable"


def approximate(body: Mapping[str, Any]) -> tuple[Node | None, Unknown | None]:
    """Return the imagined state, or why there is none."""
    try:
        return node_from_topology(body), None
    except NumazonesError as error:
        return None, Unknown(TOPOLOGY_UNREADABLE, str(error))
