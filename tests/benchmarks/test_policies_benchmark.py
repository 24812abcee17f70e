"""The benchmark of the placement models measures what it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "policies.py"


def test_it_prints_every_model_on_every_size_and_every_figure_that_has_a_goal() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--containers=40", "--nodes=20", "--runs=1", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    figures = json.loads(done.stdout)
    assert {"kubelet", "koordinator", "topology-aware"} <= set(figures["models"])
    for sizes in figures["models"].values():
        assert set(sizes) == {"2", "4", "8"}
        for one in sizes.values():
            assert 0 < one["admitted"] <= one["containers"]
            assert one["perSecond"] == pytest.approx(one["containers"] / one["seconds"], rel=0.2)
    assert figures["koordinator_5000_nodes_seconds"] > 0
    assert figures["missed"] == [name for name, goal in figures["goals"].items() if figures[name] > goal]
