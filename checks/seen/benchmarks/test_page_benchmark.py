"""The page's benchmark measures what it says, on a cluster small enough for a test."""

import shutil

import pytest

from checks.seen.benchmarks.running import figures_of


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH")
def test_it_prints_every_figure_that_has_a_goal() -> None:
    figures = figures_of("page.py", "--nodes=10")
    assert figures["tiles"] == 10
    assert all(figures[name] > 0 for name in figures["goals"])
