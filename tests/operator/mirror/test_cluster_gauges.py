"""Tests of the gauges of a node."""

from numazones.cluster.cluster import ClusterNode
from numazones.prediction.room import FittingPods
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_operator.mirror.cluster_gauges import node_gauges
from tests.models.koordinator import building as koordinator


def test_a_node_on_which_another_model_decides_is_not_stale() -> None:
    assert (
        node_gauges(
            ClusterNode("a").with_placement(KoordinatorPlacement(koordinator.node(2))), (), FittingPods()
        ).stale
        == ""
    )
    assert node_gauges(ClusterNode("a"), (), FittingPods()).stale == "NoZones"
