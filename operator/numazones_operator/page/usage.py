"""Measured use of CPUs and memory for the page, read in a task of its own while the page has viewers.

Nothing waits for it, and nothing is decided by it. Where it cannot be read, the page says why.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from numazones.cluster.usage import Usage
from numazones.errors import NumazonesError
from numazones_client import Client
from numazones_client.usage import ExporterUsage, prometheus_usage
from numazones_operator.mirror.cluster_state import Clock
from numazones_operator.options import EXPORTERS, OperatorOptions

_PERIOD = 30.0
"""Seconds from one reading to the next."""
_PATIENCE = 60.0
"""Seconds that a reading may take."""
_APART = 3.0
"""Seconds between the first two readings of exporters, which count from their start."""
_WINDOW = "5m"
"""Over how long a Prometheus looks back."""

ReadUsage = Callable[[], Awaitable[Usage]]

_log = logging.getLogger(__name__)


class PageUsage:
    """Use as it was last read."""

    def __init__(self, begin: Callable[[], ReadUsage] | None, *, clock: Clock = time.monotonic) -> None:
        """``begin`` returns what reads; None: nothing is read."""
        self.current: Usage | None = None
        """None where nothing was read, or nothing could be."""
        self.note = ""
        """Why the use is unknown, where it should be known."""
        self._begin = begin
        self._clock = clock
        self._read: ReadUsage | None = None
        self._task: asyncio.Task[None] | None = None
        self._due = 0.0

    @classmethod
    def of(cls, options: OperatorOptions, client: Client) -> "PageUsage":
        """Return the use that these options say where to read."""
        where = options.page_usage
        if not where:
            return cls(None)
        if where == EXPORTERS:
            return cls(lambda: _SinceLastTime(ExporterUsage(client, options.exporter_namespace)).read)
        return cls(lambda: lambda: prometheus_usage(where, _WINDOW, containers=False))

    def renew(self) -> None:
        """Begin a reading if it is time for one, and return at once."""
        if self._begin is None or self._task is not None or self._clock() < self._due:
            return
        self._read = self._read or self._begin()
        self._task = asyncio.create_task(self._renew(self._read), name="use for the page")

    def forget(self) -> None:
        """Drop everything: there are no viewers."""
        if self._task is not None:
            self._task.cancel()
        self.current, self.note, self._read, self._task, self._due = None, "", None, None, 0.0

    async def _renew(self, read: ReadUsage) -> None:
        found, reason = None, ""
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await read()
        except TimeoutError:
            reason = f"reading it took longer than {_PATIENCE:g} s"
        except NumazonesError as error:
            reason = str(error)
        except Exception:  # noqa: BLE001 - whatever was read, the page goes on
            _log.exception("could not read the CPU and memory usage for the page")
            reason = "it could not be read; see the operator's log"
        self.current, self.note = found, f"CPU and memory usage is unknown: {reason}" if reason else ""
        self._task, self._due = None, self._clock() + _PERIOD


class _SinceLastTime:
    """Reads exporters, the first time twice: what they count since their start says little of now."""

    def __init__(self, exporters: ExporterUsage) -> None:
        self._exporters = exporters
        self._again = False

    async def read(self) -> Usage:
        if not self._again:
            with suppress(NumazonesError):
                await self._exporters.read()
            await asyncio.sleep(_APART)
            self._again = True
        return await self._exporters.read()
