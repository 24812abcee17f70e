"""Port that a local server listens on when none is configured."""

import errno
import random
import socket
from pathlib import Path

LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux says which ports it gives to outgoing connections."""
_LOWEST = 10000
"""Below it are ports that services are known by."""
_TRIES = 100
_draw = random.SystemRandom()


def listening_socket(host: str, port: int = 0, *, local_ports: Path = LOCAL_PORTS) -> socket.socket:
    """Listen on a port; 0: on a free one that can be left and taken again.

    That is none that the kernel gives to outgoing connections: one of those, even a minute after it was
    closed, would keep others from listening there (ip(7), ``ip_local_port_range``).

    Raises:
        OSError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    below = _lowest_local_port(local_ports)
    for _ in range(_TRIES if port == 0 and below > _LOWEST else 0):
        drawn = _draw.randrange(_LOWEST, below)
        try:
            with reserve(drawn):
                return socket.create_server((host, drawn), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
    return socket.create_server((host, port), family=family)


def reserve(port: int) -> socket.socket:
    """Keep a port from all who choose one in this way, until what is returned is closed.

    A name in Linux's abstract namespace of unix sockets serves as the note: it is taken by one at a time,
    and gone with its process. Elsewhere there is no such namespace, and nothing is kept.

    Raises:
        OSError: somebody has reserved it (``EADDRINUSE``).
    """
    note = socket.socket(socket.AF_UNIX)
    try:
        note.bind(f"\0numazones-port-{port}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            note.close()
            raise
    return note


def _lowest_local_port(local_ports: Path) -> int:
    try:
        return int(local_ports.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
