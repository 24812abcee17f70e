"""Benchmarks as people run them: programs that print JSON."""

import json
import subprocess
import sys
from typing import Any

from tests.places import ROOT

BENCHMARKS = ROOT / "lab" / "numazones_benchmarks"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark to its end."""
    command = [sys.executable, str(BENCHMARKS / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def figures_of(program: str, *arguments: str, goals: bool = True) -> Any:
    """Run a benchmark, which need not meet its goals, if it has any; return what it measured."""
    done = run(program, *arguments, "--json")
    assert done.returncode in ({0, 1} if goals else {0}), done.stderr
    return json.loads(done.stdout)
