"""``whatif``: the same pods under old and new settings, run by run."""

from collections.abc import Iterator
from typing import NamedTuple

import click

from kubectl_numazones.experiments.experiment import (
    ExperimentOptions,
    experiment_of,
    experiment_options,
    label,
    perform,
    summary,
)
from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from numazones.whatif.experiment import Comparison, Estimate, EstimatedDifference
from numazones.whatif.settings import parse_variant
from numazones_program.columns import Column

_EPILOG = """
\b
Examples:
  The cluster's pods, in a hundred random orders, with scope pod:
    kubectl numazones whatif --set topologyManagerScope=pod

\b
  KEP-6007's option on a machine that you do not have yet:
    kubectl numazones whatif --machine sockets=2,numa=2,cores=32,threads=2,memory=256Gi \\
      --pods 24xcpu=1-4,memory=4Gi --churn 200 \\
      --set topologyManagerPolicyOptions.prefer-most-allocated-numa-node=true

\b
  The cluster's pods, placed again by a scheduler that knows each kubelet's decision and packs pods tightly:
    kubectl numazones whatif --reschedule --set placement=pack

\b
  A recording, with its pods in the order in which they came and went:
    kubectl numazones whatif --set topologyManagerPolicy=restricted -f recording/
"""


@click.command("whatif", epilog=_EPILOG)
@click.option(
    "--set",
    "changed",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="A field of KubeletConfiguration (MAP.KEY for maps), or placement=default, nrt, exact, pack, "
    "best-fit, scarce or shapes: how the scheduler chooses nodes.",
)
@output_option()
@experiment_options
def command(asked: ExperimentOptions, *, changed: tuple[str, ...], output: Output) -> None:
    """Compare settings: the same pods arrive under the old settings and under the new ones.

    In each run, the pods arrive in a new random order, which is the same for both settings. Prints means over
    the runs with 95 % intervals; differences are computed within each run.
    """
    experiment, happens, random = experiment_of(asked, ({}, parse_variant(changed)))
    comparison = perform(asked, experiment, random=random)
    if output.is_document:
        output.write(comparison)
        return
    screen.say(summary(comparison, happens))
    screen.say(f"new: {experiment.variants[1]}")
    screen.echo()
    columns = _COLUMNS if comparison.runs > 1 else _COLUMNS[:_OF_ONE_RUN]
    screen.print_table(columns, _rows(comparison))


class _Row(NamedTuple):
    """One figure, under the old settings and the new ones."""

    name: str
    old: float
    new: float
    difference: EstimatedDifference


_OF_ONE_RUN = 4
"""Columns that one run is enough for."""
_COLUMNS: tuple[Column[_Row], ...] = (
    Column("", lambda row: row.name),
    Column("OLD", lambda row: f"{row.old:.2f}", right=True),
    Column("NEW", lambda row: f"{row.new:.2f}", right=True),
    Column("DIFFERENCE", lambda row: f"{row.difference.mean:+.2f}", right=True),
    Column("95 % INTERVAL", lambda row: _interval(row.difference), right=True, expendable=3),
    Column("RUNS MORE", lambda row: str(row.difference.more), right=True, expendable=2),
    Column("RUNS LESS", lambda row: str(row.difference.less), right=True, expendable=1),
)


def _rows(comparison: Comparison) -> Iterator[_Row]:
    old, new = comparison.variants
    for name, measure in old.measures.items():
        yield _Row(
            label(name, comparison.shape), measure.mean, new.measures[name].mean, new.differences[name]
        )


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:+.2f} to {estimate.high:+.2f}"
