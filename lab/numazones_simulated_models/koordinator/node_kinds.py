"""Nodes on which Koordinator's scheduler places pods."""

from numazones.kubelet import machines
from numazones_koordinator.identity import NAME
from numazones_simulator.node_kinds import INTERLEAVED, TWO_SOCKETS, devices_of, of_model
from numazones_simulator.node_spec import NodeSpec, bystander

GPU = "nvidia.com/gpu"


def koordinator(name: str, address: str) -> NodeSpec:
    """Koordinator's scheduler places pods, each as strictly as the pod says; with GPUs."""
    machine = machines.build(TWO_SOCKETS)
    gpus = devices_of(machine, per_numa=2)
    amounts = {
        "koordinator.sh/gpu-core": f"{100 * len(gpus)}",
        "koordinator.sh/gpu-memory": f"{16 * len(gpus)}Gi",
        "koordinator.sh/gpu-memory-ratio": f"{100 * len(gpus)}",
    }
    return of_model(
        NodeSpec(name, machine, bystander(), {GPU: gpus}, address=address, extended=amounts),
        NAME,
        "koordinator",
    )


def koordinator_aligned(name: str, address: str) -> NodeSpec:
    """Koordinator's scheduler keeps every pod on one NUMA node."""
    machine = machines.build(INTERLEAVED)
    return of_model(
        NodeSpec(
            name,
            machine,
            bystander(),
            address=address,
            labels={"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"},
        ),
        NAME,
        "koordinator-aligned",
    )
