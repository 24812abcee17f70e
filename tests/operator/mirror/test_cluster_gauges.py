"""What gauges show of a node."""

from numazones.cluster import ClusterNode
from numazones.dump import Dump
from numazones.rebalance.dump import situation_of
from numazones.room import FittingPods
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_operator.mirror.cluster_gauges import node_gauges
from tests.kubectl.best_effort_cluster import best_effort_cluster
from tests.models.koordinator import building as koordinator


def test_a_node_on_which_another_model_decides_is_not_stale() -> None:
    assert (
        node_gauges(
            ClusterNode("a").with_placement(KoordinatorPlacement(koordinator.node(2))), (), FittingPods()
        ).stale
        == ""
    )
    assert node_gauges(ClusterNode("a"), (), FittingPods()).stale == "NoZones"


def test_pods_are_counted_by_how_what_they_hold_lies() -> None:
    dump = Dump.of(best_effort_cluster())
    nodes = situation_of(dump, dump.moment).cluster.nodes
    shown = {name: node_gauges(node, (), FittingPods()) for name, node in nodes.items()}
    assert {name: (gauges.pods, gauges.remote_cpus) for name, gauges in shown.items()} == {
        "worker-1": ({"aligned": 2, "remote": 0, "spanning": 1}, 2),
        "worker-2": ({"aligned": 2, "remote": 0, "spanning": 1}, 1),
        "worker-3": ({"aligned": 1, "remote": 1, "spanning": 0}, 0),
        "worker-4": ({"aligned": 1, "remote": 0, "spanning": 0}, 0),
    }
    assert node_gauges(ClusterNode("a"), (), FittingPods()).pods == {}
