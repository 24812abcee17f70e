"""``doctor``: what is wrong with the installation, and what pods and settings could do better."""

import textwrap
from collections import Counter

import click
from rich.text import Text

from kubectl_numazones import screen
from kubectl_numazones.cluster import Source, source_options
from kubectl_numazones.doctor.checks import Outcome, examine
from kubectl_numazones.doctor.evidence import gather
from kubectl_numazones.doctor.findings import Finding, Severity
from kubectl_numazones.documents import DoctorDocument
from kubectl_numazones.output import Output, output_option
from numazones.wording import pluralize, some_of

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}
_INDENT = "  "
_EPILOG = """
\b
Examples:
  kubectl numazones doctor

\b
  Offline, with everything that checks look at:
    kubectl get nodes,numazones,pods,replicasets,namespaces,leases,crds \\
      -A -o json --show-managed-fields > dump.json
    kubectl numazones doctor -f dump.json

\b
  Where NodeResourceTopologies are installed, with these, too:
    kubectl get noderesourcetopologies -A -o json --show-managed-fields > topologies.json
    kubectl numazones doctor -f dump.json -f topologies.json
"""
_MIN_WIDTH = 20


@click.command("doctor", epilog=_EPILOG)
@output_option()
@source_options
def command(source: Source, output: Output) -> int:
    """Check the installation, the kubelets' settings and the pods' requests; each finding has its cure.

    Offline, a check needs the objects that it looks at; those that lack them are named. The exit code is 1
    if there is an error or a warning, else 0.
    """
    outcomes = examine(gather(source))
    if output.is_document:
        output.write(_document(outcomes))
    else:
        _print_findings(outcomes)
    wrong = {Severity.ERROR, Severity.WARNING}
    return int(any(finding.severity in wrong for outcome in outcomes for finding in outcome.findings))


def _print_findings(outcomes: list[Outcome]) -> None:
    order = list(Severity)
    found = [(outcome.check, finding) for outcome in outcomes for finding in outcome.findings]
    found.sort(key=lambda item: order.index(item[1].severity))
    for check, finding in found:
        _print_finding(check, finding)
    counts = Counter(finding.severity for _, finding in found)
    said = ", ".join(pluralize(counts[severity], severity) for severity in order)
    made = sum(1 for outcome in outcomes if not outcome.not_checked)
    click.echo(f"{said} from {pluralize(made, 'check')}")
    for outcome in outcomes:
        if outcome.not_checked:
            screen.say(f"not checked: {outcome.check}: {outcome.not_checked}")


def _print_finding(check: str, finding: Finding) -> None:
    line = Text()
    line.append(finding.severity.upper(), _STYLES[finding.severity])
    line.append(f" {check}: ")
    line.append(some_of(finding.subjects), "bold")
    screen.console().print(line)
    for text in (finding.message, f"cure: {finding.cure}"):
        click.echo(textwrap.indent(_fold(text), _INDENT))


def _fold(text: str) -> str:
    """Fold to a terminal's width; words, and so commands to be copied, stay whole."""
    if not screen.console().is_terminal:
        return text
    room = max(screen.width() - len(_INDENT), _MIN_WIDTH)
    return textwrap.fill(text, room, break_long_words=False, break_on_hyphens=False)


def _document(outcomes: list[Outcome]) -> DoctorDocument:
    return {
        "findings": [
            {
                "severity": str(finding.severity),
                "check": outcome.check,
                "subjects": list(finding.subjects),
                "message": finding.message,
                "cure": finding.cure,
            }
            for outcome in outcomes
            for finding in outcome.findings
        ],
        "notChecked": {outcome.check: outcome.not_checked for outcome in outcomes if outcome.not_checked},
    }
