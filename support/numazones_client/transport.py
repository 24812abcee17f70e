"""Carries requests to the API server: connections, credentials, repeats, failures.

What is repeated after a failure: everything after 429, or 503 with ``Retry-After`` (the server did
not begin), and requests that may safely be made twice after 5xx and broken connections. A 401 renews
the token once. Every attempt has a timeout.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from multidict import CIMultiDict

from numazones_client import errors
from numazones_client.config import ClusterConfig
from numazones_client.errors import APIError, Request, Unreachable
from numazones_client.retry import RetryPolicy

T = TypeVar("T")

_JSON = "application/json"
_READ_BUFFER = 1 << 18
_CONNECT_TIMEOUT = 10.0
_BAD = 400
_UNAUTHORIZED = 401
_TOO_MANY = 429
_UNAVAILABLE = 503
_SERVER_ERRORS = frozenset({500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Call:
    """One request in full."""

    request: Request
    """How errors name it."""
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """Bytes as they are, anything else as JSON."""
    media_type: str = _JSON
    repeatable: bool = True
    """Whether the request may be made twice."""

    def data(self) -> bytes | None:
        """Return the body as it is sent."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, separators=(",", ":")).encode()


class Transport:
    """Connections to one API server."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str,
        retry: RetryPolicy,
        timeout: float,
        answered: Callable[[float], None] = lambda _asked: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``answered`` is called for each answer, whatever it says, with the moment of the question."""
        self._config = config
        self._user_agent = user_agent
        self._retry = retry
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(timeout, _CONNECT_TIMEOUT))
        self._answered = answered
        self._draw = draw
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, call: Call, *, retry: RetryPolicy | None = None) -> bytes:
        """Send a request until it succeeds or the policy gives up; return the answer's body."""
        retry = retry or self._retry
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._answer(call, self._timeout) as response:
                    return await response.read()
            except APIError as error:
                delay = retry.delay(attempt, retry_after=error.retry_after, draw=self._draw())
                if delay is None or not _can_be_repeated(error, repeatable=call.repeatable):
                    raise
            await asyncio.sleep(delay)

    async def lines(self, call: Call, *, silence: float) -> AsyncIterator[bytes]:
        """Send a request once and yield the lines of an endless answer, until nothing came for ``silence`` s.

        Raises:
            Unreachable: the connection broke, or the server did not answer at all for so long.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT, sock_read=silence)
        async with self._answer(call, timeout) as response:
            lines = _lines(response.content)
            while True:
                try:
                    line = await anext(lines)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield line

    @asynccontextmanager
    async def _answer(
        self, call: Call, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give the successful answer to a request; whatever fails until it is read is an APIError."""
        response: aiohttp.ClientResponse | None = None
        try:
            asked = time.monotonic()
            response = await self._request(call, limits, renew=False)
            self._answered(asked)
            if response.status == _UNAUTHORIZED:
                response.release()
                response = await self._request(call, limits, renew=True)
            if response.status >= _BAD:
                raise errors.from_response(
                    call.request,
                    response.status,
                    await response.read(),
                    retry_after=_seconds(response.headers.get("Retry-After")),
                )
            yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable_error(call.request, error, self._config.server) from error
        finally:
            if response is not None:
                response.release()

    async def _request(
        self, call: Call, limits: aiohttp.ClientTimeout, *, renew: bool
    ) -> aiohttp.ClientResponse:
        headers = CIMultiDict({"Accept": _JSON})
        data = call.data()
        if data is not None:
            headers["Content-Type"] = call.media_type
        token = await self._config.credentials.token(renew=renew)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self._config.user:
            headers["Impersonate-User"] = self._config.user
        for group in self._config.groups:
            headers.add("Impersonate-Group", group)
        return await self._connections().request(
            call.method,
            self._config.server + call.path,
            params=call.params,
            data=data,
            headers=headers,
            timeout=limits,
            proxy=self._config.proxy,
            server_hostname=self._config.tls_server_name,
            allow_redirects=False,
        )

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = self._config.ssl_context
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context if context is not None else True),
                # Compression costs more time than it saves within a cluster.
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
                read_bufsize=_READ_BUFFER,
            )
        return self._session


def decode_answer(decode: Callable[[bytes], T], body: bytes, request: Request) -> T:
    """Decode an answer; one that cannot be read is the server's error."""
    try:
        return decode(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.ServerError(request, f"the answer cannot be read: {error!r}") from error


def _can_be_repeated(error: APIError, *, repeatable: bool) -> bool:
    """Tell whether another attempt could succeed and cannot do harm."""
    if error.code == _TOO_MANY or (error.code == _UNAVAILABLE and error.retry_after is not None):
        return True
    if isinstance(error, Unreachable):
        return repeatable or not error.sent
    return repeatable and error.code in _SERVER_ERRORS


def _unreachable_error(request: Request, error: BaseException, server: str) -> Unreachable:
    what = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    never_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return Unreachable(request, f"{server}: {what}", sent=not never_sent)


def _seconds(header: str | None) -> float | None:
    """Read ``Retry-After``; Kubernetes sends seconds."""
    return float(header) if header and header.isdecimal() else None


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length; objects exceed the reader's own limit."""
    parts: list[bytes] = []
    async for chunk in stream.iter_any():
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if parts:
                parts.append(line)
                yield b"".join(parts)
                parts.clear()
            elif line:
                yield line
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)
