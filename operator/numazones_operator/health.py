"""The HTTP server: /healthz, /readyz, /metrics.

``/healthz`` fails when a task that must run for ever has ended: a restart helps then, and only then; an API
server that is away is no reason to restart. ``/readyz`` succeeds once everything was listed, and says until
then what is missing and why.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from numazones_program.addresses import parse_address
from numazones_program.settings import InvalidSetting

Problems = Callable[[], list[str]]
"""One sentence per thing that is wrong; empty means all is well."""


def application(
    *, sick: Problems, unready: Problems, registry: CollectorRegistry, renew: Callable[[], None]
) -> web.Application:
    """Build the server's routes; ``renew`` is called before metrics are written out."""

    async def healthz(_request: web.Request) -> web.Response:
        return _report(sick(), failure=500)

    async def readyz(_request: web.Request) -> web.Response:
        return _report(unready(), failure=503)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        renew()
        # A large cluster's figures take a second to write; predictions go on meanwhile.
        body = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    server = web.Application()
    server.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return server


def _report(problems: list[str], *, failure: int) -> web.Response:
    return web.Response(text="\n".join(problems) or "ok", status=failure if problems else 200)


@asynccontextmanager
async def serve(address: str, server: web.Application) -> AsyncIterator[int]:
    """Serve on ``host:port`` (host may be empty or ``[IPv6]``) and yield the port; port 0 picks a free one.

    Raises:
        InvalidSetting: the text is not an address, or it cannot be listened on.
    """
    host, port = parse_address(address)
    runner = web.AppRunner(server, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            raise InvalidSetting(
                f"--metrics-address {address}: {error.strerror or error}; choose another address"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
