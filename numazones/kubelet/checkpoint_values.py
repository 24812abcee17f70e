"""Values of the kubelet's three state files; ``checkpoints`` reads and writes them.

Fields follow the Go types of kubelet 1.36 (``cpumanager/state``, ``memorymanager/state``,
``devicemanager/checkpoint``); CPU sets and NUMA node lists are masks, amounts are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones.cpuset import CPUSet
from numazones.kubelet.machine import mask_of
from numazones.kubelet.machine_state import Block, MachineState

NO_NUMA = -1
"""Stands for the NUMA node of devices without topology information."""


@dataclass(frozen=True, slots=True)
class CPUManagerCheckpoint:
    """Content of ``cpu_manager_state``."""

    policy: str
    default: CPUSet
    entries: Mapping[str, Mapping[str, CPUSet]] = field(default_factory=dict)
    """Pod uid → container → exclusive CPUs."""
    pod_entries: Mapping[str, CPUSet] = field(default_factory=dict)
    """Pod uid → CPUs of the pod as a whole."""
    pod_level: bool = False
    """Whether the file has the V3 form or a later one, which know pod-level CPUs."""


@dataclass(frozen=True, slots=True)
class MemoryManagerCheckpoint:
    """Content of ``memory_manager_state``."""

    policy: str
    machine: MachineState
    entries: Mapping[str, Mapping[str, tuple[Block, ...]]] = field(default_factory=dict)
    """Pod uid → container → blocks."""
    pod_entries: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Pod uid → blocks of the pod as a whole."""
    pod_level: bool = False
    """Whether the file has the V2 form or a later one, which know pod-level memory."""


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices of one resource that a container holds."""

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]
    """NUMA id (or ``NO_NUMA``) → ids; a device of several NUMA nodes is listed under each."""
    response: bytes | None = b""
    """The plugin's ContainerAllocateResponse as protobuf."""

    def numa_of(self) -> dict[str, int]:
        """Return device id → mask of its NUMA nodes, 0 for none."""
        masks: dict[str, int] = {}
        for numa, ids in self.devices.items():
            for device in ids:
                masks[device] = masks.get(device, 0) | (0 if numa == NO_NUMA else mask_of([numa]))
        return masks


@dataclass(frozen=True, slots=True)
class DeviceManagerCheckpoint:
    """Content of ``kubelet_internal_checkpoint``."""

    entries: tuple[PodDevices, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Resource → ids of its healthy devices."""
