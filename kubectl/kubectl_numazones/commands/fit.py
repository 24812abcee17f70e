"""``fit``: would this be admitted, where, and how often; an exit code for pipelines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import read, source_options
from kubectl_numazones.reading.manifests import pod_of_manifest
from kubectl_numazones.reading.source import Source
from numazones import cpuset
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement.fragmentation import InvalidShape, Shape
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    Placed,
    Prediction,
    Reason,
)
from numazones.prediction.room import pod_of_shape
from numazones.wording import pluralize
from numazones_program.columns import Column

_EPILOG = """
\b
Examples:
  kubectl numazones fit cpu=16,memory=32Gi
  kubectl numazones fit cpu=8,memory=16Gi,vendor.example/nic=1 --replicas 20
  kubectl numazones fit --pod pod.yaml || echo "no room"
  kubectl numazones fit cpu=16 -o wide          every node that would not take one, and why
  kubectl numazones fit cpu=16 -o name          the best node, for a pipe
"""


_SHAPES = {"--cpu": "cpu=16", "--memory": "memory=32Gi"}
"""What to write instead of options that people try."""


@dataclass(frozen=True, slots=True)
class FittingPlace:
    """Place where a pod would fit."""

    node: Annotated[str, "Its name."]
    numas: Annotated[tuple[int, ...], "Ids of the NUMA nodes it gets something of."]
    cpus: Annotated[int, "Exclusive CPUs, as a list; empty for the shared pool.", cpuset.format]

    @classmethod
    def of(cls, placed: Placed) -> "FittingPlace":
        """Say where a copy was placed."""
        return cls(placed.node.name, placed.decision.zones, placed.decision.exclusive)


@dataclass(frozen=True, slots=True)
class FitDocument:
    """``fit``: whether, where and how often a pod would be admitted."""

    verdict: Annotated[str, "Admissible if all replicas fit, Inadmissible if not, or Unknown."]
    replicas: Annotated[int, "How many were asked for."]
    fitting: Annotated[int, "How many of them fit."]
    unknown_nodes: Annotated[int, "Nodes that could not be asked."]
    sentence: Annotated[str, "Why no more fit; empty if all do."]
    placements: Annotated[list[FittingPlace], "Where those that fit would be, in their order."]
    reasons: Annotated[
        tuple[Reason, ...], "Why nodes do not take the first; where not all fit, why none takes another."
    ]
    doubts: Annotated[tuple[str, ...], "What is not certain because of the kubelets' releases; mostly none."]


_PLACED: tuple[Column[Placed], ...] = (
    Column("NODE", lambda placed: placed.node.name),
    Column("NUMA", lambda placed: ",".join(map(str, placed.decision.zones))),
    Column("CPUS", lambda placed: cpuset.format(placed.decision.exclusive)),
)


class _Fit(click.Command):
    """Says where amounts belong to whom gives them as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            shape = _SHAPES.get(error.option_name)
            if shape is None:
                raise
            raise click.UsageError(
                f"amounts are one argument, not options: kubectl numazones fit {shape}", ctx
            ) from error


@click.command("fit", cls=_Fit, epilog=_EPILOG)
@click.argument("shape", required=False, metavar="[SHAPE]")
@click.option(
    "--pod",
    "manifest",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A manifest of a Pod, or of anything with a pod template.",
)
@click.option(
    "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="How many pods must fit."
)
@output_option("text", "wide", "name")
@source_options
def command(source: Source, shape: str | None, manifest: Path | None, replicas: int, output: Output) -> int:
    """Ask whether pods of a SHAPE (or of a manifest) would be admitted, where, and how many.

    Pods are placed one after the other, each where it costs the least room; then the nodes that would not
    take one, by what they say; with -o wide one line per node. With -o name the nodes that pods would be
    placed on. The exit code is 0 if all replicas fit, 1 if not, 2 if that is unknown.
    """
    if (shape is None) == (manifest is None):
        raise click.UsageError("give either a SHAPE such as cpu=16,memory=32Gi, or --pod FILE")
    pod = _of_shape(shape) if manifest is None else pod_of_manifest(manifest)
    nodes = read(source).situation.cluster.nodes
    forecast = answers.forecast_of(pod, nodes)
    first = answers.prediction_of(pod, forecast)
    screen.warn_of(first.doubts)
    refusals = list(_refusals(pod, nodes, first, forecast))
    placed = answers.place(pod, nodes, forecast, most=replicas)
    verdict, last = ADMISSIBLE, first
    if len(placed) < replicas:
        verdict = UNKNOWN if first.nodes.stale or first.verdict == UNKNOWN else INADMISSIBLE
        nodes = {**nodes, **{item.node.name: item.node for item in placed}}
        last = answers.prediction_of(pod, forecast)
        refusals = list(_refusals(pod, nodes, last, forecast))
    if output.is_document:
        sentence = last.sentence if len(placed) < replicas else ""
        where = list(map(FittingPlace.of, placed))
        output.write(
            FitDocument(
                verdict,
                replicas,
                len(placed),
                first.nodes.stale,
                sentence,
                where,
                last.reasons,
                first.doubts,
            )
        )
        return answers.EXIT_CODES[verdict]
    if output.form == "name":
        for name in dict.fromkeys(item.node.name for item in placed):
            screen.echo(f"node/{name}")
        return answers.EXIT_CODES[verdict]
    unknown = f"; for {pluralize(first.nodes.stale, 'node')} that is not known" if first.nodes.stale else ""
    screen.say(f"{len(placed)} of {replicas} fit{unknown}")
    if placed:
        screen.print_table(_PLACED, placed)
    if len(placed) < replicas:
        screen.say(f"no further one: {last.sentence}" if placed else last.sentence)
    _print_refusals(refusals, answers.node_lines(pod, nodes, forecast) if output.form == "wide" else None)
    return answers.EXIT_CODES[verdict]


def _print_refusals(refusals: Sequence[answers.NodeGroup], lines: Iterable[answers.NodeLine] | None) -> None:
    """Print the nodes that do not take the pod by what they say; with ``lines`` of all nodes, one by one."""
    if not refusals:
        return
    screen.echo(f"\nNot on {pluralize(sum(group.number for group in refusals), 'node')}:")
    if lines is None:
        screen.print_table(answers.NODE_GROUPS, refusals)
    else:
        screen.print_table(answers.NODES, (line for line in lines if line.verdict != ADMISSIBLE))


def _refusals(
    pod: ClusterPod, nodes: Mapping[str, ClusterNode], prediction: Prediction, forecast: Forecast | None
) -> Iterator[answers.NodeGroup]:
    """Yield the nodes that do not take the pod, by what they say."""
    for group in answers.node_groups(pod, nodes, prediction, forecast):
        if group.verdict != ADMISSIBLE:
            yield group


def _of_shape(text: str | None) -> ClusterPod:
    try:
        return pod_of_shape(Shape.parse(text or ""))
    except InvalidShape as error:
        raise click.UsageError(str(error)) from error
