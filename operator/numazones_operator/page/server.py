"""Serves the live page: one document, its script and style, and a stream of server-sent events.

It is read-only and asks nobody who they are, so it listens on loopback unless told otherwise: then who may
forward a port to the pod may look. A name that somebody pointed at loopback to have a browser read the page
for them (DNS rebinding) is turned away. Links are relative, so that it works behind the API server's proxy.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from numazones_operator.page.updater import PageUpdater
from numazones_page import html
from numazones_program.addresses import is_loopback, parse_address
from numazones_program.settings import InvalidSetting

_HEARTBEAT = 15.0
"""Seconds without a change after which a comment is sent, to find out who has gone."""
_PATIENCE = 30.0
"""Seconds that a viewer may leave a message unread."""
_FAREWELL = 0.1
"""Seconds that streams are waited for at the end; they never end by themselves."""
_LATER = {"Retry-After": "60"}
_HEADERS = {
    "Content-Security-Policy": html.LIVE_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class LivePage:
    """The page's HTTP server."""

    def __init__(self, updater: PageUpdater, *, viewers: int, title: str) -> None:
        """``viewers``: how many may look at a time."""
        self._updater = updater
        self._viewers = viewers
        self._title = title
        # Versions count from the start of this process; a viewer of an earlier one begins anew.
        self._edition = secrets.token_hex(4)

    @asynccontextmanager
    async def serve(self, address: str) -> AsyncIterator[int]:
        """Serve on ``host:port`` and yield the port; port 0 picks a free one.

        Raises:
            InvalidSetting: it cannot be listened on.
        """
        host, port = parse_address(address)
        application = web.Application(middlewares=[_guard(loopback=is_loopback(host))])
        application.router.add_get("/", self._answer(html.live(title=self._title), "text/html"))
        application.router.add_get("/page.js", self._answer(html.script(), "text/javascript"))
        application.router.add_get("/page.css", self._answer(html.style(), "text/css"))
        application.router.add_get("/events", self._events)
        application.on_response_prepare.append(_add_headers)
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_FAREWELL
        )
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host or None, port).start()
            except OSError as error:
                raise InvalidSetting(
                    f"cannot serve the page on {address!r}: {error.strerror or error}; choose another address"
                ) from error
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    @staticmethod
    def _answer(text: str, kind: str) -> Handler:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(text=text, content_type=kind)

        return answer

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send what is shown, then what changes, until the viewer goes."""
        if self._updater.viewers >= self._viewers:
            text = (
                f"the maximum of {self._viewers} viewers (--page-viewers) is already connected; try again "
                "later\n"
            )
            return web.Response(status=503, text=text, headers=_LATER)
        async with self._updater.viewer():
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            with suppress(ConnectionError, TimeoutError):
                await self._stream(response, self._last_seen(request.headers.get("Last-Event-ID", "")))
        return response

    def _last_seen(self, last: str) -> int:
        """The version that a viewer who comes back has seen; -1 for a new one."""
        found = re.fullmatch(rf"{self._edition}-(\d{{1,18}})", last, re.ASCII)
        return -1 if found is None else int(found[1])

    async def _stream(self, response: web.StreamResponse, seen: int) -> None:
        documents = self._updater.documents
        while True:
            if documents.is_expired(seen):
                await _send(response, b"event: reset\ndata:\n\n")
                seen = 0
            until = documents.version
            for chunk in documents.changes_since(seen):
                await _send(response, b"event: documents\ndata: " + chunk + b"\n\n")
            if until != seen:
                seen = until
                await _send(response, f"id: {self._edition}-{seen}\nevent: seen\ndata:\n\n".encode())
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await documents.wait_for_change(seen)
            except TimeoutError:
                await _send(response, b":\n\n")


async def _send(response: web.StreamResponse, message: bytes) -> None:
    async with asyncio.timeout(_PATIENCE):
        await response.write(message)


def _guard(*, loopback: bool) -> Middleware:
    """Reject requests for other hosts than loopback where only loopback is served."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            host = request.url.host or ""
        except ValueError:
            return web.Response(status=400, text="the request's Host header is not a host name\n")
        if loopback and not is_loopback(host):
            return web.Response(
                status=403, text="this page is served only on localhost; use localhost in its address\n"
            )
        return await handler(request)

    return guard


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to an answer that is about to begin."""
    response.headers.update(_HEADERS)
