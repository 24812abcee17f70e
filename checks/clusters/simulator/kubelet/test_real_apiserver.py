"""Simulated kubelets against a real kube-apiserver: they are clients like any other."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from numazones.kubelet import machines
from numazones.kubelet.machines import MachineShape
from numazones_client import Client, from_kubeconfig
from numazones_client.resources import LEASES, NODES, PODS, REPLICA_SETS
from numazones_simulator.kubelet.fleet import Fleet
from numazones_simulator.node_spec import NodeSpec, configuration
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import SimulatedScheduler
from tests.real_apiserver import RealAPIServer

MACHINE = machines.build(MachineShape(cores_per_numa=4, memory_per_numa=8 << 30))
NAMESPACE = "default"
NODE = "simulated-1"
# The server is shared with other tests: their pods stay off this node, and this test's pods off theirs.
TAINT = {"key": "example.com/of-this-test", "effect": "NoSchedule"}
AT_HOME = {
    "nodeSelector": {"kubernetes.io/hostname": NODE},
    "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
}
Pods = list[dict[str, Any]]


def spec(name: str) -> NodeSpec:
    config = configuration(MACHINE, topology_manager_policy="single-numa-node", reserved_cpus="0,8")
    return NodeSpec(name, MACHINE, config)


def replica_set(replicas: int, cpus: int) -> dict[str, Any]:
    labels = {"app": "simulated"}
    container = {
        "name": "c",
        "image": "i",
        "resources": {"limits": {"cpu": str(cpus), "memory": "1Gi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "simulated"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **AT_HOME},
            },
        },
    }


def large() -> dict[str, Any]:
    template = replica_set(1, 5)["spec"]["template"]
    metadata = {"name": "simulated-large", "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def phases(pods: Pods) -> list[str]:
    return sorted(pod["status"].get("phase", "") for pod in pods)


async def until(client: Client, holds: Callable[[Pods], bool]) -> Pods:
    async with asyncio.timeout(60):
        while not holds(pods := await client.list(PODS, label_selector="app=simulated")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return pods


async def ready_to_schedule(client: Client, name: str) -> None:
    """Take away the taint that a node controller would take away, and set this test's own."""
    async with asyncio.timeout(30):
        while name not in {node["metadata"]["name"] for node in await client.list(NODES)}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await client.patch(NODES, name, {"spec": {"taints": [TAINT]}})


async def clean_up(client: Client, node: str) -> None:
    """The server is shared with other tests."""
    await client.delete(REPLICA_SETS, "simulated", namespace=NAMESPACE)
    await asyncio.sleep(0.5)
    for pod in await client.list(PODS, label_selector="app=simulated"):
        await client.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE, grace_seconds=0)
    await until(client, lambda pods: not pods)
    await client.delete(NODES, node)


@pytest.mark.real_apiserver
async def test_pods_live_and_die_as_on_the_embedded_server(real_apiserver: RealAPIServer) -> None:
    config = await from_kubeconfig(real_apiserver.kubeconfig)
    async with Client(config) as client, asyncio.TaskGroup() as tasks:
        fleet = Fleet(client, [spec(NODE)])
        background = [
            tasks.create_task(part)
            for part in (fleet.run(), SimulatedScheduler(client).run(), ReplicaSets(client, pause=0.2).run())
        ]
        await ready_to_schedule(client, NODE)
        await client.create(REPLICA_SETS, replica_set(2, 4), namespace=NAMESPACE)
        pods = await until(client, lambda pods: phases(pods) == ["Running", "Running"])
        assert all(pod["status"]["containerStatuses"][0]["ready"] for pod in pods)
        lease = await client.get(LEASES, NODE, namespace="kube-node-lease")
        assert lease["spec"]["holderIdentity"] == NODE

        # Six more CPUs are free, four of them on one NUMA node: the kubelet rejects what the API allows.
        await client.create(PODS, large(), namespace=NAMESPACE)
        pods = await until(client, lambda pods: "Failed" in phases(pods))
        failed = next(pod for pod in pods if pod["status"]["phase"] == "Failed")
        assert failed["status"]["reason"] == "TopologyAffinityError"
        assert failed["status"]["message"].startswith("Pod was rejected: ")

        gone = next(pod for pod in pods if pod["status"]["phase"] == "Running")["metadata"]
        await client.delete(PODS, gone["name"], namespace=NAMESPACE)
        await until(
            client,
            lambda pods: (
                gone["uid"] not in {pod["metadata"]["uid"] for pod in pods}
                and phases(pods) == ["Failed", "Running", "Running"]
            ),
        )
        await clean_up(client, NODE)
        for task in background:
            task.cancel()
    await asyncio.sleep(0.25)  # aiohttp leaves TLS connections a moment to close
