import socket
from pathlib import Path

import pytest

from numazones_apiserver import ApiServer, ports
from numazones_simulator.addresses import free_address


def port_of(address: str) -> int:
    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    return int(port)


@pytest.fixture
def local_ports(tmp_path: Path) -> Path:
    return tmp_path / "ip_local_port_range"


def test_an_address_has_a_port_that_no_outgoing_connection_gets(local_ports: Path) -> None:
    local_ports.write_text("10050\t60999\n")
    ports = {port_of(free_address(local_ports)) for _ in range(100)}
    assert ports <= set(range(10000, 10050))
    assert len(ports) > 10


def test_an_address_that_is_taken_is_not_given(local_ports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        local_ports.write_text(f"{port + 2} 65535\n")
        assert port not in {port_of(free_address(local_ports)) for _ in range(50)}


@pytest.mark.parametrize("content", ["1024 65535\n", "", "many\n", None])
def test_where_all_ports_are_for_connections_any_free_one_is_given(
    content: str | None, local_ports: Path
) -> None:
    if content is not None:
        local_ports.write_text(content)
    address = free_address(local_ports)
    with socket.create_server(("127.0.0.1", port_of(address))):
        pass


def lowest_local_port() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


async def test_a_server_has_a_port_that_it_can_take_again() -> None:
    async with ApiServer() as server:
        url = server.url
        assert lowest_local_port() <= 10000 or port_of(url.removeprefix("http://")) < lowest_local_port()
        await server.stop()
        await server.start()
        assert server.url == url
