"""The HTTP server of every program: /metrics, and /healthz and /readyz on a listener of their own.

Each listener has a thread with an event loop of its own, so that it also answers, correctly, while the
program's loop hangs, and probes are answered whatever scrapers do. Any pod may be able to connect, so a
listener keeps few connections, one request each, and ends each at its deadline. A full one ends the
connection that has waited longest without a request: a client that asks is answered, however many
others hold connections open.
The kubelet restarts a program whose ``/healthz`` fails, so it must fail exactly when a restart could help.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeAlias, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from numazones_program.addresses import parse_address
from numazones_program.settings import InvalidSetting

MAX_CONNECTIONS = 32
"""Connections that a listener keeps open."""
_DEADLINE = 30.0
"""Seconds after which a connection ends, answered or not."""
_BACKLOG = 128
_THREADS = 2
"""Threads that write out metrics, or make a recording."""
_FAREWELL = 0.1
"""Seconds that requests under way are waited for at the end."""

Problems = Callable[[], list[str]]
"""Returns one sentence per problem; empty means all is well."""
HTTPHandler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers a request, in the thread of its listener."""

_T = TypeVar("_T")


def probes(
    *,
    health_problems: Problems,
    readiness_problems: Problems,
    loop: asyncio.AbstractEventLoop | None = None,
) -> HTTPHandler:
    """Answer /healthz and /readyz, and nothing else.

    Args:
        health_problems: what only a restart can repair.
        readiness_problems: what is still missing.
        loop: where both are called; without one, in the listener's thread. A loop that hangs leaves probes
            unanswered, so that the kubelet restarts the program.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        status, lines = HTTPStatus.NOT_FOUND, ["not found; use /metrics, /healthz or /readyz"]
        match request.path:
            case "/healthz":
                lines = await _call(health_problems, loop)
                status = HTTPStatus.INTERNAL_SERVER_ERROR if lines else HTTPStatus.OK
            case "/readyz":
                lines = await _call(readiness_problems, loop)
                status = HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK
        return web.Response(status=status, text="\n".join(lines or ["ok"]))

    return answer


def metrics(
    registry: CollectorRegistry,
    otherwise: HTTPHandler,
    *,
    refresh: Callable[[], None] = lambda: None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> HTTPHandler:
    """Answer /metrics, and leave other paths to ``otherwise``.

    Args:
        registry: the metrics.
        otherwise: answers other paths.
        refresh: called before metrics are written out.
        loop: where ``refresh`` is called; without one, in the listener's thread.
    """
    turn = asyncio.Lock()  # one scrape at a time; who has gone loses the place in the queue

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return await otherwise(request)
        names = request.query.getall("name[]", [])
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with turn:
            await _call(refresh, loop)
            body = await asyncio.to_thread(encode, registry.restricted_registry(names) if names else registry)
        response = web.Response(body=body, headers={"Content-Type": content_type})
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    return answer


@contextmanager
def serve(address: str, answer: HTTPHandler, *, name: str = "metrics") -> Iterator[int]:
    """Serve on ``host:port`` (host may be empty or ``[IPv6]``) and yield the port; port 0 picks a free one.

    Args:
        address: where; empty for nowhere, which yields 0.
        answer: answers every request.
        name: what is served there, for the error and the thread.

    Raises:
        InvalidSetting: the text is not an address, or it cannot be listened on.
    """
    if not address:
        yield 0
        return
    host, port = parse_address(address)
    try:
        listener = listen(host, port)
    except OSError as error:
        raise InvalidSetting(
            f"cannot serve {name} on {address!r}: {error.strerror or error}; choose another address"
        ) from error
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix=name))

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(_run(listener, answer, stop))

    with listener:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


class _Server(web.Server):
    """An HTTP server with a limited number of connections, one request and one deadline each."""

    def __init__(self, answer: HTTPHandler) -> None:
        super().__init__(self._answer, access_log=None, handler_cancellation=True, lingering_time=0)
        self._answer_request = answer
        self._deadlines: dict[Any, asyncio.TimerHandle] = {}
        """Connection → what ends it; the oldest first."""
        self._asking: set[Any] = set()
        """Connections with a request under way."""

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._asking.add(request.protocol)
        try:
            response = await self._answer_request(request)
        finally:
            self._asking.discard(request.protocol)
        response.force_close()
        return response

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Keep a connection; of too many, end the one that has waited longest without a request."""
        super().connection_made(handler, transport)
        self._deadlines[handler] = asyncio.get_running_loop().call_later(_DEADLINE, transport.abort)
        if len(self._deadlines) > MAX_CONNECTIONS:
            victim = next((other for other in self._deadlines if other not in self._asking), handler)
            self._deadlines.pop(victim).cancel()
            victim.transport.abort()

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        if deadline := self._deadlines.pop(handler, None):
            deadline.cancel()


async def _run(listener: socket.socket, answer: HTTPHandler, stop: asyncio.Event) -> None:
    server = _Server(answer)
    async with await asyncio.get_running_loop().create_server(server, sock=listener, backlog=_BACKLOG):
        await stop.wait()
        await server.shutdown(_FAREWELL)


async def _call(function: Callable[[], _T], loop: asyncio.AbstractEventLoop | None) -> _T:
    """Call a function on a loop, whose state must not be read by other threads while it changes."""
    if loop is None:
        return function()

    async def called() -> _T:
        return function()

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), loop))


def listen(host: str, port: int) -> socket.socket:
    """Listen on one address; without a host on all, IPv6 and IPv4."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)
