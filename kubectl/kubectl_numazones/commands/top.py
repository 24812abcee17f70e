"""``top``: the NUMA zones of the cluster, what of each is in use, fullest first."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import click
from rich.text import Text

from kubectl_numazones import screen
from kubectl_numazones.cluster import Source, read, source_options
from numazones.cluster import ClusterNode
from numazones.fragmentation import room
from numazones.quantity import format_rounded
from numazones.resources import CPU, MEMORY

_COLUMNS = ("NODE", "NUMA", "POLICY", "CPU", "", "FREE", "MEMORY", "", "MEM-FREE", "DEVICES")


class _Zone(NamedTuple):
    """One zone, in figures."""

    node: str
    numa: int
    policy: str
    cpus: tuple[int, int] | None
    """(held exclusively, allocatable)"""
    memory: tuple[int, int] | None
    devices: str

    @property
    def load(self) -> float:
        return _share(self.cpus)

    @property
    def free(self) -> int:
        return self.cpus[1] - self.cpus[0] if self.cpus else 0


_ORDERS = {
    "node": lambda zone: (zone.node, zone.numa),
    "cpu": lambda zone: (-zone.load, zone.node, zone.numa),
    "free": lambda zone: (-zone.free, zone.node, zone.numa),
    "memory": lambda zone: (-_share(zone.memory), zone.node, zone.numa),
}


@click.command("top")
@click.option("--sort-by", type=click.Choice(list(_ORDERS)), default="node", show_default=True)
@click.option("--watch", "-w", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two looks with --watch.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@source_options
def command(source: Source, sort_by: str, *, watch: bool, interval: float, output: str) -> int:
    """Show every NUMA zone: exclusive CPUs, memory and devices in use, and what is left."""
    while True:
        nodes = read(source).situation.cluster.nodes.values()
        zones = sorted((zone for node in nodes for zone in _zones(node)), key=_ORDERS[sort_by])
        if watch:
            click.clear()
        if output == "json":
            screen.print_json([_document(zone) for zone in zones])
        else:
            screen.print_table(_COLUMNS, map(_row, zones), right=("NUMA", "CPU", "FREE", "MEM-FREE"))
            for node in nodes:
                if node.state is None:
                    click.echo(f"{node.name}: unknown: {node.unknown.message if node.unknown else ''}")
        if not watch:
            return 0
        time.sleep(interval)


def _zones(node: ClusterNode) -> Iterator[_Zone]:
    state = node.state
    if state is None:
        return
    free, kubelet = room(state), state.kubelet
    for position, numa in enumerate(state.machine.by_numa):
        cpus = memory = None
        if CPU in free:
            allocatable = (kubelet.cpus.allocatable() & state.machine.cpus_of_numa[numa]).bit_count()
            cpus = (allocatable - free[CPU][numa], allocatable)
        if MEMORY in free:
            whole = kubelet.memory.allocatable[MEMORY][position]
            memory = (whole - free[MEMORY][numa], whole)
        devices = " ".join(
            f"{name.rpartition('/')[2]}:{left[numa]}/{(resource.touching(1 << numa)).bit_count()}"
            for name, resource in kubelet.devices.resources.items()
            if (left := free.get(name)) is not None and resource.touching(1 << numa)
        )
        yield _Zone(node.name, numa, state.config.topology_manager_policy, cpus, memory, devices)


def _share(used: tuple[int, int] | None) -> float:
    return used[0] / used[1] if used and used[1] else 0.0


def _row(zone: _Zone) -> tuple[str | Text, ...]:
    return (
        zone.node,
        str(zone.numa),
        zone.policy,
        f"{zone.cpus[0]}/{zone.cpus[1]}" if zone.cpus else "-",
        screen.bar(_share(zone.cpus)) if zone.cpus else "",
        str(zone.free) if zone.cpus else "-",
        format_rounded(zone.memory[1]) if zone.memory else "-",
        screen.bar(_share(zone.memory)) if zone.memory else "",
        format_rounded(zone.memory[1] - zone.memory[0]) if zone.memory else "-",
        zone.devices,
    )


def _document(zone: _Zone) -> dict[str, object]:
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
