"""Zones that somebody deletes are noticed; the exporter's own writes are not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from numazones_apiserver import ApiServer, InProcess
from numazones_client import NO_RETRY, Client
from numazones_client.resources import DEFINITIONS, NUMAZONES
from numazones_exporter.triggers import INTERVAL, ZONES, Wakeups
from numazones_exporter.watched_zones import WatchedZones
from tests.places import ROOT
from tests.yaml_files import document

DEFINITION = ROOT / "crds" / "numazones.yaml"
FIRST, SECOND, OTHERS = "worker-3-numa-0", "worker-3-numa-1", "worker-4-numa-0"


def zone(name: str) -> dict[str, Any]:
    node, _, numa = name.partition("-numa-")
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "NUMAZone",
        "metadata": {"name": name, "labels": {"numazones.io/node": node}},
        "spec": {"nodeName": node, "numaID": int(numa)},
    }


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(host=None, bookmark_seconds=0.2) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with Client(transport=InProcess(server), retry=NO_RETRY, timeout=120) as opened:
        await opened.create(DEFINITIONS, document(DEFINITION))
        for name in (FIRST, SECOND, OTHERS):
            await opened.create(NUMAZONES, zone(name))
        yield opened


@pytest.fixture
def wakeups() -> Wakeups:
    return Wakeups(quiet=0.02, max_burst=0.1)


@pytest.fixture
async def zones(client: Client, wakeups: Wakeups) -> AsyncIterator[WatchedZones]:
    watched = WatchedZones(client, wakeups)
    task = asyncio.create_task(watched.run())
    yield watched
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_watched(server: ApiServer, *names: str) -> None:
    """Wait until exactly these zones are watched, each by its name."""
    expected = sorted(f"metadata.name={name}" for name in names)

    def watched() -> list[str]:
        return sorted(
            one.request.query["fieldSelector"]
            for one in server.faults.watches
            if one.info.resource == NUMAZONES.plural
        )

    async with asyncio.timeout(120):
        while watched() != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_zone_that_somebody_deletes_wakes(
    server: ApiServer, client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    zones.follow([FIRST, SECOND])
    await until_watched(server, FIRST, SECOND)
    await client.delete(NUMAZONES, SECOND)
    assert await wakeups.wait(120) == {ZONES}
    await client.create(NUMAZONES, zone(SECOND))
    zones.follow([FIRST, SECOND])
    await until_watched(server, FIRST, SECOND)
    await client.delete(NUMAZONES, SECOND)
    assert await wakeups.wait(120) == {ZONES}


async def test_own_zone_changes_and_events_on_others_do_not_wake(
    server: ApiServer, client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    zones.follow([FIRST])
    await until_watched(server, FIRST)
    await client.patch(NUMAZONES, FIRST, {"metadata": {"annotations": {"a": "b"}}})
    await client.delete(NUMAZONES, OTHERS)
    assert await wakeups.wait(0.3) == {INTERVAL}


async def test_a_zone_that_was_deleted_before_its_watch_began_wakes(
    client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    await client.delete(NUMAZONES, FIRST)
    zones.follow([FIRST])
    assert await wakeups.wait(120) == {ZONES}


async def test_zone_deleted_during_a_broken_watch_wakes(
    server: ApiServer, client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    zones.follow([FIRST])
    await until_watched(server, FIRST)
    server.faults.server_error(500, verb="list", resource="numazones", count=1)
    server.faults.drop_watches(compacted=True)
    await client.delete(NUMAZONES, FIRST)
    assert await wakeups.wait(120) == {ZONES}


async def test_a_definition_that_is_gone_wakes(
    server: ApiServer, client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    zones.follow([FIRST])
    await until_watched(server, FIRST)
    await client.delete(DEFINITIONS, "numazones.numazones.io")
    assert await wakeups.wait(120) == {ZONES}


async def test_zones_that_are_published_no_more_are_watched_no_more(
    server: ApiServer, client: Client, zones: WatchedZones, wakeups: Wakeups
) -> None:
    zones.follow([FIRST, SECOND])
    await until_watched(server, FIRST, SECOND)
    zones.follow([FIRST])
    await until_watched(server, FIRST)
    await client.delete(NUMAZONES, SECOND)
    assert await wakeups.wait(0.3) == {INTERVAL}


async def test_a_missing_right_is_told_once_for_all_zones(
    server: ApiServer, zones: WatchedZones, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.server_error(403, verb="list", resource="numazones", count=None)
    zones.follow([FIRST, SECOND])

    def struck() -> int:
        return sum(fault.struck for fault in server.faults.pending)

    async with asyncio.timeout(120):
        while struck() < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1, told
    assert "grant list on numazones.numazones.io" in told[0].message
