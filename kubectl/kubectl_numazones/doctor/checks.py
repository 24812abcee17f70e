"""The table of checks. Each is a function from evidence to findings.

A check that lacks what it would have to look at says so (``NotChecked``): silence means that it looked and
found nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kubectl_numazones.doctor import extender_traffic, installation, placement, scheduler
from kubectl_numazones.doctor.evidence import DEFINITION, Evidence
from kubectl_numazones.doctor.findings import Finding, NotChecked, Severity


class Check(NamedTuple):
    """A check, and the kinds it cannot do without."""

    name: str
    find: Callable[[Evidence], Iterable[Finding]]
    needs: tuple[str, ...] = ()


CHECKS = (
    Check("definitions", installation.definitions, (DEFINITION,)),
    Check("access", installation.access),
    Check("zones", installation.zones),
    Check("exporters", installation.exporters, ("NUMAZone", "Pod")),
    Check("nodes", installation.nodes, ("Pod",)),
    Check("leases", installation.leases, ("NUMAZone", "Lease", "Pod")),
    Check("readings", installation.readings, ("NUMAZone",)),
    Check("clocks", installation.clocks, ("Lease",)),
    Check("operator", installation.operator, ("Pod",)),
    Check("gates", installation.gates, ("Pod", "Namespace")),
    Check("extender", scheduler.extender),
    Check("calls", extender_traffic.calls, ("Pod",)),
    Check("traffic", extender_traffic.traffic, ("Pod",)),
    Check("scheduler", scheduler.waiting_pods, ("Pod",)),
    Check("settings", placement.settings, ("NUMAZone",)),
    Check("drivers", placement.cpu_drivers, ("NUMAZone",)),
    Check("writers", installation.writers, ("NodeResourceTopology",)),
    Check("requests", placement.requests, ("NUMAZone", "Pod")),
    Check("pinning", placement.pods_without_own_cpus, ("NUMAZone", "Pod")),
    Check("stranded", placement.stranded_cpus, ("NUMAZone", "Pod")),
)
"""All checks, those that explain others first."""


class CheckResult(NamedTuple):
    """Result of one check, or why it was skipped."""

    check: str
    findings: tuple[Finding, ...]
    not_checked: str = ""


def examine(evidence: Evidence) -> list[CheckResult]:
    """Make every check; findings that differ in their subjects alone become one."""
    outcomes = []
    for check in CHECKS:
        missing = [kind for kind in check.needs if kind not in evidence.objects]
        if missing:
            why = evidence.unseen.get(missing[0], f"no {missing[0]} objects were read")
            outcomes.append(CheckResult(check.name, (), why))
            continue
        try:
            outcomes.append(CheckResult(check.name, tuple(_merge(check.name, check.find(evidence)))))
        except NotChecked as reason:
            outcomes.append(CheckResult(check.name, (), str(reason)))
    return outcomes


def _merge(check: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    subjects: dict[tuple[Severity, str, str], dict[str, None]] = {}
    for finding in findings:
        known = subjects.setdefault((finding.severity, finding.message, finding.cure), {})
        known.update(dict.fromkeys(finding.subjects))
    for (severity, message, cure), known in subjects.items():
        yield Finding(severity, tuple(known), message, cure, check)
