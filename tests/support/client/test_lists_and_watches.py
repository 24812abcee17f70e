"""Pages, events, long lines, silent streams, and objects that cannot be read."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from numazones_client import Client, Decoder, Event, Gone, ServerError, Unreachable, by_uid
from numazones_client.resources import NODES
from tests.event_loop import pass_time
from tests.support.client.scripted_server import ScriptedServer, status


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


async def test_old_version_is_gone_immediately_and_in_the_stream(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [status(410, "Expired", "too old resource version: 1 (7)")]
    with pytest.raises(Gone, match="watch nodes: too old resource version"):
        [event async for event in client.watch(NODES, resource_version="1")]
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (7)"}
    server.answers = [stream(line("ERROR", **gone))]
    with pytest.raises(Gone, match="watch nodes: too old resource version"):
        [event async for event in client.watch(NODES, resource_version="1")]


async def test_a_silent_watch_ends_like_any_other(client: Client, server: ScriptedServer) -> None:
    server.answers = [stream(line("ADDED", metadata={"name": "a"}), hold=3600)]
    events = client.watch(NODES, resource_version="1", silence=60)
    assert (await anext(events)).type == "ADDED"
    pass_time(61)
    assert [event async for event in events] == []


async def test_server_that_never_answers_a_watch_is_unreachable(
    client: Client, server: ScriptedServer
) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answers = [never]
    with pytest.raises(Unreachable, match="timed out"):
        [event async for event in client.watch(NODES, resource_version="1", silence=0.05)]


async def test_a_line_that_is_no_event_is_the_servers_error(client: Client, server: ScriptedServer) -> None:
    server.answers = [stream(b'{"type": \n')]
    with pytest.raises(ServerError, match="watch nodes: the response cannot be read"):
        [event async for event in client.watch(NODES, resource_version="1")]


NAMES: Decoder[str] = Decoder(lambda body: str(body["metadata"]["name"]))


async def test_a_decoder_keeps_what_its_caller_needs(client: Client, server: ScriptedServer) -> None:
    server.answers = [page(["a", "b"])]
    assert [p.items async for p in client.pages(NODES, decoder=NAMES)] == [["a", "b"]]
    server.answers = [stream(line("ADDED", metadata={"name": "a", "resourceVersion": "3"}))]
    assert [e async for e in client.watch(NODES, resource_version="1", decoder=NAMES)] == [
        Event("ADDED", "a", "3")
    ]


def widget(name: str, size: Any) -> dict[str, Any]:
    return {"kind": "Widget", "metadata": {"namespace": "ns", "name": name, "uid": f"u-{name}"}, "size": size}


SIZES: Decoder[int] = Decoder(lambda body: int(body["size"]), key=by_uid)


def test_unreadable_object_is_named_and_left_out_of_a_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [widget("a", 1), widget("b", "x")]})
    decoded = SIZES.page(body.encode())
    assert decoded.items == [1]
    (left_out,) = decoded.unreadable
    assert (left_out.key, left_out.metadata["name"]) == ("u-b", "b")
    assert "invalid literal" in left_out.problem
    assert "Widget ns/b cannot be read and is ignored" in caplog.text


def test_object_that_becomes_unreadable_is_named_in_its_event() -> None:
    event = SIZES.event(json.dumps({"type": "MODIFIED", "object": widget("b", None)}).encode())
    assert (event.type, event.object) == ("MODIFIED", None)
    assert event.unreadable is not None
    assert event.unreadable.key == "u-b"


@pytest.mark.parametrize(
    "opaque",
    [
        b'{"a":' + b"[" * 5000 + b'"]}"' + b"]" * 5000 + b"}",
        b'{"a":' + b'{"b":' * 5000 + b'"\\\\\\""' + b"}" * 5000 + b"}",
        b"9" * 6000,
        b"-0." + b"9" * 6000,
        b'["' + b"9" * 6000 + b'", ' + b"8" * 6000 + b"]",
    ],
)
def test_opaque_json_that_python_declines_hides_no_other_object(opaque: bytes) -> None:
    bad = json.dumps(widget("b", 2)).encode()[:-1] + b', "spec": ' + opaque + b"}"
    items = b", ".join([json.dumps(widget("a", 1)).encode(), bad, json.dumps(widget("c", 3)).encode()])
    assert SIZES.page(b'{"metadata": {"resourceVersion": "7"}, "items": [' + items + b"]}").items == [1, 2, 3]
    assert SIZES.event(b'{"type": "ADDED", "object": ' + bad + b"}").object == 2


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), ZeroDivisionError("by 0")])
def test_whatever_reading_an_object_raises_concerns_that_object_alone(error: Exception) -> None:
    def keep(body: dict[str, Any]) -> str:
        if body["metadata"]["name"] == "b":
            raise error
        return str(body["metadata"]["name"])

    body = json.dumps({"metadata": {}, "items": [widget("a", 1), widget("b", 2), widget("c", 3)]})
    decoded = Decoder(keep).page(body.encode())
    assert decoded.items == ["a", "c"]
    assert type(error).__name__ in decoded.unreadable[0].problem
