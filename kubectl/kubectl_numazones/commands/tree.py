"""``tree``: one node drawn down to the thread, each CPU marked with who holds it."""

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.drawing import WIDTH, Drawing
from kubectl_numazones.reading.cluster import occupancy_of, read, source_options
from kubectl_numazones.reading.names import NodeCommand, complete_nodes
from kubectl_numazones.reading.source import Source
from numazones.alignment.pod_alignment import by_name
from numazones_page.machine_svg import machine_svg


@click.command("tree", cls=NodeCommand)
@click.argument("node", shell_complete=complete_nodes)
@click.option(
    "--ascii",
    "plain",
    is_flag=True,
    help="Draw with ASCII characters only.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "svg"]),
    default="text",
    show_default=True,
    help="text for the terminal, svg for documents.",
)
@source_options
def command(source: Source, node: str, *, plain: bool, output: str) -> int:
    """Draw NODE: sockets, NUMA nodes, caches, cores and threads, memory and devices, and who holds them.

    Each CPU is drawn as the letter of the pod that holds it. The legend names the pods, and describes how
    those that are not aligned are spread. Threads of a core are next to each other; offline CPUs are below
    the cores of their NUMA node. If a NUMA node is on several sockets, its memory and devices are shown on
    the first.
    """
    found = read(source).node(node)
    occupancy, lying = occupancy_of(found), by_name(found)
    if output == "svg":
        click.echo(machine_svg(found.name, occupancy, lying), nl=False)
        return 0
    target = screen.console()
    plain = plain or not target.encoding.startswith("utf")
    width = target.width if target.is_terminal else WIDTH
    for line in Drawing(found.name, occupancy, lying, plain=plain, width=width).lines():
        target.print(line, overflow="fold" if target.is_terminal else "ignore")
    return 0
