"""Only what differs is written, all at once; what fails is completed later."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.exporter.fake_api import ZONES, FakeAPI
from numazones.api.meta import Condition, ObjectMeta, OwnerReference
from numazones.api.numazone import NUMAZone, NUMAZoneSpec, NUMAZoneStatus, ZoneResource, zone_name
from numazones_apiserver import InProcess
from numazones_client import (
    NO_RETRY,
    APIError,
    Client,
    ClusterConfig,
    Conflict,
    Forbidden,
    Invalid,
    RetryPolicy,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownResource,
    Unreachable,
)
from numazones_client.config import FileToken, StaticToken, TokenSource
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.publishing import RESYNC_SECONDS, MissingOwner, ObjectWriter, ZonePublisher

NODE = "worker-3"
NO_TOKEN = StaticToken()
SILENCE = {"state": "Silent", "message": "it is silent"}
OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="node-uid")


def zone(
    numa_id: int, *, snapshot: str = "s1", ready: str = "True", owners: tuple[OwnerReference, ...] = (OWNER,)
) -> NUMAZone:
    return NUMAZone(
        metadata=ObjectMeta(
            name=zone_name(NODE, numa_id), labels={"numazones.io/node": NODE}, owner_references=owners
        ),
        spec=NUMAZoneSpec(node_name=NODE, numa_id=numa_id),
        status=NUMAZoneStatus(
            snapshot=snapshot,
            zones=2,
            resources=(ZoneResource(name="cpu", capacity="32", available="22"),),
            conditions=(Condition(type="Ready", status=ready, reason="Complete"),),
        ),
    )


def path(numa_id: int, *, status: bool = False) -> str:
    return f"{ZONES}/{zone_name(NODE, numa_id)}" + ("/status" if status else "")


class Clocks:
    """Wall clock and monotonic clock, which need not agree."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 1, 31, 8, tzinfo=UTC)
        self.monotonic = 0.0

    def now(self) -> datetime:
        return self.wall

    def clock(self) -> float:
        return self.monotonic


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def fake() -> FakeAPI:
    return await FakeAPI().define()


@pytest.fixture
def metrics() -> ExporterMetrics:
    return ExporterMetrics(CollectorRegistry())


def client(fake: FakeAPI, *, retry: RetryPolicy = NO_RETRY, credentials: TokenSource = NO_TOKEN) -> Client:
    config = ClusterConfig("http://in-process.invalid", credentials=credentials)
    return Client(config, transport=InProcess(fake), retry=retry, timeout=120)


@pytest.fixture
async def publisher(fake: FakeAPI, metrics: ExporterMetrics, clocks: Clocks) -> AsyncIterator[ZonePublisher]:
    async with client(fake) as connection:
        yield ZonePublisher(ObjectWriter(connection, metrics), NODE, now=clocks.now, clock=clocks.clock)


def new_publisher(old: ZonePublisher, clocks: Clocks) -> ZonePublisher:
    """The exporter after a restart: same server, nothing remembered."""
    return ZonePublisher(old.writer, NODE, now=clocks.now, clock=clocks.clock)


async def test_a_zone_is_written_object_before_status(publisher: ZonePublisher, fake: FakeAPI) -> None:
    assert await publisher.publish([zone(1), zone(0)]) == 4
    for numa_id in (0, 1):
        of_zone = [write for write in fake.writes_asked if write[1].startswith(path(numa_id))]
        assert of_zone == [("PATCH", path(numa_id)), ("PATCH", path(numa_id, status=True))]
    assert fake.zones["worker-3-numa-0"] == {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "NUMAZone",
        "metadata": {
            "name": "worker-3-numa-0",
            "labels": {"numazones.io/node": NODE},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid"}],
        },
        "spec": {"nodeName": NODE, "numaID": 0},
        "status": {
            "snapshot": "s1",
            "zones": 2,
            "resources": [{"name": "cpu", "capacity": "32", "available": "22"}],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Complete",
                    "lastTransitionTime": "2026-01-31T08:00:00Z",
                }
            ],
        },
    }


async def test_nothing_is_asked_when_nothing_changed(publisher: ZonePublisher, fake: FakeAPI) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.requests.clear()
    for _ in range(5):
        assert await publisher.publish([zone(0), zone(1)]) == 0
    assert fake.requests == []


async def test_nothing_is_written_after_a_restart_when_nothing_changed(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
) -> None:
    await publisher.publish([zone(0), zone(1)])
    for name in fake.zones:
        fake.change(name, {"metadata": {"labels": {"somebody.example/else": "x"}}})
    fake.requests.clear()
    assert await new_publisher(publisher, clocks).publish([zone(0), zone(1)]) == 0
    assert fake.requests == [("GET", ZONES)]


async def test_exporter_keeps_the_operators_mark_of_silence(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
) -> None:
    await publisher.publish([zone(0)])
    fake.change("worker-3-numa-0", {"status": {"silence": SILENCE}})
    fake.requests.clear()
    assert await new_publisher(publisher, clocks).publish([zone(0)]) == 0
    assert fake.requests == [("GET", ZONES)]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("placement", {"model": "pinned", "assigned": "4", "free": "2", "record": "{}"}),
        ("dynamicResources", {"drivers": [{"driver": "gpu.example", "devices": 2, "available": 1}]}),
    ],
)
async def test_exporter_keeps_the_operators_fields_on_models_and_devices(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks, field: str, said: dict[str, Any]
) -> None:
    await publisher.publish([zone(0)])
    fake.change("worker-3-numa-0", {"status": {field: said}})
    fake.requests.clear()
    again = new_publisher(publisher, clocks)
    assert await again.publish([zone(0)]) == 0
    assert fake.requests == [("GET", ZONES)]
    assert await again.publish([zone(0, snapshot="s2")]) == 1
    clocks.monotonic += RESYNC_SECONDS
    assert await again.publish([zone(0, snapshot="s2")]) == 0
    assert fake.zones["worker-3-numa-0"]["status"][field] == said


@pytest.mark.parametrize("snapshot", ["s1", "s2"], ids=["unchanged", "changed"])
async def test_exporter_removes_a_leftover_mark_of_its_silence(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks, snapshot: str
) -> None:
    await publisher.publish([zone(0)])
    fake.change("worker-3-numa-0", {"status": {"silence": SILENCE}})
    back = new_publisher(publisher, clocks)
    await back.publish([zone(0, snapshot=snapshot)])
    assert "silence" in fake.zones["worker-3-numa-0"]["status"]  # an operator takes it back within seconds
    clocks.monotonic += RESYNC_SECONDS
    fake.requests.clear()
    assert await back.publish([zone(0, snapshot=snapshot)]) == 1
    assert fake.requests == [("GET", ZONES), ("PATCH", path(0, status=True))]
    assert "silence" not in fake.zones["worker-3-numa-0"]["status"]
    assert await back.publish([zone(0, snapshot=snapshot)]) == 0


async def test_a_change_rewrites_statuses_only(publisher: ZonePublisher, fake: FakeAPI) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.requests.clear()
    assert await publisher.publish([zone(0, snapshot="s2"), zone(1, snapshot="s2")]) == 2
    assert fake.requests == [("PATCH", path(0, status=True)), ("PATCH", path(1, status=True))]


async def test_a_new_node_of_the_same_name_becomes_the_owner(publisher: ZonePublisher, fake: FakeAPI) -> None:
    await publisher.publish([zone(0)])
    fake.requests.clear()
    await publisher.publish([zone(0, owners=(OWNER.model_copy(update={"uid": "new"}),))])
    assert fake.requests == [("PATCH", path(0))]
    assert fake.zones["worker-3-numa-0"]["metadata"]["ownerReferences"][0]["uid"] == "new"


async def test_all_zones_of_a_node_are_written_concurrently(publisher: ZonePublisher, fake: FakeAPI) -> None:
    zones = [zone(numa_id) for numa_id in range(8)]
    fake.together = asyncio.Barrier(len(zones))  # nobody is answered before all have asked
    assert await publisher.publish(zones) == 16
    assert {held["status"]["snapshot"] for held in fake.zones.values()} == {"s1"}


async def test_zones_that_vanished_are_deleted_after_the_others_are_written(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
) -> None:
    await publisher.publish([zone(0), zone(1), zone(2)])
    fake.requests.clear()
    await new_publisher(publisher, clocks).publish([zone(0, snapshot="s2")])
    assert fake.writes_asked == [("PATCH", path(0, status=True)), ("DELETE", path(1)), ("DELETE", path(2))]
    assert fake.zones.keys() == {"worker-3-numa-0"}


async def test_deleting_a_zone_that_is_gone_already_succeeds(publisher: ZonePublisher, fake: FakeAPI) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.remove("worker-3-numa-1")
    assert await publisher.publish([zone(0)]) == 1
    assert await publisher.publish([zone(0)]) == 0


async def test_zones_of_other_nodes_are_left_alone(publisher: ZonePublisher, fake: FakeAPI) -> None:
    metadata = {"name": "worker-4-numa-0", "labels": {"numazones.io/node": "worker-4"}}
    fake.change("worker-4-numa-0", {"metadata": metadata, "spec": {"nodeName": "worker-4", "numaID": 0}})
    await publisher.publish([zone(0)])
    assert "worker-4-numa-0" in fake.zones


async def test_foreign_changes_of_a_zone_are_repaired_at_resync(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.change("worker-3-numa-0", {"status": {"snapshot": "forged"}})
    fake.remove("worker-3-numa-1")
    clocks.monotonic += RESYNC_SECONDS
    assert await publisher.publish([zone(0), zone(1)]) == 3
    assert fake.zones["worker-3-numa-0"]["status"]["snapshot"] == "s1"
    assert "worker-3-numa-1" in fake.zones


async def test_a_wall_clock_that_jumps_causes_no_request(
    publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
) -> None:
    await publisher.publish([zone(0)])
    fake.requests.clear()
    for jump in (timedelta(days=400), timedelta(days=-800)):
        clocks.wall += jump
        assert await publisher.publish([zone(0)]) == 0
    assert fake.requests == []


class TestTransitionTimes:
    """A condition's time is that of its last change of status, also over restarts."""

    async def times(self, publisher: ZonePublisher, fake: FakeAPI, zone: NUMAZone) -> str:
        await publisher.publish([zone])
        (condition,) = fake.zones["worker-3-numa-0"]["status"]["conditions"]
        time: str = condition["lastTransitionTime"]
        return time

    async def test_it_stays_while_the_status_stays(
        self, publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
    ) -> None:
        await self.times(publisher, fake, zone(0))
        clocks.wall += timedelta(hours=1)
        assert await self.times(publisher, fake, zone(0, snapshot="s2")) == "2026-01-31T08:00:00Z"
        again = new_publisher(publisher, clocks)
        assert await self.times(again, fake, zone(0, snapshot="s3")) == "2026-01-31T08:00:00Z"

    async def test_it_moves_when_the_status_changes(
        self, publisher: ZonePublisher, fake: FakeAPI, clocks: Clocks
    ) -> None:
        await self.times(publisher, fake, zone(0))
        clocks.wall += timedelta(hours=1)
        assert (
            await self.times(publisher, fake, zone(0, snapshot="s2", ready="False")) == "2026-01-31T09:00:00Z"
        )


async def test_publish_after_an_interrupted_one_completes_the_snapshot(
    publisher: ZonePublisher, fake: FakeAPI
) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.fail(500, "etcd is away", after=1)
    changed = [zone(0, snapshot="s2"), zone(1, snapshot="s2")]
    with pytest.raises(ServerError):
        await publisher.publish(changed)
    snapshots = {zone["spec"]["numaID"]: zone["status"]["snapshot"] for zone in fake.zones.values()}
    assert sorted(snapshots.values()) == ["s1", "s2"]
    (cut,) = (numa_id for numa_id, snapshot in snapshots.items() if snapshot == "s1")
    fake.requests.clear()
    assert await publisher.publish(changed) == 1
    assert fake.requests == [("GET", ZONES), ("PATCH", path(cut, status=True))]


async def test_zone_deleted_during_publishing_is_created_again(
    publisher: ZonePublisher, fake: FakeAPI
) -> None:
    await publisher.publish([zone(0)])
    fake.remove("worker-3-numa-0")
    with pytest.raises(APIError, match="it does not exist, or was deleted"):
        await publisher.publish([zone(0, snapshot="s2")])
    assert await publisher.publish([zone(0, snapshot="s2")]) == 2


async def test_without_owner_nothing_is_published_and_the_cure_is_named(
    publisher: ZonePublisher, fake: FakeAPI
) -> None:
    with pytest.raises(MissingOwner, match=r"worker-3-numa-0: .* UID of Node worker-3, which owns it"):
        await publisher.publish([zone(0, owners=())])
    assert fake.writes_asked == []


@pytest.mark.parametrize(
    ("code", "extra", "error", "text"),
    [
        (
            404,
            {"reason": "NotFound", "message": "the server could not find the requested resource"},
            UnknownResource,
            (
                "list numazones.numazones.io: the server could not find the requested resource; "
                "install the definition of numazones.numazones.io (kubectl apply -k crds)"
            ),
        ),
        (401, {"message": "Unauthorized"}, Unauthorized, "the token or certificate has expired"),
        (
            403,
            {"message": "not allowed"},
            Forbidden,
            "grant list on numazones.numazones.io to the service account",
        ),
        (
            429,
            {"message": "too many requests", "retry_after": 7},
            TooManyRequests,
            "list numazones.numazones.io: too many requests; wait and retry",
        ),
        (503, {"message": "etcd is away"}, ServerError, "etcd is away; the API server is restarting"),
    ],
)
async def test_a_rejected_list_says_what_to_do(
    publisher: ZonePublisher,
    fake: FakeAPI,
    code: int,
    extra: dict[str, Any],
    error: type[APIError],
    text: str,
) -> None:
    for _ in range(2):  # a 401 is asked again at once, with the token read anew
        fake.fail(code, **extra)
    with pytest.raises(error) as raised:
        await publisher.publish([zone(0)])
    assert text in str(raised.value)
    fake.failures.clear()
    assert await publisher.publish([zone(0)]) == 2


@pytest.mark.parametrize(
    ("code", "message", "error", "text"),
    [
        (
            409,
            "Operation cannot be fulfilled",
            Conflict,
            (
                "patch numazones.numazones.io worker-3-numa-0: Operation cannot be fulfilled; "
                "it has changed in the meantime: read it again and retry"
            ),
        ),
        (
            422,
            'NUMAZone "worker-3-numa-0" is invalid: status.zones: must be less',
            Invalid,
            "correct the object, or update its definition (kubectl apply -k crds)",
        ),
        (
            403,
            "ValidatingAdmissionPolicy 'numazones-exporter' denied request: … must be those of this node",
            Forbidden,
            "must be those of this node; an admission policy rejects this object",
        ),
        (500, "etcd is away", ServerError, "worker-3-numa-0: etcd is away; the API server is restarting"),
    ],
)
async def test_rejected_write_names_zone_and_cure_and_is_retried(
    publisher: ZonePublisher, fake: FakeAPI, code: int, message: str, error: type[APIError], text: str
) -> None:
    fake.fail(code, message, after=1)
    with pytest.raises(error) as raised:
        await publisher.publish([zone(0)])
    assert text in str(raised.value)
    assert await publisher.publish([zone(0)]) == 2


async def test_too_many_requests_are_repeated_after_the_time_asked_for(
    fake: FakeAPI, metrics: ExporterMetrics
) -> None:
    async with client(fake, retry=RetryPolicy(attempts=3, initial=0.001)) as connection:
        publisher = ZonePublisher(ObjectWriter(connection, metrics), NODE)
        fake.fail(429, "slow down", after=1, retry_after=1)
        assert await publisher.publish([zone(0)]) == 2
    assert fake.writes_asked == [("PATCH", path(0)), ("PATCH", path(0)), ("PATCH", path(0, status=True))]


async def test_an_expired_token_is_read_again(
    fake: FakeAPI, metrics: ExporterMetrics, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with client(fake, credentials=FileToken(token)) as connection:
        publisher = ZonePublisher(ObjectWriter(connection, metrics), NODE)
        await publisher.publish([zone(0)])
        token.write_text("new")  # as the kubelet does before the old one expires
        fake.fail(401, "Unauthorized")
        fake.tokens.clear()
        assert await publisher.publish([zone(0, snapshot="s2")]) == 1
    assert fake.tokens[-1] == "Bearer new"


async def test_an_api_server_that_is_away_is_named(metrics: ExporterMetrics, unused_tcp_port: int) -> None:
    async with Client(ClusterConfig(f"http://127.0.0.1:{unused_tcp_port}"), retry=NO_RETRY) as connection:
        publisher = ZonePublisher(ObjectWriter(connection, metrics), NODE)
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1.*check the server's address, the network"):
            await publisher.publish([zone(0)])


async def test_every_write_is_counted_by_kind_and_result(
    publisher: ZonePublisher, fake: FakeAPI, metrics: ExporterMetrics
) -> None:
    await publisher.publish([zone(0), zone(1)])
    fake.fail(409, "conflict")
    with pytest.raises(Conflict):
        await publisher.publish([zone(0, snapshot="s2"), zone(1, snapshot="s2")])

    def count(result: str) -> float | None:
        labels = {"kind": "NUMAZone", "result": result}
        return metrics.registry.get_sample_value("numazones_exporter_api_writes_total", labels)

    assert (count("ok"), count("409")) == (5, 1)
