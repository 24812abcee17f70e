"""The benchmark of decisions compares this tree with the commit that it is told."""

import pytest

from checks.seen.benchmarks.running import figures_of
from tests.places import ROOT

SAMPLE = ROOT / "tests" / "data" / "conformance" / "sample.jsonl.gz"


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="the tree is no git checkout, so there is no other commit"
)
def test_both_trees_make_the_same_decisions_and_the_ratio_is_of_their_times() -> None:
    scenarios = ("--scenarios", str(SAMPLE))
    figures = figures_of("decisions.py", *scenarios, "--against=HEAD", "--rounds=2", goals=False)
    here, there = figures["here"], figures["HEAD"]
    assert here["decisions"] == there["decisions"] > 0
    assert here["decisionsPerSecond"] > 0
    ratio = there["cpuSeconds"]["total"] / here["cpuSeconds"]["total"]
    assert figures["ratio"]["total"] == pytest.approx(ratio, rel=0.2)
