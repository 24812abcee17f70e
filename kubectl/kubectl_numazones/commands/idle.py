"""``idle``: containers whose exclusive CPUs idle, and what would fit if they asked for what they use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.printing.zone_figures import NodeWithoutFigures
from kubectl_numazones.reading.cluster import read, source_options
from kubectl_numazones.reading.parsed import SHAPE
from kubectl_numazones.reading.selection import all_namespaces_option, none_here
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options, read_usage
from numazones.advice.right_sizing import IDLE_BELOW, IdleContainer, right_sizing
from numazones.apimachinery import duration
from numazones.apimachinery.duration import human_duration
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.usage import MeasuredUse
from numazones.placement.fragmentation import Shape
from numazones.wording import pluralize
from numazones_program.columns import Column

_EPILOG = """
\b
Examples:
  kubectl numazones idle -A                    # since the exporters started
  kubectl numazones idle -A --shape cpu=8      # and how many more such pods would fit
  kubectl numazones idle -A --prometheus http://localhost:9090 --window 1w
"""


@dataclass(frozen=True, slots=True)
class MorePods:
    """Additional pods of a shape that would fit on a node."""

    node: Annotated[str, "Name of the node."]
    pods: Annotated[int, "Number of additional pods."]


@dataclass(frozen=True, slots=True)
class IdleDocument:
    """``idle``: containers whose exclusive CPUs are idle, those with the most CPUs to give back first."""

    items: Annotated[list[IdleContainer], "One for each container."]
    shape: Annotated[str | None, "Shape of the pods that are counted; null if nothing is idle."]
    more: Annotated[list[MorePods], "Pods that would fit if all items had the recommended request."]
    unknown: Annotated[list[NodeWithoutFigures], "Nodes whose usage is unknown, and why."]
    unchecked: Annotated[
        dict[str, str],
        "Pods with idle CPUs for which no smaller request can be computed, by NAMESPACE/POD, and why.",
    ]


@click.command("idle", epilog=_EPILOG)
@all_namespaces_option
@click.option(
    "--shape",
    type=SHAPE,
    metavar="SHAPE",
    help="Count how many more pods of this shape would fit.  [default: CPUs of the first container listed]",
)
@click.option(
    "--measured",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="Ignore containers that were measured for less time than this.",
)
@prometheus_options("1w")
@output_option("text")
@source_options
def command(
    source: Source,
    *,
    everywhere: bool,
    shape: Shape | None,
    measured: str,
    prometheus: str,
    window: str,
    output: Output,
) -> int:
    """List containers whose exclusive CPUs were less than 10 % busy, most idle CPUs first.

    REQUEST is the smallest request that keeps the CPUs at most 80 % busy on average and that the node's
    kubelet would admit in the pod's place. The last column counts how many more pods would fit on the node
    with these requests. Averages hide peaks: check the peaks before you change a request.
    """
    least = _seconds(measured)
    view = read(source)
    found = read_usage(source, UsageSource(prometheus, window, seconds=0))
    nodes = view.situation.cluster.nodes
    uses = [use for use in found.containers if use.node in nodes and use.seconds >= least]
    too_short = sum(use.seconds < least for use in found.containers)
    here = [use for use in uses if everywhere or use.namespace == view.namespace]
    shape = shape or _largest_idle(nodes, here)
    sizing = right_sizing(nodes, here, shape)
    more = {} if shape is None else sizing.more_pods(nodes, shape)
    document = IdleDocument(
        list(sizing.idle),
        None if shape is None else str(shape),
        [MorePods(*item) for item in sorted(more.items())],
        [NodeWithoutFigures(*item) for item in sorted(found.unknown.items())],
        {f"{one.use.namespace}/{one.use.pod}": one.why for one in sizing.unknown},
    )
    if output.is_document:
        output.write(document)
        return 0
    elsewhere = sum(use.busy < IDLE_BELOW for use in uses) - sum(use.busy < IDLE_BELOW for use in here)
    given = sizing.given_back(nodes)
    _print(document, given, none="" if everywhere else none_here(view.namespace, elsewhere))
    if too_short:
        screen.say(f"left out {pluralize(too_short, 'container')} measured for less than {measured}")
    return 0


def _seconds(text: str) -> float:
    try:
        return duration.parse(text).total_seconds()
    except duration.InvalidDuration as error:
        raise click.UsageError(f"--measured: {error}") from error


def _largest_idle(nodes: Mapping[str, ClusterNode], uses: Iterable[MeasuredUse]) -> Shape | None:
    """Return the shape of the CPUs that the first container listed has now; None: none is idle."""
    first = next(iter(right_sizing(nodes, uses).idle), None)
    return None if first is None else Shape.parse(f"cpu={first.use.cpus}")


def _print(found: IdleDocument, given: int, *, none: str) -> None:
    """Print the containers that idle; without any, that none does, with ``none`` after it."""
    if found.items:
        columns = (*_COLUMNS, Column(f"+{found.shape}", lambda one: str(one.then_fit), right=True))
        screen.print_table(columns, found.items)
        total = sum(one.pods for one in found.more)
        nodes = ", ".join(f"{one.pods} on {one.node}" for one in found.more)
        fits = f": {pluralize(total, 'more pod')} of {found.shape} would fit ({nodes})" if total else ""
        screen.say(f"\nWith these requests, {pluralize(given, 'CPU')} would be free{fits}")
    else:
        screen.say(f"No exclusive CPUs are idle{none}")
    for pod, why in found.unchecked.items():
        screen.say(f"{pod}: {why}")
    for name, message in found.unknown:
        screen.say(f"{name}: {message}")


def _lasting(seconds: float) -> str:
    return human_duration(timedelta(seconds=seconds).total_seconds())


_COLUMNS: tuple[Column[IdleContainer], ...] = (
    Column("NAMESPACE", lambda one: one.use.namespace, expendable=3),
    Column("POD", lambda one: one.use.pod),
    Column("CONTAINER", lambda one: one.use.container, expendable=2),
    Column("NODE", lambda one: one.use.node, expendable=1),
    Column("CPUS", lambda one: str(one.use.cpus), right=True),
    Column("BUSY", lambda one: f"{one.use.busy:.0%}", right=True),
    Column("OVER", lambda one: _lasting(one.use.seconds), right=True),
    Column("REQUEST", lambda one: f"cpu={one.request}"),
    Column("BACK", lambda one: str(one.given_back), right=True),
)
