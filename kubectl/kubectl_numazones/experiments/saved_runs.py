"""Runs in a file, a line of JSON each, so that an experiment that was interrupted goes on where it was.

The file does not tell what it is of. Its first run is made again instead: where that comes out otherwise, the
file is of something else, or of another version.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from numazones.apimachinery.documents import OBJECT, read_json
from numazones.whatif.experiment import Experiment, Run, make_runs
from numazones.whatif.trial import Outcome


def read(path: Path, experiment: Experiment) -> dict[int, Run]:
    """Return number → run; a file that is not there has none, and a line cut off at the end is taken away.

    Raises:
        BadDump: the file holds something else, or cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        runs = dict(map(_run, whole.splitlines()))
    except OSError as error:
        raise BadDump(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise BadDump(f"{path} holds no runs; name another file with --keep") from error
    for number, run in list(runs.items())[:1]:
        if make_runs(experiment, [number]) != [run]:
            raise BadDump(
                f"{path} holds runs of other pods, nodes, settings, seed or version; give --keep another"
            )
    return runs


def append(path: Path, runs: Mapping[int, Run]) -> None:
    """Add runs to the file.

    Raises:
        BadDump: it cannot be written.
    """
    lines = (
        json.dumps({"run": number, "outcomes": [asdict(outcome) for outcome in run]})
        for number, run in runs.items()
    )
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise BadDump(f"{path}: {error.strerror or error}") from error


def _run(line: str) -> tuple[int, Run]:
    document = read_json(line, OBJECT)
    outcomes = tuple(
        Outcome(**{name: _hashable(value) for name, value in item.items()}) for item in document["outcomes"]
    )
    return int(document["run"]), outcomes


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
