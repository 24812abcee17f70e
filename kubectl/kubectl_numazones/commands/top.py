"""``top``: the NUMA zones of the cluster, what of each is in use, fullest first."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

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
from numazones_program.columns import Column

_KIND = f"numazone.{GROUP}"


class _Row(NamedTuple):
    """A zone, and how many of its pods are not aligned; None where that is not known."""

    zone: Zone
    not_aligned: int | None


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("NODE", lambda row: row.zone.node),
    Column("NUMA", lambda row: str(row.zone.numa), right=True),
    Column("POLICY", lambda row: row.zone.policy, expendable=2),
    Column("CPU", lambda row: _part(row.zone.cpus, lambda used, of: f"{used}/{of}"), right=True),
    Column("", lambda row: _bar(row.zone.cpus), expendable=3),
    Column("FREE", lambda row: _part(row.zone.cpus, lambda used, of: str(of - used)), right=True),
    Column("MEMORY", lambda row: _part(row.zone.memory, lambda _, of: format_rounded(of)), expendable=4),
    Column("", lambda row: _bar(row.zone.memory), expendable=1),
    Column(
        "MEM-FREE", lambda row: _part(row.zone.memory, lambda used, of: format_rounded(of - used)), right=True
    ),
    Column("NOT ALIGNED", lambda row: _or_dash(row.not_aligned), right=True, wide=True),
    Column("DEVICES", lambda row: row.zone.devices_text),
)


def _part(used: tuple[int, int] | None, text: Callable[[int, int], str]) -> str:
    """Say something of (in use, allocatable)."""
    return text(*used) if used else "-"


def _bar(used: tuple[int, int] | None) -> str | Text:
    return screen.bar(share(used)) if used else ""


def _or_dash(count: int | None) -> str:
    return "-" if count is None else str(count)


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
                misaligned = _misaligned(nodes) if wide else {}
                rows = [_Row(zone, _not_aligned(zone, misaligned)) for zone in zones]
                screen.print_table(_COLUMNS, rows, wide=wide, fold=not wide)
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
    counts = misaligned.get(zone.node)
    return None if counts is None else counts[zone.numa]


def _print_held(held: Mapping[str, Sequence[Coming]]) -> None:
    for name, items in sorted(held.items()):
        for item in items:
            screen.say(f"{name}: {item.sentence}")


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
