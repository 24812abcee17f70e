"""Reading scenarios into the library's values."""

from collections.abc import Mapping
from typing import Any

from numazones.apimachinery import quantity
from numazones.kubelet.config import KubeletConfiguration, reservations
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.versions import REFERENCE, release

# The vectors were made with these gates on; a scenario's own featureGates come on top.
_GATES = {
    "CPUManagerPolicyAlphaOptions": True,
    "CPUManagerPolicyBetaOptions": True,
    "TopologyManagerPolicyAlphaOptions": True,
    "TopologyManagerPolicyBetaOptions": True,
}

_STRINGS = {"*": str}
FORM = {
    "machine": {
        "cpus": [{"cpu": int, "core": int, "socket": int, "numa": int, "uncore?": int}],
        "numa": [{"id": int, "memory": int, "hugepages?": {"*": int}, "distances?": [int]}],
    },
    "kubelet": {
        "version?": str,
        "featureGates?": {"*": bool},
        "cpuManagerPolicy?": str,
        "cpuManagerPolicyOptions?": _STRINGS,
        "reservedSystemCPUs?": str,
        "memoryManagerPolicy?": str,
        "reservedMemory?": [{}],
        "topologyManagerPolicy?": str,
        "topologyManagerScope?": str,
        "topologyManagerPolicyOptions?": _STRINGS,
    },
    "devices?": {"*": [{"id": str, "numa?": [int], "healthy?": bool}]},
    "steps?": [{"op?": str, "pod?": {}, "uid?": str}],
}
"""What every scenario of the kubelet looks like (``form``)."""
STEPS = {"admit": ("pod",), "remove": ("uid",)}
"""Operation → the fields that it needs."""


def machine(description: Mapping[str, Any]) -> Machine:
    """The hardware of a scenario."""
    return Machine(
        cpus=tuple(
            [
                CPU(cpu["cpu"], cpu["core"], cpu["socket"], 0, cpu["numa"], cpu.get("uncore"))
                for cpu in description["cpus"]
            ]
        ),
        numa_nodes=tuple(
            NUMANode(
                id=node["id"],
                memory=node["memory"],
                hugepages=tuple((int(size), pages) for size, pages in (node.get("hugepages") or {}).items()),
                distances=None if node.get("distances") is None else tuple(node["distances"]),
            )
            for node in description["numa"]
        ),
    )


def devices(description: Mapping[str, Any]) -> dict[str, tuple[Device, ...]]:
    """The devices of a scenario."""
    return {
        name: tuple(
            Device(item["id"], tuple(item.get("numa") or ()), item.get("healthy", True)) for item in items
        )
        for name, items in (description or {}).items()
    }


def configuration(kubelet: Mapping[str, Any]) -> KubeletConfiguration:
    """The configuration of a scenario; the memory reserved in total is what ``reservedMemory`` adds up to.

    Vectors that name no version are of 1.36.
    """
    gates = {**_GATES, **(kubelet.get("featureGates") or {})}
    return KubeletConfiguration(
        release=release(kubelet.get("version") or f"1.{REFERENCE}"),
        cpu_manager_policy=kubelet.get("cpuManagerPolicy") or "none",
        cpu_manager_policy_options=_options(kubelet, "cpuManagerPolicyOptions"),
        reserved_system_cpus=kubelet.get("reservedSystemCPUs") or "",
        reserved_cpu=quantity.parse(kubelet.get("reservedCPU") or "0"),
        memory_manager_policy=kubelet.get("memoryManagerPolicy") or "None",
        reserved_memory=reservations(kubelet.get("reservedMemory") or ()),
        topology_manager_policy=kubelet.get("topologyManagerPolicy") or "none",
        topology_manager_scope=kubelet.get("topologyManagerScope") or "container",
        topology_manager_policy_options=_options(kubelet, "topologyManagerPolicyOptions"),
        feature_gates=tuple(sorted(gates.items())),
    )


def node(scenario: Mapping[str, Any]) -> Node:
    """The node of a scenario before its first step.

    Raises:
        InvalidConfiguration: the kubelet would not start; the message is its own.
    """
    return Node.fresh(
        machine(scenario["machine"]),
        configuration(scenario["kubelet"]),
        devices(scenario.get("devices") or {}),
    )


def _options(kubelet: Mapping[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((kubelet.get(name) or {}).items()))
