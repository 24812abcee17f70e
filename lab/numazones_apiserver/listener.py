"""The HTTP side: a socket, and aiohttp's requests and responses made from and into the server's own."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from aiohttp import web
from multidict import CIMultiDict

from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import ConnectionBroken
from numazones_apiserver.ports import listening_socket
from numazones_apiserver.requests import HTTPRequest
from numazones_apiserver.responses import HTTPResponse, json_answer

_MAX_BODY_BYTES = 3 * 1024 * 1024
# Turns of the event loop between a connection's acceptance and its arrival at the protocol (asyncio).
_TURNS_TO_ACCEPT = 3


class Listener:
    """Listens on a loopback address and has each request answered."""

    def __init__(
        self, host: str, port: int, answer: Callable[[HTTPRequest], Awaitable[HTTPResponse]]
    ) -> None:
        self._host, self._port, self._answer = host, port, answer
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Return the URL of the listener."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def start(self) -> None:
        """Listen; started again, on the same port."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1, keepalive_timeout=300
        )
        await self._runner.setup()
        self._socket = listening_socket(self._host, self._port)
        self._port = self._socket.getsockname()[1]
        await web.SockSite(self._runner, self._socket).start()

    async def stop(self) -> None:
        """Cut all connections and stop listening."""
        if self._runner is not None and self._socket is not None:
            # asyncio leaks connections that it is accepting while their server closes: accept no more first.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(_TURNS_TO_ACCEPT):
                await asyncio.sleep(0)
            await self._runner.cleanup()
            self._runner = self._socket = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read() if request.can_read_body else b""
            answer = await self._answer(
                HTTPRequest(request.method, request.path, request.query, request.headers, body)
            )
        except ConnectionBroken:
            return _cut(request)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_MAX_BODY_BYTES}"
            answer = json_answer(StatusError(413, "RequestEntityTooLarge", message).status(), 413)
        if answer.stream is not None:
            return await _stream(request, answer.headers, answer.stream)
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


async def _stream(
    request: web.Request, headers: CIMultiDict[str], stream: AsyncGenerator[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    try:
        async with aclosing(stream):
            await response.prepare(request)
            async for frames in stream:
                await response.write(frames)
    except ConnectionBroken:
        _cut(request)
    except ConnectionResetError:
        pass  # the client has gone, which is how watches usually end
    return response


def _cut(request: web.Request) -> web.Response:
    """Cut the connection instead of answering."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
