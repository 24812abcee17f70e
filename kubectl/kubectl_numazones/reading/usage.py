"""Options and source of measured use; ``numazones_client.usage`` reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.source import Source, connect
from numazones.cluster.usage import Usage
from numazones_client.usage import ExporterUsage, NoUsage, is_window, prometheus_usage

NOW_SECONDS = 3.0
"""Between the two readings that tell what happens now."""


@dataclass(frozen=True, slots=True)
class UsageSource:
    """Where to ask."""

    prometheus: str = ""
    window: str = ""
    """Of a Prometheus: over how long."""
    seconds: float = NOW_SECONDS
    """Of exporters: between two readings; 0: since they started."""


def prometheus_options(window: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--prometheus`` and ``--window``; the command gets a URL and a window, by default ``window``."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--window",
            default=window,
            show_default=True,
            metavar="DURATION",
            help="Period that the Prometheus query covers.",
            callback=_checked_window,
        )(command)
        return click.option(
            "--prometheus",
            default="",
            metavar="URL",
            help="Read usage from this Prometheus instead of from the exporters' pods.",
        )(command)

    return add


def _checked_window(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not is_window(value):
        raise click.BadParameter(f"{value!r:.40} is not a Prometheus duration; use 5m or 1w, for example")
    return value


def read_usage(source: Source, where: UsageSource) -> Usage:
    """Read what is used.

    Raises:
        NoUsage: a dump, or a Prometheus, has nothing of it.
        NumazonesError: the API server cannot be asked.
    """
    if where.prometheus:
        return run_until_complete(prometheus_usage(where.prometheus, where.window))
    if source.files:
        raise NoUsage("a dump has no usage data; omit -f, or use --prometheus")
    return run_until_complete(_of_exporters(source, where.seconds))


async def _of_exporters(source: Source, seconds: float) -> Usage:
    import asyncio  # noqa: PLC0415 - dumps need no event loop

    async with await connect(source) as client:
        exporters = ExporterUsage(client)
        found = await exporters.read()
        if seconds:
            await asyncio.sleep(seconds)
            found = await exporters.read()
        return found
