"""The HTTP server of every program: /healthz, /readyz, /metrics.

It has a thread of its own, so that it also answers, correctly, while the event loop hangs; it is the
standard library's, which prometheus_client brings along anyway (aiohttp's would add 2 MiB to an exporter).
The kubelet restarts a program whose ``/healthz`` fails, so it must fail exactly when a restart could help.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from numazones_program.addresses import parse_address
from numazones_program.settings import InvalidSetting

Problems = Callable[[], list[str]]
"""Returns one sentence per problem; empty means all is well. Called in the server's threads."""
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application."""


def application(
    *,
    health_problems: Problems,
    readiness_problems: Problems,
    registry: CollectorRegistry,
    refresh: Callable[[], None] = lambda: None,
) -> Application:
    """Answer /healthz, /readyz and /metrics, and nothing else.

    Args:
        health_problems: what only a restart can repair.
        readiness_problems: what is still missing.
        registry: the metrics.
        refresh: called in the server's thread before metrics are written out.
    """
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        status, lines = HTTPStatus.NOT_FOUND, ["there are /metrics, /healthz and /readyz"]
        match environ["PATH_INFO"]:
            case "/metrics":
                refresh()
                served: Iterable[bytes] = metrics(environ, start_response)
                return served
            case "/healthz":
                lines = health_problems()
                status = HTTPStatus.INTERNAL_SERVER_ERROR if lines else HTTPStatus.OK
            case "/readyz":
                lines = readiness_problems()
                status = HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK
        start_response(f"{status} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return ["\n".join(lines or ["ok"]).encode()]

    return answer


@contextmanager
def serve(address: str, answer: Application) -> Iterator[int]:
    """Serve on ``host:port`` (host may be empty or ``[IPv6]``) and yield the port; port 0 picks a free one.

    Raises:
        InvalidSetting: the text is not an address, or it cannot be listened on.
    """
    host, port = parse_address(address)
    try:
        listener = _listen(host, port)
    except OSError as error:
        raise InvalidSetting(
            f"cannot serve metrics on {address!r}: {error.strerror or error}; choose another address"
        ) from error
    with listener, _Server(listener, answer) as server:
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class _Handler(WSGIRequestHandler):
    """Answers one connection, without a log line for each probe."""

    timeout = 10  # seconds a client may keep silent

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A WSGI server on a socket that listens already; ``bind`` would ask DNS for a name."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, answer: Application) -> None:
        self.address_family = listener.family
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(answer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone or keeps silent: a traceback would be no line of a log."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _listen(host: str, port: int) -> socket.socket:
    """Listen on one address; without a host on all, IPv6 and IPv4."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)
