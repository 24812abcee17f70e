"""``approve``: have plans of the operator carried out."""

import click

from kubectl_numazones.commands.decide import decide_on, decision_options
from kubectl_numazones.reading.cluster import source_options
from kubectl_numazones.reading.source import Source

_EPILOG = """
\b
Examples:
  What is proposed?
    kubectl get rebalancerecommendations

\b
  Look at a plan without deciding:
    kubectl numazones approve keep-room-x7k2p --dry-run

\b
  Approve it, and follow what becomes of it:
    kubectl numazones approve keep-room-x7k2p
    kubectl get rebalancerecommendation keep-room-x7k2p -w
"""


@click.command("approve", epilog=_EPILOG)
@decision_options
@source_options
def command(source: Source, names: tuple[str, ...], *, dry_run: bool, yes: bool) -> int:
    """Approve RECOMMENDATIONs, so that the operator carries them out.

    Shows what a plan moves, and asks first. The plan must be proposed by a RebalancePolicy of mode Approve,
    and not have expired. The operator proves it once more before each eviction, evicts one pod at a time, and
    heeds PodDisruptionBudgets; `reject` stops it between two. Where something speaks against one of several
    plans, none is approved, and the exit code is 2.
    """
    return decide_on(source, names, "approve", dry_run=dry_run, yes=yes)
