"""``top``: the NUMA zones of the cluster, what of each is in use, fullest first."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
from rich.text import Text

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.documents import TopDocument, ZoneFigures
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.printing.zone_figures import ORDERS, Zone, share, why_no_zones, zones_of
from kubectl_numazones.reading.cluster import node_named, read, read_nodes_and_comers, source_options
from kubectl_numazones.reading.selection import check_names, selector_option
from kubectl_numazones.reading.source import Source
from kubectl_numazones.stuck.on_the_way import Coming, coming
from numazones.alignment.pod_alignment import of_node
from numazones.api.meta import GROUP
from numazones.apimachinery.label_selector import LabelSelector
from numazones.apimachinery.quantity import format_bytes, format_rounded
from numazones.cluster.cluster import ClusterNode, ClusterPod

_COLUMNS = ("NODE", "NUMA", "POLICY", "CPU", "", "FREE", "MEMORY", "", "MEM-FREE", "DEVICES")
_NOT_ALIGNED = "NOT ALIGNED"
_KIND = f"numazone.{GROUP}"
_EXPENDABLE = (7, 2, 4, 6)
"""Columns that a narrow terminal goes without, the first first: memory's bar, policy, CPUs' bar, memory."""


_EPILOG = """
\b
Examples:
  kubectl numazones top
  kubectl numazones top worker-1 worker-2
  kubectl numazones top -l pool=dpdk --sort-by free
"""


@click.command("top", epilog=_EPILOG)
@click.argument("names", metavar="[NODE]...", nargs=-1)
@selector_option("nodes")
@click.option("--sort-by", type=click.Choice(list(ORDERS)), default="node", show_default=True)
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two readings with --watch.",
)
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source,
    *,
    names: tuple[str, ...],
    selector: LabelSelector | None,
    sort_by: str,
    watch: bool,
    interval: float,
    output: Output,
) -> int:
    """Show the NUMA zones of NODEs, or of all: exclusive CPUs, memory, devices in use, and what is left.

    Below them stands, of a live cluster, the room that is held for pods on their way: released from the gate,
    or nominated by a scheduler. With -o wide, and in documents, it is told how many of a zone's pods are not
    aligned; for that all pods are read.
    """
    check_names(names, selector=selector)
    wide = output.form == "wide"
    while True:
        every, comers = _read(source, with_pods=wide or output.is_document)
        nodes = _chosen(every, names, selector)
        by_name = {node.name: node for node in nodes}
        held = None if comers is None else coming(comers, by_name, datetime.now(UTC))
        by_node = [(node, list(zones_of(node))) for node in nodes]
        zones = sorted((zone for _, found in by_node for zone in found), key=ORDERS[sort_by])
        if watch:
            click.clear()
        unknown = [(node.name, why_no_zones(node)) for node, found in by_node if not found]
        if output.is_document:
            output.write(_document(zones, _misaligned(nodes), unknown, held))
        elif output.form == "name":
            for zone in zones:
                screen.echo(f"{_KIND}/{zone.name}")
        else:
            if zones:
                _print(zones, _misaligned(nodes) if wide else None)
            elif not unknown:
                screen.echo("no node has these labels", err=True)
            for name, message in unknown:
                screen.say(f"{name}: {message}")
            _print_held(held or {})
        if not watch:
            return 0
        time.sleep(interval)


def _chosen(
    nodes: list[ClusterNode], names: tuple[str, ...], selector: LabelSelector | None
) -> list[ClusterNode]:
    if names:
        by_name = {node.name: node for node in nodes}
        return [node_named(name, by_name) for name in names]
    return [node for node in nodes if selector is None or selector.matches(node.labels)]


def _read(source: Source, *, with_pods: bool) -> tuple[list[ClusterNode], list[ClusterPod] | None]:
    """Return the nodes, and of a live cluster the pods that room may be held for."""
    if not with_pods:
        return read_nodes_and_comers(source)
    cluster = read(source).situation.cluster
    return list(cluster.nodes.values()), None if source.files else list(cluster.pending.values())


def _misaligned(nodes: list[ClusterNode]) -> dict[str, Counter[int] | None]:
    """Return node → NUMA id → pods there that are not aligned; None where that is not known."""
    found: dict[str, Counter[int] | None] = {}
    for node in nodes:
        lying = of_node(node)
        found[node.name] = (
            None
            if lying is None
            else Counter(numa for _, one in lying if not one.aligned for numa in one.numas)
        )
    return found


def _not_aligned(zone: Zone, misaligned: Mapping[str, Counter[int] | None]) -> int | None:
    counts = misaligned[zone.node]
    return None if counts is None else counts[zone.numa]


def _print(zones: list[Zone], misaligned: Mapping[str, Counter[int] | None] | None) -> None:
    """Print the table; on a narrow terminal columns are left out, so that names stay whole.

    ``misaligned``: for the wide table, which is as wide as it is.
    """
    rows = list(map(_row, zones))
    columns: tuple[str, ...] = _COLUMNS
    if misaligned is not None:
        counts = (_not_aligned(zone, misaligned) for zone in zones)
        told = ("-" if count is None else str(count) for count in counts)
        rows = [(*row[:-1], count, row[-1]) for row, count in zip(rows, told, strict=True)]
        columns = (*columns[:-1], _NOT_ALIGNED, columns[-1])
    kept = screen.columns_that_fit(columns, rows, expendable=_EXPENDABLE if misaligned is None else ())
    screen.print_table(
        [columns[index] for index in kept],
        ([row[index] for index in kept] for row in rows),
        right=("NUMA", "CPU", "FREE", "MEM-FREE", _NOT_ALIGNED),
        fold=misaligned is None,
    )


def _print_held(held: Mapping[str, Sequence[Coming]]) -> None:
    for name, items in sorted(held.items()):
        for item in items:
            screen.say(f"{name}: {item.sentence}")


def _row(zone: Zone) -> tuple[str | Text, ...]:
    return (
        zone.node,
        str(zone.numa),
        zone.policy,
        f"{zone.cpus[0]}/{zone.cpus[1]}" if zone.cpus else "-",
        screen.bar(share(zone.cpus)) if zone.cpus else "",
        str(zone.free) if zone.cpus else "-",
        format_rounded(zone.memory[1]) if zone.memory else "-",
        screen.bar(share(zone.memory)) if zone.memory else "",
        format_rounded(zone.memory[1] - zone.memory[0]) if zone.memory else "-",
        zone.devices_text,
    )


def _document(
    zones: list[Zone],
    misaligned: Mapping[str, Counter[int] | None],
    unknown: list[tuple[str, str]],
    held: Mapping[str, Sequence[Coming]] | None,
) -> TopDocument:
    return {
        "items": [_figures(zone, _not_aligned(zone, misaligned)) for zone in zones],
        "unknown": [{"node": node, "message": message} for node, message in unknown],
        "held": None
        if held is None
        else [
            {
                "node": node,
                "numas": list(item.zones),
                "pod": item.held.pod.full_name,
                "cpus": item.cpus,
                "way": str(item.held.way),
                "until": item.until,
            }
            for node, items in sorted(held.items())
            for item in items
        ],
    }


def _figures(zone: Zone, not_aligned: int | None) -> ZoneFigures:
    return {
        "name": zone.name,
        "node": zone.node,
        "numa": zone.numa,
        "policy": zone.policy,
        "cpu": None if zone.cpus is None else {"assigned": zone.cpus[0], "allocatable": zone.cpus[1]},
        "memory": None
        if zone.memory is None
        else {"assigned": format_bytes(zone.memory[0]), "allocatable": format_bytes(zone.memory[1])},
        "devices": [
            {"resource": use.resource, "free": use.healthy - use.held, "total": use.total}
            for use in zone.devices
        ],
        "notAligned": not_aligned,
    }
