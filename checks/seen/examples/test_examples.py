"""The examples run as their first lines say, are short, and print what they promise."""

import asyncio
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
from tests.kubectl.small_cluster import cluster, written
from tests.places import ROOT

POLICIES = sorted((ROOT / "docs" / "examples" / "policies").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, f"docs/examples/{name}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_fits_on_a_screen(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_shown_with_a_command_and_a_link(path: Path) -> None:
    page = (ROOT / "docs/examples.md").read_text()
    assert f"$ .venv/bin/python docs/examples/{path.name} " in page
    assert f"(examples/{path.name})" in page


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.name != "watch_zones.py"], ids=lambda path: path.name
)
def test_an_example_without_arguments_prints_its_usage(path: Path) -> None:
    name = f"docs/examples/{path.name}"
    done = subprocess.run([sys.executable, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Usage: python {name} ")


def test_prediction_is_unknown_where_nodes_have_no_zones(tmp_path: Path) -> None:
    nodes = [item for item in cluster() if item["kind"] != "NUMAZone"]
    dump = written(tmp_path / "dump.json", nodes)
    said = run("predict_for_a_pod.py", dump, ROOT / "docs/examples/pod.yaml")
    assert said.startswith("Unknown: ")
    assert "no NUMAZones of worker-1" in said


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
