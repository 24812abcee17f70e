"""Probes and metrics over HTTP, as the kubelet and Prometheus ask for them."""

import asyncio
import contextlib
import gzip
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric

from numazones_program import probes
from numazones_program.probes import MAX_CONNECTIONS, metrics, serve
from numazones_program.settings import InvalidSetting


class Program:
    """Something with problems."""

    def __init__(self) -> None:
        self.sick: list[str] = []
        self.unready: list[str] = []
        self.registry = CollectorRegistry()
        self.renewed = 0
        self.loop: asyncio.AbstractEventLoop | None = None

    def refresh(self) -> None:
        self.renewed += 1

    @contextmanager
    def running(self, address: str = "127.0.0.1:0") -> Iterator[int]:
        health = probes.probes(
            health_problems=lambda: self.sick, readiness_problems=lambda: self.unready, loop=self.loop
        )
        answer = metrics(self.registry, health, refresh=self.refresh, loop=self.loop)
        with serve(address, answer) as port:
            yield port


@pytest.fixture
def program() -> Program:
    return Program()


def get(port: int, path: str, *, host: str = "127.0.0.1", **headers: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_the_routes_answer_as_probes_expect(program: Program) -> None:
    plain = "text/plain; charset=utf-8"
    with program.running() as port:
        assert get(port, "/healthz") == (200, plain, "ok")
        assert get(port, "/readyz") == (200, plain, "ok")
        program.sick, program.unready = ["it hangs", "and burns"], ["pods: not listed"]
        assert get(port, "/healthz") == (500, plain, "it hangs\nand burns")
        assert get(port, "/readyz") == (503, plain, "pods: not listed")
        assert get(port, "/") == (404, plain, "not found; use /metrics, /healthz or /readyz")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text"),
    ],
)
def test_metrics_are_refreshed_and_served_in_the_requested_format(
    program: Program, accept: str, content_type: str
) -> None:
    Counter("numazones_test", "A counter.", registry=program.registry).inc(3)
    with program.running() as port:
        status, served, text = get(port, "/metrics", Accept=accept)
    assert (status, program.renewed) == (200, 1)
    assert served.startswith(content_type)
    assert "numazones_test_total 3.0" in text


async def test_it_answers_while_the_event_loop_hangs(program: Program) -> None:
    with program.running() as port:
        program.sick = ["it hangs"]
        assert get(port, "/healthz")[::2] == (500, "it hangs")  # blocks the loop of this test


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
def test_it_serves_on_the_address_given(program: Program, address: str, host: str) -> None:
    with program.running(address) as port:
        assert get(port, "/healthz", host=host)[2] == "ok"


async def test_hanging_loop_fails_its_probes_without_delaying_shutdown(
    program: Program,
) -> None:
    program.loop = asyncio.get_running_loop()
    with program.running() as port:
        assert (await asyncio.to_thread(get, port, "/healthz"))[2] == "ok"
        assert (await asyncio.to_thread(get, port, "/metrics"))[0] == 200
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert get(port, "/nothing")[0] == 404  # blocks the loop of this test
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_metrics_are_compressed_for_who_reads_gzip(program: Program) -> None:
    Counter("numazones_test", "A counter.", registry=program.registry)
    with program.running() as port:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            assert b"numazones_test_total 0.0" in gzip.decompress(answer.read())


def test_a_scraper_may_ask_for_some_metrics_by_name(program: Program) -> None:
    for name in ("one", "two"):
        Counter(f"numazones_{name}", "A counter.", registry=program.registry)
    with program.running() as port:
        text = get(port, "/metrics?name%5B%5D=numazones_one_total")[2]
    assert "numazones_one_total" in text
    assert "numazones_two_total" not in text


def ended(client: socket.socket) -> bool:
    """Wait for the server to end a connection."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(1 << 16):
            pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /heal", id="half a request line"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a", id="half a header"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", id="half a body"),
    ],
)
def test_idle_connections_do_not_block_others(program: Program, sent: bytes) -> None:
    """Four times as many connections as are kept: the oldest end, and none has a thread."""
    with program.running() as port, contextlib.ExitStack() as held:
        threads = threading.active_count()
        clients = []
        for _ in range(4 * MAX_CONNECTIONS):
            clients.append(held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)))
            with contextlib.suppress(ConnectionError):
                clients[-1].sendall(sent)
        assert get(port, "/healthz")[2] == "ok"
        assert threading.active_count() == threads
        assert all(ended(client) for client in clients[:-MAX_CONNECTIONS])


def test_a_scrape_under_way_outlives_connections_that_ask_for_nothing(program: Program) -> None:
    reading, go_on = threading.Event(), threading.Event()

    class Slow:
        """A collector that waits."""

        def collect(self) -> Iterator[Metric]:
            reading.set()
            go_on.wait()
            yield from ()

    program.registry.register(Slow())
    with program.running() as port, contextlib.ExitStack() as held:
        scraper = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        reading.wait()
        for _ in range(2 * MAX_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert get(port, "/healthz")[2] == "ok"
        go_on.set()
        assert scraper.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("end", ["goes", "keeps silent", "is cut off"])
def test_of_a_client_that_asks_for_nothing_nothing_is_written(
    program: Program, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A scan of ports, or a probe that only connects; what is on stderr are lines of a log, to be parsed."""
    if end == "keeps silent":
        monkeypatch.setattr(probes, "_DEADLINE", 0.05)
    with program.running() as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            if end == "keeps silent":
                assert ended(client)
            elif end == "is cut off":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        monkeypatch.undo()
        assert get(port, "/healthz")[2] == "ok"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sent", [b"no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: [\r\n\r\n"])
def test_invalid_request_is_answered_without_a_log_line(
    program: Program, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with program.running() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        assert client.recv(12) in {b"HTTP/1.0 400", b"HTTP/1.1 404"}
    assert capfd.readouterr() == ("", "")


def test_an_empty_address_is_served_nowhere(program: Program) -> None:
    with program.running("") as port:
        assert port == 0


def test_a_taken_port_is_rejected_with_the_reason(program: Program) -> None:
    with program.running() as port:
        again = program.running(f"127.0.0.1:{port}")
        with pytest.raises(InvalidSetting, match=r"(?s)in use.*choose another address"), again:
            pass
