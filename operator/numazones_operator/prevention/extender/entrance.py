"""Accepts connections, and few of them before their client has shown a certificate.

A connection costs some 300 KiB from the beginning of TLS on, and any pod may open one. So few are at that
stage at the same time, and one more ends the oldest of them: a scheduler's handshake takes milliseconds.
"""

import asyncio
import contextlib
import logging
import socket
import ssl

from aiohttp import web

MAX_HANDSHAKES = 32
"""Connections whose client has shown no certificate yet."""
MAX_CONNECTIONS = 512
"""Connections of schedulers; kube-scheduler opens one for each request under way."""
_HANDSHAKE = 10.0
"""Seconds in which a certificate must be shown."""
_PAUSE = 1.0
"""Seconds to wait when no connection can be accepted, as this process has too many files open."""

_log = logging.getLogger(__name__)


async def accept(listener: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
    """Hand connections to a server until cancelled; without ``context`` there is no TLS."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    handshakes: dict[asyncio.Task[None], None] = {}  # the oldest first
    try:
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                _log.warning("the extender cannot accept connections: %s", error.strerror or error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(server.connections) >= MAX_CONNECTIONS:
                client.close()
                continue
            task = loop.create_task(_connect(client, server, context))
            handshakes[task] = None
            task.add_done_callback(lambda task: handshakes.pop(task, None))
            if len(handshakes) > MAX_HANDSHAKES:
                oldest = next(iter(handshakes))
                del handshakes[oldest]
                oldest.cancel()
            await asyncio.sleep(0)  # while connections wait, accepting them gives no other task a turn
    finally:
        for task in handshakes:
            task.cancel()


async def _connect(client: socket.socket, server: web.Server, context: ssl.SSLContext | None) -> None:
    """Hand a connection over once its client has shown a certificate."""
    deadline = None if context is None else _HANDSHAKE
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().connect_accepted_socket(
            server, client, ssl=context, ssl_handshake_timeout=deadline
        )
