"""Ports that nobody has asked for: free ones, which a server can leave and take again."""

import socket
from pathlib import Path

import pytest

from numazones_apiserver import ApiServer, ports
from numazones_apiserver.ports import listening_socket


@pytest.fixture
def local_ports(tmp_path: Path) -> Path:
    return tmp_path / "ip_local_port_range"


def free_port(local_ports: Path) -> int:
    with listening_socket("127.0.0.1", local_ports=local_ports) as held:
        port: int = held.getsockname()[1]
    return port


def test_a_port_is_none_that_an_outgoing_connection_gets(local_ports: Path) -> None:
    local_ports.write_text("10050\t60999\n")
    found = {free_port(local_ports) for _ in range(100)}
    assert found <= set(range(10000, 10050))
    assert len(found) > 10


def test_a_port_that_is_taken_is_not_given(local_ports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        local_ports.write_text(f"{port + 2} 65535\n")
        assert port not in {free_port(local_ports) for _ in range(50)}


@pytest.mark.parametrize("content", ["1024 65535\n", "", "many\n", None])
def test_any_free_port_is_given_if_all_are_ephemeral(content: str | None, local_ports: Path) -> None:
    if content is not None:
        local_ports.write_text(content)
    with socket.create_server(("127.0.0.1", free_port(local_ports))):
        pass


async def test_a_server_has_a_port_that_it_can_take_again() -> None:
    lowest_local_port = int(ports.LOCAL_PORTS.read_text().split()[0])
    async with ApiServer() as server:
        url = server.url
        assert lowest_local_port <= 10000 or int(url.rpartition(":")[2]) < lowest_local_port
        await server.stop()
        await server.start()
        assert server.url == url
