import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone

import kubernetes_validate
import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.exporter.fake_api import FakeAPI
from numazones_apiserver import InProcess
from numazones_client import NO_RETRY, Client
from numazones_exporter.lease import LeaseKeeper, lease, lease_name
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.publishing import ObjectWriter

PATH = "/apis/coordination.k8s.io/v1/namespaces/numazones-system/leases/numazones-exporter-worker-3"
NOON = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)


def test_the_lease_is_the_nodes_and_valid() -> None:
    body = lease("worker-3", namespace="numazones-system", node_uid="u", duration=180, renewed_at=NOON)
    kubernetes_validate.validate(body, "1.36", strict=True)
    assert body["metadata"]["name"] == lease_name("worker-3") == "numazones-exporter-worker-3"
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "worker-3", "uid": "u"}
    ]
    assert body["spec"] == {
        "holderIdentity": "worker-3",
        "leaseDurationSeconds": 180,
        "renewTime": "2026-01-31T12:00:00.000005Z",
    }


def test_times_are_written_in_utc_whatever_the_time_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=9)))
    body = lease("n", namespace="s", node_uid="u", duration=0.2, renewed_at=there)
    assert body["spec"]["renewTime"] == "2026-01-31T12:00:00.000005Z"
    assert body["spec"]["leaseDurationSeconds"] == 1


@pytest.fixture
async def api() -> AsyncIterator[tuple[FakeAPI, ObjectWriter]]:
    fake = await FakeAPI().define()
    async with Client(transport=InProcess(fake), retry=NO_RETRY) as client:
        yield fake, ObjectWriter(client, ExporterMetrics(CollectorRegistry()))


class Health:
    def __init__(self) -> None:
        self.good = True
        self.asked = 0
        """How often it was asked for, since it last was good."""

    @property
    def current(self) -> bool:
        self.asked = 0 if self.good else self.asked + 1
        return self.good


def keeper(writer: ObjectWriter, health: Health, *, duration: float = 0.15) -> LeaseKeeper:
    return LeaseKeeper(
        writer,
        "worker-3",
        namespace="numazones-system",
        duration=duration,
        current=lambda: health.current,
        now=lambda: NOON,
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a server
            await asyncio.sleep(0.01)


async def test_lease_is_renewed_three_times_per_duration_after_first_publish(
    api: tuple[FakeAPI, ObjectWriter],
) -> None:
    fake, writer = api
    lease_keeper = keeper(writer, Health())
    task = asyncio.create_task(lease_keeper.run())
    await asyncio.sleep(0.1)
    assert fake.requests == []
    lease_keeper.set_owner("node-uid")
    await until(lambda: len(fake.requests) >= 3)
    task.cancel()
    assert set(fake.requests) == {("PATCH", PATH)}
    assert fake.lease["metadata"]["ownerReferences"][0]["uid"] == "node-uid"


async def test_exporter_that_cannot_read_the_node_lets_its_lease_expire(
    api: tuple[FakeAPI, ObjectWriter],
) -> None:
    fake, writer = api
    health = Health()
    lease_keeper = keeper(writer, health)
    lease_keeper.set_owner("node-uid")
    task = asyncio.create_task(lease_keeper.run())
    await until(lambda: fake.requests)
    health.good = False
    await until(lambda: health.asked)  # a renewal that had begun is over
    fake.requests.clear()
    await until(lambda: health.asked > 4)
    assert fake.requests == []
    health.good = True
    await until(lambda: fake.requests)
    task.cancel()


async def test_a_failed_renewal_is_logged_and_the_next_one_tried(
    api: tuple[FakeAPI, ObjectWriter], caplog: pytest.LogCaptureFixture
) -> None:
    fake, writer = api
    fake.fail(404, 'namespaces "numazones-system" not found', details={"name": "numazones-system"})
    lease_keeper = keeper(writer, Health())
    lease_keeper.set_owner("node-uid")
    task = asyncio.create_task(lease_keeper.run())
    await until(lambda: len(fake.requests) >= 2)
    task.cancel()
    assert (
        "the node's Lease was not renewed: patch leases.coordination.k8s.io numazones-system/" in caplog.text
    )
    assert 'namespaces "numazones-system" not found' in caplog.text
    assert fake.lease


@pytest.mark.parametrize("rejected", [True, False], ids=["a renewal failed", "the zones were not up to date"])
async def test_after_trouble_it_is_renewed_long_before_its_usual_time(
    api: tuple[FakeAPI, ObjectWriter],
    monkeypatch: pytest.MonkeyPatch,
    rejected: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr("numazones_exporter.lease.RETRY_SECONDS", 0.05)
    fake, writer = api
    health = Health()
    health.good = rejected
    if rejected:
        fake.fail(503, "away")
    lease_keeper = keeper(writer, health, duration=3600.0)
    lease_keeper.set_owner("node-uid")
    task = asyncio.create_task(lease_keeper.run())
    await until(lambda: rejected or health.asked > 2)
    health.good = True
    await until(lambda: fake.lease)
    renewed = len(fake.requests)
    await asyncio.sleep(0.2)
    task.cancel()
    assert len(fake.requests) == renewed
