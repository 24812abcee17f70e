"""``who``: what each NUMA zone of a node holds, and for whom."""

import click

from kubectl_numazones import answers, screen
from kubectl_numazones.cluster import NotThere, Source, occupancy_of, read, source_options

_COLUMNS = ("NUMA", "POD", "CPUS", "MEMORY", "DEVICES")


@click.command("who")
@click.argument("node")
@click.argument("zone", required=False, type=int)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, node: str, zone: int | None, output: str) -> int:
    """List what each NUMA zone of NODE (or one ZONE) holds exclusively, and for whom."""
    found = read(source).node(node)
    numas = [zone.numa for zone in occupancy_of(found).zones]
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
