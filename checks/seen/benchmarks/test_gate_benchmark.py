"""The gate's benchmark measures what it says, on a cluster small enough for a test."""

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from checks.seen.benchmarks.running import figures_of
from numazones_benchmarks.feeder import Cluster
from numazones_benchmarks.gate import GateFeeder, gated_pods
from numazones_operator.prevention.release_patch import Target, release_patch


@pytest.mark.parametrize(
    ("nodes", "bound_to"), [(("worker-0001", "worker-0002"), "worker-0001"), ((), "worker-0000")]
)
async def test_a_released_pod_is_bound_to_the_first_node_that_it_may_go_to(
    nodes: tuple[str, ...], bound_to: str
) -> None:
    feeder = GateFeeder(Cluster(nodes=3, pods=0, distinct=True))
    (pod,) = gated_pods(1)
    feeder.send("pods", "ADDED", pod)
    events: asyncio.Queue[bytes] = asyncio.Queue()
    feeder.watchers["pods"] = [events]
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", feeder.handle)
    patch = release_patch(pod["metadata"]["uid"], [Target(name, None) for name in nodes], now="now")
    async with TestClient(TestServer(app)) as client:
        answer = await client.patch(f"/api/v1/namespaces/gated/pods/{pod['metadata']['name']}", json=patch)
        assert answer.status == 200
        released, bound = [json.loads(await events.get())["object"] for _ in range(2)]
    assert released["spec"]["schedulingGates"] == []
    assert bound["spec"]["nodeName"] == bound_to


@pytest.mark.slow
def test_it_prints_what_became_of_the_gated_pods_and_each_figure_that_has_a_goal() -> None:
    figures = figures_of("gate.py", "--nodes=20", "--pods=100", "--gated=20")
    assert figures["released"] == 20
    assert figures["decisions"] >= 20
    assert all(figures[name] > 0 for name in figures["goals"])
    assert figures["missed"] == [name for name, goal in figures["goals"].items() if figures[name] < goal]
