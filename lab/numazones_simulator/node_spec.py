"""Definition of a simulated node: hardware, device plugins, and the kubelet's configuration.

``node_object`` derives the Node that a kubelet registers (``pkg/kubelet/nodestatus/setters.go``): capacity is
the hardware, allocatable is what reservations leave (kubeReserved, systemReserved, hard eviction threshold),
and memory's allocatable also lacks all hugepages.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import hugepage_type
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.placement.kubelet import KUBELET

VERSION = "v1.36.2"
PODS = 110
_KIB = 1024
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A simulated node."""

    name: str
    machine: Machine
    configuration: Mapping[str, Any] = field(hash=False)
    """KubeletConfiguration, v1beta1, as the kubelet answers to /configz."""
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict, hash=False)
    """Resource → its devices."""
    version: str = VERSION
    address: str = "10.77.0.1"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Mapping[str, str], ...] = field(default=(), hash=False)
    model: str = KUBELET
    """Who places pods on its NUMA nodes: the name of a placement model."""
    extended: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Extended resources that no device plugin but a placement model's agent adds to the Node."""

    def empty_node(self) -> Node:
        """The node as the kubelet starts it, without pods.

        Raises:
            InvalidConfiguration: the kubelet rejects the configuration on this machine.
        """
        config = KubeletConfiguration.from_api(self.configuration, version=self.version)
        return Node.fresh(self.machine, config, self.devices)


def configuration(
    machine: Machine,
    *,
    topology_manager_policy: str = "none",
    topology_manager_scope: str = "container",
    cpu_manager_policy_options: Mapping[str, str] | None = None,
    topology_manager_policy_options: Mapping[str, str] | None = None,
    reserved_cpus: str = "",
    feature_gates: Mapping[str, bool] | None = None,
) -> dict[str, Any]:
    """A KubeletConfiguration with static CPU and memory managers whose reservations add up.

    Args:
        machine: its NUMA nodes share the reserved memory.
        topology_manager_policy: none, best-effort, restricted or single-numa-node.
        topology_manager_scope: container or pod.
        cpu_manager_policy_options: option → value, as text.
        topology_manager_policy_options: option → value, as text.
        reserved_cpus: reservedSystemCPUs; empty: two CPUs by number, which the CPU manager then chooses.
        feature_gates: gates that differ from their defaults.
    """
    reserved = str(cpuset.parse(reserved_cpus).bit_count()) if reserved_cpus else "2"
    with_memory = [node for node in machine.numa_nodes if node.memory]
    shares = [100 * _MIB] * len(with_memory)
    shares[0] = (1024 + 512 + 500 - 100 * (len(with_memory) - 1)) * _MIB
    config: dict[str, Any] = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "maxPods": PODS,
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": topology_manager_policy,
        "topologyManagerScope": topology_manager_scope,
        "kubeReserved": {"memory": "1Gi"},
        "systemReserved": {"cpu": reserved, "memory": "512Mi"},
        "evictionHard": {"memory.available": "500Mi"},
        "reservedMemory": [
            {"numaNode": node.id, "limits": {"memory": quantity.format_bytes(share)}}
            for node, share in zip(with_memory, shares, strict=True)
        ],
    }
    optional: dict[str, Any] = {
        "reservedSystemCPUs": reserved_cpus,
        "cpuManagerPolicyOptions": dict(cpu_manager_policy_options or {}),
        "topologyManagerPolicyOptions": dict(topology_manager_policy_options or {}),
        "featureGates": dict(feature_gates or {}),
    }
    return config | {name: value for name, value in optional.items() if value}


def bystander() -> dict[str, Any]:
    """A KubeletConfiguration that leaves CPUs, memory and NUMA nodes to somebody else."""
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "maxPods": PODS,
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none",
        "evictionHard": {"memory.available": "500Mi"},
    }


def node_object(spec: NodeSpec, *, now: str) -> dict[str, Any]:
    """The Node that the kubelet registers, Ready since a time as the API writes it."""
    machine_id = hashlib.sha256(spec.name.encode()).hexdigest()[:32]
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}},
        "spec": {"taints": [dict(taint) for taint in spec.taints]} if spec.taints else {},
        "status": {
            "capacity": _capacity(spec),
            "allocatable": _allocatable(spec),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "addresses": [
                {"type": "InternalIP", "address": spec.address},
                {"type": "Hostname", "address": spec.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": machine_id,
                "systemUUID": machine_id,
                "bootID": machine_id,
                "kernelVersion": "6.12.0-simulated",
                "osImage": "Simulated Linux",
                "containerRuntimeVersion": "simulated://1.0.0",
                "kubeletVersion": spec.version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _capacity(spec: NodeSpec) -> dict[str, str]:
    machine = spec.machine
    capacity = {
        "cpu": str(len(machine.cpus)),
        "memory": f"{_memory(machine) // _KIB}Ki",
        "pods": str(spec.configuration.get("maxPods", PODS)),
    }
    capacity |= {
        hugepage_type(size): quantity.format_bytes(size * pages * _KIB)
        for size, pages in _hugepages(machine).items()
    }
    counts = {resource: str(len(devices)) for resource, devices in spec.devices.items()}
    return {**capacity, **counts, **spec.extended}


def _allocatable(spec: NodeSpec) -> dict[str, str]:
    reserved_cpu = reserved_memory = 0
    for kind in ("kubeReserved", "systemReserved"):
        amounts = spec.configuration.get(kind) or {}
        reserved_cpu += quantity.parse(amounts.get("cpu", "0")).milli()
        reserved_memory += quantity.parse(amounts.get("memory", "0")).value()
    eviction = (spec.configuration.get("evictionHard") or {}).get("memory.available", "0")
    hugepages = sum(size * pages * _KIB for size, pages in _hugepages(spec.machine).items())
    memory = _memory(spec.machine) - reserved_memory - quantity.parse(eviction).value() - hugepages
    healthy = {
        resource: str(sum(device.healthy for device in devices)) for resource, devices in spec.devices.items()
    }
    return {
        **_capacity(spec),
        "cpu": quantity.format_milli(max(0, len(spec.machine.cpus) * 1000 - reserved_cpu)),
        "memory": f"{max(0, memory) // _KIB}Ki",
        **healthy,
    }


def _memory(machine: Machine) -> int:
    return sum(node.memory for node in machine.numa_nodes)


def _hugepages(machine: Machine) -> dict[int, int]:
    """Page size in KiB → pages on the whole machine."""
    totals: dict[int, int] = {}
    for node in machine.numa_nodes:
        for size, pages in node.hugepages:
            totals[size] = totals.get(size, 0) + pages
    return totals
