"""Whether the exporter still does its work, and the HTTP server that says so: /healthz, /readyz, /metrics.

The kubelet restarts an exporter whose ``/healthz`` fails, so it must fail exactly when a restart
could help: when reading the node or publishing it has failed for ``PATIENCE`` intervals. One failed
cycle is retried, not punished. ``/readyz`` succeeds after the first complete publish. Ages are taken
from a monotonic clock: a wall clock that jumps makes nobody unhealthy.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from numazones.errors import NumazonesError

PATIENCE = 3
"""Intervals without success after which a step counts as failed for good."""

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


def application(health: Health, registry: CollectorRegistry) -> web.Application:
    """Build the server's routes; served by ``serve`` and, in tests, by aiohttp's test client."""

    async def healthz(_request: web.Request) -> web.Response:
        problems = health.problems()
        return web.Response(text="\n".join(problems) or "ok", status=500 if problems else 200)

    async def readyz(_request: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ok")
        return web.Response(text="the zones have not been published yet", status=503)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    server = web.Application()
    server.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return server


@asynccontextmanager
async def serve(address: str, health: Health, registry: CollectorRegistry) -> AsyncIterator[int]:
    """Serve on ``host:port`` (host may be empty or ``[IPv6]``) and yield the port; port 0 picks a free one.

    Raises:
        InvalidAddress: the text is no address, or it cannot be listened on.
    """
    host, port = _host_and_port(address)
    runner = web.AppRunner(application(health, registry), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise InvalidAddress(
                f"cannot serve metrics on {address!r}: {error.strerror or error}; choose another address"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _host_and_port(address: str) -> tuple[str | None, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest TCP port
        raise InvalidAddress(f"{address!r} is no address to serve metrics on; write host:port, such as :8080")
    return host.removeprefix("[").removesuffix("]") or None, int(port)
