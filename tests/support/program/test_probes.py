"""Probes and metrics over HTTP, as the kubelet and Prometheus ask for them."""

import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from numazones_program import probes
from numazones_program.probes import application, serve
from numazones_program.settings import InvalidSetting


class Program:
    """Something with problems."""

    def __init__(self) -> None:
        self.sick: list[str] = []
        self.unready: list[str] = []
        self.registry = CollectorRegistry()
        self.renewed = 0

    def refresh(self) -> None:
        self.renewed += 1

    @contextmanager
    def running(self, address: str = "127.0.0.1:0") -> Iterator[int]:
        answer = application(
            health_problems=lambda: self.sick,
            readiness_problems=lambda: self.unready,
            registry=self.registry,
            refresh=self.refresh,
        )
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
        assert get(port, "/") == (404, plain, "there are /metrics, /healthz and /readyz")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text"),
    ],
)
def test_metrics_are_renewed_and_come_in_the_format_that_is_asked_for(
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


def test_a_client_that_says_nothing_does_not_keep_others_from_being_answered(program: Program) -> None:
    with program.running() as port, socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/healthz")[2] == "ok"


@pytest.mark.parametrize("end", ["goes", "keeps silent", "is cut off"])
def test_of_a_client_that_asks_for_nothing_nothing_is_written(
    program: Program, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A scan of ports, or a probe that only connects; what is on stderr are lines of a log, to be parsed."""
    if end == "keeps silent":
        monkeypatch.setattr(probes._Handler, "timeout", 0.05)
    with program.running() as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            if end == "keeps silent":
                assert client.recv(1) == b""  # until the server ends it
            elif end == "is cut off":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        monkeypatch.undo()
        assert get(port, "/healthz")[2] == "ok"  # so the first connection has its thread by now
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join()
    assert capfd.readouterr() == ("", "")


def test_a_taken_port_is_rejected_with_the_reason(program: Program) -> None:
    with program.running() as port:
        again = program.running(f"127.0.0.1:{port}")
        with pytest.raises(InvalidSetting, match=r"(?s)in use.*choose another address"), again:
            pass
