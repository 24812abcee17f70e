"""The kinds of nodes that simulated clusters are made of: machines and kubelet settings seen in the field.

Each kind differs from the others in what decides admissions: topology policy and scope, CPU manager options,
the layout of the machine, devices with one, several or no NUMA nodes, hugepages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice

from numazones.kubelet import machines
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.machines import MachineShape
from numazones_simulator.node_spec import NodeSpec, configuration

GPU = "vendor.example/gpu"
NIC = "vendor.example/nic"
LICENCE = "vendor.example/licence"

KIND_LABEL = "simulator.numazones.io/kind"
MODEL_LABEL = "simulator.numazones.io/model"
"""Label and taint of nodes on which others than the kubelet place pods."""

_GIB = 1 << 30
TWO_SOCKETS = MachineShape(cores_per_numa=16, memory_per_numa=64 * _GIB)
INTERLEAVED = MachineShape(
    cores_per_numa=12,
    memory_per_numa=48 * _GIB,
    interleaved=True,
    hugepages_per_numa=((2048, 1024), (1048576, 0)),
)
SUB_NUMA = MachineShape(numa_per_socket=2, cores_per_numa=8, memory_per_numa=32 * _GIB)
_CHIPLETS = MachineShape(
    sockets=1,
    numa_per_socket=4,
    cores_per_numa=8,
    memory_per_numa=32 * _GIB,
    hugepages_per_numa=((2048, 512), (1048576, 2)),
    cores_per_uncore_cache=4,
)

NodeKind = Callable[[str, str], NodeSpec]
"""Makes a node from its name and address."""


def single_numa_node(name: str, address: str) -> NodeSpec:
    """Latency-sensitive work: every container on one NUMA node, reserved CPUs chosen by the administrator."""
    return _two_sockets(
        name,
        address,
        kind="single-numa-node",
        policy="single-numa-node",
        reserved_cpus="0,16,32,48",
        devices={GPU: 2, NIC: 4},
    )


def restricted_pods(name: str, address: str) -> NodeSpec:
    """Whole pods kept together where capacity allows, CPUs spread over the NUMA nodes of wide ones."""
    machine = machines.build(INTERLEAVED)
    return NodeSpec(
        name,
        machine,
        configuration(
            machine,
            topology_manager_policy="restricted",
            topology_manager_scope="pod",
            cpu_manager_policy_options={"distribute-cpus-across-numa": "true"},
        ),
        {NIC: devices_of(machine, per_numa=3), LICENCE: (Device("licence-0"), Device("licence-1"))},
        address=address,
        labels={KIND_LABEL: "restricted-pods"},
    )


def best_effort_full_cores(name: str, address: str) -> NodeSpec:
    """Whole cores only, NUMA placement where possible; GPUs between two NUMA nodes."""
    machine = machines.build(SUB_NUMA)
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
        {GPU: pairs, NIC: devices_of(machine, per_numa=2)},
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
        {NIC: devices_of(machine, per_numa=2)},
        address=address,
        labels={KIND_LABEL: "single-numa-node-pods"},
    )


def unaligned(name: str, address: str) -> NodeSpec:
    """Exclusive CPUs, but no topology policy at all."""
    return _two_sockets(
        name, address, kind="unaligned", policy="none", reserved_cpus="0,32", devices={NIC: 2}
    )


def best_effort(name: str, address: str) -> NodeSpec:
    """NUMA placement where there is room, and no rejections: what many clusters run."""
    return _two_sockets(
        name,
        address,
        kind="best-effort",
        policy="best-effort",
        reserved_cpus="0,16,32,48",
        devices={NIC: 2},
    )


def _two_sockets(
    name: str, address: str, *, kind: str, policy: str, reserved_cpus: str, devices: Mapping[str, int]
) -> NodeSpec:
    """A node of the ordinary machine; ``devices``: resource → how many each NUMA node has."""
    machine = machines.build(TWO_SOCKETS)
    return NodeSpec(
        name,
        machine,
        configuration(machine, topology_manager_policy=policy, reserved_cpus=reserved_cpus),
        {resource: devices_of(machine, per_numa=count) for resource, count in devices.items()},
        address=address,
        labels={KIND_LABEL: kind},
    )


def of_model(spec: NodeSpec, model: str, kind: str) -> NodeSpec:
    """Return a node of another model than the kubelet's; only pods that ask for it go there."""
    taint = {"key": MODEL_LABEL, "value": model, "effect": "NoSchedule"}
    labels = {**spec.labels, KIND_LABEL: kind, MODEL_LABEL: model}
    return replace(spec, model=model, labels=labels, taints=(taint,))


KINDS: tuple[NodeKind, ...] = (
    single_numa_node,
    restricted_pods,
    best_effort_full_cores,
    single_numa_node_pods,
    unaligned,
)
NAMED: Mapping[str, NodeKind] = {kind.__name__.replace("_", "-"): kind for kind in (*KINDS, best_effort)}
"""What the label calls it → kind: those of a mixed cluster, and one that is there by itself only."""


def mixed(count: int, *, kinds: Sequence[NodeKind] = KINDS) -> list[NodeSpec]:
    """Nodes of all kinds in turn, named ``node-1`` and so on."""
    return [
        kind(f"node-{number}", _address(number))
        for number, kind in enumerate(islice(cycle(kinds), count), start=1)
    ]


def _address(number: int) -> str:
    high, low = divmod(number, 250)
    return f"10.77.{high}.{low + 1}"


def devices_of(machine: Machine, *, per_numa: int) -> tuple[Device, ...]:
    """Devices of one resource, as many for each NUMA node."""
    return tuple(
        Device(f"{node.id:02}-{number}", (node.id,))
        for node in machine.numa_nodes
        for number in range(per_numa)
    )
