"""Simulated kubelets, scheduler and ReplicaSets against the embedded API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from numazones.kubelet import checkpoints, machines
from numazones.kubelet.machines import MachineShape
from numazones_apiserver import ApiServer, InProcess
from numazones_client import Client, ClusterConfig
from numazones_client.resources import DEPLOYMENTS, LEASES, NODES, PODS, REPLICA_SETS
from numazones_exporter.sources.podresources import SocketReader
from numazones_simulator.deployments import Deployments
from numazones_simulator.kubelet.fleet import Fleet, SocketPathTooLong
from numazones_simulator.node_spec import NodeSpec, configuration
from numazones_simulator.replica_sets import ReplicaSets
from numazones_simulator.scheduler import SimulatedScheduler

MACHINE = machines.build(MachineShape(cores_per_numa=4, memory_per_numa=8 << 30))


def specs(count: int, policy: str = "single-numa-node") -> list[NodeSpec]:
    config = configuration(MACHINE, topology_manager_policy=policy, reserved_cpus="0,8")
    return [NodeSpec(f"n{number}", MACHINE, config, address=f"10.77.0.{number}") for number in range(count)]


def pod(name: str, *, cpus: str, memory: str = "1Gi", node: str = "") -> dict[str, Any]:
    amounts = {"cpu": cpus, "memory": memory}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": {"limits": amounts}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**spec, "nodeName": node} if node else spec,
    }


class Cluster:
    """A running cluster with the actions that tests need."""

    def __init__(self, client: Client, fleet: Fleet, server: ApiServer) -> None:
        self.client, self.fleet, self.server = client, fleet, server

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(PODS, body, namespace="default")

    async def pods(self) -> list[dict[str, Any]]:
        return await self.client.list(PODS)

    async def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The pods, once something holds for them."""
        async with asyncio.timeout(120):
            while not holds(pods := await self.pods()):  # noqa: ASYNC110 - as a user would look
                await asyncio.sleep(0.02)
        return pods


@asynccontextmanager
async def running(fleet_of: list[NodeSpec], directory: Path | None = None) -> AsyncIterator[Cluster]:
    async with ApiServer(host=None) as server, Client(transport=InProcess(server)) as client:
        fleet = Fleet(client, fleet_of, directory=directory)
        server.node_proxy = fleet.answer
        async with asyncio.TaskGroup() as tasks:
            running_tasks = [
                tasks.create_task(part)
                for part in (
                    fleet.run(),
                    SimulatedScheduler(client).run(),
                    ReplicaSets(client, pause=0.05).run(),
                    Deployments(client).run(),
                )
            ]
            try:
                async with asyncio.timeout(120):
                    while len(await client.list(NODES)) < len(fleet_of):  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                yield Cluster(client, fleet, server)
            finally:
                for task in running_tasks:
                    task.cancel()


def phases(pods: list[dict[str, Any]]) -> dict[str, str]:
    return {item["metadata"]["name"]: (item.get("status") or {}).get("phase", "") for item in pods}


async def test_nodes_register_with_lease_and_configuration() -> None:
    async with running(specs(2)) as cluster:
        node = await cluster.client.get(NODES, "n1")
        assert node["status"]["allocatable"]["cpu"] == "14"
        assert node["status"]["conditions"][0]["type"] == "Ready"
        async with asyncio.timeout(120):
            while len(leases := await cluster.client.list(LEASES, namespace="kube-node-lease")) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [(one["metadata"]["name"], one["spec"]["holderIdentity"]) for one in leases] == [
            ("n0", "n0"),
            ("n1", "n1"),
        ]
        configz = await cluster.client.get_raw("/api/v1/nodes/n1/proxy/configz")
        assert b'"topologyManagerPolicy":"single-numa-node"' in configz.replace(b": ", b":")


async def test_pods_run_or_are_rejected_as_the_kubelet_decides() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("fits", cpus="5", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"fits": "Running"})
        await cluster.create(pod("spans", cpus="6", node="n0"))
        await cluster.create(pod("huge", cpus="1", memory="15Gi", node="n0"))
        pods = await cluster.until(lambda pods: list(phases(pods).values()).count("Failed") == 1)
        await cluster.create(pod("again", cpus="5", node="n0"))
        pods = await cluster.until(lambda pods: "Pending" not in phases(pods).values())
    by_name = {item["metadata"]["name"]: item["status"] for item in pods}
    assert by_name["fits"]["containerStatuses"][0]["ready"] is True
    assert by_name["fits"]["podIP"].startswith("10.100.")
    assert by_name["spans"]["phase"] == "Running"  # NUMA node 1 has eight free CPUs
    assert by_name["huge"]["reason"] == "UnexpectedAdmissionError"
    assert by_name["again"]["reason"] == "TopologyAffinityError"
    assert by_name["again"]["message"] == (
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    )


async def test_a_critical_pod_takes_the_place_of_others() -> None:
    async with running(specs(1)) as cluster:
        burstable = pod("burstable", cpus="1", node="n0")
        burstable["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10"}}
        await cluster.create(burstable)
        await cluster.until(lambda pods: all(item["status"]["phase"] == "Running" for item in pods))
        critical = pod("critical", cpus="5", node="n0")
        critical["spec"]["priorityClassName"] = "system-node-critical"
        await cluster.create(critical)
        pods = await cluster.until(
            lambda pods: {item["status"]["phase"] for item in pods} == {"Running", "Failed"}
        )
        (ended,) = [item for item in pods if item["status"]["phase"] == "Failed"]
        assert ended["metadata"]["name"] == "burstable"
        assert (ended["status"]["reason"], ended["status"]["message"]) == (
            "Preempting",
            "Preempted in order to admit critical pod",
        )


async def test_kubelet_decides_on_a_pod_only_once() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("first", cpus="8", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"first": "Running"})
        bound = await cluster.create(pod("late", cpus="8", node="n0"))
        agent = cluster.fleet.agents["n0"]
        await cluster.until(lambda pods: phases(pods)["late"] == "Failed")
        # News from before the rejection, after room was made: as when a status is slow to arrive.
        agent.kubelet.remove(agent.kubelet.pods[0].uid)
        agent.tell(bound["metadata"]["uid"], bound)
        await cluster.create(pod("next", cpus="1", node="n0"))
        pods = await cluster.until(lambda pods: phases(pods).get("next") == "Running")
        assert phases(pods)["late"] == "Failed"
        assert [held.name for held in agent.kubelet.pods] == ["next"]


async def test_busy_kubelet_admits_pods_in_order_of_binding() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("first", cpus="1", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"first": "Running"})
        agent = cluster.fleet.agents["n0"]
        for name, created in (("younger", "2026-01-31T12:00:01Z"), ("older", "2026-01-31T12:00:00Z")):
            body = pod(name, cpus="8", node="n0")
            body["metadata"] |= {"uid": name, "creationTimestamp": created}
            resources = body["spec"]["containers"][0]["resources"]
            resources["requests"] = resources["limits"]  # as the API server does
            agent.tell(name, body)
        await cluster.create(pod("next", cpus="1", node="n0"))
        await cluster.until(lambda pods: phases(pods).get("next") == "Running")
        assert [held.name for held in agent.kubelet.pods] == ["first", "younger", "next"]


async def test_deleted_pods_give_back_what_they_held() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("first", cpus="8", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"first": "Running"})
        await cluster.client.delete(PODS, "first", namespace="default")
        await cluster.until(lambda pods: not pods)
        await cluster.create(pod("second", cpus="8", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"second": "Running"})


async def test_ended_pods_give_back_what_they_held() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("first", cpus="8", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"first": "Running"})
        await cluster.client.patch(
            PODS, "first", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status"
        )
        await cluster.create(pod("second", cpus="8", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"first": "Succeeded", "second": "Running"})


async def test_the_scheduler_spreads_and_says_why_a_pod_waits() -> None:
    async with running(specs(3)) as cluster:
        for number in range(3):
            await cluster.create(pod(f"p{number}", cpus="8"))
        pods = await cluster.until(lambda pods: set(phases(pods).values()) == {"Running"})
        assert sorted(item["spec"]["nodeName"] for item in pods) == ["n0", "n1", "n2"]

        await cluster.create(pod("big", cpus="7"))
        pods = await cluster.until(lambda pods: any(item["status"].get("conditions") for item in pods[:1]))
        waiting = next(item for item in pods if item["metadata"]["name"] == "big")
        (condition,) = waiting["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert condition["message"] == "0/3 nodes are available: 3 Insufficient cpu."

        await cluster.client.delete(PODS, "p1", namespace="default")
        await cluster.until(lambda pods: phases(pods).get("big") == "Running")


async def test_gated_pods_and_other_schedulers_pods_are_left_alone() -> None:
    async with running(specs(1)) as cluster:
        gated = pod("gated", cpus="1")
        gated["spec"]["schedulingGates"] = [{"name": "x.example/wait"}]
        other = pod("other", cpus="1")
        other["spec"]["schedulerName"] = "another"
        await cluster.create(gated)
        await cluster.create(other)
        await cluster.create(pod("plain", cpus="1"))
        pods = await cluster.until(lambda pods: phases(pods)["plain"] == "Running")
        assert {item["metadata"]["name"] for item in pods if not item["spec"].get("nodeName")} == {
            "gated",
            "other",
        }
        await cluster.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default")
        await cluster.until(lambda pods: phases(pods)["gated"] == "Running")


def replica_set(replicas: int, cpus: str) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("", cpus=cpus)["spec"]},
        },
    }


async def test_replica_sets_replace_what_is_deleted_and_shrink_on_demand() -> None:
    async with running(specs(2)) as cluster:
        await cluster.client.create(REPLICA_SETS, replica_set(3, "2"), namespace="default")
        pods = await cluster.until(lambda pods: list(phases(pods).values()) == ["Running"] * 3)
        gone = pods[0]["metadata"]["name"]
        await cluster.client.delete(PODS, gone, namespace="default")
        await cluster.until(lambda pods: len(pods) == 3 and gone not in phases(pods))
        await cluster.client.patch(REPLICA_SETS, "web", {"spec": {"replicas": 1}}, namespace="default")
        await cluster.until(lambda pods: len(pods) == 1)


async def ready_replicas(client: Client) -> int | None:
    deployment = await client.get(DEPLOYMENTS, "web", namespace="default")
    return (deployment.get("status") or {}).get("readyReplicas")


async def test_deployments_keep_the_pods_of_their_latest_template() -> None:
    async with running(specs(2)) as cluster:
        body = replica_set(2, "2")
        await cluster.client.create(DEPLOYMENTS, {**body, "kind": "Deployment"}, namespace="default")
        first = await cluster.until(lambda pods: list(phases(pods).values()) == ["Running"] * 2)
        template = {"spec": {"template": {"metadata": {"labels": {"app": "web", "release": "2"}}}}}
        await cluster.client.patch(DEPLOYMENTS, "web", template, namespace="default")
        second = await cluster.until(
            lambda pods: len(pods) == 2 and not phases(pods).keys() & phases(first).keys()
        )
        assert {item["metadata"]["labels"]["release"] for item in second} == {"2"}
        await cluster.until(lambda pods: set(phases(pods).values()) == {"Running"})
        async with asyncio.timeout(120):
            while await ready_replicas(cluster.client) != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await cluster.client.delete(DEPLOYMENTS, "web", namespace="default")
        await cluster.until(lambda pods: not pods)


async def test_rejected_replicas_are_replaced_again_and_again() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("holder", cpus="4", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"holder": "Running"})
        await cluster.create(pod("other", cpus="3", node="n0"))
        # Ten CPUs would be free, but no NUMA node has seven: the scheduler never learns.
        await cluster.client.create(REPLICA_SETS, replica_set(1, "7"), namespace="default")
        pods = await cluster.until(lambda pods: list(phases(pods).values()).count("Failed") >= 4)
        failed = [item for item in pods if item["status"]["phase"] == "Failed"]
        assert {item["status"]["reason"] for item in failed} == {"TopologyAffinityError"}


async def test_files_and_socket_follow_the_pods(tmp_path: Path) -> None:
    async with running(specs(1), tmp_path) as cluster:
        created = await cluster.create(pod("p", cpus="2", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"p": "Running"})
        kubelet_dir = tmp_path / "n0" / "kubelet"
        state = checkpoints.parse_cpu_manager_state((kubelet_dir / "cpu_manager_state").read_bytes())
        assert set(state.entries) == {created["metadata"]["uid"]}
        reader = SocketReader(kubelet_dir / "pod-resources" / "kubelet.sock")
        answer = await reader.read()
        await reader.close()
        assert [item.name for item in answer.pods] == ["p"]
        assert (tmp_path / "n0" / "sys/devices/system/cpu/online").read_text() == "0-15\n"


async def test_kubelets_survive_a_restart_of_the_api_server() -> None:
    async with running(specs(1)) as cluster:
        await cluster.create(pod("before", cpus="2", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"before": "Running"})
        await cluster.server.stop()
        await cluster.server.start()
        await cluster.create(pod("after", cpus="2", node="n0"))
        await cluster.until(lambda pods: phases(pods) == {"before": "Running", "after": "Running"})


async def test_a_path_too_long_for_a_socket_is_rejected(tmp_path: Path) -> None:
    async with Client(ClusterConfig(server="http://127.0.0.1:1")) as client:
        with pytest.raises(SocketPathTooLong, match="use a directory with a shorter path"):
            Fleet(client, specs(1), directory=tmp_path / ("x" * 100))
