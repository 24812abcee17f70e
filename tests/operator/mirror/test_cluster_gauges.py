"""What gauges show of a node."""

from typing import Any

from numazones.cluster import ClusterNode
from numazones_operator.mirror.cluster_gauges import node_gauges


def test_a_node_on_which_another_model_decides_is_not_stale() -> None:
    state: Any = object()
    assert node_gauges(ClusterNode("a").with_policy_state(state, "Koordinator"), ()).stale == ""
    assert node_gauges(ClusterNode("a"), ()).stale == "NoZones"
