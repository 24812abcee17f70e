"""``reject``: have plans of the operator not carried out, or not further."""

import click

from kubectl_numazones.commands.decide import decide_on, decision_options
from kubectl_numazones.reading.cluster import live_options
from kubectl_numazones.reading.source import Source

_EPILOG = """
\b
Examples:
  kubectl get rebalancerecommendations
  kubectl numazones reject keep-room-x7k2p
  kubectl numazones reject keep-room-x7k2p keep-room-p9d4m --yes
"""


@click.command("reject", epilog=_EPILOG)
@decision_options
@live_options
def command(source: Source, names: tuple[str, ...], *, dry_run: bool, yes: bool) -> int:
    """Reject RECOMMENDATIONs, so that the operator does not run them or stops running them.

    A plan that is already running evicts no more pods. The policy looks for another plan, and until its
    cooldown is over, no plan repeats the rejected moves (a pod of that owner between those nodes). Rejecting
    also withdraws an approval. It works in every mode, including Auto.
    """
    return decide_on(source, names, "reject", dry_run=dry_run, yes=yes)
