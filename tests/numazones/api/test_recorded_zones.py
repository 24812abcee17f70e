"""Zones that the exporter makes of a real kubelet at half time predict the rest of its day, exactly."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.kubelet.node import Node
from numazones_exporter.main import main
from tests.numazones.kubelet.recorded_day import Day, day, operations
from tests.places import DATA
from tests.recorded_nodes import SAMPLE, SHARED, Recorded, unpack

VERSION = "v1.36.2"


def exported(recorded: Recorded) -> Node:
    """Return the exporter's zones of a node; without an API server they lack the kubelet's version."""
    result = CliRunner().invoke(main, [*recorded.flags(), "-o", "json"])
    assert result.exit_code == 0, result.output
    zones = json.loads(result.stdout)["items"]
    for zone in zones:
        zone["status"]["kubelet"]["version"] = VERSION
    return node_from_zones(map(NUMAZone.from_api, zones))


def half_time(played: Sequence[Mapping[str, Any]], recorded: Recorded) -> int:
    """Number of operations after which the node's pods were those that were listed at half time."""
    listed = json.loads(recorded.pods.read_text())["items"]
    there = {pod["metadata"]["uid"] for pod in listed if pod["spec"].get("nodeName") == recorded.name}
    now: set[str] = set()
    halves = []
    for number, operation in enumerate(played, start=1):
        if operation["op"] == "create":
            now.add(operation["uid"])
        elif operation["op"] == "delete":
            now.discard(operation["uid"])
        if now == there:
            halves.append(number)
    return halves[-1]


def check(first: Day, recorded: Recorded, played: Sequence[Mapping[str, Any]]) -> int:
    """Play the first half, take the zones' word for it, play the second half."""
    half = half_time(played, recorded)
    for operation in played[:half]:
        first.play(operation)
    restored = exported(recorded)
    assert restored.cpus == first.node.cpus
    assert restored.memory == first.node.memory
    assert restored.device_assignments == first.node.device_assignments
    assert restored.kubelet.cpus.reserved == first.node.kubelet.cpus.reserved
    # Which devices a plugin prefers is its own secret; the recording tells what the kubelet took.
    preferring = replace(restored.kubelet.devices, preferred_allocation=first.preference)
    first.node = replace(restored, kubelet=replace(restored.kubelet, devices=preferring))
    first.outcomes.clear()
    for operation in played[half:]:
        first.play(operation)
    return first.outcomes.total()


def test_second_half_of_a_recorded_day_is_predicted_from_zones(tmp_path: Path) -> None:
    story = json.loads(gzip.decompress((DATA / "conformance" / "recorded-day.json.gz").read_bytes()))
    recorded = Recorded(story["node"], SAMPLE, "mid", unpack(SAMPLE / story["node"], tmp_path / "machine"))
    first = day(recorded.directory, story["plugins"], tmp_path / "scratch", VERSION)
    assert check(first, recorded, story["operations"]) > 20


@pytest.mark.parametrize(("name", "decisions"), [("rig-a", 19), ("rig-b", 22), ("rig-c", 20), ("rig-d", 43)])
def test_so_is_that_of_every_recorded_kubelet(
    name: str, decisions: int, shared: Path, tmp_path: Path
) -> None:
    cluster = shared / SHARED
    recorded = Recorded(name, cluster, "mid", unpack(cluster / name, tmp_path / "machine"))
    plugins = json.loads((cluster / name / "device_plugins.json").read_text())
    with (cluster / "replay.jsonl").open() as lines:
        played = list(operations(lines, name))
    assert check(day(cluster / name, plugins, tmp_path / "scratch", VERSION), recorded, played) == decisions
