import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from numazones_exporter.health import PUBLISH, SCAN, Health, InvalidAddress, serve


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


@contextmanager
def serving(health: Health, registry: CollectorRegistry | None = None) -> Iterator[str]:
    with serve("127.0.0.1:0", health, registry or CollectorRegistry()) as port:
        yield f"http://127.0.0.1:{port}"


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own http URL
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_the_routes_answer_as_probes_expect(health: Health, clock: Clock) -> None:
    plain = "text/plain; charset=utf-8"
    with serving(health) as url:
        assert get(f"{url}/healthz") == (200, plain, "ok")
        assert get(f"{url}/readyz") == (503, plain, "the zones have not been published yet")
        health.succeeded(PUBLISH)
        assert get(f"{url}/readyz") == (200, plain, "ok")
        health.failed(PUBLISH, "429: too many requests")
        clock.now += 181
        health.succeeded(SCAN)
        status, _, text = get(f"{url}/healthz")
        assert (status, "429: too many requests" in text) == (500, True)
        assert get(f"{url}/") == (404, plain, "there are /metrics, /healthz and /readyz")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text"),
    ],
)
def test_metrics_come_in_the_format_that_is_asked_for(health: Health, accept: str, content_type: str) -> None:
    registry = CollectorRegistry()
    Counter("numazones_test", "A counter.", registry=registry).inc(3)
    with serving(health, registry) as url:
        status, served, text = get(f"{url}/metrics", Accept=accept)
    assert status == 200
    assert served.startswith(content_type)
    assert "numazones_test_total 3.0" in text


async def test_it_answers_while_the_event_loop_hangs(health: Health, clock: Clock) -> None:
    with serving(health) as url:
        clock.now += 181
        status, _, text = get(f"{url}/healthz")  # blocks the loop of this test
    assert status == 500
    assert "it hangs" in text


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "[::1]"),
        ("localhost:0", "localhost"),
        (":0", "127.0.0.1"),
        (":0", "[::1]"),
    ],
)
def test_it_serves_on_the_address_given(health: Health, address: str, host: str) -> None:
    with serve(address, health, CollectorRegistry()) as port:
        assert get(f"http://{host}:{port}/healthz")[2] == "ok"


def test_a_client_that_says_nothing_does_not_keep_others_from_being_answered(health: Health) -> None:
    with (
        serve("127.0.0.1:0", health, CollectorRegistry()) as port,
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert get(f"http://127.0.0.1:{port}/healthz")[2] == "ok"


@pytest.mark.parametrize("address", ["8080", "localhost:http", ":65536", "::x"])
def test_a_malformed_address_is_rejected_by_name(health: Health, address: str) -> None:
    rejection = re.escape(f"{address!r} is no address to serve metrics on")
    with pytest.raises(InvalidAddress, match=rejection), serve(address, health, CollectorRegistry()):
        pass


def test_a_taken_port_is_rejected_with_the_reason(health: Health) -> None:
    with serve("127.0.0.1:0", health, CollectorRegistry()) as port:
        again = serve(f"127.0.0.1:{port}", health, CollectorRegistry())
        with pytest.raises(InvalidAddress, match=r"(?s)in use.*choose another address"), again:
            pass
