"""Transport of requests to an API server: a small protocol, and its implementation over HTTP.

``Client(transport=...)`` takes any other, such as one to an API server in the same process.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from multidict import CIMultiDict

from numazones_client.config import ClusterConfig

_READ_BUFFER = 1 << 18
_CONNECT_TIMEOUT = 10.0


class Response(Protocol):
    """Response of a server, while it is being read."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    async def read(self) -> bytes:
        """Return the whole body."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, as they come."""


class Transport(Protocol):
    """Carries one request to the server and gives its answer, whatever its status.

    Failures on the way are an ``OSError``, a ``TimeoutError`` or one of aiohttp's errors.
    """

    def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: CIMultiDict[str],
        body: bytes | None,
        timeout: float | None,
        silence: float | None,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request; the answer can be read until the block ends.

        ``path`` starts at the server's root, percent-encoded. ``timeout`` is in seconds for all of it,
        ``silence`` in seconds without a byte after which reading fails; None: as long as it takes.
        """

    async def close(self) -> None:
        """Close all connections."""


class HTTP:
    """Connections to the server that a configuration names."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: CIMultiDict[str],
        body: bytes | None,
        timeout: float | None,  # noqa: ASYNC109 - aiohttp keeps it
        silence: float | None,
    ) -> AsyncIterator[Response]:
        """Send a request over a connection that is free, or a new one."""
        response = await self._connections().request(
            method,
            self._config.server + path,
            params=params,
            data=body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=timeout,
                connect=_CONNECT_TIMEOUT if timeout is None else min(timeout, _CONNECT_TIMEOUT),
                sock_read=silence,
            ),
            proxy=self._config.proxy,
            server_hostname=self._config.tls_server_name,
            allow_redirects=False,
        )
        try:
            yield _HTTPAnswer(response)
        finally:
            response.release()

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = self._config.ssl_context
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context if context is not None else True),
                # Compression costs more time than it saves within a cluster.
                headers={"Accept-Encoding": "identity"},
                read_bufsize=_READ_BUFFER,
            )
        return self._session


@dataclass(frozen=True, slots=True)
class _HTTPAnswer:
    _response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        return await self._response.read()

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()
