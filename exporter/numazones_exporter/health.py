"""Whether the exporter still does its work, and the HTTP server that says so: /healthz, /readyz, /metrics.

The kubelet restarts an exporter whose ``/healthz`` fails, so it must fail exactly when a restart
could help: when reading the node or publishing it has failed for ``PATIENCE`` intervals. One failed
cycle is retried, not punished. ``/readyz`` succeeds after the first complete publish. Ages are taken
from a monotonic clock: a wall clock that jumps makes nobody unhealthy. The server has a thread of its own,
so that it answers, and tells the truth, when the event loop hangs; it is the standard library's, which
prometheus_client brings along anyway (aiohttp's would add 2 MiB).
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from numazones.errors import NumazonesError

PATIENCE = 3
"""Intervals without success after which a step counts as failed for good."""

_LARGEST_PORT = 65535

SCAN = "reading the node"
PUBLISH = "publishing the zones"


class InvalidAddress(NumazonesError):
    """The address to serve metrics on cannot be used; the message names it and the cure."""


class Health:
    """Remembers when each step last succeeded and why it failed since."""

    def __init__(self, interval: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with the benefit of the doubt: every step counts as just done. ``interval`` in seconds."""
        self._clock = clock
        self._patience = PATIENCE * interval
        self._succeeded = dict.fromkeys((SCAN, PUBLISH), clock())
        self._errors: dict[str, str] = {}
        self._published = False

    def succeeded(self, step: str) -> None:
        """Record a success of ``SCAN`` or ``PUBLISH``."""
        self._succeeded[step] = self._clock()
        self._errors.pop(step, None)
        self._published = self._published or step == PUBLISH

    def failed(self, step: str, error: str) -> None:
        """Record why a step failed; its last success keeps its age."""
        self._errors[step] = error

    def problems(self) -> list[str]:
        """One sentence per step that has not succeeded for ``PATIENCE`` intervals; empty means healthy."""
        now = self._clock()
        return [
            f"{step} has not succeeded for {now - last:.0f} s (limit {self._patience:.0f} s): "
            f"{self._errors.get(step, 'no attempt has ended; it hangs or was never started')}"
            for step, last in self._succeeded.items()
            if now - last > self._patience
        ]

    @property
    def ready(self) -> bool:
        """Whether the zones were published completely at least once."""
        return self._published


Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application."""


def application(health: Health, registry: CollectorRegistry) -> Application:
    """Answer /healthz, /readyz and /metrics, and nothing else."""
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        status, text = HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz"
        match environ["PATH_INFO"]:
            case "/metrics":
                served: Iterable[bytes] = metrics(environ, start_response)
                return served
            case "/healthz":
                problems = health.problems()
                status = HTTPStatus.INTERNAL_SERVER_ERROR if problems else HTTPStatus.OK
                text = "\n".join(problems) or "ok"
            case "/readyz":
                status = HTTPStatus.OK if health.ready else HTTPStatus.SERVICE_UNAVAILABLE
                text = "ok" if health.ready else "the zones have not been published yet"
        start_response(f"{status} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    return answer


@contextmanager
def serve(address: str, health: Health, registry: CollectorRegistry) -> Iterator[int]:
    """Serve on ``host:port`` (host may be empty or ``[IPv6]``) and yield the port; port 0 picks a free one.

    Raises:
        InvalidAddress: the text is no address, or it cannot be listened on.
    """
    host, port = _host_and_port(address)
    try:
        listener = _listen(host, port)
    except OSError as error:
        raise InvalidAddress(
            f"cannot serve metrics on {address!r}: {error.strerror or error}; choose another address"
        ) from error
    with listener, _Server(listener, application(health, registry)) as server:
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

    def __init__(self, listener: socket.socket, application: Application) -> None:
        self.address_family = listener.family
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()
        self.set_app(application)


def _listen(host: str, port: int) -> socket.socket:
    """Listen on one address; without a host on all, IPv6 and IPv4."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return socket.create_server((host, port), family=family)


def _host_and_port(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise InvalidAddress(f"{address!r} is no address to serve metrics on; write host:port, such as :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)
