"""``top --usage`` and ``idle`` on a simulated cluster with real exporters; ``idle``'s advice is followed."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from numazones import build
from numazones.advice.right_sizing import MOST_BUSY
from numazones_client.resources import PODS
from numazones_operator.options import OperatorOptions
from numazones_operator.page.usage import PageUsage
from numazones_simulator import exporters, node_kinds, simulated_cluster
from numazones_simulator.control_plane import NAMESPACE
from numazones_simulator.machine_load import BUSY_ANNOTATION
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import SimulatedCluster
from tests import plugin
from tests.waiting import eventually

SHAPE = 8
RUNNING = (("idle-a", "n1", 16, 0.03), ("busy", "n1", 16, 0.7), ("idle-b", "n2", 14, 0.06))
SPECS = (node_kinds.single_numa_node("n1", "10.0.0.1"), node_kinds.best_effort_full_cores("n2", "10.0.0.2"))


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[SimulatedCluster]:
    screen = Screen(io.StringIO(), io.StringIO())
    async with simulated_cluster.running(SPECS, directory, screen, operator=None) as running:
        await exporters.show_pods(running.plane, running.exporters)
        for name, node, cpus, busy in RUNNING:
            await create(running, name, node, cpus, busy=busy)
        yield running


async def create(running: SimulatedCluster, name: str, node: str, cpus: int, *, busy: float = 0.5) -> None:
    body: dict[str, Any] = build.pod_body(name, cpu=cpus, memory="1Gi")
    body["metadata"] = {"name": name, "annotations": {BUSY_ANNOTATION: str(busy)}}
    body["spec"]["nodeName"] = node
    body["spec"]["containers"][0]["image"] = "app"
    await running.plane.client.create(PODS, body, namespace="default")


async def phases(running: SimulatedCluster) -> dict[str, str]:
    pods = await running.plane.client.list(PODS, namespace="default")
    return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in pods}


async def answer(running: SimulatedCluster, *arguments: str) -> Any:
    code, said, errors = await plugin.streams(
        *arguments, "-o", "json", "--kubeconfig", running.plane.kubeconfig
    )
    assert code == 0, errors
    return json.loads(said)


async def test_as_many_more_pods_run_as_idle_promised(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:

        async def idle() -> Any:
            return await answer(running, "idle", "-A", "--measured", "3s", "--shape", f"cpu={SHAPE}")

        async def both_are_idle() -> bool:
            return {item["use"]["pod"] for item in (await idle())["items"]} == {"idle-a", "idle-b"}

        await eventually(both_are_idle, what="both idle containers are listed")
        advice = await idle()
        for item in advice["items"]:
            use = item["use"]
            busy = next(busy for name, _, _, busy in RUNNING if name == use["pod"])
            assert abs(use["used"] / use["cpus"] - busy) < 0.02
            assert use["used"] / item["cpu"] <= MOST_BUSY
        now = dict(await fitting(running))
        for item in advice["items"]:
            use = item["use"]
            await running.plane.client.delete(PODS, use["pod"], namespace="default", grace_seconds=0)
            await create(running, f"{use['pod']}-smaller", use["node"], item["cpu"])
        promised = {item["node"]: item["pods"] for item in advice["more"]}
        assert sum(promised.values()) > 0
        for node, count in now.items():
            for number in range(count + promised.get(node, 0) + 1):
                await create(running, f"{node}-more-{number}", node, SHAPE)

        async def settled() -> bool:
            found = await phases(running)
            return len(found) > len(RUNNING) and set(found.values()) <= {"Running", "Failed"}

        await eventually(settled, what="all pods have settled")
        found = await phases(running)
        for node, count in now.items():
            new = [phase for name, phase in found.items() if name.startswith(f"{node}-more")]
            assert new.count("Running") == count + promised.get(node, 0)
            assert new.count("Failed") == 1
        assert {phase for name, phase in found.items() if "more" not in name} == {"Running"}


async def fitting(running: SimulatedCluster) -> list[tuple[str, int]]:
    """Return how many pods of the shape fit on each node as it is."""
    found = await answer_of_fit(running)
    return [(spec.name, sum(one["node"] == spec.name for one in found)) for spec in SPECS]


async def answer_of_fit(running: SimulatedCluster) -> list[dict[str, Any]]:
    _, said, _ = await plugin.streams(
        *("fit", f"cpu={SHAPE}", "--replicas", "100", "-o", "json"),
        *("--kubeconfig", running.plane.kubeconfig),
    )
    placed: list[dict[str, Any]] = json.loads(said)["placements"]
    return placed


async def test_top_shows_what_is_used_of_what_is_held(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:

        async def used() -> dict[tuple[str, int], Any]:
            found = await answer(running, "top", "--usage")
            return {(one["node"], one["numa"]): (one["usage"] or {}).get("used") for one in found["items"]}

        async def known() -> bool:
            return None not in [value for (node, _), value in (await used()).items() if node == "n1"]

        await eventually(known, what="what the pods of n1 use is known")
        found = await used()
        assert abs(sum(found[key] for key in found if key[0] == "n1") - (16 * 0.03 + 16 * 0.7)) < 1
        shares = await answer(running, "who", "n1", "--usage")
        by_pod = {use["pod"]: use["used"] / use["cpus"] for use in shares["usage"]}
        assert by_pod.keys() == {"idle-a", "busy"}
        assert abs(by_pod["busy"] - 0.7) < 0.05
        options = OperatorOptions(page_usage="exporters", exporter_namespace=NAMESPACE)
        page = PageUsage.of(options, running.plane.client)

        async def read() -> bool:
            page.renew()
            return page.current is not None or bool(page.note)

        await eventually(read, what="the page knows what is used")
        assert page.current is not None, page.note
        assert page.current.numas.keys() == found.keys()
        (busy,) = [use.used for use in page.current.containers if use.pod == "busy"]
        assert round(busy / 16, 1) == 0.7
