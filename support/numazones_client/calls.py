"""Turn a transport into a dependable way to the API server: credentials, retries, failures.

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
from numazones_client.transport import Response, Transport

T = TypeVar("T")

_JSON = "application/json"
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caller:
    """Makes calls over a transport."""

    transport: Transport
    config: ClusterConfig
    user_agent: str
    retry: RetryPolicy
    timeout: float
    answered: Callable[[float], None]
    """Called for each answer, whatever it says, with the moment of the question."""

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    async def send(self, call: Call, *, retry: RetryPolicy | None = None, limit: int | None = None) -> bytes:
        """Send a request until it succeeds or the policy gives up; return the answer's body.

        Raises:
            APIError: the body has more bytes than ``limit``.
        """
        retry = retry or self.retry
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._answer(call, timeout=self.timeout) as answer:
                    if limit is None:
                        return await answer.read()
                    return await _read_within(answer, limit, call.request)
            except APIError as error:
                delay = retry.delay(attempt, retry_after=error.retry_after, draw=random.random())
                if delay is None or not _can_be_repeated(error, repeatable=call.repeatable):
                    raise
            await asyncio.sleep(delay)

    async def lines(self, call: Call, *, silence: float) -> AsyncIterator[bytes]:
        """Send a request once and yield the lines of an endless answer, until nothing came for ``silence`` s.

        Raises:
            Unreachable: the connection broke, or the server did not answer at all for so long.
        """
        async with self._answer(call, silence=silence) as answer:
            lines = _lines(answer.chunks())
            while True:
                try:
                    line = await anext(lines)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield line

    @asynccontextmanager
    async def _answer(
        self,
        call: Call,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as the transport takes it
        silence: float | None = None,
    ) -> AsyncIterator[Response]:
        """Give the successful answer to a request; whatever fails until it is read is an APIError."""
        data = call.data()
        try:
            for renew in (False, True):
                headers = await self._headers(call, data, renew=renew)
                asked = time.monotonic()
                async with self.transport.open(
                    call.method,
                    call.path,
                    params=call.params,
                    headers=headers,
                    body=data,
                    timeout=timeout,
                    silence=silence,
                ) as answer:
                    self.answered(asked)
                    if answer.status == _UNAUTHORIZED and not renew:
                        continue
                    if answer.status >= _BAD:
                        raise errors.from_response(
                            call.request,
                            answer.status,
                            await answer.read(),
                            retry_after=_seconds(answer.headers.get("Retry-After")),
                        )
                    yield answer
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable_error(call.request, error, self.config.server) from error

    async def _headers(self, call: Call, data: bytes | None, *, renew: bool) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept": _JSON, "User-Agent": self.user_agent})
        if data is not None:
            headers["Content-Type"] = call.media_type
        token = await self.config.credentials.token(renew=renew)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if self.config.user:
            headers["Impersonate-User"] = self.config.user
        for group in self.config.groups:
            headers.add("Impersonate-Group", group)
        return headers


async def _read_within(answer: Response, limit: int, request: Request) -> bytes:
    body = bytearray()
    async for chunk in answer.chunks():
        body += chunk
        if len(body) > limit:
            raise APIError(request, f"the response has more than {limit:,} bytes")
    return bytes(body)


def decode_answer(decode: Callable[[bytes], T], body: bytes, request: Request) -> T:
    """Decode an answer; one that cannot be read is the server's error."""
    try:
        return decode(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.ServerError(request, f"the response cannot be read: {error!r}") from error


def _can_be_repeated(error: APIError, *, repeatable: bool) -> bool:
    """Tell whether another attempt could succeed and cannot do harm."""
    if error.code == _TOO_MANY or (error.code == _UNAVAILABLE and error.retry_after is not None):
        return True
    if isinstance(error, Unreachable):
        return repeatable or not error.sent
    return repeatable and error.code in _SERVER_ERRORS


def _unreachable_error(request: Request, error: BaseException, server: str) -> Unreachable:
    what = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    if isinstance(error, ConnectionRefusedError) or (
        isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
    ):
        what = "connection refused"
    never_sent = isinstance(
        error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | ConnectionRefusedError
    )
    return Unreachable(request, f"{server}: {what}", sent=not never_sent)


def _seconds(header: str | None) -> float | None:
    """Read ``Retry-After``; Kubernetes sends seconds."""
    return float(header) if header and header.isdecimal() else None


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length; objects exceed the reader's own limit."""
    parts: list[bytes] = []
    async for chunk in chunks:
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
