from typing import Any

import pytest

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones_simulator.scheduler import choose, is_schedulable


def node(name: str, *, cpus: str = "8", memory: str = "16Gi", slots: str = "10", **spec: Any) -> ClusterNode:
    return ClusterNode.from_api(
        {
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpus, "memory": memory, "pods": slots}},
        }
    )


def pod(name: str, *, cpus: str = "1", memory: str = "1Gi", **spec: Any) -> ClusterPod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpus, "memory": memory}}}
    return ClusterPod.from_api(
        {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}}
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("a"), node("b")], "a"),
        ([node("a").with_pods([pod("x")]), node("b")], "b"),
        ([node("a").with_pods([pod("x", memory="8Gi")]), node("b").with_pods([pod("y", cpus="4")])], "b"),
        ([node("a", cpus="64"), node("b")], "a"),
        ([node("a", unschedulable=True), node("b").with_pods([pod("x", cpus="6")])], "b"),
    ],
)
def test_the_least_allocated_node_is_chosen(nodes: list[ClusterNode], expected: str) -> None:
    assert choose(pod("new"), nodes).node == expected


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "no nodes available"),
        (
            [node("a", cpus="1"), node("b", cpus="1", memory="1Gi"), node("c", unschedulable=True)],
            (
                "0/3 nodes are available: "
                "1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu."
            ),
        ),
        (
            [node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), node("b", slots="0")],
            "0/2 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s).",
        ),
    ],
)
def test_the_message_counts_reasons_as_the_scheduler_does(nodes: list[ClusterNode], message: str) -> None:
    choice = choose(pod("new", cpus="2", memory="2Gi"), nodes)
    assert (choice.node, choice.message) == (None, message)


@pytest.mark.parametrize(
    ("spec", "metadata", "expected"),
    [
        ({}, {}, True),
        ({"schedulerName": "default-scheduler"}, {}, True),
        ({"schedulerName": "other"}, {}, False),
        ({"nodeName": "n"}, {}, False),
        ({"schedulingGates": [{"name": "g"}]}, {}, False),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
def test_which_pods_wait_for_the_scheduler(
    spec: dict[str, Any], metadata: dict[str, Any], *, expected: bool
) -> None:
    assert is_schedulable({"spec": spec, "metadata": metadata}) is expected
