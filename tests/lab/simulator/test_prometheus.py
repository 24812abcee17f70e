"""Prometheus beside a simulated cluster: named where it is missing."""

from pathlib import Path

import pytest

from numazones_simulator import prometheus
from numazones_simulator.programs import ProgramFailed, Programs


async def test_a_missing_prometheus_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    async with Programs(tmp_path / "logs") as programs:
        with pytest.raises(ProgramFailed, match=r"prometheus is not on the PATH; .*\.cache/tools/bin"):
            await prometheus.start(programs, tmp_path, operator="", exporters={})
