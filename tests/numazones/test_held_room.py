"""Room held for pods on their way: by whom, where, until when, and in whose way it is."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from numazones import timestamp
from numazones.cluster import ClusterNode, ClusterPod
from numazones.held_room import MAX_NODES, Way, by_node, held, in_the_way, zones_held
from numazones.prediction import predict
from numazones.waiting import RELEASED

from .kubelet import building

NOW = 1_700_000_000.0


def waiting(
    name: str,
    *,
    cpus: int = 4,
    released: float | None = None,
    nominated: str = "",
    priority: int = 0,
    to: tuple[str, ...] = (),
    gate: bool = False,
) -> ClusterPod:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in to]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    annotations: dict[str, Any] = {}
    if released is not None:
        annotations[RELEASED] = timestamp.format(datetime.fromtimestamp(released, UTC))
    return ClusterPod.from_api(
        {
            "metadata": {"name": name, "namespace": "team", "uid": name, "annotations": annotations},
            "spec": {
                "containers": [building.container("main", cpus)],
                "priority": priority,
                **({"affinity": {"nodeAffinity": required}} if to else {}),
                **({"schedulingGates": [{"name": "example.com/wait"}]} if gate else {}),
            },
            "status": {"phase": "Pending", "nominatedNodeName": nominated},
        }
    )


def node(name: str) -> ClusterNode:
    """Seven and eight CPUs on two NUMA nodes."""
    return ClusterNode(name, allocatable={"cpu": 15_000, "memory": 30 << 30}, pod_slots=9).with_state(
        building.node()
    )


NODES: Mapping[str, ClusterNode] = {name: node(name) for name in ("a", "b")}


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        (waiting("p", released=NOW - 10, to=("a",)), [(("a",), Way.RELEASED, NOW + 50)]),
        (waiting("p", released=NOW - 10), [(("a", "b"), Way.RELEASED, NOW + 50)]),
        (waiting("p", released=NOW - 60, to=("a",)), []),
        (waiting("p", released=NOW - 10, to=("gone",)), []),
        (waiting("p", released=NOW - 10, to=("a",), gate=True), []),
        (waiting("p", nominated="b"), [(("b",), Way.NOMINATED, None)]),
        (waiting("p"), []),
    ],
    ids=["released", "to any", "long ago", "to no node", "gated again", "nominated", "neither"],
)
def test_who_holds_room_where_and_until_when(
    pod: ClusterPod, found: list[tuple[tuple[str, ...], Way, float | None]]
) -> None:
    held_now = held([pod], list(NODES.values()), now=NOW)
    assert [(item.nodes, item.way, item.until) for item in held_now] == found


def test_without_a_choice_of_nodes_nothing_is_held() -> None:
    many = [node(f"n{number}") for number in range(MAX_NODES + 1)]
    assert not list(held([waiting("p", released=NOW)], many, now=NOW))


def test_a_nomination_counts_for_those_who_are_not_more_important() -> None:
    nominated = waiting("p", nominated="a", priority=5)
    for priority, counts in ((5, True), (6, False)):
        asking = waiting("q", priority=priority)
        found = held([nominated, asking], list(NODES.values()), now=NOW, asking=asking)
        assert by_node(found) == ({"a": [nominated]} if counts else {})


def test_zones_are_given_in_the_order_in_which_pods_come() -> None:
    pods = [waiting(name, cpus=5) for name in ("first", "second", "third")]
    found = [(pod.name, zones) for pod, zones in zones_held(NODES["a"], pods)]
    assert found == [("first", (0,)), ("second", (1,)), ("third", ())]


def test_held_room_is_in_the_way_of_a_pod_that_fits_beside_nobody_on_its_way() -> None:
    asking = waiting("asking", cpus=6)
    prediction = predict(asking, NODES.values())
    first, second = waiting("first", cpus=5), waiting("second", cpus=5)
    by_node = {"a": [first, second], "b": [first], "elsewhere": [second]}
    assert not list(in_the_way(asking, prediction, NODES.get, {}))
    assert not list(in_the_way(asking, prediction, NODES.get, by_node))  # on b one NUMA node is left
    by_node["b"].append(second)
    assert list(in_the_way(asking, prediction, NODES.get, by_node)) == [
        "a: room is held for team/first, team/second",
        "b: room is held for team/first, team/second",
    ]
