"""A recorded history given with ``-f``: the cluster as it was at the recording's end."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kubectl_numazones.reading import recording
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.recorded_cluster import objects_at_end
from kubectl_numazones.reading.recorded_files import is_history
from numazones import cpuset
from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.kubelet.node import Node
from numazones_node import podresources_pb2 as pb
from tests.places import ROOT

SAMPLE = ROOT / "tests/data/recordings/one-node"
Run = Callable[..., Result]
Held = dict[tuple[str, str], tuple[frozenset[int], frozenset[str]]]
"""(pod, container) → exclusive CPUs and devices."""


def said_by_kubelet(node: Path) -> Held:
    """Return what the kubelet itself listed when the recording ended."""
    listed = pb.ListPodResourcesResponse.FromString((node / "podresources_list.pb").read_bytes())
    held = {
        (f"{pod.namespace}/{pod.name}", container.name): (
            frozenset(container.cpu_ids),
            frozenset(one for device in container.devices for one in device.device_ids),
        )
        for pod in listed.pod_resources
        for container in pod.containers
    }
    return {who: what for who, what in held.items() if any(what)}


def by_zones(items: list[dict[str, Any]], node: str) -> Node:
    zones = [NUMAZone.from_api(item) for item in items if item["kind"] == "NUMAZone"]
    return node_from_zones(zone for zone in zones if zone.spec.node_name == node)


def said_by_zones(items: list[dict[str, Any]], node: str) -> Held:
    """The same by the NUMAZones that are read from the recording; init containers are in no list."""
    state = by_zones(items, node)
    inits = {
        (item["metadata"]["uid"], container["name"])
        for item in items
        if item["kind"] == "Pod"
        for container in item["spec"].get("initContainers", ())
        if container.get("restartPolicy") != "Always"
    }
    names = {
        item["metadata"]["uid"]: f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in items
        if item["kind"] == "Pod"
    }
    cpus, devices = state.cpus.assignments, state.device_assignments
    held = {
        (names[uid], container): (
            frozenset(cpuset.ids(cpus.get(uid, {}).get(container, 0))),
            frozenset(one for ids in devices.get(uid, {}).get(container, {}).values() for one in ids),
        )
        for uid in state.pods
        for container in {*cpus.get(uid, {}), *devices.get(uid, {})}
        if (uid, container) not in inits
    }
    return {who: what for who, what in held.items() if any(what)}


def agrees_with_the_kubelets(path: Path) -> int:
    items = [dict(item) for item in objects_at_end(path)]
    nodes = [item["metadata"]["name"] for item in items if item["kind"] == "Node"]
    for node in nodes:
        assert said_by_zones(items, node) == said_by_kubelet(path / node)
    return len(nodes)


def test_history_ends_as_its_kubelets_said() -> None:
    assert agrees_with_the_kubelets(SAMPLE) == 1


def test_recorded_histories_end_as_their_kubelets_said(shared: Path) -> None:
    found = [path for path in (shared / "recordings").iterdir() if is_history(path)]
    assert sum(map(agrees_with_the_kubelets, found)) >= 4


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("who", "rig-b"), 0, "rig/p156-gint       6,18,20,30,42,44   7.5Gi"),
        (("top",), 0, "rig-b      0   restricted   12/22"),
        (("tree", "rig-b"), 0, "B rig/p156-gint: 6,18,20,30,42,44"),
        (("fit", "cpu=24,memory=1Gi"), 0, "1 of 1 fit"),
        (("fit", "cpu=35,memory=1Gi"), 1, "0 of 1 fit"),
        (("why", "p046-gdev", "-n", "rig"), 0, "rejected on rig-b with TopologyAffinityError"),
    ],
)
def test_commands_read_a_history(arguments: tuple[str, ...], code: int, told: str, run: Run) -> None:
    found = run(*arguments, "-f", SAMPLE)
    assert (found.return_value, told in found.output) == (code, True), found.output


def test_a_device_that_failed_is_not_free(tmp_path: Path) -> None:
    history = Path(shutil.copytree(SAMPLE, tmp_path / "history"))
    broken = {"op": "device-health", "node": "rig-b", "resource": "vendor.example/gpu", "health": "Unhealthy"}

    def healthy() -> int:
        state = by_zones([dict(item) for item in objects_at_end(history)], "rig-b")
        return sum(device.healthy for device in state.kubelet.devices.resources["vendor.example/gpu"].devices)

    before = healthy()
    plugins = json.loads((history / "rig-b/device_plugins.json").read_text()).values()
    device = next(one["devices"][-1]["id"] for one in plugins if one["resource"] == "vendor.example/gpu")

    def happens(operation: dict[str, str]) -> None:
        with (history / "replay.jsonl").open("a") as file:
            file.write(json.dumps(operation) + "\n")

    happens({**broken, "device": device, "resource": "vendor.example/nic"})  # of the same address
    assert healthy() == before
    happens({**broken, "device": device})
    assert healthy() == before - 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pods.json", None),
        ("pods.json", b'{"items": ['),
        ("pods.json", b'{"items": [{"metadata": 3}]}'),
        ("rig-b/cpu_manager_state", b"{}"),
        ("rig-b/memory_manager_state", None),
        ("rig-b/kubelet_internal_checkpoint", b"\xff"),
        ("rig-b/node.json", b"[]"),
        ("rig-b/sys.tar.gz", b"\x1f\x8b"),
        ("replay.jsonl", b"no JSON"),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    name: str, content: bytes | None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not name.endswith("tar.gz"):
        monkeypatch.setattr("kubectl_numazones.reading.recording._machine", cache(recording._machine))
    history = Path(shutil.copytree(SAMPLE, tmp_path / "history"))
    if content is None:
        (history / name).unlink()
    else:
        (history / name).write_bytes(content)
    error = run("who", "rig-b", "-f", history).exception
    assert isinstance(error, BadDump)
    assert str(history / name.partition("/")[0]) in str(error)
