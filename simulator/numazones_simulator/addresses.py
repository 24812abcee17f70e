"""Chooses ports of this machine, for servers and for programs that are yet to start."""

import errno
import random
import socket
from pathlib import Path

_LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10000
"""Below it are ports that services are known by."""
_TRIES = 100
_draw = random.SystemRandom()


def free_address(local_ports: Path = _LOCAL_PORTS) -> str:
    """Return an address, ``127.0.0.1:PORT``, that is free and stays so until a program has started."""
    with listening("127.0.0.1", local_ports=local_ports) as held:
        host, port = held.getsockname()
    return f"{host}:{port}"


def listening(host: str, port: int = 0, *, local_ports: Path = _LOCAL_PORTS) -> socket.socket:
    """Listen on a port; 0: on a free one that can be left and taken again.

    That is none that the kernel gives to outgoing connections: one of those, even a minute after it was
    closed, would keep others from listening there (ip(7), ``ip_local_port_range``).

    Raises:
        OSError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    below = _lowest_local_port(local_ports)
    for _ in range(_TRIES if port == 0 and below > _LOWEST else 0):
        try:
            return socket.create_server((host, _draw.randrange(_LOWEST, below)), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
    return socket.create_server((host, port), family=family)


def _lowest_local_port(local_ports: Path) -> int:
    try:
        return int(local_ports.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
