"""``python -m tests.conformance emit|check``: the command-line door to the reference vectors.

``emit < scenarios.jsonl > out.jsonl`` fills in this model's outcomes. ``check FILE[.gz]`` compares
with the recorded ones, prints JSON, and exits with 1 if anything differs. ``--model`` says whose
decisions the scenarios describe.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from numazones.errors import NumazonesError
from tests.conformance.comparison import Difference, compared_steps
from tests.conformance.models import MODELS, Model

_SHOWN = 20
_UNREADABLE = 2


class NotAScenario(NumazonesError):
    """A line is not a scenario; the message says which."""


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two commands; returns the exit status."""
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
    options = parser.parse_args(arguments)
    model = MODELS[options.model]
    try:
        if options.command == "emit":
            return _emit(sys.stdin, model)
        opener = gzip.open if options.file.endswith(".gz") else open
        with opener(options.file, "rt") as lines:
            return _check(lines, model, options.show)
    except NotAScenario as error:
        sys.stderr.write(f"{error}\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        sys.stderr.write(
            f"cannot read {options.file}: {why}; name a file of scenarios, one JSON object a line\n"
        )
    return _UNREADABLE


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
