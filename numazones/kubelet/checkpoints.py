"""The kubelet's state files: CPU manager, memory manager and device manager, read and written exactly.

``cpu_manager_state`` and ``memory_manager_state`` lie in the kubelet's root directory,
``kubelet_internal_checkpoint`` in its ``device-plugins`` folder. All are one line of JSON that Go wrote,
with a checksum over the Go values (see ``checkpoint_dump``). Formats are those of kubelet 1.36
(``cpumanager/state``, ``memorymanager/state``, ``devicemanager/checkpoint``). The CPU file has a second
version with container names (V2, kubelet 1.18) and a third with pod-level sets (V3, feature gate
PodLevelResourceManagers); the memory file likewise V1 and V2. A file does not say its version, so what
is accepted is a checksum that fits one of them. Kubelet 1.37 adds one more version to both (CPU V4,
memory V3): all content once more as text, with a checksum of its own, after what older kubelets read.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from numazones import cpuset
from numazones.apimachinery.documents import OBJECT, UnreadableDocument, read_json
from numazones.cpuset import CPUSet
from numazones.errors import NumazonesError
from numazones.kubelet import checkpoint_dump, cures
from numazones.kubelet.checkpoint_dump import checksum
from numazones.kubelet.checkpoint_values import (
    NO_NUMA,
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
    PodDevices,
)
from numazones.kubelet.machine import mask_of
from numazones.kubelet.machine_state import Block, MemoryTable, NUMANodeState

__all__ = [
    "CPU_MANAGER_STATE",
    "DEVICE_CHECKPOINT",
    "MEMORY_MANAGER_STATE",
    "NO_NUMA",
    "CPUManagerCheckpoint",
    "DeviceManagerCheckpoint",
    "InvalidCheckpoint",
    "MemoryManagerCheckpoint",
    "PodDevices",
    "WrongChecksum",
    "dump_cpu_manager_state",
    "dump_device_manager_state",
    "dump_memory_manager_state",
    "parse_cpu_manager_state",
    "parse_device_manager_state",
    "parse_memory_manager_state",
]

CPU_MANAGER_STATE = "cpu_manager_state"
MEMORY_MANAGER_STATE = "memory_manager_state"
DEVICE_CHECKPOINT = "kubelet_internal_checkpoint"

_UINT64 = 1 << 64
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_T = TypeVar("_T")


class InvalidCheckpoint(NumazonesError):
    """A state file cannot be used; the message names the file and the cure."""

    def __init__(self, file: str, problem: str, *, cure: str = "") -> None:
        """Describe the problem; the usual cure is to let the kubelet write the file again."""
        super().__init__(f"{file}: {problem}; {cure or cures.DAMAGED_FILE}")
        self.file = file


class WrongChecksum(InvalidCheckpoint):
    """The content of a state file does not match its checksum."""

    def __init__(self, file: str, *, stored: int, computed: int) -> None:
        """Describe the error with both checksums."""
        super().__init__(
            file, f"the stored checksum {stored} does not match the content, whose checksum is {computed}"
        )
        self.stored = stored
        self.computed = computed


def parse_cpu_manager_state(blob: bytes) -> CPUManagerCheckpoint:
    """Read ``cpu_manager_state`` in its second, third or fourth version.

    Raises:
        InvalidCheckpoint: no JSON, a field of the wrong type, a bad CPU list, the first version, or CPUs
            of containers that are resized in place.
        WrongChecksum: something other than the kubelet changed the content.
    """
    reader = _Reader(CPU_MANAGER_STATE)
    fields, verified = reader.content(blob)
    if fields.get("allocations"):
        raise InvalidCheckpoint(
            CPU_MANAGER_STATE,
            "allocations contain CPUs of containers that are resized in place "
            "(feature gate InPlacePodVerticalScalingExclusiveCPUs), which is not modelled",
            cure=cures.NO_EXCLUSIVE_RESIZE,
        )
    policy = reader.text(fields.get("policyname"), "policyName")
    default = reader.text(fields.get("defaultcpuset"), "defaultCpuSet")
    entries = reader.mapping(fields.get("entries"), "entries")
    if any(isinstance(value, str) for value in entries.values()):
        raise InvalidCheckpoint(
            CPU_MANAGER_STATE,
            "entries are in the V1 format of kubelets before 1.18, which lists container ids instead of pods",
            cure=cures.without_state_file("the node", cures.CPU_STATE_FILE),
        )
    containers = {
        uid: {
            name: reader.text(cpus, f"entries.{uid}.{name}")
            for name, cpus in reader.mapping(value, f"entries.{uid}").items()
        }
        for uid, value in entries.items()
    }
    pods = {
        uid: reader.text(reader.fields(value, f"podEntries.{uid}").get("cpuset"), f"podEntries.{uid}.cpuSet")
        for uid, value in reader.mapping(fields.get("podentries"), "podEntries").items()
    }
    parsed_pods = {uid: reader.cpus(text, f"podEntries.{uid}") for uid, text in pods.items()}
    older = checkpoint_dump.cpu_manager(policy, default, containers)
    newer = checkpoint_dump.cpu_manager(policy, default, containers, parsed_pods)
    pod_level = verified or reader.verify(fields, older=None if pods else older, newer=newer)
    reader.require_policy(policy)
    return CPUManagerCheckpoint(
        policy=policy,
        default=reader.cpus(default, "defaultCpuSet"),
        entries={
            uid: {name: reader.cpus(text, f"entries.{uid}.{name}") for name, text in values.items()}
            for uid, values in containers.items()
        },
        pod_entries=parsed_pods,
        pod_level=pod_level,
    )


def dump_cpu_manager_state(state: CPUManagerCheckpoint, *, repeated: bool = False) -> bytes:
    """Write ``cpu_manager_state`` as the kubelet does.

    ``repeated``: as kubelets from 1.37 on do.
    """
    if repeated:
        return _repeated(dump_cpu_manager_state, state)
    containers = {
        uid: {name: cpuset.format(cpus) for name, cpus in values.items()}
        for uid, values in state.entries.items()
    }
    default = cpuset.format(state.default)
    document: dict[str, Any] = {"policyName": state.policy, "defaultCpuSet": default}
    if containers:
        document["entries"] = containers
    if state.pod_level and state.pod_entries:
        document["podEntries"] = {
            uid: {"cpuSet": cpuset.format(cpus)} if cpus else {} for uid, cpus in state.pod_entries.items()
        }
    pods = state.pod_entries if state.pod_level else None
    text = checkpoint_dump.cpu_manager(state.policy, default, containers, pods)
    return _go_json(document | {"checksum": checksum(text)})


def parse_memory_manager_state(blob: bytes) -> MemoryManagerCheckpoint:
    """Read ``memory_manager_state`` in its first, second or third version.

    Raises:
        InvalidCheckpoint: no JSON or a field of the wrong type.
        WrongChecksum: something other than the kubelet changed the content.
    """
    reader = _Reader(MEMORY_MANAGER_STATE)
    fields, verified = reader.content(blob)
    policy = reader.text(fields.get("policyname"), "policyName")
    machine = {
        reader.numa_id(key, "machineState"): _node_state(reader, value, f"machineState.{key}")
        for key, value in reader.mapping(fields.get("machinestate"), "machineState").items()
    }
    entries = {
        uid: {
            name: _blocks(reader, blocks, f"entries.{uid}.{name}")
            for name, blocks in reader.mapping(value, f"entries.{uid}").items()
        }
        for uid, value in reader.mapping(fields.get("entries"), "entries").items()
    }
    pods = {
        uid: _blocks(
            reader, reader.fields(value, f"podEntries.{uid}").get("memoryblocks"), f"podEntries.{uid}"
        )
        for uid, value in reader.mapping(fields.get("podentries"), "podEntries").items()
    }
    older = checkpoint_dump.memory_manager(MemoryManagerCheckpoint(policy, machine, entries))
    newer_state = MemoryManagerCheckpoint(policy, machine, entries, pods, pod_level=True)
    newer = checkpoint_dump.memory_manager(newer_state)
    pod_level = verified or reader.verify(fields, older=None if pods else older, newer=newer)
    reader.require_policy(policy)
    return newer_state if pod_level else MemoryManagerCheckpoint(policy, machine, entries)


def dump_memory_manager_state(state: MemoryManagerCheckpoint, *, repeated: bool = False) -> bytes:
    """Write ``memory_manager_state`` as the kubelet does; arguments as for ``dump_cpu_manager_state``."""
    if repeated:
        return _repeated(dump_memory_manager_state, state)
    document: dict[str, Any] = {
        "policyName": state.policy,
        "machineState": {str(numa): _node_document(node) for numa, node in state.machine.items()},
    }
    if state.entries:
        document["entries"] = {
            uid: {name: [_block_document(block) for block in blocks] for name, blocks in values.items()}
            for uid, values in state.entries.items()
        }
    if state.pod_level and state.pod_entries:
        document["podEntries"] = {
            uid: {"memoryBlocks": [_block_document(block) for block in blocks]} if blocks else {}
            for uid, blocks in state.pod_entries.items()
        }
    return _go_json(document | {"checksum": checksum(checkpoint_dump.memory_manager(state))})


def parse_device_manager_state(blob: bytes) -> DeviceManagerCheckpoint:
    """Read ``kubelet_internal_checkpoint``.

    Raises:
        InvalidCheckpoint: no JSON or a field of the wrong type.
        WrongChecksum: something other than the kubelet changed the content.
    """
    reader = _Reader(DEVICE_CHECKPOINT)
    fields = reader.document(blob)
    data = reader.fields(fields.get("data"), "Data")
    raw_entries = data.get("poddeviceentries")
    raw_registered = data.get("registereddevices")
    entries = tuple(
        _pod_devices(reader, value, f"Data.PodDeviceEntries[{index}]")
        for index, value in enumerate(reader.sequence(raw_entries, "Data.PodDeviceEntries"))
    )
    registered = {
        resource: reader.texts(ids, f"Data.RegisteredDevices.{resource}")
        for resource, ids in reader.mapping(raw_registered, "Data.RegisteredDevices").items()
    }
    state = DeviceManagerCheckpoint(entries, registered)
    text = checkpoint_dump.device_manager(
        state, no_entries=raw_entries is None, no_registered=raw_registered is None
    )
    stored = reader.stored_checksum(fields)
    if stored != checksum(text):
        raise WrongChecksum(DEVICE_CHECKPOINT, stored=stored, computed=checksum(text))
    return state


def dump_device_manager_state(state: DeviceManagerCheckpoint) -> bytes:
    """Write ``kubelet_internal_checkpoint`` as the kubelet does."""
    entries = [
        {
            "PodUID": entry.pod_uid,
            "ContainerName": entry.container,
            "ResourceName": entry.resource,
            "DeviceIDs": {str(numa): list(ids) for numa, ids in entry.devices.items()},
            "AllocResp": None if entry.response is None else base64.b64encode(entry.response).decode(),
        }
        for entry in state.entries
    ]
    registered = {resource: list(ids) for resource, ids in state.registered.items()}
    text = checkpoint_dump.device_manager(state)
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    return _go_json({"Data": data, "Checksum": checksum(text)})


def _node_state(reader: "_Reader", value: Any, where: str) -> NUMANodeState:
    fields = reader.fields(value, where)
    tables = reader.mapping(fields.get("memorymap"), f"{where}.memoryMap")
    return NUMANodeState(
        assignments=reader.integer(fields.get("numberofassignments"), f"{where}.numberOfAssignments"),
        memory={name: _table(reader, table, f"{where}.memoryMap.{name}") for name, table in tables.items()},
        cells=reader.numa_mask(fields.get("cells"), f"{where}.cells"),
    )


def _table(reader: "_Reader", value: Any, where: str) -> MemoryTable:
    fields = reader.fields(value, where)
    names = ("total", "systemReserved", "allocatable", "reserved", "free")
    return MemoryTable(*(reader.integer(fields.get(name.lower()), f"{where}.{name}") for name in names))


def _blocks(reader: "_Reader", value: Any, where: str) -> tuple[Block, ...]:
    blocks = []
    for index, block in enumerate(reader.sequence(value, where)):
        fields = reader.fields(block, f"{where}[{index}]")
        blocks.append(
            Block(
                affinity=reader.numa_mask(fields.get("numaaffinity"), f"{where}[{index}].numaAffinity"),
                type=reader.text(fields.get("type"), f"{where}[{index}].type"),
                size=reader.integer(fields.get("size"), f"{where}[{index}].size"),
            )
        )
    return tuple(blocks)


def _pod_devices(reader: "_Reader", value: Any, where: str) -> PodDevices:
    fields = reader.fields(value, where)
    return PodDevices(
        pod_uid=reader.text(fields.get("poduid"), f"{where}.PodUID"),
        container=reader.text(fields.get("containername"), f"{where}.ContainerName"),
        resource=reader.text(fields.get("resourcename"), f"{where}.ResourceName"),
        devices={
            reader.numa_id(key, f"{where}.DeviceIDs"): reader.texts(ids, f"{where}.DeviceIDs.{key}")
            for key, ids in reader.mapping(fields.get("deviceids"), f"{where}.DeviceIDs").items()
        },
        response=reader.binary(fields.get("allocresp"), f"{where}.AllocResp"),
    )


def _node_document(node: NUMANodeState) -> dict[str, Any]:
    return {
        "numberOfAssignments": node.assignments,
        "memoryMap": {
            name: {
                "total": table.total,
                "systemReserved": table.system_reserved,
                "allocatable": table.allocatable,
                "reserved": table.reserved,
                "free": table.free,
            }
            for name, table in sorted(node.memory.items())
        },
        "cells": list(cpuset.ids(node.cells)),
    }


def _block_document(block: Block) -> dict[str, Any]:
    return {"numaAffinity": list(cpuset.ids(block.affinity)), "type": block.type, "size": block.size}


# Structures keep the order of Go's fields, maps are sorted by key: these are the maps.
_MAPS = frozenset({"entries", "podEntries", "machineState", "memoryMap", "DeviceIDs", "RegisteredDevices"})


_State = TypeVar("_State", CPUManagerCheckpoint, MemoryManagerCheckpoint)


def _repeated(dump: Callable[[_State], bytes], state: _State) -> bytes:
    """Return what older kubelets read, without pod-level entries, and then all content as text."""
    content = json.loads(dump(state))
    del content["checksum"]
    data = _go_json(content).decode()
    legacy: dict[str, Any] = json.loads(dump(replace(state, pod_entries={}, pod_level=False)))
    return _go_json(legacy | {"data": data, "dataChecksum": checksum(checkpoint_dump.text(data))})


def _go_json(document: Mapping[str, Any]) -> bytes:
    """Encode as Go's encoding/json does: compact, maps sorted by key, HTML characters escaped."""
    text = json.dumps(_sorted_maps(document), separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _sorted_maps(document: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in document.items():
        if key in _MAPS:
            result[key] = _sort_maps(value, depth=2 if key == "entries" else 1)
        elif key == "Data":
            result[key] = _sorted_maps(value)
        elif key == "PodDeviceEntries":
            result[key] = [_sorted_maps(entry) for entry in value]
        else:
            result[key] = value
    return result


def _sort_maps(value: Mapping[str, Any], *, depth: int) -> dict[str, Any]:
    return {
        key: _sort_maps(value[key], depth=depth - 1) if depth > 1 else value[key]
        for key in sorted(value, key=str.encode)
    }


class _Reader:
    """Checks types the way Go's decoder does and names the place that is wrong."""

    def __init__(self, file: str) -> None:
        self._file = file

    def document(self, blob: bytes) -> dict[str, Any]:
        """Decode the file, with field names in lower case, because Go matches them in any case."""
        if not blob.strip():
            raise InvalidCheckpoint(self._file, "the file is empty")
        try:
            value = read_json(blob, OBJECT)
        except UnreadableDocument as error:
            raise InvalidCheckpoint(self._file, f"the file is truncated or not JSON ({error})") from error
        return self.fields(value, "the file")

    def content(self, blob: bytes) -> tuple[dict[str, Any], bool]:
        """Decode a file whose content kubelets from 1.37 on repeat in ``data``, as text with a checksum.

        ``data`` is what they read; the fields beside it are for older kubelets. True: it was there, and fits.
        """
        fields = self.document(blob)
        data = self.text(fields.get("data"), "data")
        stored = self.integer(fields.get("datachecksum"), "dataChecksum")
        if not data and not stored:
            return fields, False
        computed = checksum(checkpoint_dump.text(data))
        if stored != computed:
            raise WrongChecksum(self._file, stored=stored, computed=computed)
        return self.document(data.encode()), True

    def fields(self, value: Any, where: str) -> dict[str, Any]:
        return {key.lower(): item for key, item in self.mapping(value, where).items()}

    def mapping(self, value: Any, where: str) -> dict[str, Any]:
        return self._require_type(value, dict, {}, where, "an object")

    def sequence(self, value: Any, where: str) -> list[Any]:
        return self._require_type(value, list, [], where, "a list")

    def text(self, value: Any, where: str) -> str:
        return self._require_type(value, str, "", where, "a string")

    def texts(self, value: Any, where: str) -> tuple[str, ...]:
        return tuple(
            self.text(item, f"{where}[{index}]") for index, item in enumerate(self.sequence(value, where))
        )

    def integer(self, value: Any, where: str) -> int:
        number = self._require_type(value, int, 0, where, "an integer")
        if isinstance(value, bool) or not 0 <= number < _UINT64:
            raise InvalidCheckpoint(self._file, f"{where} must be an unsigned 64-bit integer, not {value}")
        return number

    def numa_id(self, key: str, where: str) -> int:
        """Read a key; ids that no machine has are kept, since a plugin may name them."""
        if not _INTEGER.fullmatch(key):
            raise InvalidCheckpoint(self._file, f"{where} has the key {key!r}, which is not a NUMA node id")
        return int(key)

    def numa_mask(self, value: Any, where: str) -> int:
        ids = [self._require_type(item, int, 0, where, "an integer") for item in self.sequence(value, where)]
        return mask_of(ids)

    def cpus(self, text: str, where: str) -> CPUSet:
        try:
            return cpuset.parse(text)
        except cpuset.InvalidCPUSet as error:
            raise InvalidCheckpoint(self._file, f"{where}: {error}") from error

    def binary(self, value: Any, where: str) -> bytes | None:
        if value is None:
            return None
        try:
            return base64.b64decode(self.text(value, where), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCheckpoint(self._file, f"{where} must be base64 ({error})") from error

    def stored_checksum(self, fields: Mapping[str, Any]) -> int:
        return self.integer(fields.get("checksum"), "checksum")

    def verify(self, fields: Mapping[str, Any], *, older: str | None, newer: str) -> bool:
        """Compare the checksum with the older and the newer form; return whether the newer one fits.

        The older form may have no checksum at all (0).
        """
        stored = self.stored_checksum(fields)
        if older is not None and stored in {0, checksum(older)}:
            return False
        if stored == checksum(newer):
            return True
        raise WrongChecksum(self._file, stored=stored, computed=checksum(newer if older is None else older))

    def require_policy(self, policy: str) -> None:
        """Reject a file without a policy: the kubelet always writes one, and starts with its own only."""
        if not policy:
            raise InvalidCheckpoint(self._file, "policyName is missing")

    def _require_type(self, value: Any, kind: type[_T], absent: _T, where: str, noun: str) -> _T:
        if value is None:
            return absent
        if not isinstance(value, kind):
            raise InvalidCheckpoint(self._file, f"{where} must be {noun}, not {value!r:.60}")
        return value
