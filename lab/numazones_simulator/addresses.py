"""Free addresses of this machine for programs that have not started yet."""

import contextlib
import errno
from pathlib import Path

from numazones_apiserver.ports import LOCAL_PORTS, listening_socket, reserve


def free_address(local_ports: Path = LOCAL_PORTS) -> str:
    """Return an address, ``127.0.0.1:PORT``, that is free and stays so until a program has started.

    The port is reserved for as long as this process lives: whoever chooses another takes another.

    Raises:
        OSError: no port can be had.
    """
    while True:
        with listening_socket("127.0.0.1", local_ports=local_ports) as held, contextlib.ExitStack() as stack:
            host, port = held.getsockname()
            try:
                note = stack.enter_context(reserve(port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue  # somebody is just trying this port, and will find it taken
            note.detach()
            return f"{host}:{port}"
