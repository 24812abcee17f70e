"""``live``: zones, stuck pods and plans on a full screen that follows the cluster."""

import sys

import click

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import read, source_options
from kubectl_numazones.reading.source import Source

_EPILOG = """
\b
Keys:
  1 2 3 4, ← →   zones, stuck pods, plans, the operator's events
  ↑ ↓, enter     choose, and see everything about it, with its events, which are followed
  a, x           approve or reject the chosen plan, or the plan for the chosen pod; asks first
  /, g, s        filter by words, group lines with one reason, sort zones
  escape, q      back to all lines, quit
"""


class NoTerminal(BadDump):
    """A full-screen view has no screen; the message says what to use instead."""


@click.command("live", epilog=_EPILOG)
@source_options
def command(source: Source) -> int:
    """Show zones, stuck pods, plans and events on a full screen, following the cluster; with -f, as dumped.

    Whoever may patch rebalancerecommendations can approve and reject plans; others are told which right is
    missing. Nothing else changes the cluster. Where there are many lines, those with one reason share one.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminal("live needs a terminal to draw on; in a pipe use top, why and plan")
    from kubectl_numazones.live.app import Live  # noqa: PLC0415 - slow to import

    view = Live(source, read(source) if source.files else None)
    view.run()
    if view.failure is not None:
        raise view.failure
    return view.return_code or 0
