"""Small clusters to rebalance: nodes of a few zones, and pods that the kubelet's model admits onto them."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import EvictionContext
from numazones.rebalance.moves import evict, place

NOW = datetime.fromisoformat("2026-01-31T12:00:00Z")
GIB = 1 << 30


def machine(zones: int, cpus: int) -> Machine:
    """Zones of so many CPUs (one thread a core) and 64 GiB each."""
    return Machine(
        tuple(
            CPU(id=zone * cpus + core, core=core, socket=zone, die=0, numa=zone)
            for zone in range(zones)
            for core in range(cpus)
        ),
        tuple(NUMANode(zone, 64 * GIB) for zone in range(zones)),
    )


def node(
    name: str, *, zones: int = 2, cpus: int = 4, policy: str = "single-numa-node", **settings: Any
) -> ClusterNode:
    """A node whose first CPU is reserved."""
    configuration = {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": policy,
        "topologyManagerScope": "pod",
        "reservedSystemCPUs": "0",
        **settings,
    }
    body = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": str(zones * cpus - 1), "memory": "120Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return ClusterNode.from_api(body).with_state(
        Node.fresh(machine(zones, cpus), KubeletConfiguration.from_api(configuration))
    )


def pod(name: str, cpus: int, *, owner: str = "", namespace: str = "default", **fields: Any) -> ClusterPod:
    """A running Guaranteed pod of a ReplicaSet (its own one, unless an owner is named)."""
    owner = owner or f"{name}-rs"
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    body = {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": name,
            "ownerReferences": [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}],
            **fields.pop("metadata", {}),
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
            **fields.pop("spec", {}),
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-31T10:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return replace(ClusterPod.from_api(body), **fields)


def put(target: ClusterNode, *pods: ClusterPod) -> ClusterNode:
    """The node after it has admitted the pods, one after the other."""
    for each in pods:
        placed = place(target, each)
        assert placed.node is not None, (target.name, each.name, placed.rejections)
        target = placed.node
    return target


def situation(nodes: Iterable[ClusterNode], *, now: datetime = NOW, **context: Any) -> Situation:
    """The situation of a cluster in which every owner seems to have ten replicas."""
    cluster = Cluster({each.name: each for each in nodes})
    owners = {owner.uid: 10 for each in nodes for held in each.pods.values() for owner in held.owners}
    return Situation(cluster, EvictionContext(now=now, **{"replicas": owners, **context}))


@dataclass(frozen=True)
class Builders:
    """Builders of clusters for tests."""

    node: Callable[..., ClusterNode] = node
    pod: Callable[..., ClusterPod] = pod
    put: Callable[..., ClusterNode] = put
    situation: Callable[..., Situation] = situation
    now: datetime = field(default=NOW)


@pytest.fixture(scope="session")
def build() -> Builders:
    return Builders()


@pytest.fixture(scope="session")
def random_cluster() -> Callable[[random.Random], list[ClusterNode]]:
    """Clusters of 2 to 4 nodes with up to 14 pods, left behind by arrivals and departures."""

    def make(draw: random.Random) -> list[ClusterNode]:
        nodes = [node(f"n{index}", cpus=draw.choice([4, 6])) for index in range(draw.randint(2, 4))]
        for index in range(draw.randint(10, 40)):
            position = draw.randrange(len(nodes))
            placed = place(nodes[position], pod(f"p{index}", draw.choice([1, 1, 2, 2, 3])))
            if placed.node is not None:
                nodes[position] = placed.node
            if draw.random() < 0.35 or sum(each.pod_count for each in nodes) > 14:
                nodes = _without_one(nodes, draw)
        return nodes

    return make


def _without_one(nodes: list[ClusterNode], draw: random.Random) -> list[ClusterNode]:
    held = [(position, each) for position, one in enumerate(nodes) for each in one.pods.values()]
    if not held:
        return nodes
    position, gone = draw.choice(held)
    return [*nodes[:position], evict(nodes[position], gone), *nodes[position + 1 :]]
