"""The operator's live page: what it serves, to whom, and how it follows the cluster."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop
from numazones_client.resources import PODS
from numazones_simulator import node_kinds
from tests.waiting import PATIENCE, eventually

PAGE: dict[str, Any] = {"page_address": "127.0.0.1:0"}


class Viewer:
    """Reads the stream of events as a browser does."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream
        self.documents: dict[str, Any] = {}
        self.last = ""
        self.resets = 0
        self.news: list[dict[str, Any]] = []

    async def until(
        self, key: str, holds: Callable[[dict[str, Any]], bool] = lambda _document: True
    ) -> dict[str, Any]:
        """Read on until a document holds what is wanted, and return it."""
        async with asyncio.timeout(PATIENCE):
            while key not in self.documents or not holds(self.documents[key]):
                await self._event()
        found: dict[str, Any] = self.documents[key]
        return found

    async def until_caught_up(self) -> None:
        self.last = ""
        async with asyncio.timeout(PATIENCE):
            while not self.last:
                await self._event()

    async def until_gone(self, key: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while key in self.documents:
                await self._event()

    async def _event(self) -> None:
        fields: dict[str, str] = {}
        while line := (await self._stream.readuntil(b"\n")).decode().rstrip("\n"):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        self.last = fields.get("id", self.last)
        if fields.get("event") == "reset":
            self.documents.clear()
            self.resets += 1
        if fields.get("event") == "documents":
            self.news.append(json.loads(fields["data"]))
            for key, document in self.news[-1].items():
                if document is None:
                    self.documents.pop(key, None)
                else:
                    self.documents[key] = document


@asynccontextmanager
async def viewer(port: int, **headers: str) -> AsyncIterator[Viewer]:
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.get(f"http://127.0.0.1:{port}/events", headers=headers) as answer,
    ):
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Viewer(answer.content)


async def started(loop: Loop, **options: Any) -> int:
    await loop.start_nodes([node_kinds.single_numa_node("strict", "10.0.0.1")])
    operator = await loop.start_operator(**(PAGE | options))
    return operator.page_port


async def test_a_viewer_sees_nodes_waiting_pods_and_every_change(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        port = await started(loop)
        async with viewer(port) as seen:
            node = await seen.until("node/strict", lambda node: not node["pods"])
            assert f"machine/{node['machine']}" in seen.documents
            await loop.create_pod("first", cpu=24)
            await loop.bind("first", "strict")
            node = await seen.until("node/strict", lambda node: bool(node["pods"]))
            assert node["pods"][0]["pod"] == "default/first"
            assert sorted(zone["cpus"][0] for zone in node["zones"]) == [0, 24]
            await loop.create_pod("big", cpu=31)
            waiting = await seen.until("waiting/default/big", lambda pod: bool(pod["advice"]))
            assert waiting["verdict"] == "Inadmissible"
            assert waiting["sentence"].startswith("needs 31 exclusive CPUs on one NUMA node")
            assert ["strict", "request 30 CPUs instead of 31 in container main (strict)"] in waiting["advice"]
            await loop.client.delete(PODS, "big", namespace="default")
            await seen.until_gone("waiting/default/big")
            # What did not change was sent once.
            assert sum(f"machine/{node['machine']}" in news for news in seen.news) == 1


async def test_returning_viewer_gets_missed_changes_and_a_new_viewer_everything(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path) as loop:
        port = await started(loop)
        async with viewer(port) as first:
            await first.until("node/strict")
            await first.until_caught_up()
            await loop.create_pod("later", cpu=2)
            async with viewer(port, **{"Last-Event-ID": first.last}) as again:
                await again.until("waiting/default/later")
                assert again.resets == 0
                assert "node/strict" not in again.documents
            async with viewer(port, **{"Last-Event-ID": "another-1"}) as stranger:
                await stranger.until("node/strict")
                assert stranger.resets == 1


async def test_number_of_viewers_is_limited(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        port = await started(loop, page_viewers=1)
        async with aiohttp.ClientSession() as session:
            async with viewer(port) as seen:
                await seen.until("node/strict")
                async with session.get(f"http://127.0.0.1:{port}/events") as turned_away:
                    assert turned_away.status == 503
                    assert "--page-viewers" in await turned_away.text()

            async def admitted() -> bool:
                async with session.get(f"http://127.0.0.1:{port}/events") as answer:
                    return answer.status == 200

            assert await eventually(admitted)


@pytest.mark.parametrize("path", ["", "page.js", "page.css", "events", "nothing"])
async def test_every_answer_forbids_what_is_not_the_pages_own(tmp_path: Path, path: str) -> None:
    async with closed_loop(tmp_path) as loop:
        port = await started(loop)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/{path}") as answer,
        ):
            policy = answer.headers["Content-Security-Policy"].split("; ")
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in str(policy)
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.status == (404 if path == "nothing" else 200)


async def test_page_is_read_only_and_loopback_needs_the_name_localhost(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        port = await started(loop)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                async with session.request(method, "/events") as answer:
                    assert answer.status == 405
            for host, status in (("rebound.example", 403), (f"localhost:{port}", 200), ("[::1]", 200)):
                async with session.get("/", headers={"Host": host}) as answer:
                    assert answer.status == status


async def test_a_host_that_is_none_is_refused_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[str, int] = {}
    async with closed_loop(tmp_path) as loop:
        port = await started(loop)
        for host in ("[", "a:b", "a:99999999", "[x]", "a b", "\u00e9", "@", "a/b", ":", ""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answers[host] = int((await reader.readline()).split()[1])
            writer.close()
    assert answers.pop("a:b") == answers.pop("a:99999999") == 400
    assert set(answers.values()) <= {400, 403}
    assert not [record for record in caplog.records if record.exc_info]


async def test_without_a_page_address_nothing_is_served(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        assert await started(loop, page_address="") == 0


async def test_standby_replica_says_what_it_does_not_know(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await started(loop, page_address="")
        standby = await loop.start_operator(leads=False, identity="other", **PAGE)
        async with viewer(standby.page_port) as seen:
            cluster = await seen.until("cluster/")
            assert cluster["note"].startswith("This replica is on standby")
            await seen.until("node/strict")
            assert "accuracy/" not in seen.documents
