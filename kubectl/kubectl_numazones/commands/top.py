"""``top``: the NUMA zones of the cluster, what of each is in use, fullest first."""

import time

import click
from rich.text import Text

from kubectl_numazones import screen
from kubectl_numazones.cluster import Source, read_nodes, source_options
from kubectl_numazones.zone_figures import ORDERS, Zone, share, why_no_zones, zones_of
from numazones.quantity import format_rounded

_COLUMNS = ("NODE", "NUMA", "POLICY", "CPU", "", "FREE", "MEMORY", "", "MEM-FREE", "DEVICES")


@click.command("top")
@click.option("--sort-by", type=click.Choice(list(ORDERS)), default="node", show_default=True)
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two readings with --watch.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, sort_by: str, *, watch: bool, interval: float, output: str) -> int:
    """Show every NUMA zone: exclusive CPUs, memory and devices in use, and what is left."""
    while True:
        nodes = read_nodes(source)
        by_node = [(node, list(zones_of(node))) for node in nodes]
        zones = sorted((zone for _, found in by_node for zone in found), key=ORDERS[sort_by])
        if watch:
            click.clear()
        if output == "json":
            screen.print_json([_document(zone) for zone in zones])
        else:
            screen.print_table(_COLUMNS, map(_row, zones), right=("NUMA", "CPU", "FREE", "MEM-FREE"))
            for node, found in by_node:
                if not found:
                    click.echo(f"{node.name}: {why_no_zones(node)}")
        if not watch:
            return 0
        time.sleep(interval)


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
        zone.devices,
    )


def _document(zone: Zone) -> dict[str, object]:
    return {
        "node": zone.node,
        "numa": zone.numa,
        "policy": zone.policy,
        "cpu": None if zone.cpus is None else {"assigned": zone.cpus[0], "allocatable": zone.cpus[1]},
        "memory": None
        if zone.memory is None
        else {"assigned": zone.memory[0], "allocatable": zone.memory[1]},
        "devices": zone.devices,
    }
