"""Assignments in the kubelet's state files, in the same form as podresources reports them.

Keys are pod uid and container name; pod-level entries (PodLevelResourceManagers) have the name "". Memory
blocks of size zero stay: the memory manager leaves them behind where a later container took over an init
container's memory, and counts them as assignments.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from numazones.api.snapshot import KnownDevice
from numazones.kubelet import checkpoints
from numazones.kubelet.machine_state import Block
from numazones_exporter.observation import ContainerResources, Observation

Assignments: TypeAlias = dict[str, dict[str, ContainerResources]]
"""Pod uid → container → what it holds."""

POD = ""
"""The container's name in what a pod holds as a whole."""


def state_file_assignments(observation: Observation) -> Assignments:
    """Join the three state files, as far as they could be read."""
    assignments: Assignments = {}
    if observation.cpu_manager is not None:
        _add_cpus(assignments, observation.cpu_manager)
    if observation.memory_manager is not None:
        _add_memory(assignments, observation.memory_manager)
    if observation.devices is not None:
        _add_devices(assignments, observation.devices)
    return assignments


def _add_cpus(assignments: Assignments, state: checkpoints.CPUManagerCheckpoint) -> None:
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            _add(assignments, uid, name, cpus=cpus)
    for uid, cpus in state.pod_entries.items():
        _add(assignments, uid, POD, cpus=cpus)


def _add_memory(assignments: Assignments, state: checkpoints.MemoryManagerCheckpoint) -> None:
    for uid, containers in state.entries.items():
        for name, blocks in containers.items():
            _add(assignments, uid, name, memory=_in_order(blocks))
    for uid, blocks in state.pod_entries.items():
        _add(assignments, uid, POD, memory=_in_order(blocks))


def _in_order(blocks: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(sorted(blocks, key=lambda block: (block.type, block.affinity, block.size)))


def _add_devices(assignments: Assignments, state: checkpoints.DeviceManagerCheckpoint) -> None:
    for entry in sorted(state.entries, key=lambda entry: (entry.pod_uid, entry.container, entry.resource)):
        known = assignments.get(entry.pod_uid, {}).get(entry.container)
        devices = [
            KnownDevice(entry.resource, device, numa) for device, numa in sorted(entry.numa_of().items())
        ]
        before = () if known is None else known.devices
        _add(assignments, entry.pod_uid, entry.container, devices=(*before, *devices))


def _add(assignments: Assignments, uid: str, name: str, **parts: Any) -> None:
    containers = assignments.setdefault(uid, {})
    containers[name] = replace(containers.get(name, ContainerResources(name, 0, (), ())), **parts)
