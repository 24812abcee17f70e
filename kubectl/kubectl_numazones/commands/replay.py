"""``replay``: history against model. Every difference is a defect, of the model or of what it was told."""

from pathlib import Path

import click

from kubectl_numazones import recording, screen
from numazones.wording import counted


@click.command("replay")
@click.argument("recording_dir", metavar="RECORDING", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(recording_dir: Path, output: str) -> int:
    """Decide every pod of a RECORDING again and compare with what its kubelets did.

    Compared are verdict, reason and message, CPUs, memory blocks and devices. Outside is what no kubelet
    decided, such as pods that the scheduler found no node for. The exit code is 1 if anything differs.
    """
    report = recording.compare(recording_dir)
    differ = report.differ
    if output == "json":
        screen.print_json(
            {
                "outcomes": len(report.outcomes),
                "agree": len(report.outcomes) - len(differ),
                "outside": len(report.outside),
                "differ": [
                    {"node": node, "pod": outcome.name, "differences": list(outcome.differences)}
                    for node, outcome in differ
                ],
            }
        )
        return 1 if differ else 0
    for node, outcome in differ:
        for line in outcome.differences:
            click.echo(f"{outcome.name} on {node}: {line}")
    agree = len(report.outcomes) - len(differ)
    click.echo(
        f"{agree} of {counted(len(report.outcomes), 'decision')} agree; "
        f"{counted(len(report.outside), 'pod')} outside, which no kubelet decided"
    )
    return 1 if differ else 0
