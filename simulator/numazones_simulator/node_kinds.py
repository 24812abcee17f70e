"""The kinds of nodes that simulated clusters are made of: machines and kubelet settings seen in the field.

Each kind differs from the others in what decides admissions: topology policy and scope, CPU manager options,
the layout of the machine, devices with one, several or no NUMA nodes, hugepages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice

from numazones import machines
from numazones.kubelet.device_manager import Device
from numazones.machine import Machine
from numazones.machines import Shape
from numazones.placement import Model
from numazones_simulator.kubelet.node_spec import NodeSpec, bystander, configuration

GPU = "vendor.example/gpu"
NIC = "vendor.example/nic"
LICENCE = "vendor.example/licence"

KOORDINATOR_GPU = "nvidia.com/gpu"

KIND_LABEL = "simulator.numazones.io/kind"
MODEL_LABEL = "simulator.numazones.io/model"
"""Label and taint of nodes on which others than the kubelet place pods."""

_GIB = 1 << 30
_TWO_SOCKETS = Shape(cores_per_numa=16, memory_per_numa=64 * _GIB)
_INTERLEAVED = Shape(
    cores_per_numa=12,
    memory_per_numa=48 * _GIB,
    interleaved=True,
    hugepages_per_numa=((2048, 1024), (1048576, 0)),
)
_SUB_NUMA = Shape(numa_per_socket=2, cores_per_numa=8, memory_per_numa=32 * _GIB)
_CHIPLETS = Shape(
    sockets=1,
    numa_per_socket=4,
    cores_per_numa=8,
    memory_per_numa=32 * _GIB,
    hugepages_per_numa=((2048, 512), (1048576, 2)),
    cores_per_cache=4,
)

Kind = Callable[[str, str], NodeSpec]
"""Makes a node from its name and address."""


def single_numa_node(name: str, address: str) -> NodeSpec:
    """Latency-sensitive work: every container on one NUMA node, reserved CPUs chosen by the administrator."""
    machine = machines.build(_TWO_SOCKETS)
    return NodeSpec(
        name,
        machine,
        configuration(machine, topology_manager_policy="single-numa-node", reserved_cpus="0,16,32,48"),
        {GPU: _devices(machine, per_numa=2), NIC: _devices(machine, per_numa=4)},
        address=address,
        labels={KIND_LABEL: "single-numa-node"},
    )


def restricted_pods(name: str, address: str) -> NodeSpec:
    """Whole pods kept together where capacity allows, CPUs spread over the NUMA nodes of wide ones."""
    machine = machines.build(_INTERLEAVED)
    return NodeSpec(
        name,
        machine,
        configuration(
            machine,
            topology_manager_policy="restricted",
            topology_manager_scope="pod",
            cpu_manager_policy_options={"distribute-cpus-across-numa": "true"},
        ),
        {NIC: _devices(machine, per_numa=3), LICENCE: (Device("licence-0"), Device("licence-1"))},
        address=address,
        labels={KIND_LABEL: "restricted-pods"},
    )


def best_effort_full_cores(name: str, address: str) -> NodeSpec:
    """Whole cores only, NUMA placement as a wish; GPUs hang between two NUMA nodes."""
    machine = machines.build(_SUB_NUMA)
    pairs = tuple(
        Device(f"gpu-{first}-{number}", (first, first + 1)) for first in (0, 2) for number in range(2)
    )
    return NodeSpec(
        name,
        machine,
        configuration(
            machine,
            topology_manager_policy="best-effort",
            cpu_manager_policy_options={"full-pcpus-only": "true"},
            topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
            reserved_cpus="0,32",
        ),
        {GPU: pairs, NIC: _devices(machine, per_numa=2)},
        address=address,
        labels={KIND_LABEL: "best-effort-full-cores"},
    )


def single_numa_node_pods(name: str, address: str) -> NodeSpec:
    """Whole pods on one small NUMA node of a chiplet machine, CPUs aligned to L3 caches; hugepages."""
    machine = machines.build(_CHIPLETS)
    return NodeSpec(
        name,
        machine,
        configuration(
            machine,
            topology_manager_policy="single-numa-node",
            topology_manager_scope="pod",
            cpu_manager_policy_options={"prefer-align-cpus-by-uncorecache": "true"},
            reserved_cpus="0,32",
        ),
        {NIC: _devices(machine, per_numa=2)},
        address=address,
        labels={KIND_LABEL: "single-numa-node-pods"},
    )


def unaligned(name: str, address: str) -> NodeSpec:
    """Exclusive CPUs, but no topology policy at all."""
    machine = machines.build(_TWO_SOCKETS)
    return NodeSpec(
        name,
        machine,
        configuration(machine, topology_manager_policy="none", reserved_cpus="0,32"),
        {NIC: _devices(machine, per_numa=2)},
        address=address,
        labels={KIND_LABEL: "unaligned"},
    )


def koordinator(name: str, address: str) -> NodeSpec:
    """Koordinator's scheduler places pods; each says itself how strictly; GPUs."""
    machine = machines.build(_TWO_SOCKETS)
    gpus = _devices(machine, per_numa=2)
    amounts = {
        "koordinator.sh/gpu-core": f"{100 * len(gpus)}",
        "koordinator.sh/gpu-memory": f"{16 * len(gpus)}Gi",
        "koordinator.sh/gpu-memory-ratio": f"{100 * len(gpus)}",
    }
    return _of_model(
        NodeSpec(name, machine, bystander(), {KOORDINATOR_GPU: gpus}, address=address, extended=amounts),
        Model.KOORDINATOR,
        "koordinator",
    )


def koordinator_aligned(name: str, address: str) -> NodeSpec:
    """Koordinator's scheduler keeps every pod on one NUMA node."""
    machine = machines.build(_INTERLEAVED)
    return _of_model(
        NodeSpec(
            name,
            machine,
            bystander(),
            address=address,
            labels={"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"},
        ),
        Model.KOORDINATOR,
        "koordinator-aligned",
    )


def topology_aware(name: str, address: str) -> NodeSpec:
    """NRI's topology-aware policy places containers in the runtime."""
    machine = machines.build(_SUB_NUMA)
    return _of_model(
        NodeSpec(name, machine, bystander(), address=address), Model.TOPOLOGY_AWARE, "topology-aware"
    )


def _of_model(spec: NodeSpec, model: Model, kind: str) -> NodeSpec:
    """Only pods that ask for it come to a node whose model gives no verdict on many others."""
    taint = {"key": MODEL_LABEL, "value": str(model), "effect": "NoSchedule"}
    labels = {**spec.labels, KIND_LABEL: kind, MODEL_LABEL: str(model)}
    return replace(spec, model=model, labels=labels, taints=(taint,))


KINDS: tuple[Kind, ...] = (
    single_numa_node,
    restricted_pods,
    best_effort_full_cores,
    single_numa_node_pods,
    unaligned,
)


OTHER_KINDS: tuple[Kind, ...] = (koordinator, topology_aware, koordinator_aligned, topology_aware)
"""Kinds on which others than the kubelet place pods."""


def mixed(count: int, *, kinds: Sequence[Kind] = KINDS) -> list[NodeSpec]:
    """Nodes of all kinds in turn, named ``node-1`` and so on."""
    return [
        kind(f"node-{number}", _address(number))
        for number, kind in enumerate(islice(cycle(kinds), count), start=1)
    ]


def _address(number: int) -> str:
    high, low = divmod(number, 250)
    return f"10.77.{high}.{low + 1}"


def _devices(machine: Machine, *, per_numa: int) -> tuple[Device, ...]:
    return tuple(
        Device(f"{node.id:02}-{number}", (node.id,))
        for node in machine.numa_nodes
        for number in range(per_numa)
    )
