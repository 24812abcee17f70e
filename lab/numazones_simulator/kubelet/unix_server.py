"""gRPC on a unix socket, which ends as that of a process does: clients are hung up on.

grpclib's server leaves the connections of its clients open when it is closed, and goes on answering them. And
since Python 3.12 it waits for its clients to hang up.
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from weakref import WeakSet

from grpclib.const import Handler
from grpclib.server import Server


class Service(Protocol):
    """Service that grpclib serves."""

    def __mapping__(self) -> dict[str, Handler]:
        """Path → how calls of it are answered."""


class _Listening(socket.socket):
    """A listening socket that can hang up on those that it let in.

    That they are known here, and not by their protocols, includes those whose protocol has not begun yet.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._accepted: WeakSet[socket.socket] = WeakSet()
        self.ending = False
        """Whether nobody is let in any more."""
        try:
            self.bind(str(path))
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        if self.ending:
            raise BlockingIOError  # to asyncio: there is nobody
        connection, address = super().accept()
        self._accepted.add(connection)
        return connection, address

    def hang_up(self) -> None:
        for connection in self._accepted:
            with suppress(OSError):  # it has ended already
                connection.shutdown(socket.SHUT_RDWR)


class UnixServer:
    """Serves gRPC on a unix socket while its context is open; then its clients are hung up on.

    The directory of the socket is made, an old socket is replaced.
    """

    def __init__(self, path: Path, service: Service) -> None:
        self._path = path
        self._server = Server([service])
        self._listening: _Listening | None = None

    async def __aenter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._listening = _Listening(self._path)
        await self._server.start(sock=self._listening)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is None:
            raise RuntimeError("the server was not started")
        self._listening.ending = True
        try:
            # Whoever was let in just now gets a transport; asyncio makes none once the server is closed.
            await asyncio.sleep(0)
        finally:
            self._server.close()
            self._listening.hang_up()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)
