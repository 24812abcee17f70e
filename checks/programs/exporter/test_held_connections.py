"""Connections that never end, as any pod may open to a port that no network policy guards."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

HELD = 1000
"""Connections, as far as this process may open files."""
_MIB = 2**20


@pytest.fixture
def files() -> Iterator[None]:
    """Let this process open a file per connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, HELD + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def ports() -> tuple[int, int]:
    """Two ports that are free."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def exporter(ports: tuple[int, int], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, whose node and API server are away."""
    command = [str(Path(sys.executable).with_name("numazones-exporter")), "--node-name=a"]
    command += [f"--metrics-address=127.0.0.1:{ports[0]}", f"--probe-address=127.0.0.1:{ports[1]}"]
    command += [f"--sysfs={tmp_path}", "--kubelet-config=none", "--podresources=none", "--pods=none"]
    with subprocess.Popen(
        [*command, f"--kubelet-dir={tmp_path}", "--server=http://127.0.0.1:1"], stderr=subprocess.DEVNULL
    ) as program:
        yield program
        program.terminate()


def status(port: int, path: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        answer.read()
        return int(answer.status)


def usage(program: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    """Resident bytes, threads and open files of a program."""
    of = Path(f"/proc/{program.pid}")
    fields = dict(line.split(":", 1) for line in (of / "status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]), len(list((of / "fd").iterdir()))


@pytest.mark.parametrize("sent", [b"GET ", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"], ids=["line", "header"])
def test_held_connections_cost_the_exporter_neither_its_probes_nor_memory(
    exporter: subprocess.Popen[bytes], ports: tuple[int, int], files: None, sent: bytes
) -> None:
    metrics, probes = ports
    while True:
        with contextlib.suppress(OSError):
            if status(metrics, "/metrics") == status(probes, "/healthz") == 200:
                break
        assert exporter.poll() is None
        time.sleep(0.05)
    resident, threads, opened = usage(exporter)
    with contextlib.ExitStack() as held:
        for _ in range(HELD):
            client = held.enter_context(socket.create_connection(("127.0.0.1", metrics), timeout=60))
            with contextlib.suppress(ConnectionError):
                client.sendall(sent)
        assert status(probes, "/healthz") == 200
        assert status(metrics, "/metrics") == 200
        during = usage(exporter)
        assert during[0] - resident < 10 * _MIB
        assert during[1] <= threads + 2
        assert during[2] <= opened + 32 + 2
