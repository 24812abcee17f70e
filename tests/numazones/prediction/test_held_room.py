"""Room held for pods on their way: by whom, where, until when, against whom, and in whose way it is."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import RELEASED
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import ObjectFault
from numazones.kubelet.pod import Pod
from numazones.placement.kubelet import KUBELET_MODEL, KubeletPlacement
from numazones.prediction.forecast import predict
from numazones.prediction.held_room import (
    MAX_NODES,
    RELEASE_SECONDS,
    ArrivalPath,
    by_node,
    held,
    in_the_way,
    release_ends,
    with_held,
    zones_held,
)
from tests.numazones.kubelet import building

NOW = 1_700_000_000.0


def waiting(
    name: str,
    *,
    cpus: int | str = 4,
    released: float | str | None = None,
    nominated: str = "",
    priority: int | None = None,
    to: tuple[str, ...] = (),
    gate: bool = False,
    **spec: Any,
) -> ClusterPod:
    """A pod on its way; ``to``: the nodes that its affinity names."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in to]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if isinstance(released, float):
        released = timestamp.format(datetime.fromtimestamp(released, UTC))
    annotations = {} if released is None else {RELEASED: released}
    return ClusterPod.from_api(
        {
            "metadata": {"name": name, "namespace": "team", "uid": name, "annotations": annotations},
            "spec": {
                "containers": [building.container("main", cpus)],
                "priority": priority,
                **({"affinity": {"nodeAffinity": required}} if to else {}),
                **({"schedulingGates": [{"name": "example.com/wait"}]} if gate else {}),
                **spec,
            },
            "status": {"phase": "Pending", "nominatedNodeName": nominated},
        }
    )


def node(name: str) -> ClusterNode:
    """Seven and eight CPUs on two NUMA nodes."""
    amounts = {"cpu": 15_000, "memory": 30 << 30}
    return ClusterNode(name, allocatable=amounts, pod_slots=9).with_state(building.node())


NODES: Mapping[str, ClusterNode] = {name: node(name) for name in ("a", "b")}
ASKING = waiting("asking", priority=5)


def held_by(
    *pods: ClusterPod, asking: ClusterPod = ASKING, nodes: Iterable[ClusterNode] = NODES.values()
) -> dict[str, list[str]]:
    """Node → names of the pods whom one that asks has to leave room there."""
    found = by_node(held(pods, list(nodes), now=NOW, asking=asking))
    return {where: [pod.name for pod in others] for where, others in found.items()}


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        (waiting("p", released=NOW - 10, to=("a",)), [(("a",), ArrivalPath.RELEASED, NOW + 50)]),
        (waiting("p", released=NOW - 10), [(("a", "b"), ArrivalPath.RELEASED, NOW + 50)]),
        (waiting("p", released=NOW - 60, to=("a",)), []),
        (waiting("p", released=NOW - 10, to=("gone",)), []),
        (waiting("p", released=NOW - 10, to=("a",), gate=True), []),
        (waiting("p", nominated="b"), [(("b",), ArrivalPath.NOMINATED, None)]),
        (waiting("p"), []),
    ],
    ids=["released", "to any", "long ago", "to no node", "gated again", "nominated", "neither"],
)
def test_who_holds_room_where_and_until_when(
    pod: ClusterPod, found: list[tuple[tuple[str, ...], ArrivalPath, float | None]]
) -> None:
    held_now = held([pod], list(NODES.values()), now=NOW)
    assert [(item.nodes, item.way, item.until) for item in held_now] == found


@pytest.mark.parametrize(
    ("seconds", "holds"),
    [(0, True), (RELEASE_SECONDS - 1, True), (RELEASE_SECONDS, False), (3600, False), (-1, False)],
)
def test_a_release_holds_room_for_a_minute(seconds: float, *, holds: bool) -> None:
    assert bool(held_by(waiting("p", released=NOW - seconds, to=("b",)))) is holds


def test_a_release_at_no_time_holds_nothing() -> None:
    assert release_ends(waiting("p", released="yesterday"), NOW) is None
    assert release_ends(waiting("p"), NOW) is None
    assert release_ends(waiting("p", released=NOW), NOW) == NOW + RELEASE_SECONDS
    assert held_by(waiting("p", released="yesterday", to=("b",))) == {}


def test_bound_pods_and_the_asking_pod_hold_nothing() -> None:
    assert held_by(waiting("p", released=NOW, to=("b",), nodeName="b")) == {}
    asking = waiting("p", released=NOW, to=("b",))
    assert held_by(asking, asking=asking) == {}
    assert held_by(waiting("gone", nodeName="a"), asking) == {"b": ["p"]}


@pytest.mark.parametrize(
    ("priority", "asked", "holds"),
    [
        (4, 5, False),
        (5, 5, True),
        (6, 5, True),
        (None, 0, True),
        (None, 1, False),
        (-1, None, False),
        (0, None, True),
    ],
)
def test_nominated_pod_holds_room_against_equal_or_lower_priority(
    priority: int | None, asked: int | None, *, holds: bool
) -> None:
    pod = waiting("p", nominated="b", priority=priority)
    assert held_by(pod, asking=waiting("asking", priority=asked)) == ({"b": ["p"]} if holds else {})


def test_pod_allowed_on_too_many_nodes_holds_no_room() -> None:
    nodes = [node(f"n{number}") for number in range(MAX_NODES + 1)]
    names = tuple(one.name for one in nodes)
    assert len(held_by(waiting("p", released=NOW, to=names[:-1]), nodes=nodes)) == MAX_NODES
    assert held_by(waiting("p", released=NOW, to=names), nodes=nodes) == {}


class PlacesEveryPod(KubeletPlacement):
    """Stands for a model that may reject even pods without NUMA requirements."""

    model = replace(KUBELET_MODEL, places_every_pod=True)


@pytest.mark.parametrize(
    ("way", "at"),
    [
        ({"nominated": "kubelet"}, {}),
        ({"nominated": "model"}, {"model": ["p"]}),
        ({"nominated": "unread"}, {}),
        ({"nominated": "elsewhere"}, {"elsewhere": ["p"]}),
        ({"released": NOW}, {"model": ["p"]}),
    ],
)
def test_pod_without_numa_requirements_holds_room_where_models_reject_it(
    way: dict[str, Any], at: dict[str, list[str]]
) -> None:
    model = replace(node("model"), placement=PlacesEveryPod(building.node()))
    nodes = [node("kubelet"), model, ClusterNode("unread")]
    pod = waiting("p", containers=[{"name": "main"}], **way)
    assert held_by(pod, asking=waiting("asking"), nodes=nodes) == at


def test_labels_of_nodes_choose_them_too() -> None:
    labelled = [replace(one, labels={"rack": one.name}) for one in NODES.values()]
    assert held_by(waiting("p", released=NOW, nodeSelector={"rack": "a"}), nodes=labelled) == {"a": ["p"]}


def test_a_node_with_what_is_held_has_so_much_less() -> None:
    after = with_held(NODES["a"], [waiting("one"), waiting("two")])
    assert after is not None
    assert set(after.pods) == {"one", "two"}
    assert with_held(NODES["a"], []) is NODES["a"]


def test_held_pod_that_the_kubelet_would_reject_holds_its_requests() -> None:
    after = with_held(NODES["a"], [waiting("large", cpus=9)])
    assert after is not None
    assert set(after.pods) == {"large"}


def test_unreadable_held_pod_makes_everything_unknown() -> None:
    broken = waiting("p", cpus="many")
    assert broken.admission is None
    assert with_held(NODES["a"], [waiting("one"), broken]) is None


class RaisingPlacement(KubeletPlacement):
    """Stands for a model that raises what no rule foresees."""

    def admit(self, pod: Pod) -> Any:
        raise ZeroDivisionError(pod.name)


def test_held_pod_that_raises_is_named() -> None:
    raising = replace(NODES["a"], placement=RaisingPlacement(building.node()))
    with pytest.raises(ObjectFault, match="pod team/p: ZeroDivisionError: p"):
        with_held(raising, [waiting("p")])


def test_zones_are_given_in_the_order_in_which_pods_come() -> None:
    pods = [waiting(name, cpus=5) for name in ("first", "second", "third")]
    pods += [waiting("unreadable", cpus="many"), waiting("small", cpus=3)]
    found = [(pod.name, zones) for pod, zones in zones_held(NODES["a"], pods)]
    assert found == [("first", (0,)), ("second", (1,)), ("third", ()), ("unreadable", ()), ("small", (1,))]


def test_room_held_on_every_numa_node_is_named_as_obstacle() -> None:
    asking = waiting("asking", cpus=6)
    prediction = predict(asking, NODES.values())
    first, second = waiting("first", cpus=5), waiting("second", cpus=5)
    by_node = {"a": [first, second], "b": [first], "elsewhere": [second]}
    assert not list(in_the_way(asking, prediction, NODES.get, {}))
    assert not list(in_the_way(asking, prediction, NODES.get, by_node))  # on b one NUMA node is left
    assert not list(in_the_way(asking, prediction, NODES.get, {"a": by_node["a"]}))  # on b both are
    by_node["b"].append(second)
    assert not list(in_the_way(waiting("unreadable", cpus="many"), prediction, NODES.get, by_node))
    for find in (NODES.get, {"a": NODES["a"]}.get):  # b may be gone meanwhile
        assert list(in_the_way(asking, prediction, find, by_node)) == [
            "a: room is held for team/first, team/second",
            "b: room is held for team/first, team/second",
        ]
