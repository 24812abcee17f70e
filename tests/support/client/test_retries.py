"""Requests that are retried or not, and the waits between them."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from numazones_client import Client, ClusterConfig, RetryPolicy, ServerError, TooManyRequests, Unreachable
from numazones_client.config import FileToken
from numazones_client.resources import NODES, NUMAZONES, PODS
from tests.support.client.scripted_server import QUICK, ScriptedServer, status

OK = {"kind": "Node"}


@given(attempt=st.integers(1, 4), draw=st.floats(0, 1, exclude_max=True))
def test_delays_grow_within_their_bounds(attempt: int, draw: float) -> None:
    policy = RetryPolicy(attempts=5, initial=1, factor=2, maximum=4, jitter=0.5)
    delay = policy.delay(attempt, retry_after=None, draw=draw)
    assert delay is not None
    ceiling = min(2 ** (attempt - 1), 4)
    assert ceiling / 2 <= delay <= ceiling


def test_policy_gives_up_after_its_attempts_and_beyond_its_patience() -> None:
    policy = RetryPolicy(attempts=2, patience=60)
    assert policy.delay(2, retry_after=None, draw=0) is None
    assert policy.delay(1, retry_after=61, draw=0) is None
    assert policy.delay(1, retry_after=60, draw=0) == 60


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_a_failing_server_is_asked_again(client: Client, server: ScriptedServer, code: int) -> None:
    server.answers = [status(code), status(code), web.json_response(OK)]
    assert await client.get(NODES, "n") == OK
    assert len(server.asked) == 3


async def test_requests_are_not_repeated_without_end(client: Client, server: ScriptedServer) -> None:
    server.answers = [status(500, message="boom")]
    with pytest.raises(ServerError, match="get nodes n: boom"):
        await client.get(NODES, "n")
    assert len(server.asked) == QUICK.attempts


async def test_retry_after_is_heeded(client: Client, server: ScriptedServer) -> None:
    busy = web.Response(status=429, headers={"Retry-After": "1"})
    server.answers = [busy, web.json_response(OK)]
    started = asyncio.get_running_loop().time()
    assert await client.get(NODES, "n") == OK
    assert asyncio.get_running_loop().time() - started >= 1


async def test_a_longer_retry_after_than_the_patience_is_reported(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [web.Response(status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(TooManyRequests) as rejected:
        await client.get(NODES, "n")
    assert rejected.value.retry_after == 3600
    assert len(server.asked) == 1


async def test_a_creation_is_not_repeated_when_it_may_have_happened(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [status(500)]
    with pytest.raises(ServerError):
        await client.create(PODS, {"metadata": {"name": "p"}}, namespace="x")
    assert len(server.asked) == 1


async def test_a_creation_the_server_did_not_begin_is_repeated(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [status(429), web.json_response(OK)]
    assert await client.create(PODS, {"metadata": {"name": "p"}}, namespace="x") == OK


async def test_a_broken_connection_is_tried_again(client: Client, server: ScriptedServer) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.answers = [hang_up, web.json_response(OK)]
    assert await client.get(NODES, "n") == OK


async def test_a_slow_answer_times_out(server: ScriptedServer) -> None:
    async def sleep(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.json_response(OK)

    server.answers = [sleep]
    async with Client(server.config(), retry=RetryPolicy(attempts=1), timeout=0.05) as client:
        with pytest.raises(Unreachable, match=r"get nodes n: http://127\S+: timed out; check the server"):
            await client.get(NODES, "n")


async def test_a_server_that_nobody_runs_is_unreachable(unused_tcp_port: int) -> None:
    async with Client(ClusterConfig(f"http://127.0.0.1:{unused_tcp_port}"), retry=QUICK) as client:
        with pytest.raises(Unreachable, match=r"127.0.0.1:\d+: connection refused;") as failed:
            await client.get(NUMAZONES, "z")
    assert not failed.value.sent


async def test_a_token_on_disk_is_read_again_when_it_changes(server: ScriptedServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server.answers = [web.json_response(OK)]
    async with Client(ClusterConfig(server.url, credentials=FileToken(token))) as client:
        await client.get(NODES, "n")
        token.write_text("second, longer\n")
        await client.get(NODES, "n")
    assert [asked.headers["Authorization"] for asked in server.asked] == [
        "Bearer first",
        "Bearer second, longer",
    ]


async def test_a_rejected_token_is_renewed_once(server: ScriptedServer) -> None:
    class Renewable:
        async def token(self, *, renew: bool = False) -> str:
            return "new" if renew else "old"

    server.answers = [status(401), web.json_response(OK)]
    async with Client(ClusterConfig(server.url, credentials=Renewable())) as client:
        assert await client.get(NODES, "n") == OK
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]
