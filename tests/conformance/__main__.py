"""``python -m tests.conformance emit|check``: the command-line door to the reference vectors.

``emit < scenarios.jsonl > out.jsonl`` fills in this model's outcomes. ``check FILE[.gz]`` compares
with the recorded ones, prints JSON, and exits with 1 if anything differs. ``--model`` says whose
decisions the scenarios describe. ``machines FOLDER…`` reads sysfs trees and compares with what kubelets
recorded of them; it prints a table, and exits with 1 if anything differs.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from numazones.errors import NumazonesError
from tests.conformance import hardware
from tests.conformance.comparison import Difference, compared_steps
from tests.conformance.models import MODELS, Model

_SHOWN = 20
_UNREADABLE = 2


class NotAScenario(NumazonesError):
    """A line is not a scenario; the message says which."""


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    emit = commands.add_parser("emit", help="read scenarios from standard input, write them with outcomes")
    check = commands.add_parser("check", help="compare scenarios with their recorded outcomes")
    check.add_argument("file", help="scenarios, one JSON object a line, gzipped if named *.gz")
    check.add_argument("--show", type=int, default=_SHOWN, help="how many differences to print (%(default)s)")
    for command in (emit, check):
        command.add_argument(
            "--model", choices=MODELS, default="kubelet", help="who decides in the scenarios (%(default)s)"
        )
    machines = commands.add_parser("machines", help="compare trees of real machines with recorded answers")
    machines.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="holds NAME/sys, NAME/proc")
    machines.add_argument(
        "--answers", action="append", required=True, metavar="FILE", help="what the kubelet says of machines"
    )
    machines.add_argument("--admissions", metavar="FILE", help="what it decides on them")
    options = parser.parse_args(arguments)
    try:
        if options.command == "machines":
            return _machines(options.folders, options.answers, options.admissions)
        model = MODELS[options.model]
        if options.command == "emit":
            return _emit(sys.stdin, model)
        opener = gzip.open if options.file.endswith(".gz") else open
        with opener(options.file, "rt") as lines:
            return _check(lines, model, options.show)
    except NotAScenario as error:
        sys.stderr.write(f"{error}\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        file = getattr(error, "filename", None) or getattr(options, "file", "an answer")
        sys.stderr.write(f"cannot read {file}: {why}; name a file of scenarios, one JSON object a line\n")
    return _UNREADABLE


def _machines(folders: list[Path], answers: list[str], admissions: str | None) -> int:
    machines = {item["name"]: item["answer"] for file in answers for item in _recorded(file)}
    decided = {} if admissions is None else {item["ID"]: item for item in _recorded(admissions)}
    tally: Counter[tuple[str, str]] = Counter()
    for tree in hardware.trees_in(folders):
        if tree.name not in machines:
            tally["machines", "no answer recorded"] += 1
            continue
        read = hardware.compare_machine(tree, machines[tree.name])
        scenarios = list(hardware.compare_admissions(tree, machines[tree.name], decided))
        counts = Counter(result.verdict for result in scenarios)
        tally.update([("machines", read.verdict), *(("scenarios", result.verdict) for result in scenarios)])
        row = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        sys.stdout.write(f"{tree.name:44} {read.verdict:16} {row}\n")
        for result in (read, *scenarios):
            if result.verdict == hardware.DIFFERS:
                sys.stdout.writelines(f"    {result.name}: {detail}\n" for detail in result.details)
    for (what, verdict), count in sorted(tally.items()):
        sys.stdout.write(f"{what}: {count} {verdict}\n")
    return int(any(verdict == hardware.DIFFERS for _, verdict in tally))


def _recorded(file: str) -> Iterator[dict[str, Any]]:
    opener = gzip.open if file.endswith(".gz") else open
    with opener(file, "rt") as lines:
        yield from _scenarios(lines)


def _scenarios(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                scenario = json.loads(line)
            except ValueError as error:
                raise NotAScenario(f"line {number} is not valid JSON: {error}") from error
            if not isinstance(scenario, dict):
                raise NotAScenario(f"line {number} is not a JSON object")
            yield scenario


def _emit(lines: Iterable[str], model: Model) -> int:
    for scenario in _scenarios(lines):
        sys.stdout.write(json.dumps(model.replay(scenario), separators=(",", ":")) + "\n")
    return 0


def _check(lines: Iterable[str], model: Model, show: int) -> int:
    scenarios = steps = failed = 0
    found: list[Difference] = []
    for scenario in _scenarios(lines):
        scenarios += 1
        steps += compared_steps(scenario)
        different = list(model.differences(scenario, model.replay(scenario)))
        failed += bool(different)
        found.extend(different[: max(0, show - len(found))])
    report = {
        "scenarios": scenarios,
        "agree": scenarios - failed,
        "stepsCompared": steps,
        "differences": [
            {
                "scenario": one.scenario,
                "step": one.step,
                "path": one.path,
                "expected": one.expected,
                "actual": one.actual,
            }
            for one in found
        ],
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
