"""``sweep``: the same pods under every combination of settings; a table, and a plot."""

import csv
import io
import json
from dataclasses import astuple
from itertools import product
from pathlib import Path

import click

from kubectl_numazones.experiments import plots
from kubectl_numazones.experiments.experiment import (
    ExperimentOptions,
    experiment_of,
    experiment_options,
    perform,
    summary,
)
from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.bad_dump import BadDump
from numazones.apimachinery.answer import document
from numazones.whatif.experiment import Comparison, VariantFigures
from numazones.whatif.settings import Settings, parse_variant
from numazones_program.columns import Column

_COLUMNS = ("measure", "mean", "low", "high", "difference", "differenceLow", "differenceHigh", "runs", "seed")

_EPILOG = """
\b
Examples:
  Every topology policy in both scopes, on all pods of the cluster:
    kubectl numazones sweep --vary topologyManagerPolicy=restricted \\
      --vary topologyManagerPolicy=single-numa-node \\
      --vary topologyManagerScope=container --vary topologyManagerScope=pod \\
      --workers 2 --table policies.csv --plot policies.svg

\b
  What a scheduler that knows each kubelet's decision would gain:
    kubectl numazones sweep --reschedule --vary placement=default \\
      --vary placement=exact --vary placement=pack --vary placement=best-fit

\b
  On a Dask cluster:
    kubectl numazones sweep ... --scheduler tcp://scheduler.example:8786
"""


@click.command("sweep", epilog=_EPILOG)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="Value of a kubelet setting or of placement (see whatif --help); may be given several times, "
    "for more values and keys.",
)
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all figures to this .csv or .json file.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Plot the figures to this .svg, .png or .pdf file.",
)
@click.option("--title", default="", help="Title of the plot.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="Measure to plot, by its name in the table; may be given several times: each gets its own panel.",
)
@output_option()
@experiment_options
def command(
    asked: ExperimentOptions,
    *,
    varied: tuple[str, ...],
    table: Path | None,
    plot: Path | None,
    title: str,
    measures: tuple[str, ...],
    output: Output,
) -> None:
    """Compare a grid of settings: the same pods arrive under each combination.

    Differences in the table are relative to the first combination. Figures are means over the runs, plus or
    minus half the width of their 95 % intervals. The same seed gives byte-identical output, regardless of the
    number of workers.
    """
    if table is not None and table.suffix not in {".csv", ".json"}:
        raise click.UsageError(f"--table {table}: name a .csv or .json file")
    if plot is not None:
        plots.check(plot)
    experiment, happens, random = experiment_of(asked, _grid(varied))
    comparison = perform(asked, experiment, random=random)
    if table is not None:
        _write(table, _csv(comparison) if table.suffix == ".csv" else _json(comparison))
    if plot is not None:
        _write(plot, plots.draw(comparison, measures, suffix=plot.suffix, title=title))
    if output.is_document:
        output.write(comparison)
        return
    screen.say(summary(comparison, happens))
    screen.echo()
    screen.print_table((*map(_setting, _keys(varied)), *_FIGURES), comparison.variants)


def _keys(varied: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(text.partition("=")[0].strip() for text in varied))


def _grid(varied: tuple[str, ...]) -> list[Settings]:
    """Every combination, the last key changing fastest."""
    values: dict[str, list[str]] = {}
    for text in varied:
        for key, value in parse_variant([text]).items():
            values.setdefault(key, []).append(value)
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _setting(key: str) -> Column[VariantFigures]:
    return Column(_short(key).upper(), lambda variant: variant.settings.get(key, "") or "-")


def _figure(title: str, name: str, *, expendable: int = 0) -> Column[VariantFigures]:
    """A measure's mean, and half the width of its interval."""

    def cell(variant: VariantFigures) -> str:
        found = variant.measures.get(name)
        return "-" if found is None else f"{found.mean:.2f} ±{(found.high - found.low) / 2:.2f}"

    return Column(title, cell, right=True, expendable=expendable)


_FIGURES = (
    _figure("ADMITTED", "admitted"),
    _figure("REJECTED", "rejected", expendable=5),
    _figure("LARGEST", "largest pod", expendable=4),
    _figure("STRANDED", "stranded CPUs", expendable=3),
    _figure("ACROSS", "pods across NUMA nodes", expendable=2),
    _figure("SPREAD", "spread over NUMA nodes", expendable=1),
)


def _json(comparison: Comparison) -> bytes:
    return (json.dumps(document(comparison), indent=2, ensure_ascii=False) + "\n").encode()


def _csv(comparison: Comparison) -> bytes:
    """One line per combination and measure."""
    keys = list(dict.fromkeys(key for variant in comparison.variants for key in variant.settings))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((*keys, *_COLUMNS))
    for variant in comparison.variants:
        for name, value in variant.measures.items():
            difference = variant.differences.get(name)
            compared = ("", "", "") if difference is None else astuple(difference)[:3]
            settings = (variant.settings.get(key, "") for key in keys)
            measured = (name, *astuple(value))
            rows.writerow((*settings, *measured, *compared, comparison.runs, comparison.seed))
    return text.getvalue().encode()


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadDump(f"{path}: {error.strerror or error}") from error
