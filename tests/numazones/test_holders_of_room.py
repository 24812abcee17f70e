"""The room that pods on their way hold: of which pods, on which nodes, and against whom."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from numazones import build, timestamp
from numazones.cluster import ClusterNode, ClusterPod
from numazones.held_room import MAX_NODES, RELEASE_SECONDS, held, release_ends, with_held
from numazones.waiting import RELEASED

NOW = 1_700_000_000.0


def pod(
    name: str,
    *,
    released: float | str | None = None,
    nodes: tuple[str, ...] = (),
    nominated: str = "",
    node: str = "",
    gates: bool = False,
    priority: int | None = None,
    cpu: str = "2",
) -> ClusterPod:
    spec: dict[str, Any] = {"containers": [_container(cpu)], "nodeName": node}
    if nodes:
        chosen = {
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [one]} for one in nodes]
        }
        terms = [{"matchFields": [field]} for field in chosen["matchFields"]]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if gates:
        spec["schedulingGates"] = [{"name": "numazones.io/admission"}]
    if priority is not None:
        spec["priority"] = priority
    metadata: dict[str, Any] = {"name": name, "namespace": "d", "uid": name}
    if released is not None:
        moment = (
            released if isinstance(released, str) else timestamp.format(datetime.fromtimestamp(released, UTC))
        )
        metadata["annotations"] = {RELEASED: moment}
    return ClusterPod.from_api(
        {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "nominatedNodeName": nominated}}
    )


def _container(cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return {"name": "c", "resources": {"requests": amounts, "limits": amounts}}


def node(name: str) -> ClusterNode:
    body = {
        "metadata": {"name": name, "labels": {}},
        "status": {"allocatable": {"cpu": "7", "memory": "8Gi", "pods": "9"}},
    }
    machine = build.machine(numa=2, cores=4, threads=1, memory="8Gi")
    return ClusterNode.from_api(body).with_state(build.node(machine))


NODES = [node("a"), node("b")]
ASKING = pod("asking", priority=5)


def held_by(
    *waiting: ClusterPod, asking: ClusterPod = ASKING, nodes: list[ClusterNode] | None = None
) -> list[tuple[str, str]]:
    found = held(waiting, nodes or NODES, now=NOW, asking=asking)
    return [(where, item.pod.name) for item in found for where in item.nodes]


def test_a_released_pod_holds_room_on_every_node_that_it_may_go_to() -> None:
    assert held_by(pod("p", released=NOW, nodes=("b",))) == [("b", "p")]
    assert held_by(pod("p", released=NOW, nodes=("a", "b"))) == [("a", "p"), ("b", "p")]
    assert held_by(pod("p", nodes=("b",))) == []


@pytest.mark.parametrize(
    ("seconds", "holds"), [(0, True), (RELEASE_SECONDS - 1, True), (RELEASE_SECONDS, False), (3600, False)]
)
def test_it_does_so_for_a_minute(seconds: float, *, holds: bool) -> None:
    assert bool(held_by(pod("p", released=NOW - seconds, nodes=("b",)))) is holds


def test_a_release_at_no_time_holds_nothing() -> None:
    assert release_ends(pod("p", released="yesterday"), NOW) is None
    assert release_ends(pod("p"), NOW) is None
    assert release_ends(pod("p", released=NOW), NOW) == NOW + RELEASE_SECONDS
    assert held_by(pod("p", released="yesterday", nodes=("b",))) == []


def test_pods_with_a_node_or_a_gate_and_the_one_that_asks_hold_nothing() -> None:
    assert held_by(pod("p", released=NOW, nodes=("b",), node="b")) == []
    assert held_by(pod("p", released=NOW, nodes=("b",), gates=True)) == []
    asking = pod("p", released=NOW, nodes=("b",))
    assert held_by(asking, asking=asking) == []
    assert held_by(pod("gone", node="a"), pod("p", released=NOW, nodes=("b",))) == [("b", "p")]


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
def test_a_nominated_pod_holds_its_node_against_pods_of_no_higher_priority(
    priority: int | None, asked: int | None, *, holds: bool
) -> None:
    waiting = pod("p", nominated="b", priority=priority)
    assert held_by(waiting, asking=pod("asking", priority=asked)) == ([("b", "p")] if holds else [])


def test_a_pod_that_may_go_to_many_nodes_was_given_no_choice() -> None:
    nodes = [node(f"n{number}") for number in range(MAX_NODES + 1)]
    names = tuple(one.name for one in nodes)
    assert len(held_by(pod("p", released=NOW, nodes=names[:-1]), nodes=nodes)) == MAX_NODES
    assert held_by(pod("p", released=NOW, nodes=names), nodes=nodes) == []


def test_labels_of_nodes_choose_them_too() -> None:
    body = {
        "metadata": {
            "name": "p",
            "namespace": "d",
            "uid": "p",
            "annotations": {RELEASED: "2023-11-14T22:13:20Z"},
        },
        "spec": {"containers": [_container("2")], "nodeSelector": {"rack": "1"}},
        "status": {"phase": "Pending"},
    }
    labelled = [replace(NODES[0], labels={"rack": "1"}), replace(NODES[1], labels={"rack": "2"})]
    assert held_by(ClusterPod.from_api(body), nodes=labelled) == [("a", "p")]


def test_a_node_with_what_is_held_has_so_much_less() -> None:
    one, two = pod("one"), pod("two")
    after = with_held(NODES[0], [one, two])
    assert after is not None
    assert set(after.pods) == {"one", "two"}
    assert with_held(NODES[0], []) is NODES[0]


def test_a_held_pod_that_the_kubelet_would_reject_holds_its_requests() -> None:
    after = with_held(NODES[0], [pod("large", cpu="7")])
    assert after is not None
    assert set(after.pods) == {"large"}


def test_with_a_held_pod_that_cannot_be_read_nothing_is_known() -> None:
    broken = pod("p", cpu="many")
    assert broken.admission is None
    assert with_held(NODES[0], [pod("one"), broken]) is None
