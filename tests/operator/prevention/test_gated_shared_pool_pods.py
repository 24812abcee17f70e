"""Burstable and BestEffort pods at the gate where some nodes' model places pods of every kind.

The topology-aware policy is such a model: it may find no CPU for a pod that every kubelet admits.
"""

from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.held_room import held
from numazones_operator.prevention import shared_pool_pods
from tests.operator.mirror.test_node_placement import Setting
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates

GATES = [{"name": GATE}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FULL = ("first", "second", "third", "fourth", "fifth")
"""Pods beside which node ``n`` has 250m left."""


def cluster_of(*kubelets: str, there: tuple[str, ...] = FULL) -> Cluster:
    """Nodes of kubelets, and node ``n`` of the topology-aware policy."""
    made = Cluster(*kubelets)
    policy = Setting()
    policy.state = made.state
    policy.topology_aware()
    for name in there:
        policy.bind(name, "3")
    policy.publish()
    return made


def gated(cluster: Cluster, name: str, cpu: str = "", **spec: Any) -> None:
    """A Burstable pod at the gate, or a BestEffort one."""
    body = cluster.pod(name, mirrored=False, schedulingGates=GATES, **spec)
    requests = {"cpu": cpu, "memory": "64Mi"} if cpu else {}
    body["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {}}
    cluster.mirror(name)


def released(cluster: Cluster) -> dict[str, list[tuple[str, str]]]:
    """Name of a released pod → how the nodes that its affinity names are meant."""
    found = {}
    for name, patch in cluster.server.patches:
        affinity = (patch["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        terms = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
        fields = [field for term in terms for field in term["matchFields"]]
        found[name] = [(field["operator"], *field["values"]) for field in fields]
    return found


async def test_pod_may_go_to_all_nodes_except_a_rejecting_one() -> None:
    cluster = cluster_of("a", "b")
    gated(cluster, "p", "1")
    await offline_gates(cluster).release()
    assert released(cluster) == {"p": [("NotIn", "n")]}


@pytest.mark.parametrize("cpu", ["1", ""], ids=["Burstable", "BestEffort"])
async def test_one_that_it_has_room_for_may_go_anywhere(cpu: str) -> None:
    cluster = cluster_of("a", there=())
    gated(cluster, "p", cpu)
    await offline_gates(cluster).release()
    assert released(cluster) == {"p": []}
    assert list(cluster.held.by_node()) == ["n"]


async def test_several_are_not_let_go_for_the_room_of_one() -> None:
    cluster = cluster_of("a", there=FULL[:4])
    for name in ("p", "q"):
        gated(cluster, name, "2")
    await offline_gates(cluster).release()
    assert released(cluster) == {"p": [], "q": [("NotIn", "n")]}


async def test_pod_waits_for_room_if_no_other_node_admits() -> None:
    cluster = cluster_of()
    gates = offline_gates(cluster)
    gated(cluster, "p", "1")
    await gates.release()
    assert released(cluster) == {}
    cluster.state.pods.discard("first")
    await gates.release()
    assert released(cluster) == {"p": []}


async def test_pod_does_not_wait_forever_for_an_unknown_node() -> None:
    cluster = cluster_of()
    gates = offline_gates(cluster)
    gates.timeout = 60.0
    gated(cluster, "p", "1")
    await gates.release()
    node = cluster.state.nodes.get("n")
    assert node is not None
    cluster.state.nodes.remove(node)  # what was known of it is forgotten with it
    for zone in list(cluster.state.zones):
        cluster.state.zones.remove(zone)
    cluster.state.nodes.put(node)
    await gates.release()
    assert released(cluster) == {}
    cluster.offline.clock.now += 61
    await gates.release()
    assert released(cluster) == {"p": []}


async def test_pod_excluded_from_shared_pool_nodes_is_released_immediately() -> None:
    cluster = cluster_of("a")
    gated(cluster, "p", "1", nodeSelector={"pool": "elsewhere"})
    await offline_gates(cluster).release()
    assert released(cluster) == {"p": []}


async def test_its_own_affinity_stays() -> None:
    cluster = cluster_of("a")
    own = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["plan9"]}]}
    gated(cluster, "p", "1", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [own, {}]}}})
    cluster.server.pods["default/p"]["metadata"]["resourceVersion"] = "1"
    await offline_gates(cluster).release()
    ((_, patch),) = cluster.server.patches
    assert patch["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        own | {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]},
        {},
    ]


async def test_pod_is_released_to_few_of_many_shared_pool_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot name all the others."""
    monkeypatch.setattr(shared_pool_pods, "MAX_NODES", 0)
    for there, goes_to in (((), "n"), (FULL, "a")):
        cluster = cluster_of("a", there=there)
        gated(cluster, "p", "1")
        await offline_gates(cluster).release()
        assert released(cluster) == {"p": [("In", goes_to)]}


async def test_held_room_survives_a_change_of_leader() -> None:
    cluster = cluster_of("a", there=())
    gated(cluster, "p", "1")
    await offline_gates(cluster).release()
    ((_, patch),) = cluster.server.patches
    body = cluster.server.pods["default/p"]
    body["spec"]["schedulingGates"] = []
    body["metadata"]["annotations"] = patch["metadata"]["annotations"]
    cluster.wall.now = cluster.offline.clock.now
    cluster.mirror("p")
    cluster.held.drop("uid-p")
    assert list(cluster.held.by_node()) == ["n"]
    nodes = list(cluster.state.all_nodes())
    (found,) = held([ClusterPod.from_api(body)], nodes, now=cluster.wall.now)
    assert found.nodes == ("n",)
