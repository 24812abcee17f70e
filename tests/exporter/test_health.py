import re

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Counter

from numazones_exporter.health import PUBLISH, SCAN, Health, InvalidAddress, application, serve


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(60, clock=clock)


def test_a_new_exporter_is_healthy_and_not_ready(health: Health) -> None:
    assert health.problems() == []
    assert not health.ready


@pytest.mark.parametrize("step", [SCAN, PUBLISH])
def test_three_intervals_without_success_are_forgiven_but_not_a_second_more(
    step: str, health: Health, clock: Clock
) -> None:
    other = PUBLISH if step == SCAN else SCAN
    health.failed(step, "kubelet.sock: no answer within 10 s")
    clock.now += 180
    health.succeeded(other)
    assert health.problems() == []
    clock.now += 1
    assert health.problems() == [
        f"{step} has not succeeded for 181 s (limit 180 s): kubelet.sock: no answer within 10 s"
    ]


def test_a_success_heals(health: Health, clock: Clock) -> None:
    health.failed(PUBLISH, "503")
    clock.now += 1000
    health.succeeded(SCAN)
    health.succeeded(PUBLISH)
    assert health.problems() == []


def test_a_hanging_step_fails_though_it_reported_no_error(health: Health, clock: Clock) -> None:
    clock.now += 181
    assert [problem.rpartition(": ")[2] for problem in health.problems()] == [
        "no attempt has ended; it hangs or was never started"
    ] * 2


def test_it_is_ready_after_the_first_publish_and_stays_so(health: Health) -> None:
    health.succeeded(SCAN)
    assert not health.ready
    health.succeeded(PUBLISH)
    health.failed(PUBLISH, "503")
    assert health.ready


async def test_the_routes_answer_as_probes_expect(health: Health, clock: Clock) -> None:
    async with TestClient(TestServer(application(health, CollectorRegistry()))) as client:
        assert (await client.get("/healthz")).status == 200
        answer = await client.get("/readyz")
        assert (answer.status, await answer.text()) == (503, "the zones have not been published yet")
        health.succeeded(PUBLISH)
        assert (await client.get("/readyz")).status == 200
        health.failed(PUBLISH, "429: too many requests")
        clock.now += 181
        health.succeeded(SCAN)
        answer = await client.get("/healthz")
        assert answer.status == 500
        assert "429: too many requests" in await answer.text()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text"),
    ],
)
async def test_metrics_come_in_the_format_that_is_asked_for(
    health: Health, accept: str, content_type: str
) -> None:
    registry = CollectorRegistry()
    Counter("numazones_test", "A counter.", registry=registry).inc(3)
    async with TestClient(TestServer(application(health, registry))) as client:
        answer = await client.get("/metrics", headers={"Accept": accept})
        assert answer.headers["Content-Type"].startswith(content_type)
        assert "numazones_test_total 3.0" in await answer.text()


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_it_serves_on_the_address_given(health: Health, address: str) -> None:
    async with serve(address, health, CollectorRegistry()) as port, ClientSession() as session:
        host = address.rpartition(":")[0]
        async with session.get(f"http://{host}:{port}/healthz") as answer:
            assert await answer.text() == "ok"


@pytest.mark.parametrize("address", ["8080", "localhost:http", ":65536", "::x"])
async def test_a_malformed_address_is_refused_by_name(health: Health, address: str) -> None:
    with pytest.raises(InvalidAddress, match=re.escape(f"{address!r} is no address to serve metrics on")):
        async with serve(address, health, CollectorRegistry()):
            pass


async def test_a_taken_port_is_refused_with_the_reason(health: Health) -> None:
    async with serve("127.0.0.1:0", health, CollectorRegistry()) as port:
        with pytest.raises(InvalidAddress, match=r"(?s)in use.*choose another address"):
            async with serve(f"127.0.0.1:{port}", health, CollectorRegistry()):
                pass
