"""Tests of commands that read a live cluster while it changes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import plugin
from tests.kubectl.live_doctor import serving
from tests.kubectl.small_cluster import cluster, pod_body
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice


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
        assert "its NUMAZones were written at different times" in output
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
        assert (code, "pod other/one was not found among" in output) == (2, True), output


def waiting_for_a_claim() -> list[dict[str, Any]]:
    """A cluster with two GPUs, no claim yet, and a pod whose claim is made from a template."""
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    template = {
        **claim(),
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {"spec": claim()["spec"]},
    }
    slices = resource_slice(device("gpu-0", 0), device("gpu-1", 1))
    waiting = pod_body("claims", 1, spec=spec)
    return [*cluster(), waiting, device_class(GPU, f'device.driver == "{GPU}"'), slices, template]


async def test_templates_and_the_absence_of_claims_are_read_live(tmp_path: Path) -> None:
    async with serving(tmp_path, set(), waiting_for_a_claim()) as kubeconfig:
        asked = ("why", "claims", "-n", "team", "--kubeconfig", kubeconfig)
        code, output = await plugin.run(*asked)
        assert (code, f"{GPU}/gpu-0 on NUMA node 0" in output) == (0, True), output
        (_, document) = await plugin.run(*asked, "-o", "json")
        place = json.loads(document)["place"]
        assert [one["device"] for one in place["devices"]] == ["gpu-0"]
        assert [one["alignment"] for one in place["containers"]] == ["aligned"]


async def test_without_the_right_to_list_claims_the_pod_stays_unknown(tmp_path: Path) -> None:
    denied = {"resourceclaims"}
    async with serving(tmp_path, denied, waiting_for_a_claim()) as kubeconfig:
        code, output = await plugin.run("why", "claims", "-n", "team", "--kubeconfig", kubeconfig)
    assert code == 2
    assert "ResourceClaim objects were left out: " in output
    assert "no ResourceClaims were read, so it is not known which devices are taken" in output
