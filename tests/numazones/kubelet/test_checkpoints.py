"""The kubelet's state files: what is read, byte-for-byte writing, checksums, and every way to be wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet import checkpoint_dump
from numazones.kubelet.checkpoints import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_MANAGER_STATE,
    NO_NUMA,
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    InvalidCheckpoint,
    MemoryManagerCheckpoint,
    PodDevices,
    WrongChecksum,
    dump_cpu_manager_state,
    dump_device_manager_state,
    dump_memory_manager_state,
    parse_cpu_manager_state,
    parse_device_manager_state,
    parse_memory_manager_state,
)
from numazones.kubelet.machine import NOWHERE
from numazones.kubelet.machine_state import Block, MemoryTable, NUMANodeState
from tests.places import DATA

SAMPLE = DATA / "recordings"
FORMATS: dict[str, tuple[Callable[[bytes], Any], Callable[..., bytes]]] = {
    CPU_MANAGER_STATE: (parse_cpu_manager_state, dump_cpu_manager_state),
    MEMORY_MANAGER_STATE: (parse_memory_manager_state, dump_memory_manager_state),
    DEVICE_CHECKPOINT: (parse_device_manager_state, dump_device_manager_state),
}


def recorded(folder: Path, name: str) -> list[bytes]:
    files = [path.read_bytes() for path in sorted(folder.rglob(name))]
    assert files, f"no {name} below {folder}"
    return files


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_kubelet_wrote_is_written_again_byte_for_byte(name: str) -> None:
    parse, dump = FORMATS[name]
    for blob in recorded(SAMPLE, name):
        assert dump(parse(blob)) == blob


@pytest.mark.parametrize("name", FORMATS)
def test_so_is_what_all_recorded_kubelets_wrote(shared: Path, name: str) -> None:
    parse, dump = FORMATS[name]
    for blob in recorded(shared / "recordings", name):
        assert dump(parse(blob)) == blob


def test_cpu_manager_state_has_shared_and_container_cpus() -> None:
    text = (
        '{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"uid":{"app":"1-2","init":"1,3"}},'
        '"checksum":0}'
    )
    assert parse_cpu_manager_state(text.encode()) == CPUManagerCheckpoint(
        policy="static",
        default=cpuset.of([0, 4, 5, 6, 7]),
        entries={"uid": {"app": cpuset.of([1, 2]), "init": cpuset.of([1, 3])}},
    )


TABLE = '{"total":4,"systemReserved":1,"allocatable":3,"reserved":2,"free":1}'


def test_a_memory_manager_state_tells_tables_groups_and_blocks() -> None:
    text = (
        '{"policyName":"Static","machineState":{"1":{"numberOfAssignments":1,"memoryMap":{"memory":'
        + TABLE
        + '},"cells":[1,3]}},"entries":{"uid":{"app":[{"numaAffinity":[1,3],"type":"memory","size":2}]}},'
        '"checksum":0}'
    )
    assert parse_memory_manager_state(text.encode()) == MemoryManagerCheckpoint(
        policy="Static",
        machine={1: NUMANodeState(1, {"memory": MemoryTable(4, 1, 3, 2, 1)}, 0b1010)},
        entries={"uid": {"app": (Block(0b1010, "memory", 2),)}},
    )


def test_devices_are_listed_under_each_numa_node_or_minus_one() -> None:
    entry = PodDevices("uid", "app", "vendor.example/nic", {0: ("a", "b"), 1: ("a",), NO_NUMA: ("c",)})
    assert entry.numa_of() == {"a": 0b11, "b": 0b01, "c": 0}
    state = DeviceManagerCheckpoint((entry,), {"vendor.example/nic": ("a", "b", "c")})
    assert parse_device_manager_state(dump_device_manager_state(state)) == state


def test_an_empty_device_checkpoint_is_read_in_both_forms() -> None:
    empty = DeviceManagerCheckpoint()
    assert parse_device_manager_state(dump_device_manager_state(empty)) == empty
    text = checkpoint_dump.device_manager(empty, no_entries=True, no_registered=True)
    absent = {
        "Data": {"PodDeviceEntries": None, "RegisteredDevices": None},
        "Checksum": checkpoint_dump.checksum(text),
    }
    assert parse_device_manager_state(json.dumps(absent).encode()) == empty


def test_field_names_match_in_any_case_as_in_go() -> None:
    text = '{"POLICYNAME":"none","defaultcpuset":"0-3","Checksum":0}'
    assert parse_cpu_manager_state(text.encode()) == CPUManagerCheckpoint("none", 0b1111)


def test_the_checksum_is_that_of_a_kubelet() -> None:
    text = (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string)4-6 "
        "Entries:(map[string]map[string]string)map[] Checksum:(checksum.Checksum)0}"
    )
    assert checkpoint_dump.cpu_manager("none", "4-6", {}) == text
    assert checkpoint_dump.checksum(text) == 354655845


def test_pod_level_cpus_are_hashed_as_sets() -> None:
    assert checkpoint_dump.cpu_manager("static", "0", {}, {"uid": 0b110000}) == (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)static DefaultCPUSet:(string)0 "
        "Entries:(map[string]map[string]string)map[] "
        "PodEntries:(state.PodCPUAssignments)map[uid:{CPUSet:(cpuset.CPUSet)"
        "{elems:(map[int]struct {})map[4:{} 5:{}]}}] Checksum:(checksum.Checksum)0}"
    )


@pytest.mark.parametrize("pods", [{}, {"uid": 0b1100}])
def test_the_third_version_is_known_by_its_checksum(pods: dict[str, int]) -> None:
    state = CPUManagerCheckpoint("static", 0b11, {"uid": {"app": 0b1100}}, pods, pod_level=True)
    blob = dump_cpu_manager_state(state)
    assert (b"podEntries" in blob) == bool(pods)
    assert parse_cpu_manager_state(blob) == state


def of_1_37(blob: bytes, **more: Any) -> dict[str, Any]:
    """A file as kubelet 1.37 writes it: everything once more in ``data``; the fields beside it stay."""
    fields = json.loads(blob)
    checksum = fields.pop("checksum")
    data = json.dumps({**fields, **more})
    return {
        **fields,
        "checksum": checksum,
        "data": data,
        "dataChecksum": checkpoint_dump.checksum(checkpoint_dump.text(data)),
    }


def test_the_checksum_of_a_text_is_that_of_a_kubelet() -> None:
    """From the kubelet's record of allocations, which has had such a text for longer."""
    data = (
        '{"entries":{"pod1":{"ContainerResources":{"container1":{"requests":{"cpu":"1Ki","memory":"1Ki"}}}}}}'
    )
    assert checkpoint_dump.checksum(checkpoint_dump.text(data)) == 1178570812


@pytest.mark.parametrize("file", [CPU_MANAGER_STATE, MEMORY_MANAGER_STATE])
@pytest.mark.parametrize("pod_level", [True, False])
def test_files_of_1_37_stay_readable_to_older_kubelets(
    file: str,
    pod_level: bool,  # noqa: FBT001
) -> None:
    parse, dump = FORMATS[file]
    blocks = (Block(0b1, "memory", 1 << 30),)
    table = {"memory": MemoryTable(4 << 30, 0, 4 << 30, 1 << 30, 3 << 30)}
    states: dict[str, Any] = {
        CPU_MANAGER_STATE: CPUManagerCheckpoint(
            "static",
            0b11,
            {"uid": {"app": 0b1100}},
            {"uid": 0b1100} if pod_level else {},
            pod_level=pod_level,
        ),
        MEMORY_MANAGER_STATE: MemoryManagerCheckpoint(
            "Static",
            {0: NUMANodeState(1, table, 0b1)},
            {"uid": {"app": blocks}},
            {"uid": blocks} if pod_level else {},
            pod_level=pod_level,
        ),
    }
    blob = dump(states[file], repeated=True)
    document = json.loads(blob)
    assert list(document)[-3:] == ["checksum", "data", "dataChecksum"]
    assert document["dataChecksum"] == checkpoint_dump.checksum(checkpoint_dump.text(document["data"]))
    assert ("podEntries" in json.loads(document["data"])) == pod_level
    assert parse(blob) == replace(states[file], pod_level=True)
    del document["data"], document["dataChecksum"]
    older = parse(json.dumps(document).encode())
    assert older == replace(states[file], pod_entries={}, pod_level=False)


def test_cpu_manager_state_of_1_37_is_read_from_data() -> None:
    state = CPUManagerCheckpoint("static", 0b11, {"uid": {"app": 0b1100}}, {"uid": 0b1100}, pod_level=True)
    document = of_1_37(dump_cpu_manager_state(state)) | {"checksum": 0}
    document["entries"] = {"uid": {"app": "9"}}  # what is beside the data does not count
    assert parse_cpu_manager_state(json.dumps(document).encode()) == state


def test_memory_manager_state_of_1_37_is_read_from_data() -> None:
    table = MemoryTable(4, 1, 3, 2, 1)
    block = Block(0b1, "memory", 2)
    state = MemoryManagerCheckpoint(
        "Static",
        {0: NUMANodeState(1, {"memory": table}, 0b1)},
        {"uid": {"app": (block,)}},
        {"uid": (block,)},
        pod_level=True,
    )
    document = of_1_37(dump_memory_manager_state(state))
    del document["podEntries"]  # the fields beside the data are in the first version
    assert parse_memory_manager_state(json.dumps(document).encode()) == state


@pytest.mark.parametrize("change", [{"dataChecksum": 7}, {"data": "{}"}, {"data": ""}])
def test_data_that_does_not_fit_its_checksum_is_rejected(change: dict[str, Any]) -> None:
    blob = dump_cpu_manager_state(CPUManagerCheckpoint("static", 0b11))
    with pytest.raises(WrongChecksum):
        parse_cpu_manager_state(json.dumps(of_1_37(blob) | change).encode())


def test_cpus_of_resized_containers_are_rejected_by_name() -> None:
    blob = dump_cpu_manager_state(CPUManagerCheckpoint("static", 0b11))
    document = of_1_37(blob, allocations={"uid": {"app": {"original": "1", "resized": "1-2"}}})
    with pytest.raises(InvalidCheckpoint, match="InPlacePodVerticalScalingExclusiveCPUs"):
        parse_cpu_manager_state(json.dumps(document).encode())


# Strategies for all three files: names as Kubernetes has them, and some that need escaping in JSON.
names = st.text("ab-0.<&é", min_size=1, max_size=6)
sets = st.integers(1, 2**70 - 1)
masks = st.integers(1, 2**12 - 1)
sizes = st.integers(0, 2**64 - 1)
blocks = st.lists(st.builds(Block, masks, names, sizes), max_size=3).map(tuple)
tables = st.builds(MemoryTable, sizes, sizes, sizes, sizes, sizes)
cpu_states = st.builds(
    CPUManagerCheckpoint,
    names,
    sets,
    st.dictionaries(names, st.dictionaries(names, sets, max_size=3), max_size=3),
)
memory_states = st.builds(
    MemoryManagerCheckpoint,
    names,
    st.dictionaries(
        st.integers(0, 33),
        st.builds(NUMANodeState, st.integers(0, 99), st.dictionaries(names, tables, max_size=3), masks),
        max_size=3,
    ),
    st.dictionaries(names, st.dictionaries(names, blocks, max_size=3), max_size=3),
)
device_states = st.builds(
    DeviceManagerCheckpoint,
    st.lists(
        st.builds(
            PodDevices,
            names,
            names,
            names,
            st.dictionaries(st.integers(-1, 12), st.lists(names, max_size=3).map(tuple), max_size=3),
            st.none() | st.binary(max_size=4),
        ),
        max_size=3,
    ).map(tuple),
    st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=3),
)


@given(cpu_states, sets)
def test_cpu_manager_states_survive_in_both_versions(state: CPUManagerCheckpoint, pod: int) -> None:
    assert parse_cpu_manager_state(dump_cpu_manager_state(state)) == state
    newer = CPUManagerCheckpoint(state.policy, state.default, state.entries, {"uid": pod}, pod_level=True)
    assert parse_cpu_manager_state(dump_cpu_manager_state(newer)) == newer


@given(memory_states, blocks)
def test_memory_manager_states_survive_in_both_versions(
    state: MemoryManagerCheckpoint, pod: tuple[Block, ...]
) -> None:
    assert parse_memory_manager_state(dump_memory_manager_state(state)) == state
    newer = MemoryManagerCheckpoint(state.policy, state.machine, state.entries, {"uid": pod}, pod_level=True)
    assert parse_memory_manager_state(dump_memory_manager_state(newer)) == newer


@given(device_states)
def test_device_manager_states_survive(state: DeviceManagerCheckpoint) -> None:
    assert parse_device_manager_state(dump_device_manager_state(state)) == state


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_a_changed_digit_never_passes_unnoticed(name: str, data: st.DataObject) -> None:
    parse, _ = FORMATS[name]
    blob = recorded(SAMPLE, name)[0]
    digits = [index for index, byte in enumerate(blob) if chr(byte).isdigit()]
    index = data.draw(st.sampled_from(digits))
    digit = data.draw(st.sampled_from([d for d in b"123456789" if d != blob[index]]))
    changed = blob[:index] + bytes([digit]) + blob[index + 1 :]
    with pytest.raises(InvalidCheckpoint, match=name):
        parse(changed)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_a_cut_off_file_is_named(name: str, data: st.DataObject) -> None:
    parse, _ = FORMATS[name]
    blob = recorded(SAMPLE, name)[0]
    length = data.draw(st.integers(1, len(blob) - 1))
    with pytest.raises(InvalidCheckpoint, match=f"{name}: the file is truncated or not JSON"):
        parse(blob[:length])


@given(st.binary(max_size=50))
@example(b"{}")
@example(b"null")
@example(rb'{"policyName":"static","entries":{"\ud800":{"c":"1"}}}')
@example(rb'{"policyName":"static","defaultCpuSet":"\ud800"}')
@example(rb'{"Data":{"RegisteredDevices":{"\udfff":["a"]}}}')
def test_no_bytes_are_worse_than_an_error(blob: bytes) -> None:
    for parse, _ in FORMATS.values():
        with pytest.raises(InvalidCheckpoint):
            parse(blob)


def test_a_wrong_checksum_tells_both_numbers_and_the_cure() -> None:
    blob = b'{"policyName":"none","defaultCpuSet":"4-6","checksum":7}'
    with pytest.raises(WrongChecksum) as wrong:
        parse_cpu_manager_state(blob)
    assert str(wrong.value) == (
        "cpu_manager_state: the stored checksum 7 does not match the content, whose checksum is 354655845; "
        "if the kubelet rejects it as well, drain the node, stop the kubelet, remove the file and start it "
        "again"
    )


def test_the_first_version_of_the_cpu_file_is_recognised() -> None:
    blob = b'{"policyName":"static","defaultCpuSet":"0","entries":{"containerid":"1-2"},"checksum":1}'
    with pytest.raises(InvalidCheckpoint, match=r"V1 format .* before 1\.18.*remove /var/lib/kubelet/cpu_"):
        parse_cpu_manager_state(blob)


MACHINE = '{"machineState":{"0":%s},"checksum":0}'


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (CPU_MANAGER_STATE, "", "the file is empty"),
        (CPU_MANAGER_STATE, "[]", r"the file must be an object, not \[\]"),
        (CPU_MANAGER_STATE, "{}", "policyName is missing"),
        (MEMORY_MANAGER_STATE, '{"machineState":{}}', "policyName is missing"),
        (CPU_MANAGER_STATE, '{"policyName":1}', "policyName must be a string, not 1"),
        (
            CPU_MANAGER_STATE,
            '{"policyName":"none","defaultCpuSet":"0-","checksum":0}',
            "defaultCpuSet: '0-' is not a CPU list",
        ),
        (
            CPU_MANAGER_STATE,
            '{"policyName":"static","entries":{"uid":{"app":"2-1"}},"checksum":0}',
            "entries.uid.app: '2-1' is not a CPU list",
        ),
        (CPU_MANAGER_STATE, '{"entries":{"uid":[]},"checksum":0}', "entries.uid must be an object"),
        (CPU_MANAGER_STATE, '{"entries":{"uid":{"app":1}}}', "entries.uid.app must be a string, not 1"),
        (
            CPU_MANAGER_STATE,
            '{"podEntries":{"uid":{"cpuSet":"x"}}}',
            "podEntries.uid: 'x' is not a CPU list",
        ),
        (CPU_MANAGER_STATE, '{"checksum":"7"}', "checksum must be an integer, not '7'"),
        (CPU_MANAGER_STATE, '{"checksum":-1}', "checksum must be an unsigned 64-bit integer, not -1"),
        (CPU_MANAGER_STATE, '{"checksum":true}', "checksum must be an unsigned 64-bit integer, not True"),
        (
            MEMORY_MANAGER_STATE,
            '{"machineState":{"x":{}}}',
            "machineState has the key 'x', which is not a NUMA",
        ),
        (MEMORY_MANAGER_STATE, MACHINE % '{"cells":["0"]}', r"machineState.0.cells must be an integer"),
        (
            MEMORY_MANAGER_STATE,
            MACHINE % '{"memoryMap":{"memory":{"total":1.5}}}',
            "machineState.0.memoryMap.memory.total must be an integer, not 1.5",
        ),
        (
            MEMORY_MANAGER_STATE,
            '{"entries":{"uid":{"app":[{"size":18446744073709551616}]}}}',
            r"entries.uid.app\[0\].size must be an unsigned 64-bit integer",
        ),
        (DEVICE_CHECKPOINT, '{"Data":[]}', "Data must be an object"),
        (
            DEVICE_CHECKPOINT,
            '{"Data":{"PodDeviceEntries":[{"AllocResp":"?"}]}}',
            r"Data.PodDeviceEntries\[0\].AllocResp must be base64",
        ),
        (
            DEVICE_CHECKPOINT,
            '{"Data":{"PodDeviceEntries":[{"DeviceIDs":{"x":[]}}]}}',
            r"Data.PodDeviceEntries\[0\].DeviceIDs has the key 'x', which is not a NUMA node id",
        ),
        (
            DEVICE_CHECKPOINT,
            '{"Data":{"RegisteredDevices":{"nic":["a",1]}}}',
            r"Data.RegisteredDevices.nic\[1\] must be a string, not 1",
        ),
        (DEVICE_CHECKPOINT, "{}", "the stored checksum 0 does not match the content"),
    ],
)
def test_what_is_wrong_is_named(name: str, text: str, problem: str) -> None:
    parse, _ = FORMATS[name]
    with pytest.raises(InvalidCheckpoint, match=problem) as wrong:
        parse(text.encode())
    assert str(wrong.value).startswith(f"{name}: ")


@pytest.mark.parametrize("numa", [-1, -2, 70000])
def test_devices_of_impossible_numa_nodes_are_read(numa: int) -> None:
    devices = {numa: ("gpu-0",), 1: ("gpu-1",)}
    state = DeviceManagerCheckpoint((PodDevices("uid", "main", "vendor.example/gpu", devices),))
    (entry,) = parse_device_manager_state(dump_device_manager_state(state)).entries
    assert entry.devices == devices
    assert entry.numa_of() == {"gpu-0": 0 if numa == -1 else 1 << NOWHERE, "gpu-1": 0b10}


def test_memory_state_with_unnumbered_numa_node_is_read() -> None:
    node = NUMANodeState(0, {"memory": MemoryTable(0, 0, 0, 0, 0)}, cells=1 << NOWHERE)
    state = MemoryManagerCheckpoint("Static", {-1: node})
    text = dump_memory_manager_state(state).replace(str(NOWHERE).encode(), b"-1")
    assert parse_memory_manager_state(text) == state
