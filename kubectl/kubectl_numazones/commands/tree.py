"""``tree``: one node drawn as the kubelet sees it, down to the thread, each CPU marked with who holds it."""

import click

from kubectl_numazones import screen
from kubectl_numazones.cluster import NotThere, Source, read, source_options
from kubectl_numazones.drawing import Drawing
from numazones.placement import DECIDERS, model_of
from numazones_page.machine_svg import machine_svg
from numazones_page.occupancy import occupancy_of


@click.command("tree")
@click.argument("node")
@click.option(
    "--ascii",
    "plain",
    is_flag=True,
    help="Draw with ASCII characters only, as where the terminal has no others.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "svg"]),
    default="text",
    show_default=True,
    help="svg: for documents.",
)
@source_options
def command(source: Source, node: str, *, plain: bool, output: str) -> int:
    """Draw NODE: sockets, NUMA nodes, caches, cores and threads, memory and devices, and who holds them.

    Each CPU is a letter for the pod that holds it; the legend names the pods. Threads of a core stand
    together.
    """
    found = read(source).node(node)
    occupancy = occupancy_of(found) if output == "svg" else None
    if occupancy is not None:
        click.echo(machine_svg(found.name, occupancy), nl=False)
        return 0
    if found.policy_state is not None:
        decider = DECIDERS[model_of(found.policy_state)]
        raise NotThere(
            f"{decider} places pods on node {found.name}, and what the kubelet holds is all that tree draws; "
            f"kubectl numazones who {found.name} lists what pods hold there"
        )
    if found.state is None:
        reason = found.unknown.message if found.unknown else ""
        raise NotThere(f"the state of node {found.name} is unknown: {reason}")
    target = screen.console()
    lines = list(Drawing(found, found.state, plain=plain or not target.encoding.startswith("utf")).lines())
    for line in lines:
        target.print(line, overflow="fold" if target.is_terminal else "ignore")
    return 0
