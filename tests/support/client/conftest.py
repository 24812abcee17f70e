"""The scripted API server, running, and a client of it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from numazones_client import Client
from tests.support.client.scripted_server import QUICK, ScriptedServer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    async with TestServer(app) as running:
        scripted.url = str(running.make_url("")).rstrip("/")
        yield scripted


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(server.config(), retry=QUICK) as opened:
        yield opened
