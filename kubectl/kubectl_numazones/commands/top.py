"""``top``: the NUMA zones of the cluster, what of each is in use, fullest first."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import click
from rich.text import Text

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.printing.zone_figures import (
    ORDERS,
    NodeWithoutFigures,
    ZoneFigures,
    share,
    why_no_zones,
    zones_of,
)
from kubectl_numazones.reading.cluster import node_named, read, read_nodes_and_comers, source_options
from kubectl_numazones.reading.names import NODE_TYPES, complete_nodes, joined
from kubectl_numazones.reading.selection import check_names, selector_option
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options, read_usage
from kubectl_numazones.stuck.on_the_way import HeldRoomEntry, coming
from numazones.alignment.pod_alignment import of_node
from numazones.api.meta import GROUP
from numazones.apimachinery.label_selector import LabelSelector
from numazones.apimachinery.quantity import format_rounded
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.usage import Usage
from numazones.prediction import doubts
from numazones_program.columns import Column

_KIND = f"numazone.{GROUP}"


_COLUMNS: tuple[Column[ZoneFigures], ...] = (
    Column("NODE", lambda zone: zone.node),
    Column("NUMA", lambda zone: str(zone.numa), right=True),
    Column("POLICY", lambda zone: zone.policy, expendable=2),
    Column("CPU", lambda zone: _part(zone.cpus, lambda used, of: f"{used}/{of}"), right=True),
    Column("", lambda zone: _bar(zone.cpus), expendable=3),
    Column("FREE", lambda zone: _part(zone.cpus, lambda used, of: str(of - used)), right=True),
    Column("MEMORY", lambda zone: _part(zone.memory, lambda _, of: format_rounded(of)), expendable=4),
    Column("", lambda zone: _bar(zone.memory), expendable=1),
    Column(
        "MEM-FREE", lambda zone: _part(zone.memory, lambda used, of: format_rounded(of - used)), right=True
    ),
    Column("NOT ALIGNED", lambda zone: _or_dash(zone.not_aligned), right=True, wide=True),
    Column("DEVICES", lambda zone: zone.devices_text),
)


def _with_usage(zones: list[ZoneFigures], found: Usage) -> list[ZoneFigures]:
    """Return the zones with what of them is used, where that is known."""
    return [
        replace(zone, usage=use.of_zone(zone.cpus.assigned if zone.cpus else 0))
        if (use := found.numas.get((zone.node, zone.numa)))
        else zone
        for zone in zones
    ]


def _part(used: tuple[int, int] | None, text: Callable[[int, int], str]) -> str:
    """Say something of (in use, allocatable)."""
    return text(*used) if used else "-"


def _bar(used: tuple[int, int] | None) -> str | Text:
    return screen.bar(share(used)) if used else ""


def _or_dash(count: int | None) -> str:
    return "-" if count is None else str(count)


def _cpus_of(zone: ZoneFigures, figure: Callable[[int, float], float]) -> str:
    """Say something of (CPUs held, CPUs used of them)."""
    if zone.usage is None or zone.cpus is None or (zone.cpus.assigned and zone.usage.used is None):
        return "-"
    return f"{figure(zone.cpus.assigned, zone.usage.used or 0.0):.1f}"


def _usage_bar(zone: ZoneFigures) -> str | Text:
    if zone.usage is None or zone.usage.used is None or not zone.cpus or not zone.cpus.assigned:
        return ""
    return screen.bar(min(1.0, zone.usage.used / zone.cpus.assigned))


def _percent(share_used: float | None) -> str:
    return "-" if share_used is None else f"{share_used:.0%}"


def _memory_used(zone: ZoneFigures) -> str:
    return "-" if zone.usage is None or zone.usage.memory is None else format_rounded(zone.usage.memory)


_USAGE_COLUMNS: tuple[Column[ZoneFigures], ...] = (
    Column("NODE", lambda zone: zone.node),
    Column("NUMA", lambda zone: str(zone.numa), right=True),
    Column("CPU", lambda zone: _part(zone.cpus, lambda held, of: f"{held}/{of}"), right=True),
    Column("USED", lambda zone: _cpus_of(zone, lambda _, used: used), right=True),
    Column("IDLE", lambda zone: _cpus_of(zone, lambda held, used: held - used), right=True),
    Column("", _usage_bar, expendable=2),
    Column("SHARED", lambda zone: _percent(zone.usage.shared if zone.usage else None), right=True),
    Column("RESERVED", lambda zone: _percent(zone.usage.reserved if zone.usage else None), right=True),
    Column("MEM-USED", _memory_used, right=True),
    Column("MEMORY", lambda zone: _part(zone.memory, lambda _, of: format_rounded(of)), expendable=1),
)
"""With ``--usage``: CPUs held exclusively, of those the busy and the idle ones, and what the others do."""


_EPILOG = """
\b
Examples:
  kubectl numazones top
  kubectl numazones top worker-1 worker-2
  kubectl numazones top -l pool=dpdk --sort-by free
  kubectl numazones top --usage                    # how many of the held CPUs are in use
  kubectl numazones top --usage --prometheus http://localhost:9090 --window 1d
"""


@dataclass(frozen=True, slots=True)
class TopDocument:
    """``top``: the NUMA nodes, in the requested order."""

    items: Annotated[list[ZoneFigures], "One for each NUMA node."]
    unknown: Annotated[list[NodeWithoutFigures], "Nodes without figures, and why."]
    held: Annotated[list[HeldRoomEntry] | None, "Null for a dump: its pods are not read for this."]
    doubts: Annotated[tuple[str, ...], "What is uncertain because of the kubelets' versions; usually empty."]


@click.command("top", epilog=_EPILOG)
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=complete_nodes)
@selector_option("nodes")
@click.option("--sort-by", type=click.Choice(list(ORDERS)), default="node", show_default=True)
@click.option("--watch", "-w", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between readings with --watch.",
)
@click.option(
    "--usage", is_flag=True, help="Show how many of the held CPUs, and how much of the memory, are in use."
)
@prometheus_options("5m")
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source,
    *,
    usage: bool,
    prometheus: str,
    window: str,
    names: tuple[str, ...],
    selector: LabelSelector | None,
    sort_by: str,
    watch: bool,
    interval: float,
    output: Output,
) -> int:
    """Show what is in use and free on each NUMA node: exclusive CPUs, memory and devices.

    Without NODEs, shows all nodes.

    On a live cluster, the table also shows room held for pods on their way to a node: released from the gate,
    or nominated by a scheduler. -o wide, json and yaml include the number of pods that are not aligned, which
    requires reading all pods.

    --usage reads the exporters twice within three seconds, through the API server (you need get on
    pods/proxy), or queries Prometheus (--prometheus).
    """
    names = joined(names, NODE_TYPES)
    asked = UsageSource(prometheus, window) if usage or prometheus else None
    check_names(names, selector=selector)
    wide = output.form == "wide"
    while True:
        every, comers = _read(source, with_pods=wide or output.is_document)
        nodes = _chosen(every, names, selector)
        by_name = {node.name: node for node in nodes}
        held = None if comers is None else _held(comers, by_name)
        by_node = [(node, list(zones_of(node))) for node in nodes]
        zones = sorted((zone for _, found in by_node for zone in found), key=ORDERS[sort_by])
        if watch:
            click.clear()
        unknown = [NodeWithoutFigures(node.name, why_no_zones(node)) for node, found in by_node if not found]
        if wide or output.is_document:
            zones = _with_misaligned(zones, nodes)
        if asked is not None:
            found = read_usage(source, asked)
            zones = _with_usage(zones, found)
            unknown += [NodeWithoutFigures(*item) for item in found.unknown.items() if item[0] in by_name]
        shown = TopDocument(zones, unknown, held, doubts.of_nodes(nodes))
        screen.warn_of(shown.doubts)
        if output.is_document:
            output.write(shown)
        elif output.form == "name":
            for zone in zones:
                screen.echo(f"{_KIND}/{zone.name}")
        else:
            columns = _COLUMNS if asked is None else _USAGE_COLUMNS
            _print(shown, columns, wide=wide)
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


def _with_misaligned(zones: list[ZoneFigures], nodes: list[ClusterNode]) -> list[ZoneFigures]:
    """Return the zones with how many pods there are not aligned, where that is known."""
    counts = {
        node.name: Counter(numa for _, one in lying if not one.aligned for numa in one.numas)
        for node in nodes
        if (lying := of_node(node)) is not None
    }
    return [
        replace(zone, not_aligned=counts[zone.node][zone.numa]) if zone.node in counts else zone
        for zone in zones
    ]


def _print(found: TopDocument, columns: tuple[Column[ZoneFigures], ...], *, wide: bool) -> None:
    if found.items:
        screen.print_table(columns, found.items, wide=wide, fold=not wide)
    elif not found.unknown:
        screen.echo("no node has these labels", err=True)
    for name, message in found.unknown:
        screen.say(f"{name}: {message}")
    for item in found.held or ():
        screen.say(f"{item.node}: {item.sentence}")


def _held(comers: list[ClusterPod], nodes: Mapping[str, ClusterNode]) -> list[HeldRoomEntry]:
    """Return the room that is held on nodes, by node."""
    return [one for _, found in sorted(coming(comers, nodes, datetime.now(UTC)).items()) for one in found]
