import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from numazones_apiserver import ApiServer
from numazones_client import NO_RETRY, Client, ClusterConfig, ConfigError, Unreachable
from numazones_client.config import FileToken
from numazones_client.resources import PODS
from numazones_exporter.observation import NodePod
from numazones_exporter.sources.api import APIPodsReader, LazyClient
from numazones_exporter.triggers import INTERVAL, Wakeups
from numazones_exporter.triggers import PODS as PODS_CHANGED
from numazones_exporter.watched_pods import WatchedPods

NODE = "worker-3"


def pod(name: str, *, node: str = NODE) -> dict[str, Any]:
    containers = [{"name": "app", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": containers},
    }


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_seconds=0.2) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(ClusterConfig(server.url), retry=NO_RETRY, timeout=120) as opened:
        yield opened


@pytest.fixture
def wakeups() -> Wakeups:
    return Wakeups(quiet=0.02, max_burst=0.1)


@pytest.fixture
async def pods(client: Client, wakeups: Wakeups) -> AsyncIterator[WatchedPods]:
    listing = APIPodsReader(LazyClient(None, client), NODE)
    watched = WatchedPods(client, NODE, wakeups, otherwise=listing)
    task = asyncio.create_task(watched.run())
    yield watched
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def names(pods: WatchedPods, expected: set[str]) -> tuple[NodePod, ...]:
    """Wait until exactly these pods are known."""
    async with asyncio.timeout(120):
        while True:
            known = await pods.read()
            if {pod.name for pod in known} == expected:
                return known
            await asyncio.sleep(0.01)


async def until_watched(server: ApiServer) -> None:
    """Wait until the pods are watched; until then, reading lists."""
    async with asyncio.timeout(120):
        while not any(watch.info.resource == "pods" for watch in server.faults.watches):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_it_knows_this_nodes_pods_and_wakes_for_each_change(
    client: Client, pods: WatchedPods, wakeups: Wakeups
) -> None:
    created = await client.create(PODS, pod("a"), namespace="default")
    await client.create(PODS, pod("elsewhere", node="worker-4"), namespace="default")
    (known,) = await names(pods, {"a"})
    assert known == NodePod("default", "a", created["metadata"]["uid"], "Pending", "Guaranteed")
    assert await wakeups.wait(120) == {PODS_CHANGED}
    await client.patch(
        PODS, "a", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status"
    )
    assert await wakeups.wait(120) == {PODS_CHANGED}
    (known,) = await pods.read()
    assert not known.active
    await client.delete(PODS, "a", namespace="default", grace_seconds=0)
    assert await wakeups.wait(120) == {PODS_CHANGED}
    assert await pods.read() == ()


async def test_changes_that_do_not_matter_do_not_wake(
    client: Client, pods: WatchedPods, wakeups: Wakeups
) -> None:
    await client.create(PODS, pod("a"), namespace="default")
    await names(pods, {"a"})
    await wakeups.wait(120)
    await client.patch(PODS, "a", {"metadata": {"annotations": {"x": "y"}}}, namespace="default")
    assert await wakeups.wait(0.3) == {INTERVAL}


async def test_reading_asks_nobody_while_the_watch_works(
    client: Client, server: ApiServer, pods: WatchedPods
) -> None:
    await client.create(PODS, pod("a"), namespace="default")
    await names(pods, {"a"})
    await until_watched(server)
    before = server.requests_served
    for _ in range(10):
        assert len(await pods.read()) == 1
    assert server.requests_served == before


async def test_it_lists_again_after_410_and_notices_what_it_missed(
    client: Client, server: ApiServer, pods: WatchedPods, wakeups: Wakeups
) -> None:
    await client.create(PODS, pod("a"), namespace="default")
    await names(pods, {"a"})
    await wakeups.wait(120)
    await until_watched(server)
    assert server.faults.drop_watches(compacted=True)
    await client.delete(PODS, "a", namespace="default", grace_seconds=0)
    await client.create(PODS, pod("b"), namespace="default")
    await names(pods, {"b"})
    assert await wakeups.wait(120) == {PODS_CHANGED}


async def test_while_the_watch_is_broken_it_lists_and_says_so(
    client: Client, server: ApiServer, pods: WatchedPods, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create(PODS, pod("a"), namespace="default")
    await names(pods, {"a"})
    server.faults.server_error(500, verb="watch", resource="pods", count=None)
    with caplog.at_level(logging.WARNING):
        server.faults.drop_watches()
        async with asyncio.timeout(120):
            while "watch pods: " not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await client.create(PODS, pod("b"), namespace="default")
    assert {pod.name for pod in await pods.read()} == {"a", "b"}  # at once, from a list
    server.faults.clear()
    await client.create(PODS, pod("c"), namespace="default")
    await names(pods, {"a", "b", "c"})


async def test_unreachable_api_server_is_reported_without_returning_old_pods(
    client: Client, server: ApiServer, pods: WatchedPods
) -> None:
    await client.create(PODS, pod("a"), namespace="default")
    await names(pods, {"a"})
    await until_watched(server)
    await server.stop()
    with pytest.raises(Unreachable, match="check the server's address"):
        await names(pods, set())  # until the broken watch is noticed, the pod is known
    await server.start()
    await names(pods, {"a"})


async def test_unreadable_token_breaks_the_watch_until_it_is_readable(
    server: ApiServer, wakeups: Wakeups, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    config = ClusterConfig(server.url, credentials=FileToken(token))
    async with Client(config, retry=NO_RETRY, timeout=120) as client:
        watched = WatchedPods(client, NODE, wakeups, otherwise=APIPodsReader(LazyClient(None, client), NODE))
        task = asyncio.create_task(watched.run())
        with pytest.raises(ConfigError, match="mount a service account token there"):
            await watched.read()
        async with asyncio.timeout(120):
            while "cannot read the token" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        token.write_text("t")
        await client.create(PODS, pod("a"), namespace="default")
        await names(watched, {"a"})
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
