"""The operator of a simulated cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from numazones_simulator import node_kinds, operators, placement_models, simulated_cluster
from numazones_simulator.operators import NotReady
from numazones_simulator.programs import ProgramFailed, Programs
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import Publishing

METRICS = """\
# HELP numazones_nodes Nodes in the cluster.
# TYPE numazones_nodes gauge
numazones_nodes {nodes}
# TYPE numazones_stale_nodes gauge
numazones_stale_nodes{{reason="NoZones"}} 1.0
numazones_stale_nodes{{reason="NoLease"}} {without_lease}
numazones_stale_nodes_seen_total 9.0
"""


@asynccontextmanager
async def answering(*answers: tuple[int, str, str]) -> AsyncIterator[str]:
    """Somebody who gives one (status of /readyz, its text, metrics) after the other; yields the address."""
    left = list(answers)

    async def readyz(_request: web.Request) -> web.Response:
        status, text, _ = left[0]
        return web.Response(status=status, text=text)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=left[0][2] if len(left) == 1 else left.pop(0)[2])

    app = web.Application()
    app.add_routes([web.get("/readyz", readyz), web.get("/metrics", metrics)])
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_cluster_opens_when_its_operator_can_predict(tmp_path: Path) -> None:
    kinds = (*node_kinds.KINDS, *placement_models.node_kinds())
    specs = node_kinds.mixed(len(kinds), kinds=kinds)
    async with simulated_cluster.running(specs, tmp_path, Screen(), publishing=Publishing.DIRECT) as cluster:
        await operators.ask(f"{cluster.operator}/readyz")
        metrics = (await operators.ask(f"{cluster.operator}/metrics")).splitlines()
    assert f"numazones_nodes {len(specs)}.0" in metrics
    assert [line for line in metrics if line.startswith("numazones_stale_nodes{")] == [
        'numazones_stale_nodes{reason="NoZones"} 0.0'
    ]


async def test_an_operator_is_ready_when_it_knows_every_node(tmp_path: Path) -> None:
    nothing_yet = METRICS.format(nodes=2, without_lease=1)
    without_zones = METRICS.format(nodes=3, without_lease=0)
    all_known = without_zones.replace(" 1.0", " 0.0")
    async with answering(*((200, "ok", text) for text in (nothing_yet, without_zones, all_known))) as address:
        await operators.wait_until_ready(address, 3, Programs(tmp_path))


@pytest.mark.parametrize(
    ("status", "text", "metrics", "told"),
    [
        (503, "pods: forbidden", "", r"http://[\d.:]+/readyz returned status 503: pods: forbidden"),
        (200, "ok", METRICS.format(nodes=3, without_lease=1), "it knows the state of 1 of 3 nodes"),
        (200, "ok", "", "it knows the state of 0 of 3 nodes"),
    ],
)
async def test_what_an_operator_lacks_is_told(
    status: int, text: str, metrics: str, told: str, tmp_path: Path
) -> None:
    async with answering((status, text, metrics)) as address:
        with pytest.raises(NotReady, match=rf"not ready after 0 s: {told}; its log is in {tmp_path}"):
            await operators.wait_until_ready(address, 3, Programs(tmp_path), patience=0)


async def test_an_operator_that_nobody_can_reach_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"http://127\.0\.0\.1:1/readyz: "):
        await operators.wait_until_ready("http://127.0.0.1:1", 3, Programs(tmp_path), patience=0)


async def test_an_operator_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    wrong = simulated_cluster.running(node_kinds.mixed(1), tmp_path, Screen(), operator=("--no-such-option",))
    with pytest.raises(ProgramFailed, match=r"(?s)operator ended with status 2.*--no-such-option"):
        await wrong.__aenter__()
