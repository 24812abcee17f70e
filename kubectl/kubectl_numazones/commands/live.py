"""``live``: zones, stuck pods and plans on a full screen that follows the cluster."""

import sys
from textwrap import indent

import click

from kubectl_numazones.live.keys import KEYS
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import read, source_options
from kubectl_numazones.reading.source import Source

_EPILOG = f"\b\nKeys:\n{indent(KEYS, '  ')}"


class NoTerminal(BadDump):
    """A full-screen view has no screen; the message says what to use instead."""


@click.command("live", epilog=_EPILOG)
@source_options
def command(source: Source) -> int:
    """Watch NUMA nodes, stuck pods, plans and events in a full-screen view, or browse a dump (-f).

    You can approve and reject plans if you may patch rebalancerecommendations; if you may not, live shows
    which permission you lack. live changes nothing else in the cluster. Long lists are grouped: NUMA nodes
    by node, stuck pods by reason.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminal("live needs a terminal; in a pipe, use top, why or plan")
    from kubectl_numazones.live.app import Live  # noqa: PLC0415 - slow to import

    view = Live(source, read(source) if source.files else None)
    view.run()
    if view.failure is not None:
        raise view.failure
    return view.return_code or 0
