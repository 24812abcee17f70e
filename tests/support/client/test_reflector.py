"""Mirroring one resource: pages, bookmarks, 410, silence, backoff, and resources nobody has installed."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from numazones_client import (
    JSON,
    NO_RETRY,
    Backoff,
    Client,
    ClusterConfig,
    Decoder,
    Pace,
    Reflector,
    Resource,
    Table,
    reflector,
)
from numazones_client.config import FileToken, StaticToken, TokenSource
from tests.event_loop import pass_time
from tests.support.client.scripted_server import eventually

WIDGETS = Resource("example.com", "v1", "widgets", namespaced=False)
NO_TOKEN = StaticToken()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def widget(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def line_of(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


class Server:
    """A scripted API server: lists as told, and streams whose lines the test writes."""

    def __init__(self) -> None:
        self.lists: list[tuple[list[dict[str, Any]], int]] = []
        self.asked: list[dict[str, str]] = []
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self.first_lines: dict[str, bytes] = {}
        """Version → what a stream from there begins with."""
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
        if first := self.first_lines.get(request.query["resourceVersion"]):
            await response.write(first)
        while (line := await queue.get()) is not None:
            await response.write(line)
        return response

    def send(self, kind: str, body: dict[str, Any]) -> None:
        self.streams[-1].put_nowait(line_of(kind, body))

    def end(self) -> None:
        self.streams[-1].put_nowait(None)


class Restarts(list[str]):
    """Reasons why watches ended."""

    def count_restart(self, resource: str, reason: str) -> None:
        assert resource == WIDGETS.full_name
        self.append(reason)

    def observe_list(self, resource: str, seconds: float) -> None:
        assert resource == WIDGETS.full_name
        assert seconds >= 0


@asynccontextmanager
async def running_reflector(
    server: Server,
    *,
    decoder: Decoder[dict[str, Any]] = JSON,
    credentials: TokenSource = NO_TOKEN,
    **options: Any,
) -> AsyncIterator[tuple[Reflector[dict[str, Any]], Table[dict[str, Any]], Restarts]]:
    """Run a reflector on the server; gives it, its table and why it began anew."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = ClusterConfig(f"http://127.0.0.1:{runner.addresses[0][1]}", credentials=credentials)
    table: Table[dict[str, Any]] = Table(lambda item: str(item["metadata"]["name"]))
    restarts = Restarts()
    async with Client(config, retry=NO_RETRY) as client:
        mirror = Reflector(client, WIDGETS, decoder=decoder, table=table, metrics=restarts, **options)
        task = asyncio.create_task(mirror.run())
        try:
            yield mirror, table, restarts
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()


def has_length(items: Sized, count: int) -> bool:
    return len(items) == count


def names(table: Table[dict[str, Any]]) -> set[str]:
    return {item["metadata"]["name"] for item in table}


def sized(body: dict[str, Any]) -> dict[str, Any]:
    int(body.get("size") or 0)
    return body


async def test_reflector_lists_by_page_then_watches_from_that_version() -> None:
    server = Server()
    server.lists = [([widget(f"w{number}", number) for number in range(5)], 9)]
    async with running_reflector(server, pace=Pace(page_size=2)) as (mirror, table, _):
        await mirror.synced.wait()
        assert names(table) == {f"w{number}" for number in range(5)}
        await eventually(lambda: server.streams)
        assert [asked.get("continue", "") for asked in server.asked[:3]] == ["", "2", "4"]
        assert server.asked[3]["resourceVersion"] == "9"
        assert server.asked[3]["allowWatchBookmarks"] == "true"
        server.send("ADDED", widget("new", 10))
        server.send("DELETED", widget("w0", 11))
        await eventually(lambda: names(table) == {"w1", "w2", "w3", "w4", "new"})
        assert not mirror.problem


async def test_a_stream_that_ends_is_continued_from_the_last_bookmark() -> None:
    server = Server()
    server.lists = [([], 1)]
    async with running_reflector(server) as (_, table, restarts):
        await eventually(lambda: len(server.streams) == 1)
        server.send("ADDED", widget("a", 5))
        server.send("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
        server.end()
        await eventually(lambda: len(server.streams) == 2)
        assert server.asked[-1]["resourceVersion"] == "77"
        assert names(table) == {"a"}
        assert restarts == ["ended"]


async def test_after_410_it_lists_again_and_forgets_what_has_vanished() -> None:
    server = Server()
    server.lists = [([widget("old", 1), widget("kept", 2)], 3), ([widget("kept", 2), widget("new", 8)], 9)]
    async with running_reflector(server) as (_, table, restarts):
        await eventually(lambda: len(server.streams) == 1)
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await eventually(lambda: names(table) == {"kept", "new"})
        assert restarts == ["expired"]


async def test_list_order_and_objects_repeated_across_pages_do_not_matter() -> None:
    """Pages are of one version, but a server that was restarted between two may repeat what moved."""
    server = Server()
    server.lists = [([widget(name, 2) for name in ("c", "a", "d", "a", "b", "c")], 9)]
    async with running_reflector(server, pace=Pace(page_size=2)) as (mirror, table, _):
        await mirror.synced.wait()
        assert sorted(item["metadata"]["name"] for item in table) == ["a", "b", "c", "d"]


async def test_repeated_events_and_events_on_unknown_objects_change_nothing() -> None:
    server = Server()
    server.lists = [([widget("a", 1)], 1)]
    async with running_reflector(server) as (mirror, table, restarts):
        await eventually(lambda: len(server.streams) == 1)
        for kind, body in (
            ("ADDED", widget("b", 2)),
            ("ADDED", widget("b", 2)),
            ("DELETED", widget("never", 3)),
            ("MODIFIED", widget("c", 4)),
            ("DELETED", widget("a", 5)),
            ("DELETED", widget("a", 5)),
            ("BOOKMARK", {"metadata": {"resourceVersion": "6"}}),
        ):
            server.send(kind, body)
        server.end()
        await eventually(lambda: len(server.streams) == 2)
        assert names(table) == {"b", "c"}
        assert server.asked[-1]["resourceVersion"] == "6"
        assert not mirror.problem
        assert restarts == ["ended"]


@pytest.mark.parametrize("end", ["torn", "error"])
async def test_interrupted_list_removes_nothing_and_restarts(end: str) -> None:
    server = Server()
    server.lists = [([widget("a", 1), widget("b", 1)], 1), ([widget("b", 2), widget("c", 2)], 3)]
    whole, breaks = server.handle, 2

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal breaks
        if request.query.get("continue") and server.streams and breaks:
            breaks -= 1
            if end == "error":
                return web.json_response({"kind": "Status", "code": 500, "message": "away"}, status=500)
            body = b'{"metadata": {"resourceVersion": "3"}, "items": ['
            return web.Response(body=body, content_type="application/json")
        return await whole(request)

    server.handle = handle  # type: ignore[method-assign]
    async with running_reflector(server, pace=Pace(page_size=1), draw=lambda: 0.0) as (_, table, _restarts):
        await eventually(lambda: len(server.streams) == 1)
        assert names(table) == {"a", "b"}
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await eventually(lambda: breaks == 1)
        assert names(table) == {"a", "b"}
        await eventually(lambda: names(table) == {"b", "c"})


async def test_a_silent_watch_is_opened_again_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    server.lists = [([], 1)]
    server.first_lines = {"1": line_of("ADDED", widget("a", 5))}
    async with running_reflector(server, pace=Pace(silence=60)) as (mirror, table, _):
        await eventually(lambda: names(table) == {"a"})
        while len(server.streams) < 3:  # the second said nothing at all
            pass_time(61)
            await asyncio.sleep(0.02)  # its silence begins when the client has seen it open
        assert names(table) == {"a"}
        assert not mirror.problem
        assert [asked["resourceVersion"] for asked in server.asked[1:4]] == ["1", "5", "5"]
    assert "timed out" not in caplog.text


async def test_object_that_becomes_unreadable_is_removed_and_reported() -> None:
    server = Server()
    server.lists = [([widget("a", 1), widget("b", 2)], 3)]
    left_out: list[str] = []
    decoder = Decoder(sized, key=lambda metadata: str(metadata["name"]))
    told: dict[str, Any] = {"decoder": decoder, "unreadable": lambda item: left_out.append(item.key)}
    async with running_reflector(server, **told) as (_, table, _):
        await eventually(lambda: len(server.streams) == 1)
        assert names(table) == {"a", "b"}
        server.send("MODIFIED", {**widget("a", 4), "size": "large"})
        await eventually(lambda: names(table) == {"b"})
        assert left_out == ["a"]
        server.lists = [([{**widget("b", 5), "size": "huge"}, widget("c", 6)], 7)]
        server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await eventually(lambda: names(table) == {"c"})
        assert left_out == ["a", "b"]


async def test_always_outdated_versions_do_not_cause_endless_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    real = Backoff.delay

    def delay(backoff: Backoff) -> float:
        pauses.append(real(backoff))
        return 0.0

    monkeypatch.setattr(Backoff, "delay", delay)
    monkeypatch.setattr(reflector, "_SHORT_WATCH", float("inf"))
    server = Server()
    server.lists = [([], 1)]
    async with running_reflector(server, draw=lambda: 0.5) as (_, _, restarts):
        for number in range(1, 4):
            await eventually(partial(has_length, server.streams, number))
            server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await eventually(partial(has_length, restarts, number))
    assert restarts == ["expired"] * 3
    assert len(pauses) == 3
    assert pauses == sorted(pauses)  # they grow, although every list in between succeeds


async def test_unreadable_token_is_a_problem_until_readable(tmp_path: Path) -> None:
    server = Server()
    server.lists = [([widget("a", 1)], 2)]
    token = tmp_path / "token"
    async with running_reflector(server, credentials=FileToken(token)) as (mirror, table, _):
        await eventually(lambda: "cannot read the token" in mirror.problem)
        token.write_text("t")
        await eventually(lambda: names(table) == {"a"})


async def test_an_optional_resource_that_nobody_has_installed_counts_as_empty() -> None:
    server = Server()
    server.list_status = 404
    async with running_reflector(server, optional=True) as (mirror, table, _):
        await eventually(mirror.synced.is_set)
        assert names(table) == set()


async def test_optional_resource_is_retried_when_it_may_exist() -> None:
    server = Server()
    server.list_status = 404
    came, waited_for = asyncio.Event(), []

    async def appearance(resource: Resource) -> None:
        waited_for.append(resource)
        await came.wait()

    async with running_reflector(server, optional=True, appearance=appearance) as (mirror, table, _):
        await eventually(mirror.synced.is_set)
        await eventually(lambda: waited_for)
        assert (waited_for, len(server.asked)) == ([WIDGETS], 1)
        server.lists, server.list_status = [([widget("a", 1)], 2)], 200
        came.set()
        await eventually(lambda: names(table) == {"a"})


async def test_lasting_failure_is_logged_once_per_change(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_MAX_DELAY", 0.01)
    server = Server()
    server.list_status = 403

    def warnings() -> int:
        return sum(record.levelname == "WARNING" for record in caplog.records)

    async def asked_again(times: int) -> None:
        wanted = len(server.asked) + times
        await eventually(lambda: len(server.asked) >= wanted)

    with caplog.at_level("WARNING", logger="numazones_client"):
        async with running_reflector(server) as (mirror, table, _):
            await asked_again(3)
            assert (warnings(), mirror.forbidden) == (1, True)
            server.list_status = 500
            await eventually(lambda: warnings() == 2)
            assert (warnings(), mirror.forbidden) == (2, False)
            server.list_status = 403
            await eventually(lambda: warnings() == 3)
            await asked_again(2)
            assert (warnings(), mirror.forbidden) == (3, True)
            assert mirror.problem
            server.lists, server.list_status = [([widget("a", 1)], 2)], 200
            await eventually(lambda: names(table) == {"a"})
            assert (mirror.problem, mirror.forbidden) == ("", False)


async def test_only_one_mirror_reports_a_shared_server_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    server.list_status = 403
    with caplog.at_level("INFO", logger="numazones_client"):
        async with running_reflector(server, quiet=True) as (mirror, table, _):
            await eventually(lambda: len(server.asked) >= 2)
            assert mirror.forbidden
            server.lists, server.list_status = [([widget("a", 1)], 2)], 200
            await eventually(lambda: names(table) == {"a"})
            await eventually(lambda: len(server.streams) == 1)
            server.lists = [([widget("b", 3)], 4)]
            server.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await eventually(lambda: names(table) == {"b"})
    assert [record.message for record in caplog.records if record.name.startswith("numazones_client")] == []


async def test_required_resource_is_awaited_and_its_problem_named() -> None:
    server = Server()
    server.list_status = 404
    async with running_reflector(server) as (mirror, table, _):
        cure = "install the definition of widgets.example.com, which is not part of numazones"
        await eventually(lambda: cure in mirror.problem)
        assert not mirror.synced.is_set()
        server.lists, server.list_status = [([widget("a", 1)], 2)], 200
        await eventually(lambda: names(table) == {"a"})


def test_delays_grow_with_jitter_to_a_bound_until_success() -> None:
    low, high = Backoff(draw=lambda: 0.0), Backoff(draw=lambda: 1.0)
    delays = [(low.delay(), high.delay()) for _ in range(12)]
    assert delays[0] == pytest.approx((0.1, 0.2))
    assert [late for _, late in delays] == sorted(late for _, late in delays)
    assert delays[-1] == pytest.approx((15, 30))
    low.reset()
    assert low.delay() == pytest.approx(0.1)
