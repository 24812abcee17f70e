"""Doctor has a cure for every reason that the exporter gives, and the documentation has the same."""

import ast

from kubectl_numazones.doctor.reading_cures import CURES
from numazones_exporter import observation
from numazones_node import sysfs
from tests.places import ROOT

GOOD = {"Complete", "SourcesAgree", "NoNUMANodes", "NoCPUTopology"}


def documented() -> dict[str, str]:
    """Reason → cure, by the table of the reference."""
    text = (ROOT / "docs" / "reference" / "exporter.md").read_text()
    table = text.partition("| Reason | Cure |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {reason.strip("`"): cure for reasons, cure in rows for reason in reasons.split(", ")}


def given() -> set[str]:
    """Reasons that the exporter's source gives problems: second argument, or first of a source's error."""
    found: set[str] = set()
    readers = (ROOT / "exporter" / "numazones_exporter", ROOT / "support" / "numazones_node")
    for path in (path for folder in readers for path in folder.rglob("*.py")):
        if path.name in {"cgroups.py", "cpu_times.py", "interrupts.py"}:
            continue  # read for metrics: what is wrong with them is in the log, and in no condition
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                position = {"Problem": 1, "SourceError": 0}.get(call.func.id)
                if position is not None and len(call.args) > position:
                    found |= _text(call.args[position])
    return found


def _text(argument: ast.expr) -> set[str]:
    if isinstance(argument, ast.Constant):
        return {str(argument.value)}
    if not isinstance(argument, ast.Name):
        return set()
    return {known for module in (observation, sysfs) if (known := getattr(module, argument.id, None))}


def test_every_reason_that_an_exporter_gives_has_a_cure() -> None:
    reasons = given()
    assert len(reasons) > 20
    assert reasons - CURES.keys() - GOOD == {"InvalidEndpoint"}  # a setting that is wrong: it does not start


def test_the_reference_has_the_same_cures() -> None:
    table = documented()
    assert {reason: cure for reason, cure in table.items() if reason not in GOOD} == CURES
    assert table.keys() >= GOOD
