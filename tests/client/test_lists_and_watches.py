"""Pages, events, long lines, dead streams; and that fifty thousand pods come quickly."""

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import web

from numazones_client import Client, Event, Gone, Page, ServerError, Unreachable
from numazones_client.resources import NODES, PODS

from .conftest import ScriptedServer, status


def page(names: list[str], *, version: str = "9", more: str = "") -> web.Response:
    return web.json_response(
        {
            "kind": "NodeList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": more},
            "items": [{"metadata": {"name": name}} for name in names],
        }
    )


def stream(*chunks: bytes, hold: float = 0) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.sleep(hold)
        return response

    return answer


def line(event: str, **body: Any) -> bytes:
    return json.dumps({"type": event, "object": body}).encode() + b"\n"


async def test_a_list_comes_page_by_page(client: Client, server: ScriptedServer) -> None:
    server.answers = [page(["a", "b"], more="token"), page(["c"])]
    pages = [p async for p in client.pages(NODES, limit=2, label_selector="x=y", field_selector="f=g")]
    assert [[item["metadata"]["name"] for item in p.items] for p in pages] == [["a", "b"], ["c"]]
    assert pages[-1].resource_version == "9"
    assert pages[0].items[0]["kind"] == "Node"
    first, second = server.asked
    assert first.query == {"limit": "2", "labelSelector": "x=y", "fieldSelector": "f=g"}
    assert second.query == first.query | {"continue": "token"}


async def test_a_short_list_comes_at_once(client: Client, server: ScriptedServer) -> None:
    server.answers = [page(["a"], more="token"), page(["b"])]
    assert [item["metadata"]["name"] for item in await client.list(NODES)] == ["a", "b"]


async def test_a_forgotten_continue_token_is_gone(client: Client, server: ScriptedServer) -> None:
    server.answers = [page(["a"], more="token"), status(410, "Expired")]
    with pytest.raises(Gone, match="list again from the start"):
        await client.list(NODES)


async def test_a_watch_yields_events_and_bookmarks(client: Client, server: ScriptedServer) -> None:
    server.answers = [
        stream(
            line("ADDED", metadata={"name": "a", "resourceVersion": "10"}),
            line("BOOKMARK", metadata={"resourceVersion": "20"}),
            line("DELETED", metadata={"name": "a", "resourceVersion": "21"}),
        )
    ]
    events = [event async for event in client.watch(NODES, resource_version="9")]
    assert [(event.type, event.resource_version) for event in events] == [
        ("ADDED", "10"),
        ("BOOKMARK", "20"),
        ("DELETED", "21"),
    ]
    assert events[1].object is None
    assert server.asked[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "9",
        "timeoutSeconds": "300",
    }


async def test_lines_may_be_longer_than_any_buffer_and_split_anywhere(
    client: Client, server: ScriptedServer
) -> None:
    long = line("ADDED", metadata={"name": "a" * 3_000_000, "resourceVersion": "1"})
    short = line("ADDED", metadata={"name": "b", "resourceVersion": "2"})
    server.answers = [stream(long[:7], long[7:], short[:5], short[5:] + b"\n" + short.rstrip(b"\n"))]
    events = [event async for event in client.watch(NODES, resource_version="0")]
    assert [event.object["metadata"]["name"][:1] for event in events if event.object] == ["a", "b", "b"]


async def test_a_version_that_is_too_old_is_gone_at_once_and_in_the_stream(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [status(410, "Expired", "too old resource version: 1 (7)")]
    with pytest.raises(Gone, match="watch nodes: too old resource version"):
        [event async for event in client.watch(NODES, resource_version="1")]
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (7)"}
    server.answers = [stream(line("ERROR", **gone))]
    with pytest.raises(Gone, match="watch nodes: too old resource version"):
        [event async for event in client.watch(NODES, resource_version="1")]


async def test_a_silent_watch_counts_as_dead(client: Client, server: ScriptedServer) -> None:
    server.answers = [stream(line("ADDED", metadata={"name": "a"}), hold=2)]
    events = client.watch(NODES, resource_version="1", silence=0.05)
    assert (await anext(events)).type == "ADDED"
    with pytest.raises(Unreachable, match="timed out"):
        await anext(events)


async def test_a_line_that_is_no_event_is_the_servers_error(client: Client, server: ScriptedServer) -> None:
    server.answers = [stream(b'{"type": \n')]
    with pytest.raises(ServerError, match="watch nodes: the answer cannot be read"):
        [event async for event in client.watch(NODES, resource_version="1")]


class Names:
    """A caller that keeps only names."""

    def page(self, body: bytes) -> Page[str]:
        document = json.loads(body)
        return Page(
            [item["metadata"]["name"] for item in document["items"]],
            document["metadata"]["resourceVersion"],
            document["metadata"].get("continue", ""),
        )

    def event(self, line: bytes) -> Event[str]:
        document = json.loads(line)
        metadata = document["object"]["metadata"]
        return Event(document["type"], metadata.get("name"), metadata["resourceVersion"])


async def test_a_decoder_keeps_what_its_caller_needs(client: Client, server: ScriptedServer) -> None:
    server.answers = [page(["a", "b"])]
    assert [p.items async for p in client.pages(NODES, decoder=Names())] == [["a", "b"]]
    server.answers = [stream(line("ADDED", metadata={"name": "a", "resourceVersion": "3"}))]
    assert [e async for e in client.watch(NODES, resource_version="1", decoder=Names())] == [
        Event("ADDED", "a", "3")
    ]


class Count:
    """A caller that does not decode at all, so that the client's own cost shows."""

    def page(self, body: bytes) -> Page[int]:
        more = body[body.rindex(b'"continue":"') + 12 : body.rindex(b'"')]
        return Page([body.count(b'"uid"')], "1", more.decode())

    def event(self, line: bytes) -> Event[int]:
        raise NotImplementedError


async def test_the_client_itself_carries_fifty_thousand_pods_within_two_seconds(
    client: Client, server: ScriptedServer
) -> None:
    pod = b'{"uid":"' + b"x" * 2000 + b'"},'
    body = b'{"items":[' + pod * 500 + b'null],"metadata":{"continue":"%s"}}'
    more = [web.Response(body=body % b"more") for _ in range(99)]
    server.answers = [*more, web.Response(body=body % b"")]
    started = time.perf_counter()
    pods = sum([p.items[0] async for p in client.pages(PODS, decoder=Count())])
    assert pods == 50_000
    assert time.perf_counter() - started < 2
