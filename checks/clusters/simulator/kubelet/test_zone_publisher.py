import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones_client import Client
from numazones_client.resources import LEASES, NODES, NUMAZONES
from numazones_simulator import node_kinds
from numazones_simulator.control_plane import NAMESPACE, ControlPlane, control_plane
from numazones_simulator.kubelet.agent import Agent
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.zone_publisher import SimulatedZonePublisher


@pytest.fixture
async def plane(tmp_path: Any) -> AsyncIterator[ControlPlane]:
    async with control_plane(tmp_path) as started:
        yield started


@pytest.fixture
async def agent(plane: ControlPlane) -> Agent:
    registered = Agent(SimulatedKubelet(node_kinds.single_numa_node("node-1", "10.77.0.1")), plane.client)
    await registered.register()
    return registered


def pod(uid: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [container]},
    }


async def versions(client: Client) -> dict[str, str]:
    return {
        zone["metadata"]["name"]: zone["metadata"]["resourceVersion"] for zone in await client.list(NUMAZONES)
    }


async def assigned(client: Client) -> bool:
    return any((zone.get("status") or {}).get("assignments") for zone in await client.list(NUMAZONES))


async def test_published_zones_hold_the_kubelets_state(plane: ControlPlane, agent: Agent) -> None:
    publisher = SimulatedZonePublisher(agent, plane.client)
    assert agent.kubelet.admit(pod("p1")).rejection is None
    await publisher.publish()
    zones = await plane.client.list(NUMAZONES)
    node = node_from_zones([NUMAZone.from_api(zone) for zone in zones])
    assert (node.cpus, node.memory) == (agent.kubelet.node.cpus, agent.kubelet.node.memory)
    uid = (await plane.client.get(NODES, "node-1"))["metadata"]["uid"]
    assert {zone["metadata"]["ownerReferences"][0]["uid"] for zone in zones} == {uid}
    assert {item["pod"] for zone in zones for item in zone["status"].get("assignments", ())} == {"p1"}


async def test_nothing_is_written_when_nothing_changed(plane: ControlPlane, agent: Agent) -> None:
    publisher = SimulatedZonePublisher(agent, plane.client)
    await publisher.publish()
    before = await versions(plane.client)
    assert len(before) == 2
    await publisher.publish()
    assert await versions(plane.client) == before


async def test_zones_follow_the_kubelet_and_a_lease_vouches_for_them(
    plane: ControlPlane, agent: Agent
) -> None:
    running = asyncio.create_task(SimulatedZonePublisher(agent, plane.client).run())
    try:
        async with asyncio.timeout(120):
            while len(await versions(plane.client)) < 2:  # noqa: ASYNC110 - as a user would look
                await asyncio.sleep(0.02)
            agent.kubelet.admit(pod("p1"))
            agent.changed.set()
            while not await assigned(plane.client):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while not (leases := await plane.client.list(LEASES, namespace=NAMESPACE)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        (vouching,) = [lease["metadata"] for lease in leases]
        assert vouching["name"] == "numazones-exporter-node-1"
        assert vouching["labels"] == {"numazones.io/node": "node-1"}
    finally:
        running.cancel()
