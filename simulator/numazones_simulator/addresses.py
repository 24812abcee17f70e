"""Free addresses of this machine for programs that have not started yet."""

from pathlib import Path

from numazones_apiserver.ports import LOCAL_PORTS, listening_socket


def free_address(local_ports: Path = LOCAL_PORTS) -> str:
    """Return an address, ``127.0.0.1:PORT``, that is free and stays so until a program has started."""
    with listening_socket("127.0.0.1", local_ports=local_ports) as held:
        host, port = held.getsockname()
    return f"{host}:{port}"
