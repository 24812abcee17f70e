"""A node read back from its kubelet's state files decides as the node that wrote them."""

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from numazones.kubelet import checkpoints
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.checkpoint_values import (
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
)
from numazones.kubelet.config import InvalidConfiguration
from numazones.kubelet.node import InvalidNodeState, Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.restart import node_from_checkpoints
from numazones_simulator.kubelet import kubelet, state_files
from tests.conformance import scenario as reading
from tests.places import DATA

SAMPLE = DATA / "conformance"


def scenarios() -> list[dict[str, Any]]:
    found = []
    for name in ("sample", "releases"):
        with gzip.open(SAMPLE / f"{name}.jsonl.gz", "rt") as lines:
            found += [json.loads(line) for line in lines]
    return [item for item in found if "invalid" not in item]


def written(node: Node) -> tuple[CPUManagerCheckpoint, MemoryManagerCheckpoint, DeviceManagerCheckpoint]:
    """Return the contents of the three files, read from their bytes."""
    return (
        checkpoints.parse_cpu_manager_state(
            checkpoints.dump_cpu_manager_state(kubelet.cpu_manager_state(node))
        ),
        checkpoints.parse_memory_manager_state(
            checkpoints.dump_memory_manager_state(kubelet.memory_manager_state(node))
        ),
        checkpoints.parse_device_manager_state(
            checkpoints.dump_device_manager_state(state_files.device_manager_state(node))
        ),
    )


def restarted(scenario: dict[str, Any], node: Node) -> Node:
    cpus, memory, held = written(node)
    devices = reading.devices(scenario["devices"])
    return node_from_checkpoints(node.machine, node.config, devices, cpus=cpus, memory=memory, held=held)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["id"])
def test_every_state_of_a_scenario_survives_its_files(scenario: dict[str, Any]) -> None:
    try:
        node = reading.node(scenario)
    except InvalidConfiguration:
        pytest.fail("the sample holds no rejected configuration without saying so")
    for step in scenario["steps"]:
        if step["op"] == "remove":
            node = remove(node, step["uid"])
        else:
            node = admit(node, Pod.from_api(step["pod"])).node
        assert restarted(scenario, node).state_key == node.state_key


def test_a_file_of_another_policy_is_rejected_with_the_cure() -> None:
    scenario = next(item for item in scenarios() if item["kubelet"]["cpuManagerPolicy"] == "static")
    node = reading.node(scenario)
    cpus, memory, held = written(node)
    with pytest.raises(InvalidNodeState, match="drain the node and remove the file"):
        node_from_checkpoints(
            node.machine, node.config, {}, cpus=replace(cpus, policy="none"), memory=memory, held=held
        )
