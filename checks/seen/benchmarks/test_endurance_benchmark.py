"""The endurance benchmark counts what it says, in a run short enough for a test."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from checks.seen.benchmarks.running import figures_of
from numazones_benchmarks.endurance import COUNTED, missed
from tests.places import ROOT

INSIDE = ROOT / "lab" / "numazones_benchmarks" / "inside"

FLAT = {
    "rss_deviation": 0.01,
    **{name: [3, 3] for name in COUNTED},
}


def test_a_program_that_keeps_its_size_meets_the_goals() -> None:
    assert list(missed("operator", FLAT)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rss_deviation": 0.06}, "operator: memory 6.0% off its median"),
        ({"tasks": [3, 4]}, "operator: tasks grew from 3 to 4"),
        ({"sockets": [3, 9]}, "operator: sockets grew from 3 to 9"),
    ],
)
def test_growth_is_told(change: dict[str, Any], words: str) -> None:
    assert list(missed("operator", FLAT | change)) == [words]


def test_what_is_traced_counts_where_memory_is_traced() -> None:
    assert list(missed("operator", FLAT | {"rss_deviation": 0.5, "traced_deviation": 0.01})) == []


@pytest.mark.slow
def test_it_counts_what_every_program_holds() -> None:
    figures = figures_of("endurance.py", "--minutes=0.01", "--nodes=1", "--pods=8", "--warm-up=0")
    assert (figures["rounds"], figures["pods"]) == (1, 24)
    assert figures["programs"].keys() == {"operator", "extender", "node-1"}
    for program in figures["programs"].values():
        assert program["rss_mib"]["last"] > 10
        for name in ("descriptors", "sockets", "threads", "tasks", "objects"):
            assert program[name][-1] > 0


KEEPS = """
import sys
kept = []
for _line in sys.stdin:
    kept.append(bytearray(10_000_000))
    print(flush=True)
"""


def test_it_names_the_growing_line_of_a_memory_tracing_program(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(INSIDE), "PYTHONTRACEMALLOC": "1", "NUMAZONES_COUNTS": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, "-c", KEEPS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        counts = []
        for number in (1, 2):
            program.stdin.write("grow\n")
            program.stdin.flush()
            program.stdout.readline()
            program.send_signal(signal.SIGUSR2)
            counts.append(line_of(tmp_path / str(program.pid), number))
        program.stdin.close()
    first, second = counts
    assert second["traced_bytes"] - first["traced_bytes"] > 9_000_000
    assert first["grown"] == []
    ((where, grown_bytes, _blocks), *_others) = second["grown"]
    assert where == "<string>:5"
    assert grown_bytes > 9_000_000


def line_of(path: Path, number: int) -> dict[str, Any]:
    """A line of a file that is being written, once it is there."""
    while len(lines := path.read_text().splitlines(keepends=True)) < number or not lines[-1].endswith("\n"):
        time.sleep(0.02)
    return dict(json.loads(lines[number - 1]))
