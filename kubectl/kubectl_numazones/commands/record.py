"""``record``: a live node as a directory, for a bug report; ``replay`` and ``-f`` read it."""

from pathlib import Path

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.reading.cluster import live_options
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.names import NodeCommand, complete_nodes
from kubectl_numazones.reading.source import Source
from kubectl_numazones.record import directory, pseudonyms
from kubectl_numazones.record.download import fetch
from numazones.wording import pluralize

_EPILOG = """
\b
Examples:
  kubectl numazones record worker-1 -o worker-1.recording
  kubectl numazones record worker-1 -o anonymous --pseudonyms
  kubectl numazones replay anonymous
  kubectl numazones tree node-1 -f anonymous
"""


@click.command("record", cls=NodeCommand, epilog=_EPILOG)
@click.argument("node", shell_complete=complete_nodes)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Directory to write; it must not exist yet.",
)
@click.option(
    "--pseudonyms",
    "renames",
    is_flag=True,
    help="Replace all names that people chose (node, namespaces, pods, containers, owners, images, "
    "labels); remove annotations and messages.",
)
@live_options
def command(source: Source, node: str, output: Path, *, renames: bool) -> int:
    """Record a live NODE for a bug report: hardware, kubelet settings and state, and who holds what.

    The recording contains only what placement depends on: no commands, environment variables, volumes or
    addresses. The command reads the node's files through the API server from the exporter's pod on that node,
    which must serve recordings (component exporter-recordings). You need permission to get pods/proxy in the
    pod's namespace.
    """
    directory.refuse_existing(output)
    found = run_until_complete(fetch(node.removeprefix("node/").removeprefix("no/"), source))
    for problem in found.problems:
        screen.warn(f"{problem['source']}: {problem['message']}")
    if renames:
        found, left_out = pseudonyms.with_pseudonyms(found)
        for why in left_out:
            screen.warn(f"left out, because its names cannot be replaced: {why}")
    directory.write(found, output)
    screen.echo(
        f"{output}: {pluralize(len(found.pods), 'pod')}, {pluralize(len(found.zones), 'NUMA node')} "
        f"of {found.name}"
    )
    return 0
