"""``who``: what each NUMA zone of a node holds, and for whom."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import click

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import NotThere, occupancy_of, read, source_options
from kubectl_numazones.reading.names import NodeCommand, complete_nodes
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options, read_usage
from numazones.advice.right_sizing import is_init
from numazones.alignment.pod_alignment import by_name
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.usage import MeasuredUse
from numazones.placement.occupancy import NUMAShare
from numazones_program.columns import Column


@dataclass(frozen=True, slots=True)
class WhoDocument:
    """``who``: exclusive resources of each NUMA node of a node, and the pods that hold them."""

    node: Annotated[str, "Name of the node."]
    items: Annotated[list[NUMAShare], "One for each pod and NUMA node."]
    usage: Annotated[
        list[MeasuredUse] | None, "With `--usage`: one for each container with exclusive CPUs; null without."
    ] = None


@click.command("who", cls=NodeCommand)
@click.argument("node", shell_complete=complete_nodes)
@click.argument("zone", metavar="[NUMA]", required=False, type=int)
@click.option("--usage", is_flag=True, help="Show how many of each pod's exclusive CPUs are in use.")
@prometheus_options("5m")
@output_option("text", "name")
@source_options
def command(
    source: Source,
    *,
    node: str,
    zone: int | None,
    usage: bool,
    prometheus: str,
    window: str,
    output: Output,
) -> int:
    """List which pods hold CPUs, memory and devices of each NUMA node of NODE, or of the one with id NUMA.

    ALIGNMENT describes the whole pod, over all NUMA nodes: aligned, remote or spanning. With --usage (see
    top), USED and IDLE count all its exclusive CPUs.
    """
    found = read(source).node(node)
    numas = [zone.numa for zone in occupancy_of(found).zones]
    if zone is not None and zone not in numas:
        raise NotThere(f"node {found.name} has no NUMA node {zone}; it has {', '.join(map(str, numas))}")
    uses = _uses(source, found.name, UsageSource(prometheus, window)) if usage or prometheus else None
    shares = [share for share in occupancy_of(found).shares() if zone is None or share.numa == zone]
    if output.is_document:
        lying = by_name(found)
        told = [
            replace(share, alignment=lying[share.name].alignment) if share.name in lying else share
            for share in shares
        ]
        output.write(WhoDocument(found.name, told, uses))
        return 0
    if output.form == "name":
        for name in dict.fromkeys(share.name for share in shares):
            click.echo(f"pod/{name.rpartition('/')[2]}")
        return 0
    rows = [row for row in answers.holders(found) if zone is None or row.numa == str(zone)]
    if rows:
        columns = answers.HOLDERS if uses is None else (*answers.HOLDERS, *_usage_columns(found, uses))
        screen.print_table(columns, rows)
    else:
        where = f"NUMA node {zone} of {found.name}" if zone is not None else found.name
        screen.say(f"no pod holds anything exclusively on {where}")
    return 0


def _uses(source: Source, node: str, where: UsageSource) -> list[MeasuredUse]:
    """Return what containers of a node use; warn where that is not known."""
    found = read_usage(source, where)
    if node in found.unknown:
        screen.warn(f"{node}: {found.unknown[node]}")
    return [use for use in found.containers if use.node == node]


def _usage_columns(node: ClusterNode, uses: list[MeasuredUse]) -> tuple[Column[answers.HolderRow], ...]:
    """Return the columns of use; a container that takes over CPUs of an init container counts alone."""
    pods = {pod.full_name: pod for pod in node.pods.values()}
    held = {holder.name: holder.cpus.bit_count() for holder in occupancy_of(node).holders}
    used: dict[str, float] = {}
    for use in uses:
        name = f"{use.namespace}/{use.pod}"
        if name not in pods or not is_init(pods[name], use.container):
            used[name] = used.get(name, 0.0) + use.used

    def text(row: answers.HolderRow, figure: Callable[[int, float], float]) -> str:
        return f"{figure(held.get(row.pod, 0), used[row.pod]):.1f}" if row.cpus and row.pod in used else "-"

    return (
        Column("USED", lambda row: text(row, lambda _, busy: busy), right=True),
        Column("IDLE", lambda row: text(row, lambda held, busy: held - busy), right=True),
    )
