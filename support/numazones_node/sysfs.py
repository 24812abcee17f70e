"""The machine from sysfs, the way the kubelet sees it through cAdvisor.

Layout: Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu and
ABI/testing/sysfs-kernel-mm-hugepages of the kernel. Which cache counts as an "uncore" cache follows
cAdvisor (kubelet 1.36): a cache above L2 belongs to the NUMA node when as many CPUs share it as the node
would have if each of its cores had as many online threads as the core looked at; otherwise it is the
core's uncore cache. Offline CPUs, and CPUs without topology files, do not exist for the kubelet.

CPU topology changes only when CPUs go on- or offline, so it is read again only when the CPU lists
change; memory, hugepages and distances are read every time.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from numazones import cpuset
from numazones.api.snapshot import KnownCache
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import CPU, InvalidMachine, Machine, NUMANode
from numazones_node.problems import Problem, Reading, SourceError

SYSFS = "sysfs"
"""The source of this reader's problems."""
NO_NUMA_NODES = "NoNUMANodes"
"""Reason of what is unusual, but no gap: the kernel knows no NUMA nodes, and the kubelet does without."""

# Numbers in names and files have bounds, so that nonsense is rejected before it eats the memory.
_CPU_ENTRY = re.compile(r"cpu([0-9]{1,5})")
_NODE_ENTRY = re.compile(r"node([0-9]{1,5})")
_HUGEPAGES_ENTRY = re.compile(r"hugepages-([0-9]{1,12})kB")
_NODE_MEMORY = re.compile(r"MemTotal:\s*([0-9]{1,15}) kB")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DISTANCE = re.compile(r"[0-9]{1,5}")
_MASK = re.compile(r"[0-9a-fA-F]+(,[0-9a-fA-F]+)*")
_CORE_CACHE_LEVEL = 2
_KIB = 1024

FILES = (
    *(f"devices/system/cpu/{name}" for name in ("online", "offline", "isolated")),
    "devices/system/cpu/cpu[0-9]*/online",
    *(
        f"devices/system/cpu/cpu[0-9]*/topology/{name}"
        for name in ("core_id", "physical_package_id", "die_id")
    ),
    *(
        f"devices/system/cpu/cpu[0-9]*/cache/index*/{name}"
        for name in ("level", "id", "shared_cpu_map", "shared_cpu_list")
    ),
    *(f"devices/system/node/node[0-9]*/{name}" for name in ("cpulist", "meminfo", "distance")),
    "devices/system/node/node[0-9]*/hugepages/hugepages-*/nr_hugepages",
    "kernel/mm/hugepages/hugepages-*/nr_hugepages",
)
"""What is read below /sys, as patterns of ``glob``."""
MEMBERS = "devices/system/node/node[0-9]*/cpu[0-9]*"
"""Entries, CPUs of NUMA nodes, whose names alone are read."""
_DIRECTORIES = (
    "devices/system/cpu/cpu[0-9]*",
    "devices/system/cpu/cpu[0-9]*/cache",
    "devices/system/cpu/cpu[0-9]*/cache/index*",
    "devices/system/node/node[0-9]*",
    "devices/system/node/node[0-9]*/hugepages",
    "devices/system/node/node[0-9]*/hugepages/hugepages-*",
    "kernel/mm/hugepages/hugepages-*",
)
"""Those that count although they be empty."""
_MEMINFO = PurePosixPath("proc/meminfo")
_READ = re.compile("|".join((*FILES, MEMBERS, *_DIRECTORIES)).replace("*", "[^/]*"))


def may_be_read(path: PurePosixPath) -> bool:
    """Return whether the reading of a machine depends on this file or directory (``sys``, ``proc``).

    A tree of the entries of which this is true holds the same machine.
    """
    if path.parts[:1] == ("sys",):
        return _READ.fullmatch(path.relative_to("sys").as_posix()) is not None
    return path == _MEMINFO


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine as sysfs describes it, with what ``Machine`` (what the kubelet sees) leaves out."""

    machine: Machine
    offline: tuple[tuple[int, CPUSet], ...]
    """(NUMA id, CPUs that are there but offline), where there are any."""
    isolated: CPUSet
    """CPUs that the kernel's scheduler leaves alone (isolcpus)."""
    caches: tuple[KnownCache, ...]
    """L3 caches, and higher levels where there are any."""
    memory_unknown: int = 0
    """Mask of the NUMA nodes whose memory size could not be read (their ``memory`` is 0)."""


class _Lists(NamedTuple):
    """Lists of CPUs that decide whether the CPU topology must be read again."""

    online: CPUSet
    members: tuple[tuple[int, CPUSet], ...]
    """(NUMA id, CPUs that belong to it, offline ones included), ascending."""


@dataclass(frozen=True, slots=True)
class _Thread:
    """Position of an online CPU."""

    core: int
    socket: int
    die: int


class _CPUTopology(NamedTuple):
    lists: _Lists
    cpus: tuple[CPU, ...]
    caches: tuple[KnownCache, ...]
    problems: tuple[Problem, ...]


class SysfsReader:
    """Reads a sysfs tree (``/sys`` or a recorded one) again and again."""

    def __init__(self, sysfs: Path, procfs: Path) -> None:
        """``procfs`` serves machines whose kernel knows no NUMA nodes; its total memory is theirs."""
        self._sysfs = sysfs
        self._cpu_dir = sysfs / "devices/system/cpu"
        self._node_dir = sysfs / "devices/system/node"
        self._meminfo = procfs / "meminfo"
        self._topology: _CPUTopology | None = None

    def read(self) -> Reading[Hardware]:
        """Read the machine.

        Raises:
            SourceError: there is no CPU to be found, or the tree contradicts itself.
        """
        problems: list[Problem] = []
        lists = self._read_lists(problems)
        if self._topology is None or self._topology.lists != lists:
            self._topology = self._read_topology(lists)
        topology = self._topology
        problems += topology.problems
        nodes, unknown = self._read_nodes([numa for numa, _ in lists.members], problems)
        try:
            machine = Machine(topology.cpus, nodes)
        except InvalidMachine as error:
            raise SourceError("InvalidSysfs", f"{self._sysfs}: {error}") from error
        hardware = Hardware(
            machine=machine,
            offline=self._read_offline(lists, problems),
            isolated=self._read_list("isolated", problems) & machine.all_cpus,
            caches=topology.caches,
            memory_unknown=unknown,
        )
        return Reading(hardware, tuple(problems))

    def _read_lists(self, problems: list[Problem]) -> _Lists:
        present = cpuset.of(_entries(self._cpu_dir, _CPU_ENTRY))
        if not present:
            raise SourceError(
                "NoCPUs",
                f"{self._cpu_dir} lists no CPU; --sysfs must name the directory that is mounted as /sys",
            )
        online = self._read_online(present, problems)
        numas = sorted(_entries(self._node_dir, _NODE_ENTRY))
        if not numas:
            return _Lists(online, self._members_by_package(online, problems))
        return _Lists(online, tuple((numa, self._read_members(numa, problems)) for numa in numas))

    def _read_online(self, present: CPUSet, problems: list[Problem]) -> CPUSet:
        """Online CPUs; without the list, each CPU's own file says so, and without that file it is online."""
        path = self._cpu_dir / "online"
        text = _text(path)
        if text is None:
            return present & ~self._offline_cpus(present)
        try:
            return cpuset.parse(text) & present
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, "the CPUs' own files cpuN/online are used instead"))
            return present & ~self._offline_cpus(present)

    def _offline_cpus(self, present: CPUSet) -> CPUSet:
        return cpuset.of(
            cpu for cpu in cpuset.ids(present) if _text(self._cpu_dir / f"cpu{cpu}/online") == "0"
        )

    def _read_members(self, numa: int, problems: list[Problem]) -> CPUSet:
        """CPUs of a NUMA node: its cpuN entries, as cAdvisor takes them, else its list."""
        directory = self._node_dir / f"node{numa}"
        members = cpuset.of(_entries(directory, _CPU_ENTRY))
        path = directory / "cpulist"
        try:
            listed = cpuset.parse(_text(path) or "")
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, "the directory's cpuN entries are used instead"))
            return members
        return members or listed

    def _members_by_package(self, online: CPUSet, problems: list[Problem]) -> tuple[tuple[int, CPUSet], ...]:
        """Group CPUs by socket on a kernel without NUMA nodes, as cAdvisor does."""
        packages: dict[int, CPUSet] = {}
        for cpu in cpuset.ids(online):
            package = _number(self._cpu_dir / f"cpu{cpu}/topology/physical_package_id")
            if package is None or package < 0:
                package = 0
            packages[package] = packages.get(package, 0) | 1 << cpu
        problems.append(
            Problem(
                SYSFS,
                NO_NUMA_NODES,
                f"{self._node_dir} lists no NUMA node: the kernel was built without NUMA support; "
                "each socket is shown as one zone",
            )
        )
        return tuple(sorted(packages.items()))

    def _read_topology(self, lists: _Lists) -> _CPUTopology:
        problems: list[Problem] = []
        cpus: list[CPU] = []
        caches: dict[tuple[int, int], KnownCache] = {}
        for numa, members in lists.members:
            threads = self._read_threads(members & lists.online, problems)
            uncore = self._read_caches(threads, caches)
            cpus += [
                CPU(cpu, at.core, at.socket, at.die, numa, uncore.get(cpu)) for cpu, at in threads.items()
            ]
        if not cpus:
            raise SourceError("NoCPUs", f"{self._cpu_dir}: no online CPU has topology files")
        return _CPUTopology(lists, tuple(cpus), tuple(caches[key] for key in sorted(caches)), tuple(problems))

    def _read_threads(self, cpus: CPUSet, problems: list[Problem]) -> dict[int, _Thread]:
        threads = {}
        for cpu in cpuset.ids(cpus):
            topology = self._cpu_dir / f"cpu{cpu}/topology"
            core, socket = _number(topology / "core_id"), _number(topology / "physical_package_id")
            if core is None or socket is None:
                problems.append(
                    Problem(
                        SYSFS,
                        "CPUWithoutTopology",
                        f"{topology} lacks core_id or physical_package_id; "
                        f"CPU {cpu} is left out, as the kubelet leaves it out",
                    )
                )
                continue
            threads[cpu] = _Thread(core, socket, _number(topology / "die_id") or 0)
        return threads

    def _read_caches(
        self, threads: dict[int, _Thread], caches: dict[tuple[int, int], KnownCache]
    ) -> dict[int, int]:
        """Collect caches above L2; return CPU → id of its uncore cache, for the CPUs that have one."""
        cores: dict[tuple[int, int], list[int]] = {}
        for cpu, at in threads.items():
            cores.setdefault((at.socket, at.core), []).append(cpu)
        uncore: dict[int, int] = {}
        for siblings in cores.values():
            # cAdvisor lists CPU directories by name, so its first thread of a core is cpu10, not cpu9.
            found = self._caches_of(min(siblings, key=str))
            if found is None:
                break  # cAdvisor gives up on the rest of the NUMA node here
            for cache in found:
                known = caches.get((cache.level, cache.id))
                cpus = cache.cpus | (known.cpus if known else 0)
                caches[cache.level, cache.id] = KnownCache(cache.level, cache.id, cpus)
                if cache.cpus.bit_count() != len(cores) * len(siblings):
                    for cpu in siblings:
                        uncore.setdefault(cpu, cache.id)
        return uncore

    def _caches_of(self, cpu: int) -> list[KnownCache] | None:
        """Caches above L2 of a CPU in the order of their names; None where they cannot be read."""
        directory = self._cpu_dir / f"cpu{cpu}/cache"
        try:
            names = sorted(entry.name for entry in directory.iterdir() if entry.name.startswith("index"))
        except OSError:
            return None
        found = []
        for name in names:
            level, number = _number(directory / name / "level"), _number(directory / name / "id")
            if level is None or number is None:
                return None
            if level > _CORE_CACHE_LEVEL:
                cpus = self._shared_cpus(directory / name)
                if cpus is None:
                    return None
                found.append(KnownCache(level, number, cpus))
        return found

    @staticmethod
    def _shared_cpus(cache: Path) -> CPUSet | None:
        shared_map = _text(cache / "shared_cpu_map")
        if shared_map is not None:
            return int(shared_map.replace(",", ""), 16) if _MASK.fullmatch(shared_map) else None
        try:
            return cpuset.parse(_text(cache / "shared_cpu_list") or "") or None
        except cpuset.InvalidCPUSet:
            return None

    def _read_nodes(self, numas: list[int], problems: list[Problem]) -> tuple[tuple[NUMANode, ...], int]:
        """NUMA nodes with their memory, and the mask of those whose memory is unknown."""
        nodes, unknown, alone = [], 0, len(numas) == 1
        for numa in numas:
            directory = self._node_dir / f"node{numa}"
            memory = self._read_memory(directory, alone=alone, problems=problems)
            if memory is None:
                unknown |= 1 << numa
            nodes.append(
                NUMANode(
                    id=numa,
                    memory=memory or 0,
                    hugepages=self._read_hugepages(directory, alone=alone, problems=problems),
                    distances=self._read_distances(directory, len(numas), problems),
                )
            )
        return tuple(nodes), unknown

    def _read_memory(self, directory: Path, *, alone: bool, problems: list[Problem]) -> int | None:
        path = directory / "meminfo"
        text = _text(path)
        if text is None and alone:
            path, text = self._meminfo, _text(self._meminfo)
        match = _NODE_MEMORY.search(text or "")
        if match is not None:
            return int(match[1]) * _KIB
        what = "cannot be read" if text is None else "has no line MemTotal"
        problems.append(
            Problem(SYSFS, "MeminfoMissing", f"{path} {what}; the memory of {directory.name} is unknown")
        )
        return None

    def _read_hugepages(
        self, directory: Path, *, alone: bool, problems: list[Problem]
    ) -> tuple[tuple[int, int], ...]:
        found = []
        parent = directory / "hugepages"
        if alone and not parent.is_dir():  # the machine's pages are those of its only zone
            parent = self._sysfs / "kernel/mm/hugepages"
        for size in _entries(parent, _HUGEPAGES_ENTRY):
            path = parent / f"hugepages-{size}kB/nr_hugepages"
            pages = _number(path)
            if pages is None:
                problems.append(
                    Problem(SYSFS, "HugepagesUnreadable", f"{path} holds no number; these pages are left out")
                )
                continue
            found.append((size, pages))
        return tuple(sorted(found))

    @staticmethod
    def _read_distances(directory: Path, count: int, problems: list[Problem]) -> tuple[int, ...] | None:
        path = directory / "distance"
        text = _text(path)
        if text is None:
            return None
        fields = text.split()
        if len(fields) != count or not all(map(_DISTANCE.fullmatch, fields)):
            problems.append(
                Problem(
                    SYSFS,
                    "InvalidDistances",
                    f"{path} holds {text!r:.80}, not {count} numbers; the distances are left out",
                )
            )
            return None
        return tuple(int(item) for item in fields)

    def _read_offline(self, lists: _Lists, problems: list[Problem]) -> tuple[tuple[int, CPUSet], ...]:
        """Offline CPUs by NUMA node; the kernel's list also has CPUs that could be plugged in, these not."""
        offline = self._read_list("offline", problems) & ~lists.online
        return tuple((numa, offline & members) for numa, members in lists.members if offline & members)

    def _read_list(self, name: str, problems: list[Problem]) -> CPUSet:
        path = self._cpu_dir / name
        try:
            return cpuset.parse(_text(path) or "")
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, f"no CPU is shown as {name}"))
            return 0


def _invalid_list(path: Path, error: Exception, consequence: str) -> Problem:
    return Problem(SYSFS, "InvalidCPUList", f"{path}: {error}; {consequence}")


def _entries(directory: Path, pattern: re.Pattern[str]) -> Iterator[int]:
    """Numbers in the names of a directory's entries that match; nothing where it cannot be read."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError:
        return
    yield from _matches(names, pattern)


def _matches(names: Iterable[str], pattern: re.Pattern[str]) -> Iterator[int]:
    return (int(match[1]) for name in names if (match := pattern.fullmatch(name)))


def _text(path: Path) -> str | None:
    """Content without white space around it; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path) or ""
    return int(text) if _NUMBER.fullmatch(text) else None
