"""The benchmark of the plugin makes a dump that every command answers on."""

import json
from pathlib import Path

import pytest

from checks.seen.benchmarks.running import figures_of


def test_every_command_answers_on_the_dump_it_makes(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    size = ("--nodes=4", "--pods=40", "--rounds=1")
    result = figures_of("kubectl.py", *size, "--keep", str(dump), goals=False)
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
