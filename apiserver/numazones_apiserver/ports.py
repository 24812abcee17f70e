"""Which port a server of this machine listens on, when nobody has asked for a certain one."""

import errno
import random
import socket
from pathlib import Path
from typing import Final

LOCAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux says which ports it gives to outgoing connections."""
_LOWEST = 10000
"""Below it are ports that services are known by."""
_TRIES: Final = 100
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
