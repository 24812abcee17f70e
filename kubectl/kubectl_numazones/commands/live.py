"""``live``: zones, stuck pods and plans on a full screen that follows the cluster."""

import sys

import click

from kubectl_numazones.bad_dump import BadDump
from kubectl_numazones.cluster import Source, read, source_options

_EPILOG = """
\b
Keys:
  1 2 3, ← →     zones, stuck pods, plans
  ↑ ↓, enter     choose, and see everything about it
  /, s, q        filter, sort, quit
"""


class NoTerminal(BadDump):
    """A full-screen view has no screen; the message says what to use instead."""


@click.command("live", epilog=_EPILOG)
@source_options
def command(source: Source) -> int:
    """Show zones, stuck pods and plans on a full screen, following the cluster; with -f, as dumped."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminal("live needs a terminal to draw on; in a pipe use top, why and plan")
    from kubectl_numazones.live.app import Live  # noqa: PLC0415 - slow to import

    view = Live(source, read(source) if source.files else None)
    view.run()
    if view.failure is not None:
        raise view.failure
    return view.return_code or 0
