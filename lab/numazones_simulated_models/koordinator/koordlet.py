"""Objects that Koordinator's agent publishes for a simulated node: CPUs and NUMA nodes, and its GPUs."""

import json
from typing import Any

from numazones.kubelet.machine import Machine
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_koordinator.annotations import CPU_TOPOLOGY
from numazones_koordinator.identity import DEVICE
from numazones_simulator.node_spec import NodeSpec

_GPU = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "16Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}


def topology_of(name: str, machine: Machine) -> dict[str, Any]:
    """The NodeResourceTopology of a node; nothing of it changes with pods."""
    detail = [
        {"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa} for cpu in machine.cpus
    ]
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": {CPU_TOPOLOGY: json.dumps({"detail": detail})}},
        "topologyPolicies": ["None"],
        "zones": [
            {
                "name": f"node-{node.id}",
                "type": "Node",
                "resources": [
                    _amount("cpu", str(machine.cpus_of_numa[node.id].bit_count())),
                    _amount("memory", str(node.memory)),
                ],
            }
            for node in machine.numa_nodes
        ],
    }


def device_of(spec: NodeSpec) -> dict[str, Any]:
    """The node's Device object: its GPUs, one PCIe switch per NUMA node."""
    numas = [device.numa[0] for devices in spec.devices.values() for device in devices]
    socket_of = {cpu.numa: cpu.socket for cpu in spec.machine.cpus}
    return {
        "apiVersion": f"{DEVICE.group}/{DEVICE.version}",
        "kind": "Device",
        "metadata": {"name": spec.name},
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "minor": minor,
                    "id": f"GPU-{minor}",
                    "health": True,
                    "resources": _GPU,
                    "topology": {"socketID": socket_of[numa], "nodeID": numa, "pcieID": str(numa)},
                }
                for minor, numa in enumerate(numas)
            ]
        },
    }


def _amount(name: str, amount: str) -> dict[str, str]:
    return {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
