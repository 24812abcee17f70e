"""State files that a kubelet does not take when it starts; each cure is tried on its start."""

from dataclasses import replace
from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.checkpoint_values import CPUManagerCheckpoint, MemoryManagerCheckpoint
from numazones.kubelet.cures import CPU_STATE_FILE, MEMORY_STATE_FILE
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.state_validation import (
    Refusal,
    refusals_of_files,
    refusals_of_node,
)
from tests.numazones.kubelet import building

GI = building.GI
Files = tuple[CPUManagerCheckpoint | None, MemoryManagerCheckpoint | None]


def files(node: Node) -> Files:
    """Return the files that the kubelet has written."""
    config, cpus = node.config, node.cpus
    return (
        CPUManagerCheckpoint(config.cpu_manager_policy, cpus.default, cpus.assignments, cpus.pods),
        MemoryManagerCheckpoint(config.memory_manager_policy, node.machine_state),
    )


def busy(**config: Any) -> Node:
    """Two NUMA nodes of eight CPUs and 16Gi; a pod has CPUs 1,8-9."""
    return admit(building.node(**config), building.pod("a", building.container("c", 3))).node


def moved_memory(machine: Machine) -> Machine:
    first, second = machine.numa_nodes
    return Machine(machine.cpus, (first._replace(memory=15 * GI), second._replace(memory=17 * GI)))


OLD = building.machine(cores=4)
STRICT: dict[str, Any] = {"cpu_options": {"strict-cpu-reservation": "true"}}
REFUSED: dict[str, tuple[Node, Machine, dict[str, Any], str, str]] = {
    "CPUs were added": (
        Node.fresh(building.machine(cores=4, threads=1), building.configuration()),
        OLD,
        {},
        *('current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-7"', CPU_STATE_FILE),
    ),
    "CPUs were lost": (
        busy(),
        building.machine(offline=frozenset({14, 15})),
        {},
        *('current set of available CPUs "0-13" doesn\'t match with CPUs in state "0-15"', CPU_STATE_FILE),
    ),
    "memory moved between NUMA nodes": (
        busy(),
        moved_memory(OLD),
        {},
        *("[memorymanager] the expected machine state is different from the real one", MEMORY_STATE_FILE),
    ),
    "a NUMA node has gone": (
        building.node(cpus="none"),
        building.machine(1, cores=8, memory=32 * GI),
        {"cpus": "none"},
        *("[memorymanager] the expected machine state is different from the real one", MEMORY_STATE_FILE),
    ),
    "another policy": (
        busy(),
        OLD,
        {"memory": "None", "reservedMemory": []},
        *('[memorymanager] configured policy "None" differs from state checkpoint policy "Static"',),
        MEMORY_STATE_FILE,
    ),
    "the shared pool is empty": (
        admit(
            building.node(policy="none", memory="None", reservedMemory=[], **STRICT),
            building.pod("a", building.container("c", 15)),
        ).node,
        OLD,
        {"policy": "none", "memory": "None", "reservedMemory": [], **STRICT},
        *("default cpuset cannot be empty", CPU_STATE_FILE),
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_rejected_file_is_named_and_its_removal_is_the_cure(
    case: tuple[Node, Machine, dict[str, Any], str, str],
) -> None:
    before, machine, config, message, file = case
    kubelet = KubeletManagers.start(building.configuration(**config), machine, {})
    cpus, memory = files(before)
    assert refusals_of_files(kubelet, cpus, memory) == (Refusal(message, file),)
    kept = (None, memory) if file == CPU_STATE_FILE else (cpus, None)
    assert refusals_of_files(kubelet, *kept) == ()
    started = Node.fresh(machine, kubelet.config, {})
    assert refusals_of_node(started, kubelet) == ()


def test_a_kubelet_that_nothing_changed_for_takes_its_files() -> None:
    node = busy()
    assert refusals_of_files(node.kubelet, *files(node)) == ()


def test_cpu_both_held_and_shared_is_rejected_until_pod_deletion() -> None:
    node = busy()
    held = node.cpus.held_by("a")
    crashed = replace(node, cpus=node.cpus._replace(default=node.cpus.default | held & -held))
    (refusal,) = refusals_of_node(crashed, node.kubelet)
    assert refusal.message.startswith(f'pod: a, container: c cpuset: "{cpuset.format(held)}" overlaps with ')
    assert refusals_of_node(remove(crashed, "a"), node.kubelet) == ()


def test_the_cure_names_node_and_file() -> None:
    assert Refusal("no", cure="write it in quotes").cure_on("worker-1") == "write it in quotes"
