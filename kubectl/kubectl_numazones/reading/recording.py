"""Recordings of real kubelets, as the exporter's tests and ``record`` know them, turned into histories.

A recorded cluster is a directory with ``replay.jsonl`` (one operation a line) and a directory per node with
its sysfs tree (``sys.tar.gz``), configuration, announced devices and Node object. The machine is read by the
exporter's own reader of sysfs: there is one such reader, and a recording is a node's tree.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from kubectl_numazones.reading import tree_archive
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.file_content import read_file, recorded_json, recorded_yaml
from kubectl_numazones.reading.recorded_files import CONFIGURATION, HISTORY, NODE, PLUGINS, TREE, ZONES
from numazones import cpuset
from numazones.api.numazone import NUMAZone
from numazones.api.workload_partitioning import is_partitioned
from numazones.api.zones import node_from_zones
from numazones.apimachinery import documents
from numazones.apimachinery.api_object import MALFORMED
from numazones.apimachinery.defaulting import created_spec
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.node_info import PodInfo
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import STATUS_PREFIX
from numazones.kubelet.startup import KubeletManagers
from numazones.whatif.history import (
    AlreadyRunning,
    Arrival,
    Departure,
    DeviceHealth,
    KubeletRestart,
    MemoryBlocks,
    Observed,
    Operation,
    Preference,
    ReplayedDecision,
    replay,
)
from numazones.whatif.workload import Leaving, WorkloadEvent
from numazones_node.sysfs import SysfsReader, may_be_read

SNAPSHOT, HELD, REJECTED = "snapshot", "hold", "reject"
"""Operations of such recordings: the node was read; a pod was there; one was rejected before."""
_ENDED = frozenset({"Succeeded", "Failed"})
_LINE = "line"
"""Where an operation is in its file, noted while it is read."""
_MOST_CPUS = 2048
_MOST_BYTES = 50 << 20
_CPU = re.compile(r"sys/devices/system/cpu/cpu[0-9]+")
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A recording, compared."""

    outcomes: tuple[tuple[str, ReplayedDecision], ...]
    """(node, outcome) for every decision of a kubelet."""
    outside: tuple[tuple[str, str], ...]
    """(pod, why) for what no kubelet decided."""
    begins_with_pods: bool = False
    """Whether it begins with the state of a node in use, as ``record`` writes it."""

    @property
    def differ(self) -> list[tuple[str, ReplayedDecision]]:
        """The decisions that the model does not share."""
        return [(node, outcome) for node, outcome in self.outcomes if outcome.differences]

    @property
    def at_restart(self) -> list[tuple[str, ReplayedDecision]]:
        """The pods that run and that a kubelet would reject if it restarted."""
        return [(node, outcome) for node, outcome in self.outcomes if outcome.at_restart]


def compare(directory: Path) -> ReplayReport:
    """Replay every node of a recording.

    Raises:
        BadDump: the directory is no recording, or a file of it is damaged.
    """
    lines = list(recorded_lines(directory))
    nodes = sorted({line["node"] for line in lines if line.get("node")})
    outcomes: list[tuple[str, ReplayedDecision]] = []
    for name in nodes:
        preference = Preference()
        node, state, devices = _node(directory / name, preference)
        here = [line for line in lines if line.get("node") == name]
        if any(line["op"] == SNAPSHOT for line in here):
            state = _with_pods_of_zones(directory / name / ZONES, state)
        operations = _operations(directory, here)
        outcomes += (
            (name, outcome)
            for outcome in replay(node.info(state, beside=""), devices, operations, preference=preference)
        )
    outside = tuple(_read_each(directory, lines, _outside))
    return ReplayReport(tuple(outcomes), outside, any(line["op"] == SNAPSHOT for line in lines))


def recorded_lines(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield what happened, as recorded.

    Raises:
        BadDump: the directory is no recording, or its history is damaged.
    """
    path = directory / HISTORY
    try:
        lines = read_file(path, _MOST_BYTES, regular=True).splitlines()
    except BadDump as error:
        raise BadDump(f"{error}; a recording contains a {HISTORY}") from error
    for number, text in enumerate(lines, 1):
        try:
            line = documents.read_json(text, documents.OBJECT)
        except documents.UnreadableDocument as error:
            raise BadDump(f"{path}, line {number}: truncated or not JSON ({error})") from error
        if not isinstance(line, dict) or not isinstance(line.get("op"), str):
            raise BadDump(f"{path}, line {number}: contains no operation")
        if not isinstance(line.get("node") or "", str):
            raise BadDump(f"{path}, line {number}: its node {line['node']!r:.40} is not a name")
        yield line | {_LINE: number}


def history(directory: Path) -> tuple[list[ClusterNode], list[WorkloadEvent]]:
    """Return a recording's nodes before the first operation, and which pods came to them and left.

    Kubelets that restarted, devices that failed and pods that had no node are left out.

    Raises:
        BadDump: as ``compare``.
    """
    lines = list(recorded_lines(directory))
    nodes = []
    for name in sorted({line["node"] for line in lines if line.get("node")}):
        node, state, _ = _node(directory / name, None)
        nodes.append(node.with_state(state))
    return nodes, list(_read_each(directory, [line for line in lines if line.get("node")], _events))


def _read_each(
    directory: Path,
    lines: Iterable[Mapping[str, Any]],
    reading: Callable[[Mapping[str, Any]], Iterator[_Read]],
) -> Iterator[_Read]:
    """Yield what is read from each operation; one that is malformed is named."""
    for line in lines:
        try:
            found = list(reading(line))
        except (*MALFORMED, MemoryError) as error:
            raise BadDump(
                f"{directory / HISTORY}, line {line[_LINE]}: this {line['op']} is malformed "
                f"({type(error).__name__}: {error}); record it again"
            ) from error
        except NumazonesError as error:
            raise BadDump(f"{directory / HISTORY}, line {line[_LINE]}: {error}") from error
        yield from found


def _events(line: Mapping[str, Any]) -> Iterator[WorkloadEvent]:
    if line["op"] == "delete":
        yield Leaving(line["uid"])
    elif line["op"] in {"create", HELD, REJECTED}:
        body = line["pod"]
        namespace = body["metadata"].get("namespace", "default")
        yield ClusterPod.from_api(
            {
                "metadata": {**body["metadata"], "namespace": namespace, "uid": line["uid"]},
                "spec": {**created_spec(body["spec"], namespace=namespace), "nodeName": line["node"]},
            }
        )
        outcome = line["outcome"]
        rejected = (outcome.get("message") or "").startswith(STATUS_PREFIX)
        if outcome["phase"] in _ENDED and not rejected:
            yield Leaving(line["uid"])


def _outside(line: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pods that no kubelet decided, and why."""
    if line["op"] == REJECTED or (
        line["op"] == "create" and (not line.get("node") or not _was_decided(line["outcome"]))
    ):
        yield _name(line), str(line["outcome"].get("reason") or "no kubelet decided it during the recording")


def _node(
    directory: Path, preference: Preference | None
) -> tuple[ClusterNode, Node, dict[str, tuple[Device, ...]]]:
    """The node before the first operation: no pods, all devices as its plugins announced them."""
    with usable(directory):
        found = RecordedNode.read(directory)
        state = Node.fresh(found.machine, found.config, found.devices, preferred_allocation=preference)
        return ClusterNode.from_api(found.body), state, found.devices


@contextmanager
def usable(directory: Path) -> Iterator[None]:
    """Name the node whose files cannot be used.

    Raises:
        BadDump: that is so.
    """
    try:
        yield
    except (
        OSError,
        RecursionError,
        tree_archive.BadArchive,
        *MALFORMED,
        NumazonesError,
    ) as error:
        raise BadDump(f"{directory}: this recorded node cannot be used: {error!r}") from error


class RecordedNode(NamedTuple):
    """Constant part of a recorded node."""

    body: dict[str, Any]
    """Its Node object."""
    version: str
    machine: Machine
    config: KubeletConfiguration
    devices: dict[str, tuple[Device, ...]]
    """Resource → devices as its plugins announce them."""

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read a node's directory; what it raises is for ``usable``."""
        body = recorded_json(directory / NODE)
        version = body["status"]["nodeInfo"]["kubeletVersion"]
        configuration = recorded_yaml(directory / CONFIGURATION, documents.CONFIGURATION)
        plugins = recorded_json(directory / PLUGINS)
        return cls(
            body,
            version,
            _machine(directory / TREE),
            replace(
                KubeletConfiguration.from_api(configuration, version=version).accepted,
                workload_partitioning=is_partitioned(body),
            ),
            {
                plugin["resource"]: tuple(
                    Device(item["id"], _ids(item["numa"])) for item in plugin["devices"]
                )
                for plugin in plugins.values()
            },
        )


def _machine(packed: Path) -> Machine:
    """Read a node's tree; of a whole one, nothing is read of most files."""
    content = read_file(packed, tree_archive.MOST_PACKED, regular=True)
    found = [one for one in tree_archive.read_archive(packed, content) if may_be_read(one.path)]
    cpus = sum(_CPU.fullmatch(str(one.path)) is not None for one in found if one.is_directory)
    if cpus > _MOST_CPUS:
        raise BadDump(f"{packed} describes a machine with {cpus:,} CPUs; up to {_MOST_CPUS:,} are supported")
    with tempfile.TemporaryDirectory(prefix="numazones-") as scratch:
        tree_archive.unpack(found, Path(scratch))
        return SysfsReader(Path(scratch, "sys"), Path(scratch, "proc")).read().value.machine


def _with_pods_of_zones(path: Path, fresh: Node) -> Node:
    """The node with what its pods held: machine and settings are the recording's own, shares the zones'."""
    try:
        items = recorded_json(path)["items"]
        found = node_from_zones(map(NUMAZone.from_api, items))
        devices = {name: resource.devices for name, resource in found.kubelet.devices.resources.items()}
        return Node.restore(
            KubeletManagers.start(fresh.config, fresh.machine, devices),
            default_cpus=found.cpus.default if fresh.kubelet.cpus.static else None,
            cpu_assignments=found.cpus.assignments,
            cpu_pods=found.cpus.pods,
            machine_state=found.machine_state if fresh.kubelet.memory.static else None,
            memory_assignments=found.memory.assignments,
            memory_pods=found.memory.pods,
            device_assignments=found.device_assignments,
        )
    except (OSError, RecursionError, *MALFORMED, NumazonesError) as error:
        raise BadDump(f"{path}: the recorded state cannot be used: {error}") from error


def _operations(directory: Path, lines: Iterable[Mapping[str, Any]]) -> Iterator[Operation]:
    return _read_each(directory, lines, _operation)


def _operation(line: Mapping[str, Any]) -> Iterator[Operation]:
    match line["op"]:
        case "create":
            yield _arrival(line)
        case "hold":
            yield _held_by(line)
        case "delete":
            yield Departure(line["uid"])
        case "kubelet-restart" | "kubelet-crash":
            yield KubeletRestart()
        case "device-health":
            yield DeviceHealth(line["resource"], line["device"], line["health"] == "Healthy")


def _name(line: Mapping[str, Any]) -> str:
    metadata = line["pod"]["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _was_decided(outcome: Mapping[str, Any]) -> bool:
    """Return whether the kubelet had decided by the time the recorder looked."""
    return bool(outcome.get("settled", True) or outcome.get("containers"))


def _arrival(line: Mapping[str, Any]) -> Arrival:
    body, outcome, seen = line["pod"], line["outcome"], line.get("observed") or {}
    pod = Pod.from_manifest({**body, "metadata": {**body["metadata"], "uid": line["uid"]}})
    message = outcome.get("message") or ""
    rejected = message.startswith(STATUS_PREFIX)
    ended = outcome["phase"] in _ENDED
    return Arrival(
        _name(line),
        PodInfo(pod, Constraints.from_api(body["spec"])),
        Observed(
            admitted=not rejected if _was_decided(outcome) else None,
            reason=(outcome.get("reason") or "") if rejected else "",
            message=message.removeprefix(STATUS_PREFIX) if rejected else "",
            cpus=_cpus(seen.get("cpu_manager_state")),
            memory=_memory(seen.get("memory_manager_state")),
            devices=frozenset(_devices(seen.get("podresources_list") or {})),
            default_cpus=cpuset.parse(seen["default_cpuset"]) if seen.get("default_cpuset") else None,
        ),
        ended=ended and not rejected,
    )


def _held_by(line: Mapping[str, Any]) -> AlreadyRunning:
    body, told = line["pod"], line["observed"]["podresources_list"]
    pod = Pod.from_manifest({**body, "metadata": {**body["metadata"], "uid": line["uid"]}})
    return AlreadyRunning(
        _name(line),
        PodInfo(pod, Constraints.from_api(body["spec"])),
        {name: cpuset.of(_ids(one.get("cpu_ids") or ())) for name, one in told.items()},
        {
            name: tuple(
                sorted(
                    (block["type"], _ids(block["numa"]), block["size"]) for block in one.get("memory") or ()
                )
            )
            for name, one in told.items()
        },
        frozenset(_devices(told)),
    )


def _cpus(state: Mapping[str, str] | None) -> dict[str, int]:
    return {name: cpuset.parse(text) for name, text in (state or {}).items()}


def _memory(state: Mapping[str, Any] | None) -> dict[str, MemoryBlocks]:
    return {
        name: tuple(sorted((item["type"], _ids(item["numaAffinity"]), item["size"]) for item in blocks))
        for name, blocks in (state or {}).items()
    }


def _ids(listed: Iterable[Any]) -> tuple[int, ...]:
    """Return ids of CPUs or NUMA nodes.

    Raises:
        ValueError: no machine has one of them; a set of them would fill the memory.
        TypeError: one is no number.
    """
    found = tuple(listed)
    for number in found:
        if not 0 <= number <= cpuset.MAX_ID:
            raise ValueError(f"{number} is not an id of a CPU or NUMA node")
    return found


def _devices(listed: Mapping[str, Any]) -> Iterator[str]:
    for container in listed.values():
        for item in container.get("devices") or ():
            yield from [item["id"]] if "id" in item else item["ids"]
