"""Measure how much the embedded API server handles on one core; prints JSON.

Server and clients share one process and one event loop, so figures are those of the pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from typing import Any

import aiohttp

from numazones_apiserver import ApiServer, WriteOptions


def _pod(number: int, size: int) -> dict[str, Any]:
    resources = {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "2", "memory": "4Gi"}}
    containers = [
        {"name": f"c{at}", "image": "registry.example/app:1", "resources": resources} for at in range(2)
    ]
    metadata = {
        "name": f"pod-{number:06}",
        "labels": {"app": f"app-{number % 50}"},
        "annotations": {"filler": "x" * size},
    }
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number % 500}", "containers": containers}}


async def _watch(url: str, path: str, count: int, query: dict[str, str]) -> float:
    async with (
        aiohttp.ClientSession(read_bufsize=2**22) as session,
        session.get(url + path, params={"watch": "1", **query}) as answer,
    ):
        for _ in range(count):
            await answer.content.readline()
        return time.perf_counter()


async def _measure(pods: int, size: int, updates: int, watchers: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"pods": pods, "watchers": watchers}
    async with ApiServer() as server, aiohttp.ClientSession(read_bufsize=2**22) as session:
        path = "/api/v1/namespaces/default/pods"
        begun = time.perf_counter()
        kind = server.kind("pods")
        for number in range(pods):
            server.writes.create(kind, "default", _pod(number, size), WriteOptions("benchmark"))
        figures["creates_per_second_direct"] = round(pods / (time.perf_counter() - begun))

        for name, query in (("list", {}), ("list_again", {}), ("list_pages_of_500", {"limit": "500"})):
            begun, size_of_list = time.perf_counter(), 0
            following = dict(query)
            while True:
                async with session.get(server.url + path, params=following) as answer:
                    body = await answer.read()
                size_of_list += len(body)
                token = json.loads(body)["metadata"].get("continue") if "limit" in query else None
                if not token:
                    break
                following = {**query, "continue": token}
            figures[f"{name}_seconds"] = round(time.perf_counter() - begun, 3)
        figures["list_megabytes"] = round(size_of_list / 1e6, 1)

        begun = time.perf_counter()
        version = str(server.store.revision)
        tasks = [
            asyncio.create_task(_watch(server.url, path, updates, {"resourceVersion": version}))
            for _ in range(watchers)
        ]
        await asyncio.sleep(0.2)
        patch = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        headers = {"Content-Type": "application/merge-patch+json"}
        begun = time.perf_counter()
        for number in range(updates):
            url = f"{server.url}{path}/pod-{number % pods:06}/status"
            patch["status"]["phase"] = f"Phase{number}"
            async with session.patch(url, data=json.dumps(patch), headers=headers) as answer:
                assert answer.status == 200, await answer.text()  # noqa: S101 - a failed write is no figure
        figures["patches_per_second_over_http"] = round(updates / (time.perf_counter() - begun))
        ended = max(await asyncio.gather(*tasks))
        figures["events_per_second_to_all_watchers"] = round(updates * watchers / (ended - begun))
    figures["peak_rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return figures


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument(
        "--filler-bytes", type=int, default=1000, help="size of an annotation that makes pods heavier"
    )
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--watchers", type=int, default=5)
    given = parser.parse_args()
    figures = asyncio.run(_measure(given.pods, given.filler_bytes, given.updates, given.watchers))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
