"""Zones read from the files of simulated kubelets describe exactly the state that the kubelets hold.

Machines and pods are those of the reference vectors: offline threads, ids with gaps, split caches, sub-NUMA
clusters, groups of memory. Each scenario's last state is written as sysfs, state files and podresources.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from numazones.api.zones import node_from_zones
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones_exporter import zones
from numazones_exporter.options import Options
from numazones_exporter.sources.reading import Sources, observe
from numazones_simulator import machine_tree
from numazones_simulator.kubelet.podresources import allocatable, listed
from numazones_simulator.kubelet.state_files import KubeletFiles
from tests.conformance import scenario as reading
from tests.places import DATA

VECTORS = DATA / "conformance"
COPIED = (
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
    "reservedMemory",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
)
GATES = ("CPUManagerPolicyAlphaOptions", "TopologyManagerPolicyAlphaOptions")


def scenarios() -> list[Any]:
    with gzip.open(VECTORS / "sample.jsonl.gz", "rt") as lines:
        every = [json.loads(line) for line in lines]
    return [pytest.param(scenario, id=scenario["id"]) for scenario in every if _is_seen_in_full(scenario)]


def _is_seen_in_full(scenario: dict[str, Any]) -> bool:
    """A kubelet starts, and hides no device: unhealthy ones that nobody holds are in none of its files."""
    devices = [device for group in (scenario.get("devices") or {}).values() for device in group]
    return "steps" in scenario and all(device.get("healthy", True) for device in devices)


def configuration(kubelet: dict[str, Any]) -> dict[str, Any]:
    copied = {name: kubelet[name] for name in COPIED if kubelet.get(name)}
    static = kubelet.get("cpuManagerPolicy") == "static"
    return {
        "kind": "KubeletConfiguration",
        "featureGates": dict.fromkeys(GATES, True) | (kubelet.get("featureGates") or {}),
        "reservedSystemCPUs": kubelet.get("reservedSystemCPUs") or "" if static else "",
        "kubeReserved": {"cpu": kubelet.get("reservedCPU") or "0"},
        **copied,
    }


def hardware(machine: Machine) -> list[tuple[int, int, int, int | None, int]]:
    """CPUs with the threads of their core; zones keep which threads are a core, not the core's number."""
    return [
        (cpu.id, cpu.numa, cpu.socket, cpu.uncore_cache, machine.cpus_of_core[cpu.numa, cpu.socket, cpu.core])
        for cpu in machine.cpus
    ]


def play(scenario: dict[str, Any]) -> tuple[Node, dict[str, dict[str, Any]]]:
    """The node after the scenario, and the pods that hold something on it."""
    node, pods = reading.node(scenario), {}
    for step in scenario["steps"]:
        if step["op"] == "admit":
            try:
                node = admit(node, Pod.from_api(step["pod"])).node
            except NumazonesError:
                continue  # the kubelet itself would hang or crash
            pods[step["pod"]["metadata"]["uid"]] = step["pod"]
        else:
            node = remove(node, step["uid"])
    return node, {uid: pod for uid, pod in pods.items() if node.holds(uid)}


def write(directory: Path, scenario: dict[str, Any], node: Node, pods: dict[str, Any]) -> Options:
    tree = machine_tree.write(node.machine, directory)
    KubeletFiles(directory).write(node)
    answers = {
        "podresources_list.pb": listed(node, map(Pod.from_api, pods.values())),
        "podresources_allocatable.pb": allocatable(node),
    }
    for name, answer in answers.items():
        (directory / name).write_bytes(answer.SerializeToString())
    items = [{**pod, "spec": {**pod["spec"], "nodeName": "n"}} for pod in pods.values()]
    (directory / "pods.json").write_text(json.dumps({"items": items}))
    (directory / "kubelet.json").write_text(json.dumps(configuration(scenario["kubelet"])))
    return Options(
        node_name="n",
        sysfs=tree.sysfs,
        procfs=tree.procfs,
        kubelet_dir=directory,
        podresources=f"replay:{directory}",
        kubelet_config=f"file:{directory}/kubelet.json",
        kubelet_version="v1.36.0",
        pods=f"file:{directory}/pods.json",
        once=True,
    )


@pytest.mark.parametrize("scenario", scenarios())
async def test_zones_from_a_simulated_kubelets_files_have_its_state(
    tmp_path: Path, scenario: dict[str, Any]
) -> None:
    node, pods = play(scenario)
    try:
        options = write(tmp_path, scenario, node, pods)
    except machine_tree.UnwritableMachine as error:
        pytest.skip(str(error))
    sources = Sources(options)
    snapshot = zones.snapshot_of(await observe(sources))
    assert snapshot is not None
    found = zones.build(snapshot)
    await sources.close()
    assert {item.status for zone in found if zone.status for item in zone.status.conditions} == {"True"}
    again = node_from_zones(found)
    assert (hardware(again.machine), again.machine.numa_nodes) == (
        hardware(node.machine),
        node.machine.numa_nodes,
    )
    assert (again.cpus, again.memory) == (node.cpus, node.memory)
    assert again.kubelet.cpus.reserved == node.kubelet.cpus.reserved
    assert again.device_assignments == node.device_assignments
