"""The state files of a simulated kubelet, as the three managers keep them on disk.

Written the way the kubelet writes them (temporary file, then rename) and only when their content changed, so
that readers which wait for file events see what they would see on a node. A kubelet that starts again reads
them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from numazones import cpuset
from numazones.kubelet.checkpoints import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_MANAGER_STATE,
    DeviceManagerCheckpoint,
    InvalidCheckpoint,
    PodDevices,
    dump_cpu_manager_state,
    dump_device_manager_state,
    dump_memory_manager_state,
    parse_cpu_manager_state,
    parse_device_manager_state,
    parse_memory_manager_state,
)
from numazones.kubelet.device_manager import NO_NUMA, DeviceResource
from numazones.kubelet.node import Node
from numazones.kubelet.state_validation import Refusal
from numazones.kubelet.versions import STATE_FILES_REPEATED
from numazones_simulator.kubelet.kubelet import (
    RefusesToStart,
    StateFiles,
    cpu_manager_state,
    memory_manager_state,
)

DEVICE_PLUGINS = "device-plugins"

_Content = TypeVar("_Content")


class KubeletFiles:
    """The files below a kubelet's root directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[str, bytes] = {}
        (directory / DEVICE_PLUGINS).mkdir(parents=True, exist_ok=True)

    def read(self) -> StateFiles:
        """Return what the files hold, as a kubelet that starts reads them.

        Raises:
            RefusesToStart: a file of the CPU or Memory Manager is damaged; without the devices' it starts.
        """
        self._written.clear()  # whatever has been done to the files, they are written again
        try:
            devices = self._parsed(f"{DEVICE_PLUGINS}/{DEVICE_CHECKPOINT}", parse_device_manager_state)
        except InvalidCheckpoint:
            devices = None
        return StateFiles(
            self._required(CPU_MANAGER_STATE, parse_cpu_manager_state),
            self._required(MEMORY_MANAGER_STATE, parse_memory_manager_state),
            devices or DeviceManagerCheckpoint(),
        )

    def _required(self, name: str, parse: Callable[[bytes], _Content]) -> _Content | None:
        try:
            return self._parsed(name, parse)
        except InvalidCheckpoint as error:
            message = f"could not restore state from checkpoint: {error}"
            raise RefusesToStart([Refusal(message, name)]) from error

    def _parsed(self, name: str, parse: Callable[[bytes], _Content]) -> _Content | None:
        try:
            return parse((self._directory / name).read_bytes())
        except FileNotFoundError:
            return None

    def write(self, node: Node) -> None:
        """Bring the files up to date with what the node has assigned."""
        repeated = node.config.release.follows(STATE_FILES_REPEATED)
        cpus, memory = cpu_manager_state(node), memory_manager_state(node)
        self._replace(CPU_MANAGER_STATE, dump_cpu_manager_state(cpus, repeated=repeated))
        self._replace(MEMORY_MANAGER_STATE, dump_memory_manager_state(memory, repeated=repeated))
        self._replace(
            f"{DEVICE_PLUGINS}/{DEVICE_CHECKPOINT}", dump_device_manager_state(device_manager_state(node))
        )

    def _replace(self, name: str, content: bytes) -> None:
        if self._written.get(name) == content:
            return
        path = self._directory / name
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
        self._written[name] = content


def device_manager_state(node: Node) -> DeviceManagerCheckpoint:
    """The device manager's checkpoint of a node."""
    resources = node.kubelet.devices.resources
    return DeviceManagerCheckpoint(
        entries=tuple(
            PodDevices(uid, container, resource, _by_numa(resources[resource], devices))
            for uid, containers in node.devices.assignments.items()
            for container, held in containers.items()
            for resource, devices in held.items()
        ),
        registered={
            name: resource.ids(resource.healthy)
            for name, resource in resources.items()
            if resource.registered
        },
    )


def _by_numa(resource: DeviceResource, devices: int) -> dict[int, tuple[str, ...]]:
    """NUMA id → devices; a device of several NUMA nodes is listed under each."""
    found: dict[int, list[str]] = {}
    for number in cpuset.ids(devices):
        device = resource.devices[number]
        for numa in device.numa or (NO_NUMA,):
            found.setdefault(numa, []).append(device.id)
    return {numa: tuple(ids) for numa, ids in sorted(found.items())}
