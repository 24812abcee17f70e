"""``approve``: let the operator run plans that it proposed."""

import click

from kubectl_numazones.commands.decide import decide_on, decision_options
from kubectl_numazones.reading.cluster import live_options
from kubectl_numazones.reading.source import Source
from numazones.apimachinery import duration

_EPILOG = """
\b
Examples:
  What is proposed?
    kubectl get rebalancerecommendations

\b
  Look at a plan without deciding:
    kubectl numazones approve keep-room-x7k2p --dry-run

\b
  Approve it, and wait until the pod that it makes room for has a node:
    kubectl numazones approve keep-room-x7k2p --wait
"""


@click.command("approve", epilog=_EPILOG)
@decision_options
@click.option("--wait", is_flag=True, help="Print each phase until the plans end and their pods have a node.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="Maximum time to wait with --wait, such as 30s.",
)
@live_options
def command(
    source: Source, names: tuple[str, ...], *, wait: bool, timeout: str, dry_run: bool, yes: bool
) -> int:
    """Approve RECOMMENDATIONs, so that the operator runs them.

    Shows what each plan moves, and asks for confirmation. You can approve a plan that was proposed by a
    RebalancePolicy in mode Approve and has not expired. The operator checks the plan again before each
    eviction, evicts one pod at a time, and respects PodDisruptionBudgets; `reject` stops the plan before its
    next eviction. If one of several plans cannot be approved, none is, and the exit code is 2.

    With --wait, the exit code is 1 if a plan does not succeed in time, or if a pod that it makes room for
    still has no node. Ctrl-C stops the waiting, not the plan.
    """
    return decide_on(
        source, names, "approve", dry_run=dry_run, yes=yes, wait=_seconds(timeout) if wait else None
    )


def _seconds(text: str) -> float:
    try:
        seconds = duration.parse(text).total_seconds()
    except duration.InvalidDuration as error:
        raise click.UsageError(f"--timeout: {error}") from error
    if seconds <= 0:
        raise click.UsageError(f"--timeout must be greater than 0, not {text}")
    return seconds
