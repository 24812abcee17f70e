"""``doctor``: what is wrong with the installation, and what pods and settings could do better."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import click
from rich.text import Text

from kubectl_numazones.doctor.checks import CheckResult, examine
from kubectl_numazones.doctor.evidence import gather
from kubectl_numazones.doctor.findings import Finding, Severity
from kubectl_numazones.doctor.restart import NodeRestart, RestartSettings, foresee
from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import source_options
from kubectl_numazones.reading.files import documents
from kubectl_numazones.reading.source import Source
from numazones.whatif import settings as kubelet_settings
from numazones.wording import pluralize, some_of

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}
_INDENT = "  "
_EPILOG = """
\b
Examples:
  kubectl numazones doctor

\b
  With a dump of everything that the checks read:
    kubectl get nodes,numazones,pods,replicasets,namespaces,leases,crds \\
      -A -o json --show-managed-fields > dump.json
    kubectl numazones doctor -f dump.json

\b
  If NodeResourceTopologies are installed, also include them:
    kubectl get noderesourcetopologies -A -o json --show-managed-fields > topologies.json
    kubectl numazones doctor -f dump.json -f topologies.json

\b
  Before you restart a kubelet: would it start, and which pods would it reject?
    kubectl numazones doctor --restart worker-1
  The same before you reboot a machine:
    kubectl numazones doctor --restart worker-1 --reboot
  Before you change one setting, or the whole configuration file, on all nodes:
    kubectl numazones doctor --all --set reservedSystemCPUs=0-3
    kubectl numazones doctor --all --kubelet-config kubelet.yaml
  The reservedMemory that this file needs:
    kubectl numazones doctor --all --kubelet-config kubelet.yaml --reserved-memory
"""
_MIN_WIDTH = 20


@dataclass(frozen=True, slots=True)
class DoctorDocument:
    """``doctor``: findings, and the checks that were skipped."""

    findings: Annotated[list[Finding], "Everything that the checks found."]
    not_checked: Annotated[dict[str, str], "Check → why it was skipped."]


@click.command("doctor", epilog=_EPILOG)
@click.option(
    "--restart",
    "restarted",
    multiple=True,
    metavar="NODE",
    help="Instead of the checks, predict what would happen if this node's kubelet restarted: whether it "
    "would start, which pods it would reject and stop, and which pods would get other CPUs. May be "
    "given several times.",
)
@click.option("--all", "all_nodes", is_flag=True, help="Like --restart, for all nodes.")
@click.option(
    "--set",
    "changed",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --restart or --all: assume another value for a KubeletConfiguration field, such as "
    "topologyManagerPolicy=restricted (MAP.KEY for maps).",
)
@click.option(
    "--kubelet-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --restart or --all: start with this KubeletConfiguration (YAML or JSON).",
)
@click.option(
    "--reboot",
    is_flag=True,
    help="With --restart or --all: predict a reboot of the machine, after which no container runs and "
    "device plugins register late.",
)
@click.option(
    "--reserved-memory",
    is_flag=True,
    help="With --restart or --all: also compute the reservedMemory that these settings need.",
)
@output_option()
@click.option(
    "--fail-on",
    type=click.Choice([Severity.ERROR.value, Severity.WARNING.value]),
    default=Severity.WARNING.value,
    show_default=True,
    help="Minimum severity of a finding for exit code 1.",
)
@source_options
def command(
    source: Source,
    output: Output,
    *,
    fail_on: str,
    restarted: tuple[str, ...],
    all_nodes: bool,
    changed: tuple[str, ...],
    kubelet_config: Path | None,
    reserved_memory: bool,
    reboot: bool,
) -> int:
    """Check the installation, the kubelets' settings and the pods' requests, and say how to fix each problem.

    With a dump, checks whose objects are missing are skipped and listed. The exit code is 1 if there is an
    error or a warning (see --fail-on), else 0. With --restart and --all, it is also 1 if the outcome for a
    node cannot be predicted.
    """
    if restarted and all_nodes:
        raise click.UsageError("--all covers all nodes: use either --all or --restart NODE")
    if not (restarted or all_nodes):
        if changed or kubelet_config or reserved_memory or reboot:
            raise click.UsageError(
                "--set, --kubelet-config, --reboot and --reserved-memory need --restart NODE or --all"
            )
        return _answer(examine(gather(source)), output, fail_on)
    change = RestartSettings(
        kubelet_settings.parse(changed),
        _configuration(kubelet_config),
        reserved_memory=reserved_memory,
        reboot=reboot,
    )
    forecasts = foresee(gather(source), restarted, change)
    unknown = any(forecast.unknown for forecast in forecasts)
    return int(
        bool(_answer([_outcome(forecast) for forecast in forecasts], output, fail_on, forecasts)) or unknown
    )


def _configuration(path: Path | None) -> object | None:
    """The one document of a file.

    Raises:
        BadDump: it cannot be read, or holds another number of documents.
    """
    if path is None:
        return None
    found: list[object] = [document for document in documents(path) if document is not None]
    if len(found) != 1:
        raise BadDump(f"{path} contains {len(found)} documents; give one KubeletConfiguration")
    return found[0]


def _outcome(forecast: NodeRestart) -> CheckResult:
    check = f"restart of {forecast.node}"
    findings = tuple(replace(finding, check=check) for finding in forecast.findings)
    return CheckResult(check, findings, forecast.unknown)


def _answer(
    outcomes: list[CheckResult], output: Output, fail_on: str, forecasts: Sequence[NodeRestart] = ()
) -> int:
    """Print or write what was found; return the exit code."""
    if output.is_document:
        not_checked = {outcome.check: outcome.not_checked for outcome in outcomes if outcome.not_checked}
        output.write(DoctorDocument(_findings(outcomes), not_checked))
    elif forecasts:
        _print_each(outcomes)
        for forecast in forecasts:
            screen.echo(forecast.summary)
    else:
        _print_findings(outcomes)
    wrong = {Severity.ERROR, Severity(fail_on)}
    return int(any(finding.severity in wrong for finding in _findings(outcomes)))


def _findings(outcomes: list[CheckResult]) -> list[Finding]:
    return [finding for outcome in outcomes for finding in outcome.findings]


def _print_each(outcomes: list[CheckResult]) -> None:
    """Print every finding, the worst first."""
    order = list(Severity)
    for finding in sorted(_findings(outcomes), key=lambda one: order.index(one.severity)):
        _print_finding(finding)


def _print_findings(outcomes: list[CheckResult]) -> None:
    _print_each(outcomes)
    counts = Counter(finding.severity for finding in _findings(outcomes))
    said = ", ".join(pluralize(counts[severity], severity) for severity in Severity)
    made = sum(1 for outcome in outcomes if not outcome.not_checked)
    screen.echo(f"{said} from {pluralize(made, 'check')}")
    for outcome in outcomes:
        if outcome.not_checked:
            screen.say(f"skipped: {outcome.check}: {outcome.not_checked}")


def _print_finding(finding: Finding) -> None:
    line = Text()
    line.append(finding.severity.upper(), _STYLES[finding.severity])
    line.append(f" {finding.check}: ")
    line.append(some_of(finding.subjects), "bold")
    screen.console().print(line)
    for text in (finding.message, f"cure: {finding.cure}"):
        screen.echo(textwrap.indent(_fold(text), _INDENT))


def _fold(text: str) -> str:
    """Fold to a terminal's width; words, and so commands to be copied, stay whole."""
    if not screen.console().is_terminal:
        return text
    room = max(screen.width() - len(_INDENT), _MIN_WIDTH)
    return textwrap.fill(text, room, break_long_words=False, break_on_hyphens=False)
