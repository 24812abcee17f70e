"""The examples run as their first lines say, are short, and print what they promise."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from numazones.api.rebalance import RebalancePolicy
from numazones_client import Client
from numazones_client.resources import NUMAZONES
from numazones_simulator.control_plane import control_plane
from tests.kubectl.recorded_day import recorded_day
from tests.kubectl.small_cluster import cluster, pod_body, written
from tests.places import ROOT

POLICIES = sorted((ROOT / "docs" / "examples" / "policies").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, f"docs/examples/{name}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_fits_on_a_screen(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


def test_predict_for_a_pod(tmp_path: Path) -> None:
    dump = written(tmp_path / "dump.json", cluster())
    wanted = tmp_path / "pod.yaml"
    wanted.write_text(json.dumps(pod_body("wanted", 4)))
    assert run("predict_for_a_pod.py", dump, wanted).splitlines() == [
        "Admissible: 1 of 1 nodes would admit it; best is worker-1 on NUMA node 0",
        "  worker-1, NUMA nodes (0,), score 52",
    ]


def test_size_a_machine() -> None:
    assert run("size_a_machine.py", 12, 24) == (
        "10 pods of 12 CPUs and 24Gi; shared CPUs left: 0,31-32,63-64,95-96,127\n"
    )


def test_replay_a_recording(tmp_path: Path) -> None:
    assert run("replay_a_recording.py", recorded_day(tmp_path)) == "46 of 46 decisions agree\n"


def test_write_a_plan() -> None:
    data = ROOT / "tests/data/rebalance"
    said = run("write_a_plan.py", data / "dump.json", data / "policy.yaml", "2026-10-31T12:00:00+00:00")
    first, move = said.splitlines()
    assert first == "shape large x1: 0 now, 1 after 1 eviction"
    assert move == "  default/web: worker-1 1 -> worker-2 0"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.stem)
def test_a_sample_policy_can_be_planned_with(policy: Path) -> None:
    RebalancePolicy.from_api(yaml.safe_load(policy.read_text()), strict=True)
    said = run("write_a_plan.py", ROOT / "tests/data/kubectl/dump.json", policy, "2026-11-20T12:00:00+00:00")
    goal = {"make-room": "pod team/trainer", "keep-room": "shape large", "align": "align pods"}[policy.stem]
    assert said.startswith(goal)


async def test_watch_zones(tmp_path: Path) -> None:
    """A zone that is there is listed; one that comes, while the program watches, is told of."""
    first, second, *_ = (item for item in cluster() if item["kind"] == "NUMAZone")
    async with control_plane(tmp_path) as plane:
        await create_zone(plane.client, first)
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "docs/examples/watch_zones.py", str(plane.kubeconfig)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        try:
            assert (await program.stdout.readline()).startswith(b"listed worker-1, NUMA node 0: {")
            await create_zone(plane.client, second)
            assert (await program.stdout.readline()).startswith(b"added worker-1, NUMA node 1: ")
        finally:
            program.terminate()
            await program.wait()


async def create_zone(client: Client, body: dict[str, Any]) -> None:
    await client.create(NUMAZONES, {key: value for key, value in body.items() if key != "status"})
    await client.apply(NUMAZONES, body, field_manager="test", subresource="status")
