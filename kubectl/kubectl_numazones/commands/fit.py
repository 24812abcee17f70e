"""``fit``: would this be admitted, where, and how often; an exit code for pipelines."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import click

from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import read, source_options
from kubectl_numazones.reading.manifests import Manifest, TemplatePods, read_manifest, shared_pool_notes
from kubectl_numazones.reading.parsed import SHAPE
from kubectl_numazones.reading.source import Source
from numazones import cpuset
from numazones.advice.changes import Advice
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import CPU
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Placed,
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
  kubectl numazones fit --pod raycluster.yaml   head and workers together, with the manifest's replicas
  kubectl numazones fit cpu=16 -o wide          every node that would reject one, and why
  kubectl numazones fit cpu=16 -o name          only the name of the best node, for scripts
"""


@dataclass(frozen=True, slots=True)
class TemplateFit:
    """Pods of one template of a manifest."""

    name: Annotated[str, "Names of the object and of the template in it; empty for a shape."]
    replicas: Annotated[int, "Number of pods that the manifest creates or that were requested."]
    fitting: Annotated[int, "Number of these pods that fit together with the pods of the other templates."]
    verdict: Annotated[str, "Admissible if all of these pods fit, Inadmissible if not, or Unknown."]
    sentence: Annotated[str, "Why no more fit; empty if all do."]
    placements: Annotated[list[answers.FittingPlace], "Where the pods that fit would be placed."]

    @classmethod
    def of(cls, template: TemplatePods, fitting: answers.Fitting) -> "TemplateFit":
        """Say how many of a template fit."""
        return cls(
            template.name,
            fitting.replicas,
            len(fitting.placed),
            fitting.verdict,
            "" if fitting.fits else fitting.last.sentence,
            list(map(answers.FittingPlace.of, fitting.placed)),
        )


@dataclass(frozen=True, slots=True)
class FitDocument:
    """``fit``: whether pods would be admitted, how many, and where."""

    verdict: Annotated[str, "Admissible if all replicas fit, Inadmissible if not, or Unknown."]
    replicas: Annotated[int, "Number of pods requested."]
    fitting: Annotated[int, "Number of pods that fit."]
    unknown_nodes: Annotated[int, "Number of nodes whose state is unknown."]
    sentence: Annotated[str, "Why no more fit; empty if all do."]
    placements: Annotated[list[answers.FittingPlace], "Where the pods that fit would be placed, in order."]
    reasons: Annotated[
        tuple[Reason, ...],
        "Why nodes reject the first pod or, if not all pods fit, why no node admits another.",
    ]
    templates: Annotated[list[TemplateFit], "Each template of the manifest; all are placed together."]
    notes: Annotated[
        tuple[str, ...],
        "Objects of the manifest that were skipped, devices that were left out, and pods without exclusive "
        "CPUs.",
    ]
    doubts: Annotated[tuple[str, ...], "What is uncertain because of the kubelets' versions; usually empty."]
    advice: Annotated[
        tuple[Advice, ...],
        "Changes that would put claimed devices on the NUMA nodes of the CPUs of pods that fit; each "
        "was tried on a copy of the cluster.",
    ]


_Line = tuple[str, Placed]
"""(template, a pod of it)"""
_PLACED: tuple[Column[_Line], ...] = (
    Column("NODE", lambda line: line[1].node.name),
    Column("NUMA", lambda line: ",".join(map(str, line[1].decision.zones))),
    Column("CPUS", lambda line: cpuset.format(line[1].decision.exclusive)),
)
_OF_TEMPLATE: Column[_Line] = Column("TEMPLATE", lambda line: line[0])
_TEMPLATES: tuple[Column[TemplateFit], ...] = (
    Column("TEMPLATE", lambda fit: fit.name),
    Column("REPLICAS", lambda fit: str(fit.replicas), right=True),
    Column("FIT", lambda fit: str(fit.fitting), right=True),
    Column("WHY NOT MORE", lambda fit: fit.sentence),
)


def _belongs_in_shape(_ctx: click.Context, param: click.Parameter, amount: str | None) -> None:
    """Say where amounts belong to users who give them as options."""
    if amount is None:
        return
    try:
        quantity.parse(amount)
    except quantity.InvalidQuantity as error:
        raise click.BadParameter(f"{error}; write for example fit cpu=16,memory=32Gi") from error
    shape = f"cpu={amount}" if param.name == CPU else f"cpu=16,{param.name}={amount}"
    raise click.UsageError(f"write the amounts as one argument: kubectl numazones fit {shape}")


@click.command("fit", epilog=_EPILOG)
@click.argument("shape", type=SHAPE, required=False, metavar="[SHAPE]")
@click.option("--cpu", hidden=True, expose_value=False, callback=_belongs_in_shape)
@click.option("--memory", hidden=True, expose_value=False, callback=_belongs_in_shape)
@click.option(
    "--pod",
    "manifest",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Manifest of Pods, or of anything with pod templates; each template is checked.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    help="Number of pods that must fit; default: 1, or the manifest's replicas.",
)
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source, shape: Shape | None, manifest: Path | None, replicas: int | None, output: Output
) -> int:
    """Check whether pods of a SHAPE (or of a manifest) would be admitted, where, and how many.

    Places the pods one after another, each where it wastes the least room; the templates of a manifest are
    placed together. Below the placements, the output lists the nodes that would reject a pod, grouped by
    reason, or one line per node with -o wide. -o name prints the nodes that pods would be placed on. The exit
    code is 0 if all replicas fit at once, 1 if not, 2 if this is unknown.
    """
    asked = _asked(shape, manifest, replicas)
    situation = read(source).situation
    nodes = situation.cluster.nodes
    fitting = answers.fit_together([(one.pod, one.replicas) for one in asked.templates], nodes)
    by_kubelets = [
        template
        for template, one in zip(asked.templates, fitting, strict=True)
        if any(placed.node.state is not None for placed in one.placed)
    ]
    asked = replace(asked, notes=(*asked.notes, *shared_pool_notes(by_kubelets)))
    for note in asked.notes:
        screen.warn(note)
    advice = tuple(
        item
        for one in fitting
        if one.placed
        for item in answers.advice_for(one.pod, situation, one.first, one.forecast)
    )
    doubts = tuple(dict.fromkeys(doubt for one in fitting for doubt in one.first.doubts))
    screen.warn_of(doubts)
    short = next((one for one in fitting if not one.fits), None)
    verdict = ADMISSIBLE if short is None else UNKNOWN
    if any(one.verdict == INADMISSIBLE for one in fitting):
        verdict = INADMISSIBLE
    if output.is_document:
        output.write(_document(asked, fitting, verdict, doubts, advice))
    elif output.form == "name":
        for name in dict.fromkeys(placed.node.name for one in fitting for placed in one.placed):
            screen.echo(f"node/{name}")
    else:
        _print(asked, fitting, advice, wide=output.form == "wide")
    return answers.EXIT_CODES[verdict]


def _asked(shape: Shape | None, path: Path | None, replicas: int | None) -> Manifest:
    """Return the pods that are asked about."""
    if shape is not None and path is None:
        return Manifest((TemplatePods("", pod_of_shape(shape), replicas or 1, "", 0),), ())
    if shape is not None or path is None:
        raise click.UsageError("specify either a SHAPE such as cpu=16,memory=32Gi, or --pod FILE")
    manifest = read_manifest(path)
    if replicas is None:
        return manifest
    if len(manifest.templates) > 1:
        raise click.UsageError(
            f"--replicas applies to one template, but {path} has {len(manifest.templates)}: omit it"
        )
    return replace(manifest, templates=(replace(manifest.templates[0], replicas=replicas),))


def _document(
    asked: Manifest,
    fitting: Sequence[answers.Fitting],
    verdict: str,
    doubts: tuple[str, ...],
    advice: tuple[Advice, ...],
) -> FitDocument:
    short = next((one for one in fitting if not one.fits), None)
    templates = list(map(TemplateFit.of, asked.templates, fitting))
    return FitDocument(
        verdict,
        sum(one.replicas for one in fitting),
        sum(len(one.placed) for one in fitting),
        max(one.first.nodes.stale for one in fitting),
        "" if short is None else short.last.sentence,
        [place for template in templates for place in template.placements],
        (short or fitting[0]).last.reasons,
        templates,
        asked.notes,
        doubts,
        advice,
    )


def _print(
    asked: Manifest, fitting: Sequence[answers.Fitting], advice: Sequence[Advice], *, wide: bool
) -> None:
    """Print how many fit, where, and which nodes do not take those that don't."""
    stale = max(one.first.nodes.stale for one in fitting)
    unknown = f"; unknown for {pluralize(stale, 'node')}" if stale else ""
    placed = [
        (name.name, item) for name, one in zip(asked.templates, fitting, strict=True) for item in one.placed
    ]
    screen.say(f"{len(placed)} of {sum(one.replicas for one in fitting)} fit{unknown}")
    named = len(fitting) > 1
    if named:
        screen.print_table(_TEMPLATES, map(TemplateFit.of, asked.templates, fitting))
        for line in _gangs(asked.templates, fitting):
            screen.say(line)
        if placed:
            screen.echo()
    if placed:
        columns = (_OF_TEMPLATE, *_PLACED) if named else _PLACED
        screen.print_table(columns, placed)
        for _, item in placed:
            if item.devices is not None:
                screen.say(f"{item.node.name}: {item.devices.sentence}")
    if advice:
        screen.say("What would help:")
    for one_change in advice:
        screen.say(f"  - {one_change.line}")
    short = next((one for one in fitting if not one.fits), None)
    one = short or fitting[0]
    if short is not None and not named:
        sentence = short.last.sentence
        screen.say(f"no more fit: {sentence}" if placed else sentence)
    _print_refusals(one.refusals, answers.node_lines(one.pod, one.nodes, one.forecast) if wide else None)


def _gangs(templates: Sequence[TemplatePods], fitting: Sequence[answers.Fitting]) -> Iterator[str]:
    """Yield a line for each gang of which not all pods fit: whether those are enough for it to start."""
    placed: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for template, one in zip(templates, fitting, strict=True):
        if template.least:
            placed.setdefault((template.gang, template.least), []).append((len(one.placed), one.replicas))
    for (gang, least), counts in placed.items():
        fit, replicas = (sum(column) for column in zip(*counts, strict=True))
        if fit < replicas:
            starts = "starts" if fit >= least else "does not start"
            yield f"{gang} needs {least} pods at once (minAvailable) and {starts} with the {fit} that fit"


def _print_refusals(refusals: Sequence[answers.NodeGroup], lines: Iterable[answers.NodeLine] | None) -> None:
    """Print the nodes that do not take the pod by what they say; with ``lines`` of all nodes, one by one."""
    if not refusals:
        return
    screen.echo(f"\nNot placed on {pluralize(sum(group.number for group in refusals), 'node')}:")
    if lines is None:
        screen.print_table(answers.NODE_GROUPS, refusals)
    else:
        screen.print_table(answers.NODES, (line for line in lines if line.verdict != ADMISSIBLE))
