"""A client's transport to an API server in the same process: no sockets, the same answers.

It has the shape that ``Client(transport=...)`` asks for; the server knows nothing of clients.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from multidict import CIMultiDict, MultiDict

from numazones_apiserver.faults import ConnectionBroken
from numazones_apiserver.requests import HTTPRequest
from numazones_apiserver.responses import HTTPResponse
from numazones_apiserver.server import ApiServer


class InProcess:
    """Carries requests to a server.

    The server need not be started; then no controllers run, and nothing happens but what is asked for.
    """

    def __init__(
        self, server: ApiServer, *, note: Callable[[HTTPRequest], object] = lambda _request: None
    ) -> None:
        """``note`` is called with every request before it is answered."""
        self._server = server
        self._note = note

    async def close(self) -> None:
        """There is nothing to close."""

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: CIMultiDict[str],
        body: bytes | None,
        timeout: float | None,  # noqa: ASYNC109 - as a transport is asked
        silence: float | None,
    ) -> AsyncIterator["InProcessAnswer"]:
        """Have a request answered.

        Raises:
            ConnectionRefusedError: the server has been stopped.
            TimeoutError: there is no answer within ``timeout``, or nothing comes for ``silence`` seconds.
            ConnectionResetError: the server cut the connection.
        """
        request = HTTPRequest(method, unquote(path), MultiDict(params), headers, body or b"")
        self._note(request)
        await asyncio.sleep(0)  # other tasks run while an answer is awaited, as with any server
        if self._server.stopped:
            raise ConnectionRefusedError("the server has been stopped")
        try:
            async with asyncio.timeout(silence if timeout is None else timeout):
                answer = await self._server.answer(request)
        except ConnectionBroken:
            raise ConnectionResetError("the connection was cut") from None
        if answer.stream is None:
            yield InProcessAnswer(answer, silence)
            return
        async with aclosing(answer.stream):
            yield InProcessAnswer(answer, silence)


@dataclass(frozen=True, slots=True)
class InProcessAnswer:
    """An answer as a client reads it."""

    _answer: HTTPResponse
    _silence: float | None

    @property
    def status(self) -> int:
        """The status code."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""
        return self._answer.headers

    async def read(self) -> bytes:
        """The whole body."""
        return self._answer.body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of the body as they come."""
        if self._answer.stream is None:
            yield self._answer.body
            return
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    frames = await anext(self._answer.stream)
            except StopAsyncIteration:
                return
            except ConnectionBroken:
                raise ConnectionResetError("the connection was cut") from None
            yield frames
