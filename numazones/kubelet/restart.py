"""A node as its kubelet finds it after a restart: from the three state files.

The second source of a node's state beside NUMAZone objects (``numazones.api.zones``). Entries of pods
that have ended are taken as they are; remove them with ``admission.remove``, as the kubelet does at its
next admission. Rules: start of the CPU and Memory Manager of kubelet 1.36, which a state file of another
policy keeps from starting.
"""

from collections.abc import Iterable, Mapping

from numazones.kubelet.checkpoint_values import (
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
)
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import InvalidNodeState, Node
from numazones.kubelet.startup import KubeletManagers


def node_from_checkpoints(
    machine: Machine,
    config: KubeletConfiguration,
    devices: Mapping[str, Iterable[Device]],
    *,
    cpus: CPUManagerCheckpoint,
    memory: MemoryManagerCheckpoint,
    held: DeviceManagerCheckpoint,
) -> Node:
    """Restore a node from what its kubelet's three state files hold.

    Args:
        machine: the hardware, as the kubelet sees it.
        config: the kubelet's configuration.
        devices: resource → what the plugins announce, which no file tells.
        cpus: what ``numazones.kubelet.checkpoints`` reads of cpu_manager_state.
        memory: the same of memory_manager_state.
        held: the same of kubelet_internal_checkpoint.

    Raises:
        InvalidNodeState: a file is of another policy than the configuration, or no kubelet on this
            machine can have such a state.
        InvalidConfiguration, InvalidMachine, InvalidDevices: as for ``Node.fresh``.

    >>> from numazones import build, cpuset
    >>> node = node_from_checkpoints(
    ...     build.machine(cores=4, threads=1, memory="8Gi"),
    ...     build.configuration({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}),
    ...     devices={},
    ...     cpus=CPUManagerCheckpoint("static", cpuset.parse("0-1"), {"uid": {"main": cpuset.parse("2-3")}}),
    ...     memory=MemoryManagerCheckpoint("None", {}),
    ...     held=DeviceManagerCheckpoint(),
    ... )
    >>> cpuset.format(node.cpus.default)
    '0-1'
    """
    _check_policy("cpu_manager_state", cpus.policy, config.cpu_manager_policy)
    _check_policy("memory_manager_state", memory.policy, config.memory_manager_policy)
    assignments: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
    for entry in held.entries:
        containers = assignments.setdefault(entry.pod_uid, {})
        containers.setdefault(entry.container, {})[entry.resource] = tuple(sorted(entry.numa_of()))
    return Node.restore(
        KubeletManagers.start(config, machine, devices),
        default_cpus=cpus.default if cpus.policy == "static" else None,
        cpu_assignments=cpus.entries,
        machine_state=memory.machine if memory.policy == "Static" else None,
        memory_assignments=memory.entries,
        cpu_pods=cpus.pod_entries,
        memory_pods=memory.pod_entries,
        device_assignments=assignments,
    )


def _check_policy(file: str, found: str, configured: str) -> None:
    if found != configured:
        raise InvalidNodeState(
            f"{file} was written under policy {found!r}, but the kubelet is configured for {configured!r} "
            "and would not start: drain the node and remove the file"
        )
