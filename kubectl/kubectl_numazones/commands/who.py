"""``who``: what each NUMA zone of a node holds, and for whom."""

from dataclasses import dataclass, replace
from typing import Annotated

import click

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import NotThere, occupancy_of, read, source_options
from kubectl_numazones.reading.names import NodeCommand, complete_nodes
from kubectl_numazones.reading.source import Source
from numazones.alignment.pod_alignment import by_name
from numazones.placement.occupancy import NUMAShare


@dataclass(frozen=True, slots=True)
class WhoDocument:
    """``who``: what each NUMA zone of a node holds exclusively, and for whom."""

    node: Annotated[str, "Its name."]
    items: Annotated[list[NUMAShare], "One for each pod and NUMA node."]


@click.command("who", cls=NodeCommand)
@click.argument("node", shell_complete=complete_nodes)
@click.argument("zone", required=False, type=int)
@output_option("text", "name")
@source_options
def command(source: Source, node: str, zone: int | None, output: Output) -> int:
    """List what each NUMA zone of NODE (or one ZONE) holds exclusively, and for whom.

    ALIGNMENT is that of the whole pod, on whatever NUMA nodes it is: aligned, remote or spanning.
    """
    found = read(source).node(node)
    numas = [zone.numa for zone in occupancy_of(found).zones]
    if zone is not None and zone not in numas:
        raise NotThere(f"node {found.name} has no NUMA node {zone}; it has {', '.join(map(str, numas))}")
    shares = [share for share in occupancy_of(found).shares() if zone is None or share.numa == zone]
    if output.is_document:
        lying = by_name(found)
        told = [
            replace(share, alignment=lying[share.name].alignment) if share.name in lying else share
            for share in shares
        ]
        output.write(WhoDocument(found.name, told))
        return 0
    if output.form == "name":
        for name in dict.fromkeys(share.name for share in shares):
            click.echo(f"pod/{name.rpartition('/')[2]}")
        return 0
    rows = [row for row in answers.holders(found) if zone is None or row.numa == str(zone)]
    if rows:
        screen.print_table(answers.HOLDERS, rows)
    else:
        where = f"NUMA node {zone} of {found.name}" if zone is not None else found.name
        screen.say(f"nobody holds anything exclusively on {where}")
    return 0
