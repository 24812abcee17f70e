"""Tests of commands that read a live cluster while it changes."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import plugin
from tests.kubectl.live_doctor import serving
from tests.kubectl.small_cluster import cluster


async def who(node: str, kubeconfig: Path) -> tuple[int, str]:
    return await plugin.run("who", node, "--kubeconfig", kubeconfig)


def half_written() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A cluster of which one zone of worker-1 was not written yet, and its zones thereafter."""
    items = cluster()
    zones = [item for item in items if item["kind"] == "NUMAZone"]
    written = copy.deepcopy(zones)
    zones[0]["status"]["snapshot"] = "the one before"
    return items, written


async def test_zones_that_are_just_being_written_are_listed_again(tmp_path: Path) -> None:
    items, written = half_written()
    async with serving(tmp_path, set(), items, {"numazones": written}) as kubeconfig:
        code, output = await who("worker-1", kubeconfig)
    assert (code, "team/two" in output) == (0, True), output


async def test_zones_that_stay_half_written_are_told(tmp_path: Path) -> None:
    items, _ = half_written()
    async with serving(tmp_path, set(), items) as kubeconfig:
        code, output = await who("worker-1", kubeconfig)
        assert code == 2
        assert "the state of node worker-1 is unknown" in output
        assert "its zones were written at different moments" in output
        assert (await who("worker-2", kubeconfig))[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("top",),
        ("who", "worker-1"),
        ("tree", "worker-1"),
        ("why", "-A"),
        ("fit", "cpu=1"),
        ("aligned",),
        ("plan",),
        ("gate",),
        ("doctor",),
    ],
    ids=lambda arguments: str(arguments[0]),
)
async def test_every_request_of_a_command_uses_the_given_identity(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    asked: list[tuple[str, list[str]]] = []
    told = ("--as", "jane", "--as-group", "sre", "--as-group", "night shift")
    async with serving(tmp_path, set(), asked=asked) as kubeconfig:
        code, output = await plugin.run(*arguments, *told, "--kubeconfig", kubeconfig)
        assert "rror:" not in output, output
        assert code in {0, 1}, output
    assert len(asked) > 2
    assert set(map(str, asked)) == {str(("jane", ["sre", "night shift"]))}


async def test_pod_without_namespace_is_searched_in_the_contexts_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path, set(), cluster()) as kubeconfig:
        config = yaml.safe_load(kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = "team"
        kubeconfig.write_text(yaml.safe_dump(config))
        code, output = await plugin.run("why", "one", "--kubeconfig", kubeconfig)
        assert (code, output.startswith("team/one")) == (0, True), output
        code, output = await plugin.run("why", "one", "-n", "other", "--kubeconfig", kubeconfig)
        assert (code, "pod other/one is not among" in output) == (2, True), output
