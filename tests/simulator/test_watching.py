import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from numazones_client import Client, ClusterConfig, Resource
from numazones_simulator.apiserver import ApiServer
from numazones_simulator.watching import Change, changes

CONFIG_MAPS = Resource("", "v1", "configmaps")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as started:
        yield started


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(ClusterConfig(server=server.url)) as opened:
        yield opened


async def create(client: Client, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await client.create(CONFIG_MAPS, body, namespace="default")


def told(batch: list[Change]) -> list[tuple[str, bool]]:
    return sorted((change.object["metadata"]["name"], change.deleted) for change in batch)


async def next_of(stream: AsyncIterator[list[Change]]) -> list[tuple[str, bool]]:
    async with asyncio.timeout(10):
        return told(await anext(stream))


async def test_what_is_there_comes_first_and_then_every_change(client: Client) -> None:
    await create(client, "a")
    await create(client, "b")
    stream = changes(client, CONFIG_MAPS)
    assert await next_of(stream) == [("a", False), ("b", False)]
    await create(client, "c")
    assert await next_of(stream) == [("c", False)]
    await client.delete(CONFIG_MAPS, "a", namespace="default")
    assert await next_of(stream) == [("a", True)]


async def test_objects_that_vanish_during_a_break_are_reported(server: ApiServer, client: Client) -> None:
    await create(client, "stays")
    await create(client, "goes")
    stream = changes(client, CONFIG_MAPS)
    await next_of(stream)
    waiting = asyncio.ensure_future(next_of(stream))
    await asyncio.sleep(0.05)
    kind = server.kind("configmaps")
    await server.stop()
    shelf = server.store.shelf(*kind.shelf)
    server.store.delete(shelf, ("default", "goes"))
    late: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "new", "namespace": "default", "uid": "u"},
    }
    server.store.put(shelf, late)
    server.compact()
    await server.start()
    assert await waiting == [("goes", True), ("new", False)]
