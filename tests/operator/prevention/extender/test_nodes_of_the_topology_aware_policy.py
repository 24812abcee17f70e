"""The extender on nodes of the topology-aware policy, which places pods of every kind."""

from typing import Any

import pytest

from tests.operator.mirror.test_node_placement import Setting
from tests.operator.prevention.extender.cluster import Cluster

BOUND = ""


@pytest.fixture
def cluster() -> Cluster:
    """Node ``a`` of the kubelet's, and ``n``, of which 250m are left beside five pods."""
    made = Cluster("a")
    policy = Setting()
    policy.state = made.state
    policy.topology_aware()
    for name in ("first", "second", "third", "fourth", "fifth"):
        policy.bind(name, "3")
    policy.publish()
    return made


def pod(cluster: Cluster, name: str, cpu: str) -> dict[str, Any]:
    """A Burstable pod, or a BestEffort one."""
    body = cluster.pod(name, mirrored=False)
    requests = {"cpu": cpu, "memory": "64Mi"} if cpu else {}
    body["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {}}
    cluster.mirror(name)
    return body


async def test_burstable_pod_that_the_policy_would_reject_does_not_pass(cluster: Cluster) -> None:
    answer = await cluster.filter(pod(cluster, "p", "1"), ["n", "a"])
    assert answer["NodeNames"] == ["a"]
    assert "topology-aware" in answer["FailedAndUnresolvableNodes"]["n"]


async def test_one_that_the_policy_finds_room_for_passes(cluster: Cluster) -> None:
    cluster.state.pods.discard("first")
    answer = await cluster.filter(pod(cluster, "p", "1"), ["n", "a"])
    assert answer["NodeNames"] == ["n", "a"]


async def test_best_effort_pod_passes_if_it_takes_only_leftovers(cluster: Cluster) -> None:
    answer = await cluster.filter(pod(cluster, "p", ""), ["n", "a"])
    assert answer["NodeNames"] == ["n", "a"]


async def test_other_nodes_are_not_asked(cluster: Cluster) -> None:
    answer = await cluster.filter(pod(cluster, "p", "1000"), ["a"])
    assert answer["NodeNames"] == ["a"]


async def test_binding_decides_about_burstable_pods_there_once_more(cluster: Cluster) -> None:
    pod(cluster, "p", "1")
    assert "not bound because the node has changed since it was chosen" in await cluster.bind("p", "n")
    assert await cluster.bind("p", "a") == BOUND


async def test_preemption_for_a_burstable_pod_must_make_room_there(cluster: Cluster) -> None:
    body = pod(cluster, "p", "1")
    assert await cluster.preempt(body, {"n": ["first"], "a": ["x"]}) == {"n": ["first"], "a": ["x"]}
    assert await cluster.preempt(body, {"n": ["other"], "a": ["x"]}) == {"a": ["x"]}
