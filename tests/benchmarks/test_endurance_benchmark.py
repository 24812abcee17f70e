"""The endurance benchmark counts what it says, in a run short enough for a test."""

from typing import Any

import pytest

from benchmarks.endurance import COUNTED, missed
from tests.benchmarks.running import figures_of

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
    figures = figures_of("endurance.py", "--minutes=0.01", "--nodes=2", "--pods=8", "--warm-up=0", "--trace")
    assert (figures["rounds"], figures["pods"]) == (1, 24)
    assert figures["programs"].keys() == {"operator", "extender", "node-1", "node-2"}
    for program in figures["programs"].values():
        assert program["rss_mib"]["last"] > 10
        assert program["traced_mib"][-1] > 5
        for name in ("descriptors", "sockets", "threads", "tasks", "objects"):
            assert program[name][-1] > 0
