"""The benchmark of placement compares every way of choosing nodes on the same arrivals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "placement.py"


@pytest.mark.slow
def test_no_way_that_asks_first_has_a_pod_rejected_by_a_kubelet() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--runs=1", "--loads", "0.85", "--machines", "2 NUMA nodes", "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert set(summary) == {"default", "nrt", "exact", "pack", "best-fit", "scarce", "shapes"}
    for choice in ("exact", "pack", "best-fit", "scarce", "shapes"):
        assert summary[choice]["rejected_by_kubelets"] == 0
    assert summary["default"]["rejected_by_kubelets"] > 0
    assert summary["best-fit"]["left_out"] < summary["default"]["left_out"]
