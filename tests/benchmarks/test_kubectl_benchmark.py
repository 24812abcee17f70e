"""The benchmark of the plugin makes a dump that every command answers on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "kubectl.py"


def test_every_command_answers_on_the_dump_it_makes(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    command = [
        sys.executable,
        str(PROGRAM),
        "--nodes=4",
        "--pods=40",
        "--rounds=1",
        "--json",
        "--keep",
        str(dump),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    commands = result["commands"]
    assert set(commands) == {"--help", "top", "why", "fit"}
    assert all(one["cpuSeconds"] > 0 and one["wallSeconds"] > 0 for one in commands.values())
    answers = [one for name, one in commands.items() if name != "--help"]
    assert result["together"] == {
        key: pytest.approx(sum(one[key] for one in answers)) for key in ("cpuSeconds", "wallSeconds")
    }
    assert set(result["goals"]) == {"together", "--help"}
    items = json.loads(dump.read_text())["items"]
    held = [
        len((zone.get("status") or {}).get("assignments", ())) for zone in items if zone["kind"] == "NUMAZone"
    ]
    assert len(held) == 8
    assert sum(held) > 0
