"""Addresses for programs that are yet to start; how their ports are chosen is tested with the API server."""

import socket
from pathlib import Path

from numazones_simulator.addresses import free_address


def test_an_address_is_free_and_its_port_is_none_that_an_outgoing_connection_gets(tmp_path: Path) -> None:
    local_ports = tmp_path / "ip_local_port_range"
    local_ports.write_text("10050\t60999\n")
    host, _, port = free_address(local_ports).partition(":")
    assert host == "127.0.0.1"
    assert int(port) in range(10000, 10050)
    with socket.create_server((host, int(port))):
        pass
