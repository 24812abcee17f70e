"""The benchmark of decisions compares this tree with the commit that it is told."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "conformance" / "sample.jsonl.gz"


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="the tree is no git checkout, so there is no other commit"
)
def test_both_trees_make_the_same_decisions_and_the_ratio_is_of_their_times() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "decisions.py"), "--scenarios", str(SAMPLE)]
    done = subprocess.run(
        [*command, "--against=HEAD", "--rounds=2", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    here, there = figures["here"], figures["HEAD"]
    assert here["decisions"] == there["decisions"] > 0
    assert here["decisionsPerSecond"] > 0
    ratio = there["cpuSeconds"]["total"] / here["cpuSeconds"]["total"]
    assert figures["ratio"]["total"] == pytest.approx(ratio, rel=0.2)
