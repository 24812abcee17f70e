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


@pytest.mark.slow
def test_rows_are_written_as_they_come_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    command = [
        sys.executable, str(PROGRAM), "--runs=1", "--loads", "0.5", "--machines", "2 NUMA nodes", "--json",
        f"--output={output}",
    ]  # fmt: skip
    first = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    lines = output.read_text().splitlines(keepends=True)
    assert [row for line in lines for row in json.loads(line)["rows"]] == json.loads(first.stdout)["rows"]

    output.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote its last line
    again = subprocess.run([*command, "--progress"], capture_output=True, text=True, timeout=600, check=True)
    assert again.stderr.splitlines() == ["1 of 1"]
    assert again.stdout == first.stdout
    assert output.read_text() == "".join(lines)

    other = subprocess.run([*command, "--seed=3"], capture_output=True, text=True, timeout=600, check=False)
    assert other.returncode == 1
    assert "another seed" in other.stderr
    assert output.read_text() == "".join(lines)
