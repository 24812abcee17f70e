"""The descheduler's rule that plans are compared with: which pods it evicts."""

from typing import Any

from numazones.rebalance.high_node_utilization import evictions


def cluster(build: Any, *loads: tuple[int, ...]) -> Any:
    """Nodes of 11 CPUs with pods of these sizes, named by node and position."""
    nodes = []
    for number, sizes in enumerate(loads):
        pods = [build.pod(f"p{number}{index}", size) for index, size in enumerate(sizes)]
        nodes.append(build.put(build.node(f"n{number}", zones=1, cpus=12), *pods))
    return build.situation(nodes).cluster


def chosen(found: Any, **thresholds: float) -> list[str]:
    movable = [pod for node in found.nodes.values() for pod in node.pods.values()]
    return [pod.name for pod in evictions(found, thresholds, movable)]


def test_the_emptiest_nodes_are_emptied_while_the_others_have_room(build: Any) -> None:
    found = cluster(build, (2,), (1,), (6, 2))
    assert chosen(found, cpu=20) == ["p10", "p00"]


def test_it_stops_when_the_others_are_full(build: Any) -> None:
    found = cluster(build, (2,), (1, 1), (6, 4))
    assert chosen(found, cpu=20) == ["p10"]


def test_a_node_counts_as_low_only_if_it_is_low_in_every_resource(build: Any) -> None:
    found = cluster(build, (2,), (6,))
    assert chosen(found, cpu=20, memory=20) == ["p00"]
    assert chosen(found, cpu=20, memory=0.1) == []


def test_nothing_is_evicted_where_all_nodes_or_none_are_low(build: Any) -> None:
    assert chosen(cluster(build, (1,), (1,)), cpu=20) == []
    assert chosen(cluster(build, (6,), (6,)), cpu=20) == []


def test_pods_that_may_not_move_and_pods_that_fit_nowhere_stay(build: Any) -> None:
    found = cluster(build, (2,), (8, 2))
    assert evictions(found, {"cpu": 20}, []) == ()
    assert chosen(found, cpu=20) == []
