"""Addresses for programs that are yet to start; how their ports are chosen is tested with the API server."""

import socket
from pathlib import Path

from numazones_apiserver.ports import listening_socket
from numazones_simulator.addresses import free_address


def test_address_is_free_and_its_port_outside_the_ephemeral_range(tmp_path: Path) -> None:
    local_ports = tmp_path / "ip_local_port_range"
    local_ports.write_text("10050\t60999\n")
    host, _, port = free_address(local_ports).partition(":")
    assert host == "127.0.0.1"
    assert int(port) in range(10000, 10050)
    with socket.create_server((host, int(port))):
        pass


def test_address_is_given_once_though_no_program_listens_yet(tmp_path: Path) -> None:
    local_ports = tmp_path / "ip_local_port_range"
    local_ports.write_text("10250\t60999\n")
    found = [free_address(local_ports) for _ in range(60)]
    assert len(set(found)) == len(found)
    for _ in range(60):
        with listening_socket("127.0.0.1", local_ports=local_ports) as server:
            assert f"127.0.0.1:{server.getsockname()[1]}" not in found
