"""Simulated nodes on which Koordinator's scheduler or the topology-aware policy places pods."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones.cluster.cluster import ClusterPod
from numazones_client import Resource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES, PODS
from numazones_koordinator.annotations import RESOURCE_STATUS
from numazones_koordinator.identity import DEVICE
from numazones_koordinator.identity import NAME as KOORDINATOR
from numazones_simulator import node_kinds, placement_models
from numazones_simulator.kubelet import agent
from numazones_simulator.node_kinds import MODEL_LABEL
from numazones_topology_aware.identity import NAME as TOPOLOGY_AWARE
from numazones_topology_aware.identity import POLICIES
from numazones_topology_aware.live import published_pools
from tests.operator.pods import pod_body
from tests.waiting import eventually


@pytest.fixture
async def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Loop]:
    monkeypatch.setattr(agent, "_RETRY", 0.2)
    async with closed_loop(tmp_path) as running:
        await running.start_nodes(node_kinds.mixed(2, kinds=placement_models.node_kinds()))
        running.start_scheduler()
        yield running


async def create(loop: Loop, name: str, model: str, cpu: str, **more: Any) -> None:
    await loop.create_pod(
        name,
        cpu=cpu,
        nodeSelector={MODEL_LABEL: model},
        tolerations=[{"key": MODEL_LABEL, "operator": "Exists"}],
        terminationGracePeriodSeconds=0,
        **more,
    )


async def until(loop: Loop, name: str, holds: Callable[[ClusterPod], bool]) -> dict[str, Any]:
    async def probe() -> dict[str, Any] | None:
        body = await loop.client.get(PODS, name, namespace="default")
        return body if holds(ClusterPod.from_api(body)) else None

    found: dict[str, Any] = await eventually(probe)
    return found


def runs(pod: ClusterPod) -> bool:
    return pod.phase == "Running"


async def test_koordinators_scheduler_writes_on_the_pod_what_it_gave_it(loop: Loop) -> None:
    labels = {"koordinator.sh/qosClass": "LSR"}
    koordinated: dict[str, Any] = {"schedulerName": "koord-scheduler", "labels": labels}
    await create(loop, "one", KOORDINATOR, "4", **koordinated)
    first = await until(loop, "one", runs)
    assert json.loads(first["metadata"]["annotations"][RESOURCE_STATUS])["cpuset"]
    await create(loop, "two", KOORDINATOR, "4", **koordinated)
    second = await until(loop, "two", runs)
    assert first["metadata"]["annotations"] != second["metadata"]["annotations"]
    await create(loop, "foreign", KOORDINATOR, "4", labels=labels)
    assert RESOURCE_STATUS not in (await until(loop, "foreign", runs))["metadata"].get("annotations", {})
    devices = await loop.client.list(Resource.of_kind(DEVICE))
    assert [len(body["spec"]["devices"]) for body in devices] == [4]


async def test_what_the_topology_aware_policy_rejects_waits_until_it_fits(loop: Loop) -> None:
    assert [body["metadata"]["name"] for body in await loop.client.list(Resource.of_kind(POLICIES))] == [
        "default"
    ]
    # Shared CPUs of the root are what is left of 64 beside the reserved one and 58 exclusive ones.
    await create(loop, "large", TOPOLOGY_AWARE, "58")
    await until(loop, "large", runs)
    topologies = {body["metadata"]["name"]: body for body in await loop.client.list(NODE_RESOURCE_TOPOLOGIES)}
    assert {pool.kind.value for pool in published_pools(topologies["node-2"])} >= {"numa node", "socket"}
    await create(loop, "late", TOPOLOGY_AWARE, "5500m")
    waiting = await until(loop, "late", lambda pod: bool(pod.create_error))
    assert waiting["status"]["phase"] == "Pending"
    assert "NRI plugin topology-aware: " in json.dumps(waiting["status"])
    await loop.client.delete(PODS, "large", namespace="default", grace_seconds=0)
    await until(loop, "late", runs)


async def test_another_attempt_changes_the_status_of_waiting_containers_alone(loop: Loop) -> None:
    await create(loop, "large", TOPOLOGY_AWARE, "57")
    await until(loop, "large", runs)
    late = pod_body(
        "late",
        nodeSelector={MODEL_LABEL: "topology-aware"},
        tolerations=[{"key": MODEL_LABEL, "operator": "Exists"}],
        containers=[
            {"name": name, "image": "i", "resources": {"limits": {"cpu": cpu, "memory": "64Mi"}}}
            for name, cpu in (("small", "1"), ("big", "5500m"), ("never", "100m"))
        ],
    )
    unreadable = "cold-start.resource-policy.nri.io/container.never"
    late["metadata"]["annotations"] = {unreadable: "no duration"}
    await loop.client.create(PODS, late, namespace="default")
    before = await until(loop, "late", lambda pod: bool(pod.uncreated))
    assert ClusterPod.from_api(before).uncreated == ("big", "never")
    await loop.client.delete(PODS, "large", namespace="default", grace_seconds=0)
    after = await until(loop, "late", lambda pod: pod.uncreated == ("never",))
    assert after["status"]["phase"] == "Pending"
    assert all(after["status"][kept] == before["status"][kept] for kept in ("podIP", "startTime"))
    small = [pod["status"]["containerStatuses"][0] for pod in (before, after)]
    assert small[0] == small[1]
    assert "running" in small[0]["state"]


def test_the_same_seed_draws_the_same_pods_for_each_model() -> None:
    for model in (KOORDINATOR, TOPOLOGY_AWARE):
        first, again = placement_models.pods_for(model, 3), placement_models.pods_for(model, 3)
        pods = [next(first) for _ in range(60)]
        assert pods == [next(again) for _ in range(60)]
        assert not [ClusterPod.from_api(body).problem for body in pods if ClusterPod.from_api(body).problem]
        assert len({body["metadata"]["labels"]["app"] for body in pods}) >= 5
