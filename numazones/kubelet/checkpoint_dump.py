"""The text over which the kubelet computes the checksum of a state file.

The kubelet hashes a dump of its Go values (``k8s.io/utils/dump.ForHash`` over the spew library) with
32-bit FNV-1a, so Go's type and field names are part of the number. Only the shapes that occur in the
three state files are written here. The rules, of kubelet 1.36: structs are
``{Field:(gotype)value …}`` in field order, maps ``map[k:v …]`` with keys sorted, slices ``[a b]``,
elements of maps and slices untyped, pointers ``(*type)`` on top and ``<*>`` inside maps, nil ``<nil>``.
"""

from collections.abc import Iterable, Mapping

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet.checkpoint_values import DeviceManagerCheckpoint, MemoryManagerCheckpoint, PodDevices
from numazones.kubelet.machine import NOWHERE
from numazones.kubelet.machine_state import Block, NUMANodeState

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF

_NO_CHECKSUM = "Checksum:(checksum.Checksum)0"


def checksum(text: str) -> int:
    """Return the 32-bit FNV-1a hash of a dump."""
    value = _OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _PRIME & _MASK
    return value


def text(data: str) -> str:
    """Dump a text: what kubelets from 1.37 on keep in ``data``."""
    return f"(string){data}"


def cpu_manager(
    policy: str,
    default: str,
    entries: Mapping[str, Mapping[str, str]],
    pod_entries: Mapping[str, CPUSet] | None = None,
) -> str:
    """Dump a CPU manager checkpoint; CPU lists as they stand in the file."""
    fields = [
        f"PolicyName:(string){policy}",
        f"DefaultCPUSet:(string){default}",
        f"Entries:(map[string]map[string]string){_map({uid: _map(names) for uid, names in entries.items()})}",
    ]
    if pod_entries is not None:
        pods = _map({uid: _cpu_pod_entry(cpus) for uid, cpus in pod_entries.items()})
        fields.append(f"PodEntries:(state.PodCPUAssignments){pods}")
    return f"(*state.CPUManagerCheckpoint){{{' '.join([*fields, _NO_CHECKSUM])}}}"


def memory_manager(state: MemoryManagerCheckpoint) -> str:
    """Dump a memory manager checkpoint."""
    machine = _map({numa: _node(state.machine[numa]) for numa in sorted(state.machine)})
    entries = _map(
        {
            uid: _map({name: _blocks(blocks) for name, blocks in names.items()})
            for uid, names in state.entries.items()
        }
    )
    fields = [
        f"PolicyName:(string){state.policy}",
        f"MachineState:(state.NUMANodeMap){machine}",
        f"Entries:(state.ContainerMemoryAssignments){entries}",
    ]
    if state.pod_level:
        pods = _map({uid: _memory_pod_entry(blocks) for uid, blocks in state.pod_entries.items()})
        fields.append(f"PodEntries:(state.PodMemoryAssignments){pods}")
    return f"(*state.MemoryManagerCheckpoint){{{' '.join([*fields, _NO_CHECKSUM])}}}"


def device_manager(
    state: DeviceManagerCheckpoint, *, no_entries: bool = False, no_registered: bool = False
) -> str:
    """Dump a device manager checkpoint; absent lists and maps differ from empty ones."""
    entries = "<nil>" if no_entries else _list(_pod_devices(entry) for entry in state.entries)
    registered = _map({resource: _list(ids) for resource, ids in state.registered.items()})
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){'<nil>' if no_registered else registered}}}"
    )


def _cpu_pod_entry(cpus: CPUSet) -> str:
    elements = _map(dict.fromkeys(cpuset.ids(cpus), "{}"))
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){elements}}}}}"


def _memory_pod_entry(blocks: tuple[Block, ...]) -> str:
    return f"{{Blocks:([]state.Block){_blocks(blocks) if blocks else '<nil>'}}}"


def _node(node: NUMANodeState) -> str:
    tables = _map(
        {
            name: (
                f"<*>{{TotalMemSize:(uint64){table.total} SystemReserved:(uint64){table.system_reserved} "
                f"Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} "
                f"Free:(uint64){table.free}}}"
            )
            for name, table in node.memory.items()
        }
    )
    return (
        f"<*>{{NumberOfAssignments:(int){node.assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} "
        f"Cells:([]int){_numas(node.cells)}}}"
    )


def _blocks(blocks: tuple[Block, ...]) -> str:
    return _list(
        f"{{NUMAAffinity:([]int){_numas(block.affinity)} "
        f"Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
        for block in blocks
    )


def _pod_devices(entry: PodDevices) -> str:
    devices = _map({numa: _list(entry.devices[numa]) for numa in sorted(entry.devices)})
    response = "<nil>" if entry.response is None else _list(map(str, entry.response))
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA){devices} "
        f"AllocResp:([]uint8){response}}}"
    )


def _numas(mask: int) -> str:
    return _list(map(str, sorted(-1 if numa == NOWHERE else numa for numa in cpuset.ids(mask))))


def _map(values: Mapping[int, str] | Mapping[str, str]) -> str:
    """Dump a map; text keys are sorted as Go sorts strings, numbers come in the caller's order."""
    pairs = sorted(values.items(), key=lambda pair: pair[0].encode() if isinstance(pair[0], str) else b"")
    return f"map[{' '.join(f'{key}:{value}' for key, value in pairs)}]"


def _list(values: Iterable[str]) -> str:
    return f"[{' '.join(values)}]"
