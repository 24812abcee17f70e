"""The real exporter, run as a process against the files and the socket of a simulated kubelet."""

import asyncio
import json
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.kubelet.machine import Machine
from numazones_simulator import machine_tree, node_kinds
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_kinds import NodeKind
from numazones_simulator.node_spec import NodeSpec
from numazones_simulator.workload import PodStream

EXPORTER = Path(sys.executable).parent / "numazones-exporter"


def busy(kind: NodeKind) -> tuple[SimulatedKubelet, list[dict[str, Any]]]:
    """A kubelet after some coming and going, and the pods it runs."""
    kubelet = SimulatedKubelet(kind("node-1", "10.77.0.1"))
    running: list[dict[str, Any]] = []
    for number, body in enumerate(islice(PodStream(3).pods(), 60)):
        body["metadata"]["uid"] = f"uid-{number}"
        body["spec"]["nodeName"] = "node-1"
        if kubelet.admit(body).rejection is None:
            running.append({**body, "status": {"phase": "Running"}})
        if number % 3 == 0 and running:
            kubelet.remove(running.pop(len(running) // 2)["metadata"]["uid"])
    return kubelet, running


async def exported(kubelet: SimulatedKubelet, pods: list[dict[str, Any]], directory: Path) -> list[NUMAZone]:
    """Return the zones that ``numazones-exporter --once`` prints for the node."""
    tree = machine_tree.write(kubelet.spec.machine, directory)
    KubeletFiles(directory / "kubelet").write(kubelet.node)
    (directory / "configz.json").write_text(json.dumps({"kubeletconfig": kubelet.spec.configuration}))
    (directory / "pods.json").write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": pods}))
    socket = directory / "kubelet" / "pod-resources" / "kubelet.sock"
    async with PodResourcesServer(socket, lambda: (kubelet.node, kubelet.pods)):
        process = await asyncio.create_subprocess_exec(
            *(str(EXPORTER), "--once", "-o", "json", "--node-name", "node-1"),
            *("--sysfs", str(tree.sysfs), "--procfs", str(tree.procfs)),
            *("--kubelet-dir", str(directory / "kubelet"), "--kubelet-version", kubelet.spec.version),
            *("--kubelet-config", f"file:{directory}/configz.json", "--pods", f"file:{directory}/pods.json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return [NUMAZone.from_api(item) for item in json.loads(out)["items"]]


def layout(machine: Machine) -> tuple[Any, ...]:
    """Everything about a machine but the numbers by which the system calls its cores."""
    return (
        machine.numa_nodes,
        machine.cpus_of_numa,
        machine.cpus_of_socket,
        machine.cpus_of_uncore_cache,
        sorted(machine.cpus_of_core.values()),
    )


def serving_pods_as_a_whole(name: str, address: str) -> NodeSpec:
    """Whole pods on one NUMA node, those with pod-level resources included."""
    spec = node_kinds.single_numa_node_pods(name, address)
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    return replace(spec, configuration={**spec.configuration, "featureGates": gates})


@pytest.mark.parametrize("kind", [*node_kinds.KINDS, serving_pods_as_a_whole], ids=lambda kind: kind.__name__)
async def test_the_exported_zones_hold_the_kubelets_exact_state(kind: NodeKind, tmp_path: Path) -> None:
    kubelet, pods = busy(kind)
    assert len(pods) > 10
    node = node_from_zones(await exported(kubelet, pods, tmp_path))
    assert layout(node.machine) == layout(kubelet.node.machine)
    assert node.cpus == kubelet.node.cpus
    assert node.memory == kubelet.node.memory
    assert node.device_assignments == kubelet.node.device_assignments
    assert node.kubelet.cpus.reserved == kubelet.node.kubelet.cpus.reserved
    assert dict(node.kubelet.memory.allocatable) == dict(kubelet.node.kubelet.memory.allocatable)
