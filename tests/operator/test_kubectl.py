"""What people see: predictions and events through kubectl, as the guide shows them."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from numazones_simulator import node_kinds

from .closed_loop import Loop, closed_loop, eventually

LOCAL = Path(__file__).resolve().parents[2] / ".cache" / "tools" / "bin" / "kubectl"


@pytest.fixture
def kubectl() -> str:
    program = shutil.which("kubectl") or (str(LOCAL) if LOCAL.exists() else "")
    if not program:
        pytest.skip("kubectl is neither on PATH nor in .cache/tools/bin (scripts/test-tools .cache)")
    return program


async def run(program: str, loop: Loop, *arguments: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        [program, f"--kubeconfig={loop.kubeconfig}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_kubectl_shows_predictions_with_readable_columns(tmp_path: Path, kubectl: str) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        await loop.start_operator()
        await loop.create_pod("web-0", cpu=4)
        await loop.create_pod("trainer", cpu=40)
        for name in ("web-0", "trainer"):
            await eventually(lambda name=name: loop.verdict(name))  # type: ignore[misc]
        lines = (await run(kubectl, loop, "get", "admissionpredictions")).splitlines()
        assert lines[0].split() == [
            *("NAME", "VERDICT", "ADMISSIBLE", "EVALUATED", "STALE", "BEST", "ZONES", "ACTUAL", "AGE")
        ]
        rows = {line.split()[0]: line.split() for line in lines[1:]}
        assert rows["web-0"][1:6] == ["Admissible", "1", "1", "worker-1", "[0]"]
        assert rows["trainer"][1:3] == ["Inadmissible", "1"]
        wide = await run(kubectl, loop, "get", "ap", "trainer", "-o", "wide")
        assert "needs 40 exclusive CPUs on one NUMA node" in wide

        async def event() -> bool:
            return "AdmissionImpossible" in await run(kubectl, loop, "get", "events")

        await eventually(event)
