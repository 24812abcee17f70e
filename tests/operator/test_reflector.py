"""Mirroring one resource: pages, bookmarks, 410, silence, backoff, and resources nobody has installed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from numazones_client import JSON, Client, ClusterConfig, Resource, RetryPolicy
from numazones_operator.metrics import Metrics
from numazones_operator.reflector import Backoff, Pace, Reflector
from numazones_operator.tables import Table

from .closed_loop import eventually

WIDGETS = Resource("example.com", "v1", "widgets", namespaced=False)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def widget(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Server:
    """A scripted API server: lists as told, and streams whose lines the test writes."""

    def __init__(self) -> None:
        self.lists: list[tuple[list[dict[str, Any]], int]] = []
        self.asked: list[dict[str, str]] = []
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self.list_status = 200

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if "watch" in request.query:
            return await self._stream(request)
        if self.list_status != 200:
            status = {"kind": "Status", "code": self.list_status, "reason": "NotFound", "message": "none"}
            return web.json_response(status, status=self.list_status)
        items, version = self.lists[0]
        start, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        following = str(start + limit) if start + limit < len(items) else ""
        if not following and len(self.lists) > 1:
            self.lists.pop(0)
        metadata = {"resourceVersion": str(version), "continue": following}
        return web.json_response({"metadata": metadata, "items": items[start : start + limit]})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.append(queue)
        while (line := await queue.get()) is not None:
            await response.write(line)
        return response

    def send(self, kind: str, body: dict[str, Any]) -> None:
        self.streams[-1].put_nowait(json.dumps({"type": kind, "object": body}).encode() + b"\n")

    def end(self) -> None:
        self.streams[-1].put_nowait(None)


@asynccontextmanager
async def mirrored(server: Server, *, pace: Pace | None = None, optional: bool = False) -> Any:
    """Run a reflector on the server; gives it, its table and its metrics."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = ClusterConfig(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
    table: Table[dict[str, Any]] = Table(lambda item: str(item["metadata"]["name"]))
    metrics = Metrics(CollectorRegistry())
    async with Client(config, retry=RetryPolicy(attempts=1)) as client:
        reflector = Reflector(
            client, WIDGETS, decoder=JSON, table=table, metrics=metrics, pace=pace, optional=optional
        )
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, table, metrics
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()


def names(table: Table[dict[str, Any]]) -> set[str]:
    return {item["metadata"]["name"] for item in table}


def restarts(metrics: Metrics, reason: str) -> float:
    return float(metrics.watch_restarts.labels(WIDGETS.full_name, reason)._value.get())


async def test_it_lists_page_by_page_then_watches_from_the_lists_version() -> None:
    server = Server()
    server.lists = [([widget(f"w{number}", number) for number in range(5)], 9)]
    async with mirrored(server, pace=Pace(page_size=2)) as (reflector, table, _):
        await reflector.synced.wait()
        assert names(table) == {f"w{number}" for number in range(5)}
        await eventually(lambda: server.streams)
        assert [asked.get("continue", "") for asked in server.asked[:3]] == ["", "2", "4"]
        assert server.asked[3]["resourceVersion"] == "9"
        assert server.asked[3]["allowWatchBookmarks"] == "true"
        server.send("ADDED", widget("new", 10))
        server.send("DELETED", widget("w0", 11))
        await eventually(lambda: names(table) == {"w1", "w2", "w3", "w4", "new"})
        assert not reflector.problem


async def test_a_stream_that_ends_is_continued_from_the_last_bookmark() -> None:
    server = Server()
    server.lists = [([], 1)]
    async with mirrored(server) as (_, table, metrics):
        await eventually(lambda: len(server.streams) == 1)
        server.send("ADDED", widget("a", 5))
        server.send("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
        server.end()
        await eventually(lambda: len(server.streams) == 2)
        assert server.asked[-1]["resourceVersion"] == "77"
        assert names(table) == {"a"}
        assert restarts(metrics, "ended") == 1


async def test_after_410_it_lists_again_and_forgets_what_has_vanished() -> None:
    server = Server()
    server.lists = [([widget("old", 1), widget("kept", 2)], 3), ([widget("kept", 2), widget("new", 8)], 9)]
    async with mirrored(server) as (_, table, metrics):
        await eventually(lambda: len(server.streams) == 1)
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await eventually(lambda: names(table) == {"kept", "new"})
        assert restarts(metrics, "expired") == 1


async def test_a_stream_that_falls_silent_counts_as_dead() -> None:
    server = Server()
    server.lists = [([], 1)]
    async with mirrored(server, pace=Pace(silence=0.2)) as (_, table, metrics):
        await eventually(lambda: len(server.streams) == 1)
        server.send("ADDED", widget("a", 5))
        await eventually(lambda: len(server.streams) == 2)
        assert names(table) == {"a"}
        assert server.asked[-1]["resourceVersion"] == "5"
        assert restarts(metrics, "broken") == 1


async def test_an_optional_resource_that_nobody_has_installed_counts_as_empty() -> None:
    server = Server()
    server.list_status = 404
    async with mirrored(server, optional=True) as (reflector, table, _):
        await eventually(reflector.synced.is_set)
        assert names(table) == set()


async def test_a_resource_that_must_be_there_is_waited_for_and_the_problem_named() -> None:
    server = Server()
    server.list_status = 404
    async with mirrored(server) as (reflector, table, _):
        await eventually(lambda: "kubectl apply -k crds" in reflector.problem or "crds" in reflector.problem)
        assert not reflector.synced.is_set()
        server.lists, server.list_status = [([widget("a", 1)], 2)], 200
        await eventually(lambda: names(table) == {"a"})


def test_delays_grow_to_a_bound_spread_by_jitter_and_start_again_after_success() -> None:
    low, high = Backoff(draw=lambda: 0.0), Backoff(draw=lambda: 1.0)
    delays = [(low.delay(), high.delay()) for _ in range(12)]
    assert delays[0] == pytest.approx((0.1, 0.2))
    assert [late for _, late in delays] == sorted(late for _, late in delays)
    assert delays[-1] == pytest.approx((15, 30))
    low.reset()
    assert low.delay() == pytest.approx(0.1)
