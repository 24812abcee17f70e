"""Fuzz targets of the exporter: sysfs, control groups, the kubelet's files and answers."""

import asyncio
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from checks.laws.fuzz.target import Target, finish
from numazones.api.snapshot import ContainerHolding, NodeSnapshot
from numazones.errors import NumazonesError
from numazones.kubelet import checkpoints
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.startup import KubeletManagers
from numazones_exporter.options import Options
from numazones_exporter.sources.cgroups import CgroupReader
from numazones_exporter.sources.kubelet_config import FileConfigReader, parse_configuration
from numazones_exporter.sources.node_pods import FilePodsReader
from numazones_exporter.sources.podresources import ALLOCATABLE_FILE, LIST_FILE, ReplayReader
from numazones_exporter.sources.reading import Sources, observe
from numazones_exporter.usage_metrics import CPUUsageTracker
from numazones_exporter.zones import IndescribableNode, build, problems_of, snapshot_of
from numazones_node import podresources_pb2 as pb
from numazones_node.problems import SourceError
from numazones_node.sysfs import SysfsReader
from numazones_simulator import machine_tree
from tests.recorded_nodes import SAMPLE

_MEMORY_BACKED = Path("/dev/shm")  # noqa: S108 - folders in it are made by mkdtemp
_MOST_FILES = 400
_LIST, _ALLOCATABLE = "podresources-list", "podresources-allocatable"
RECORDED = (
    SAMPLE / "node-1" if (SAMPLE / "node-1").is_dir() else next(p for p in SAMPLE.iterdir() if p.is_dir())
)


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for a moment, in memory where there is such a place."""
    where = _MEMORY_BACKED if _MEMORY_BACKED.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="numazones-fuzz-", dir=where))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_tree(root: Path, files: object) -> None:
    """Write path → content below a folder; null makes a folder, and what cannot be is left out."""
    if not isinstance(files, Mapping):
        return
    for name, content in list(files.items())[:_MOST_FILES]:
        with suppress(OSError, ValueError):
            path = root / name
            if ".." in path.parts or not path.is_relative_to(root):
                continue
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_bytes(text.encode(errors="surrogateescape"))


def tree_of(root: Path) -> dict[str, str]:
    """Return path → content of the files below a folder."""
    return {
        str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()
    }


def json_or(data: bytes, default: Any = None) -> Any:
    """Return a document, or what stands for one that is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return default


def encoded(*documents: Any) -> list[bytes]:
    """Return documents as inputs."""
    return [json.dumps(one).encode() for one in documents]


def served(body: object) -> dict[str, Any] | None:
    """Return an object as API servers serve it: with texts for names, labels and annotations.

    So much they make sure of in every object, whatever its definition says; None: it could not be served.
    """
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(metadata, Mapping):
        return None
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        if key in {"labels", "annotations"}:
            if isinstance(value, Mapping):
                found[key] = {str(name): str(text) for name, text in value.items()}
        elif isinstance(value, str) or key not in {"name", "namespace", "uid"}:
            found[key] = value
    return {**body, "metadata": {"name": "n", **found}}


@cache
def _machine_files() -> dict[str, str]:
    from numazones import build as make  # noqa: PLC0415 - the name is taken

    with folder() as root:
        machine = make.machine(numa=2, cores=2, threads=2, memory="4Gi")
        machine_tree.write(machine, root, offline={9: 1}, isolated=0b10)
        return tree_of(root)


def _sysfs(data: bytes) -> None:
    with folder() as root:
        write_tree(root, json_or(data))
        reader = SysfsReader(root / "sys", root / "proc")
        found = reader.read()
        assert found.value.machine.all_cpus
        assert reader.read() == found


def _cgroups(data: bytes) -> None:
    with folder() as root:
        write_tree(root, json_or(data))
        reader = CgroupReader(root)
        reader.read(frozenset({"1-2", "a", "b"}))
        for found in reader.confined(frozenset({"a"}), bool):
            assert found.cpus


_V2_POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
_V1_STAT = (
    "total=1 N0=1\nhierarchical_total=4 N0=3\nhierarchical_anon=4 N0=3 N1=1\nhierarchical_file=0 N0=0\n"
)
_CGROUPS = (
    {
        "cgroup.controllers": "memory",
        f"{_V2_POD}/memory.numa_stat": "anon N0=4096 N1=0\nfile N0=8192 N1=1\nkernel_stack N0=1\n",
        f"{_V2_POD}/hugetlb.2MB.numa_stat": "total=0 N0=2097152 N1=0\n",
        f"{_V2_POD}/crio-{'0' * 64}.scope/cpuset.cpus.effective": "0-3\n",
        f"{_V2_POD}/crio-{'0' * 64}.scope/memory.numa_stat": "anon N0=4096 N1=0\nfile N0=0 N1=1\n",
    },
    {
        "memory/kubepods/burstable/poda/memory.numa_stat": _V1_STAT,
        "memory/kubepods/podb/memory.numa_stat": _V1_STAT,
        f"memory/kubepods/podb/{'0' * 64}/memory.numa_stat": _V1_STAT,
        f"cpuset/kubepods/podb/{'0' * 64}/cpuset.cpus": "0-3,8\n",
    },
)


def _usage(data: bytes) -> None:
    with folder() as root:
        write_tree(root, json_or(data))
        clock = count(0, 60)
        usage = CPUUsageTracker(root / "proc", root / "sys", clock=lambda: float(next(clock)))
        cpus = tuple(CPU(cpu, cpu, cpu // 2, 0, cpu // 2) for cpu in range(4))
        machine = Machine(cpus, tuple(NUMANode(numa, 2**20, (), None) for numa in range(2)))
        holder = ContainerHolding("ns", "a", "1", "app", cpus=0b1100)
        usage.follow(
            NodeSnapshot(
                "worker", machine, reserved_cpus=1, default_cpus=3, exclusive_cpus=0b1100, holders=(holder,)
            )
        )
        for _ in range(2):
            for family in usage.read()[0]:
                assert all(0 <= sample.value < math.inf for sample in family.samples)


_USAGE = {
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemFree: 1 kB\nNode 0 MemUsed: 1 kB\n",
    "sys/devices/system/node/node1/numastat": "numa_hit 1\nnuma_miss 2\nnuma_foreign 3\n",
    "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages": "3\n",
    "proc/stat": "cpu  4 0 0 0\n" + "".join(f"cpu{cpu} 1 2 3 4 5 6 7 8 9 0\n" for cpu in range(4)),
    "proc/interrupts": "  CPU0 CPU1 CPU2 CPU3\n 24: 1 2 3 4 MSI nic\nLOC: 1 1 1 1 Local timer\nERR: 0\n",
    "proc/irq/24/effective_affinity_list": "2\n",
}


def _checkpoint(parse: Callable[[bytes], Any], dump: Callable[[Any], bytes], data: bytes) -> None:
    """Read a state file; where only its checksum is wrong, as of all that is changed, with the right one."""
    try:
        state = parse(data)
    except checkpoints.WrongChecksum as error:
        state = parse(data.replace(str(error.stored).encode(), str(error.computed).encode()))
    assert parse(dump(state)) == state


def _state_file(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(SAMPLE.rglob(name))]


def _podresources(data: bytes) -> None:
    listed, allocatable = data[::2], data[1::2]
    document = json_or(data)
    if isinstance(document, Mapping):
        parts = []
        for key, kind in (
            (_LIST, pb.ListPodResourcesResponse),
            (_ALLOCATABLE, pb.AllocatableResourcesResponse),
        ):
            try:
                parts.append(json_format.ParseDict(document[key], kind()).SerializeToString())
            except Exception:  # noqa: BLE001 - the input makes no message, which is not the reader's matter
                return
        listed, allocatable = parts
    with folder() as root:
        (root / LIST_FILE).write_bytes(listed)
        (root / ALLOCATABLE_FILE).write_bytes(allocatable)
        finish(ReplayReader(root).read())


def _podresources_seeds() -> list[bytes]:
    found = []
    for path in sorted(SAMPLE.rglob(LIST_FILE)):
        listed, allocatable = pb.ListPodResourcesResponse(), pb.AllocatableResourcesResponse()
        listed.ParseFromString(path.read_bytes())
        allocatable.ParseFromString((path.parent / ALLOCATABLE_FILE).read_bytes())
        found.append(
            {_LIST: json_format.MessageToDict(listed), _ALLOCATABLE: json_format.MessageToDict(allocatable)}
        )
    return [*encoded(*found), b""]


def _kubelet_configuration(data: bytes) -> None:
    from numazones import build as make  # noqa: PLC0415 - the name is taken

    with folder() as root:
        path = root / "config"
        path.write_bytes(data)
        document = finish(FileConfigReader(path).read())
        for version in (None, "v1.36.2", "v1.26.0", "v9.9"):
            found = parse_configuration(document, version=version)
            with suppress(NumazonesError):
                KubeletManagers.start(found.value, make.machine(numa=2, cores=2, memory="4Gi"), {})


def _configurations() -> list[bytes]:
    plain = {
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1100Mi"}}],
        "kubeReserved": {"cpu": "1", "memory": "1Gi"},
        "evictionHard": {"memory.available": "100Mi"},
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
        "featureGates": {"CPUManager": True},
        "reservedSystemCPUs": "0-1",
    }
    files = [path.read_bytes() for path in sorted(SAMPLE.rglob("kubelet-config.yaml"))]
    return [*encoded(plain, {"kubeletconfig": plain}), *files]


def _pods_file(data: bytes) -> None:
    with folder() as root:
        path = root / "pods.json"
        path.write_bytes(data)
        finish(FilePodsReader(path, "node-1").read())


def _pod_lists() -> list[bytes]:
    pod = {
        "metadata": {
            "name": "a",
            "namespace": "d",
            "uid": "u",
            "annotations": {"kubernetes.io/config.mirror": "m"},
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "qosClass": "Guaranteed"},
    }
    return encoded({"kind": "PodList", "items": [pod]})


def _node(data: bytes) -> None:
    """Read all of a node that its files tell, and describe it; none of it may end the exporter."""
    files = json_or(data)
    with folder() as root:
        write_tree(root, files)
        options = Options(
            node_name="node-1",
            sysfs=root / "sys",
            procfs=root / "proc",
            kubelet_dir=root,
            podresources=f"replay:{root}",
            kubelet_config=f"file:{root}/kubelet-config.yaml",
            pods=f"file:{root}/pods.json",
        )
        for key, name, kind in (
            (_LIST, LIST_FILE, pb.ListPodResourcesResponse),
            (_ALLOCATABLE, ALLOCATABLE_FILE, pb.AllocatableResourcesResponse),
        ):
            if isinstance(files, Mapping):
                with suppress(Exception):  # the input makes no message
                    message = json_format.ParseDict(files[key], kind())
                    (root / name).write_bytes(message.SerializeToString())
        for path in (root / checkpoints.CPU_MANAGER_STATE, root / checkpoints.MEMORY_MANAGER_STATE):
            _mend_checksum(path)
        loop = asyncio.new_event_loop()
        try:
            observation = loop.run_until_complete(observe(Sources(options)))
        finally:
            loop.close()
        problems_of(observation)
        snapshot = snapshot_of(observation)
        if snapshot is not None:
            for zone in build(snapshot):
                json.dumps(zone.to_api())


def _mend_checksum(path: Path) -> None:
    parse = {
        checkpoints.CPU_MANAGER_STATE: checkpoints.parse_cpu_manager_state,
        checkpoints.MEMORY_MANAGER_STATE: checkpoints.parse_memory_manager_state,
    }[path.name]
    try:
        parse(path.read_bytes())
    except checkpoints.WrongChecksum as error:
        path.write_bytes(path.read_bytes().replace(str(error.stored).encode(), str(error.computed).encode()))
    except (OSError, NumazonesError):
        return


@cache
def _nodes() -> list[bytes]:
    listed: Any = json_or(_podresources_seeds()[0])
    pods = json.loads(next(iter(sorted(SAMPLE.rglob("pods.json")))).read_text())["items"]
    kept = [
        {key: pod[key] for key in ("metadata", "status")} | {"spec": {"nodeName": "node-1"}} for pod in pods
    ]
    state = {
        name: _state_file(name)[0].decode()
        for name in (
            checkpoints.CPU_MANAGER_STATE,
            checkpoints.MEMORY_MANAGER_STATE,
            checkpoints.DEVICE_CHECKPOINT,
        )
    }
    config = _configurations()[0].decode()
    return encoded(
        _machine_files() | state | listed | {"kubelet-config.yaml": config, "pods.json": {"items": kept[:6]}}
    )


TARGETS = (
    Target("sysfs", _sysfs, lambda: encoded(_machine_files()), (SourceError,), 100),
    Target("cgroups", _cgroups, lambda: encoded(*_CGROUPS), (SourceError,), 100),
    Target("usage", _usage, lambda: encoded(_USAGE), (), 100),
    Target(
        "cpu-manager-state",
        lambda data: _checkpoint(
            checkpoints.parse_cpu_manager_state, checkpoints.dump_cpu_manager_state, data
        ),
        lambda: _state_file(checkpoints.CPU_MANAGER_STATE),
        (checkpoints.InvalidCheckpoint,),
    ),
    Target(
        "memory-manager-state",
        lambda data: _checkpoint(
            checkpoints.parse_memory_manager_state, checkpoints.dump_memory_manager_state, data
        ),
        lambda: _state_file(checkpoints.MEMORY_MANAGER_STATE),
        (checkpoints.InvalidCheckpoint,),
    ),
    Target(
        "device-checkpoint",
        lambda data: _checkpoint(
            checkpoints.parse_device_manager_state, checkpoints.dump_device_manager_state, data
        ),
        lambda: _state_file(checkpoints.DEVICE_CHECKPOINT),
        (checkpoints.InvalidCheckpoint,),
    ),
    Target("podresources", _podresources, _podresources_seeds, (SourceError,)),
    Target("kubelet-configuration", _kubelet_configuration, _configurations, (SourceError,)),
    Target("pods-file", _pods_file, _pod_lists, (SourceError,)),
    Target("node", _node, _nodes, (IndescribableNode,), 60),
)
