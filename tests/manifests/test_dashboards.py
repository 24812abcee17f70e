"""Every query of dashboard and alerts, asked of a real Prometheus that scrapes the running closed loop."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from numazones_client.resources import PODS
from numazones_simulator import node_kinds

from ..operator.closed_loop import closed_loop, eventually  # noqa: TID252 - test folders are not packages

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = [ROOT / "manifests" / "grafana" / "cluster-overview.json"]
RULES = ROOT / "manifests" / "prometheus" / "prometheusrule.yaml"
LOCAL = ROOT / ".cache" / "tools" / "bin" / "prometheus"


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries() -> Iterator[tuple[str, str]]:
    """(where, query) of every panel and every variable."""
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in panels(dashboard):
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']} {target['refId']}", target["expr"]
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                inner = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])
                assert inner
                yield f"{path.stem}: variable {variable['name']}", inner[1]


def filled(query: str) -> str:
    """A query with Grafana's variables filled in."""
    query = query.replace("$node", ".*").replace("$__rate_interval", "30s")
    assert "$" not in query, f"unknown variable in {query}"
    return query


def program() -> str:
    found = shutil.which("prometheus") or (str(LOCAL) if LOCAL.exists() else "")
    if not found:
        pytest.skip("prometheus is neither on PATH nor in .cache/tools/bin (scripts/test-tools .cache)")
    return found


@asynccontextmanager
async def prometheus(folder: Path, target: int) -> AsyncIterator[str]:
    """Run Prometheus, scraping a port of this machine; give its URL."""
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "900ms"},
        "scrape_configs": [
            {"job_name": "numazones-operator", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [
                program(),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


async def ask(session: aiohttp.ClientSession, url: str, query: str) -> list[Any]:
    try:
        async with session.get(f"{url}/api/v1/query", params={"query": query}) as answer:
            body = await answer.json(content_type=None)
    except aiohttp.ClientConnectionError:
        return []
    assert body.get("status") == "success", (query, body)
    found: list[Any] = body["data"]["result"]
    return found


def test_dashboards_have_unique_panels_and_explain_themselves() -> None:
    assert DASHBOARDS
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        numbers = [panel["id"] for panel in panels(dashboard)]
        assert len(numbers) == len(set(numbers))
        assert all(panel["title"] for panel in panels(dashboard))


@pytest.mark.slow
async def test_every_query_returns_data(tmp_path: Path) -> None:
    program()
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(5))
        operator = await loop.start_operator()
        loop.start_scheduler()
        async with prometheus(tmp_path, operator.port) as url, aiohttp.ClientSession() as session:
            left = dict(queries())
            assert left
            number = 0
            for _ in range(60):
                # Pods that are admitted, pods that are rejected, and pods that no node can take.
                for cpu in (3, 14, 2, 200):
                    number += 1
                    await loop.create_pod(f"p{number}", cpu=cpu, terminationGracePeriodSeconds=0)
                if number > 60:
                    await loop.client.delete(PODS, f"p{number - 60}", namespace="default")
                await asyncio.sleep(1)
                for where, query in list(left.items()):
                    found = await ask(session, url, filled(query))
                    if found and all(item["value"][1] != "NaN" for item in found):
                        del left[where]
                if not left:
                    break
            assert not left, f"no data for {left}"
            for group in yaml.safe_load(RULES.read_text())["spec"]["groups"]:
                for rule in group["rules"]:
                    await ask(session, url, rule["expr"])  # it is valid; that nothing fires is good
            await eventually(lambda: not operator.failed)
