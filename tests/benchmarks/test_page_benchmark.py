"""The page's benchmark measures what it says, on a cluster small enough for a test."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "page.py"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH")
def test_it_prints_every_figure_that_has_a_goal() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--nodes=10", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    figures = json.loads(done.stdout)
    assert figures["tiles"] == 10
    assert all(figures[name] > 0 for name in figures["goals"])
