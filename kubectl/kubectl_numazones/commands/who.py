"""``who``: what each NUMA zone of a node holds, and for whom."""

from collections.abc import Collection

import click

from kubectl_numazones import answers, screen
from kubectl_numazones.cluster import NotThere, Source, read, source_options
from numazones import placement
from numazones.cluster import ClusterNode

_COLUMNS = ("NUMA", "POD", "CPUS", "MEMORY", "DEVICES")


@click.command("who")
@click.argument("node")
@click.argument("zone", required=False, type=int)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, node: str, zone: int | None, output: str) -> int:
    """List what each NUMA zone of NODE (or one ZONE) holds exclusively, and for whom."""
    found = read(source).node(node)
    if not _numas(found):
        raise NotThere(
            f"the state of node {found.name} is unknown: {found.unknown.message if found.unknown else ''}"
        )
    numas = _numas(found)
    if zone is not None and zone not in numas:
        raise NotThere(f"node {found.name} has no NUMA node {zone}; it has {', '.join(map(str, numas))}")
    rows = [row for row in answers.holders(found) if zone is None or row[0] == str(zone)]
    if output == "json":
        screen.print_json(
            [dict(zip(("numa", "pod", "cpus", "memory", "devices"), row, strict=True)) for row in rows]
        )
    elif rows:
        screen.print_table(_COLUMNS, rows)
    else:
        where = f"NUMA node {zone} of {found.name}" if zone is not None else found.name
        click.echo(f"nobody holds anything exclusively on {where}")
    return 0


def _numas(node: ClusterNode) -> Collection[int]:
    """Ids of the node's NUMA nodes; none where its state is not known."""
    if node.policy_state is not None:
        return placement.cpus_of_numa(node.policy_state).keys()
    return () if node.state is None else node.state.machine.by_numa.keys()
