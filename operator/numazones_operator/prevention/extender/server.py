"""Serves the extender's verbs over HTTP.

Whoever may call ``bind`` may put any pod on any node, so the server listens on loopback, where the scheduler
whose pod it shares is the only client, or demands client certificates of a CA that signs nobody else's.
Connections stay open for longer than the 90 s after which kube-scheduler closes them itself: it does not
repeat a request on a connection that the server closes, and the pod fails (specs/scheduler-extender.md,
section 2).
"""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

from numazones.errors import NumazonesError
from numazones_operator.prevention.extender.allowance import Allowance, Share, TooMuch
from numazones_operator.prevention.extender.certificates import Certificates
from numazones_operator.prevention.extender.entrance import accept
from numazones_operator.prevention.extender.extender import Extender
from numazones_operator.prevention.extender.messages import (
    UnreadableRequest,
    encode,
    filter_error,
    preempt_answer,
)
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_program.addresses import is_loopback, parse_address
from numazones_program.probes import listen
from numazones_program.settings import InvalidSetting

KEEP_ALIVE = 300.0
"""Seconds that an idle connection is kept; kube-scheduler closes it after 90."""
MAX_BODIES = 128 * 2**20
"""Bytes that requests under way hold together; 5,000 nodes by name are 236 kB, whole ones some 60 MB."""
MAX_VALUES = 2**22
"""Commas and brackets in them, which bound what they are decoded to; 192 in a small whole node."""
_READING = 30.0
"""Seconds in which a body must have come; kube-scheduler itself gives up after 5 by default."""
_RELOAD_PERIOD = 60.0
_PATIENCE = 5.0
"""Seconds that requests under way are waited for at the end."""

_log = logging.getLogger(__name__)

_Verb = Callable[[bytes], Awaitable[Any]]


class ExtenderServer:
    """The HTTP server of an extender."""

    def __init__(
        self, extender: Extender, *, metrics: ExtenderMetrics, certificates: Certificates | None = None
    ) -> None:
        """Without ``certificates`` it serves loopback addresses only."""
        self._extender = extender
        self._metrics = metrics
        self._certificates = certificates
        self._bytes = Allowance(MAX_BODIES, "bytes")
        self._values = Allowance(MAX_VALUES, "values")

    @asynccontextmanager
    async def serve(self, address: str) -> AsyncIterator[int]:
        """Serve on ``host:port`` and yield the port; port 0 picks a free one.

        Raises:
            InvalidSetting: it cannot be listened on, or others than the scheduler could call it there.
        """
        host, port = parse_address(address)
        if self._certificates is None and not is_loopback(host):
            raise InvalidSetting(
                f"the extender would let every client of {address!r} bind pods: listen on loopback, such "
                "as 127.0.0.1:9409, or require client certificates (--extender-client-ca)"
            )
        context = None if self._certificates is None else self._certificates.context()
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            shutdown_timeout=_PATIENCE,
        )
        try:
            listener = listen(host, port)
        except OSError as error:
            raise InvalidSetting(
                f"cannot serve the extender on {address!r}: {error.strerror or error}; choose another address"
            ) from error
        await runner.setup()
        server = cast("web.Server", runner.server)  # there is one after setup
        tasks = [
            asyncio.create_task(self._renew_certificates(context)),
            asyncio.create_task(accept(listener, server, context)),
        ]
        try:
            yield listener.getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            listener.close()
            await runner.cleanup()

    def application(self) -> web.Application:
        """Return the application that is served."""
        application = web.Application()
        verbs: dict[str, _Verb] = {
            "filter": self._extender.filter,
            "prioritize": self._extender.prioritize,
            "preempt": self._extender.preempt,
            "bind": self._extender.bind,
        }
        for name, verb in verbs.items():
            application.router.add_post(f"/{name}", self._handler(name, verb))
        return application

    def _handler(self, name: str, verb: _Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            if "Origin" in request.headers:
                # Browsers alone say so: a page that somebody visits must not bind pods.
                return web.Response(status=403, text="this address is for kube-scheduler only\n")
            started = time.perf_counter()
            response = await self._answer(name, verb, request)
            self._metrics.seconds.labels(name).observe(time.perf_counter() - started)
            if request.transport is None or request.transport.is_closing():
                self._metrics.unread.labels(name).inc()
            return response

        return handle

    async def _answer(self, name: str, verb: _Verb, request: web.Request) -> web.Response:
        body = b""
        try:
            with self._bytes.share() as share:
                body = await _body(request, share)
                with self._values.share(sum(body.count(mark) for mark in (b",", b"[", b"{"))):
                    answer = await verb(body)
        except TooMuch as error:
            self._metrics.errors.labels(name).inc()
            return _refusal(503, f"{error}\n")
        except TimeoutError:
            self._metrics.errors.labels(name).inc()
            return _refusal(408, f"the request was still incomplete after {_READING:g} s\n")
        except UnreadableRequest as error:
            self._metrics.errors.labels(name).inc()
            return web.Response(status=400, text=f"{error}\n")
        except NumazonesError as error:
            answer = _error_answer(name, str(error))
        except Exception as error:  # noqa: BLE001 - it concerns the pod of this request alone
            problem = self._extender.take_fault(body, error)
            answer = _error_answer(name, f"numazones cannot evaluate this pod: {problem}")
        if _is_error(answer):
            self._metrics.errors.labels(name).inc()
        return web.Response(body=encode(answer), content_type="application/json")

    async def _renew_certificates(self, context: ssl.SSLContext | None) -> None:
        """Read certificates that were changed, now and then."""
        while context is not None and self._certificates is not None:
            await asyncio.sleep(_RELOAD_PERIOD)
            try:
                self._certificates.load_into(context)
            except (OSError, ssl.SSLError) as error:
                _log.warning(
                    "could not reload the extender's certificate, so the old one stays in use: %s", error
                )


async def _body(request: web.Request, share: Share) -> bytes:
    """Read a request's body; only what has come counts, not what was announced.

    Raises:
        TooMuch: requests under way hold too much.
        TimeoutError: it did not come in time.
    """
    body = bytearray()
    async with asyncio.timeout(_READING):
        async for chunk in request.content.iter_any():
            share.add(len(chunk))
            body += chunk
    return bytes(body)


def _refusal(status: int, text: str) -> web.Response:
    """Refuse a request whose body may not have come as a whole, and its connection."""
    response = web.Response(status=status, text=text)
    response.force_close()
    return response


def _error_answer(verb: str, text: str) -> Any:
    """Say that something failed as the scheduler expects it: this pod has to wait, and nothing else does."""
    match verb:
        case "filter":
            return filter_error(text)
        case "preempt":
            return preempt_answer({})
        case "bind":
            return {"Error": text}
        case _:
            return []


def _is_error(answer: Any) -> bool:
    """Return whether a response reports a failure."""
    if isinstance(answer, dict):
        return bool(answer.get("Error"))
    return bool(getattr(answer, "error", ""))
