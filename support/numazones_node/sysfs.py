"""The machine from sysfs, the way the kubelet sees it through cAdvisor.

Layout: Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu and
ABI/testing/sysfs-kernel-mm-hugepages of the kernel. Which cache counts as an "uncore" cache follows
cAdvisor (kubelet 1.36): a cache above L2 belongs to the NUMA node when as many CPUs share it as the node
would have if each of its cores had as many online threads as the core looked at; otherwise it is the
core's uncore cache. cAdvisor looks at cores in the order of their CPUs' names, cpu10 before cpu9, and at no
core of a NUMA node any more after the first of which it cannot read a cache in full. Offline CPUs, and CPUs
without topology files, do not exist for the kubelet.

On a kernel without NUMA support cAdvisor takes sockets for NUMA nodes, with the sockets' ids (-1 where the
kernel knows none) and without memory, and counts offline CPUs. On s390x cores of different books and drawers
may have equal ids (told apart since kubelet 1.32).

CPU topology changes only when CPUs go on- or offline, so it is read again only when the CPU lists
change; memory, hugepages and distances are read every time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from numazones import cpuset
from numazones.api.snapshot import KnownCache
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import CPU, InvalidMachine, Machine, NUMANode
from numazones.kubelet.versions import Release
from numazones_node.problems import Problem, Reading, SourceError

SYSFS = "sysfs"
"""The source of this reader's problems."""
NO_NUMA_NODES = "NoNUMANodes"
"""Reason of what is unusual, but no gap: the kernel knows no NUMA nodes, and the kubelet does without."""
NO_TOPOLOGY = "NoCPUTopology"
"""Reason of what is no gap either: the kernel tells of no cores, so the kubelet knows no CPU."""
NOTES = frozenset({NO_NUMA_NODES, NO_TOPOLOGY})
"""Reasons of what is unusual, but no gap."""

# Numbers in names and files have bounds, so that nonsense is rejected before it eats the memory.
_CPU_ENTRY = re.compile(r"cpu([0-9]{1,5})")
_NODE_ENTRY = re.compile(r"node([0-9]{1,5})")
_HUGEPAGES_ENTRY = re.compile(r"hugepages-([0-9]{1,12})kB")
_NODE_MEMORY = re.compile(r"MemTotal:\s*([0-9]{1,15}) kB")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DISTANCE = re.compile(r"[0-9]{1,5}")
_MASK = re.compile(r"[0-9a-fA-F]+(,[0-9a-fA-F]+)*")
_CACHE_SIZE = re.compile(r"[0-9]{1,12}K.*", re.DOTALL)
_JUNK = re.compile(r"[\0\r\n].*|[^0-9,\-\s]+$", re.DOTALL)
_CORE_CACHE_LEVEL = 2
_S390 = "IBM/S390"
_CPUINFO_BYTES = 4096
_KIB = 1024

FILES = (
    *(f"devices/system/cpu/{name}" for name in ("online", "offline", "isolated")),
    "devices/system/cpu/cpu[0-9]*/online",
    *(
        f"devices/system/cpu/cpu[0-9]*/topology/{name}"
        for name in ("core_id", "physical_package_id", "die_id", "book_id", "drawer_id")
    ),
    *(
        f"devices/system/cpu/cpu[0-9]*/cache/index*/{name}"
        for name in ("level", "id", "size", "type", "shared_cpu_map", "shared_cpu_list")
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
_PROC_FILES = ("meminfo", "cpuinfo")
_READ = re.compile("|".join((*FILES, MEMBERS, *_DIRECTORIES)).replace("*", "[^/]*"))


def may_be_read(path: PurePosixPath) -> bool:
    """Return whether the reading of a machine depends on this file or directory (``sys``, ``proc``).

    A tree of the entries of which this is true holds the same machine.
    """
    if path.parts[:1] == ("sys",):
        return _READ.fullmatch(path.relative_to("sys").as_posix()) is not None
    return path.parts[:1] == ("proc",) and "/".join(path.parts[1:]) in _PROC_FILES


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
    merged: Machine | None = None
    """The machine as kubelets see it that know neither books nor drawers; None: they see the same."""

    def seen_by(self, release: Release) -> Self:
        """Return what the kubelets of a release see."""
        if self.merged is None or not release.merges_books:
            return self
        return replace(self, machine=self.merged)


class _Lists(NamedTuple):
    """Lists of CPUs that decide whether the CPU topology must be read again."""

    online: CPUSet
    members: tuple[tuple[int, CPUSet], ...]
    """(NUMA id, CPUs that belong to it, offline ones included), ascending."""
    present: int = 0
    """Of a kernel without NUMA nodes: how many CPUs there are, online or not; the kubelet counts them all."""
    sockets: tuple[int, ...] | None = None
    """Of a kernel without NUMA nodes: the ids of the sockets, which the kubelet takes for NUMA ids."""

    @property
    def kubelet_ids(self) -> tuple[int | None, ...]:
        """The kubelet's ids of the NUMA nodes, where they are others."""
        if self.sockets is None:
            return (None,) * len(self.members)
        return tuple(
            None if socket == numa else socket
            for socket, (numa, _) in zip(self.sockets, self.members, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Thread:
    """Position of an online CPU."""

    core: int
    socket: int
    die: int
    book: str = ""
    """Of s390x: book and drawer."""


class _CPUTopology(NamedTuple):
    lists: _Lists
    cpus: tuple[CPU, ...]
    caches: tuple[KnownCache, ...]
    problems: tuple[Problem, ...]
    counted: int | None
    """How many CPUs the kubelet counts, where that is another number."""
    merged: tuple[CPU, ...]
    """The same CPUs for kubelets that know neither books nor drawers."""


class SysfsReader:
    """Reads a sysfs tree (``/sys`` or a recorded one) again and again."""

    def __init__(self, sysfs: Path, procfs: Path) -> None:
        """``procfs`` tells of s390x, and the memory of machines whose kernel knows no NUMA nodes."""
        self._sysfs = sysfs
        self._cpu_dir = sysfs / "devices/system/cpu"
        self._node_dir = sysfs / "devices/system/node"
        self._meminfo = procfs / "meminfo"
        self._cpuinfo = procfs / "cpuinfo"
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
        problems = [*topology.problems, *problems]
        nodes, unknown = self._read_nodes(lists, problems)
        try:
            machine = merged = Machine(topology.cpus, nodes, topology.counted)
            if topology.merged != topology.cpus:
                merged = Machine(topology.merged, nodes, topology.counted)
        except InvalidMachine as error:
            raise SourceError("InvalidSysfs", f"{self._sysfs}: {error}") from error
        hardware = Hardware(
            machine=machine,
            offline=self._read_offline(lists, problems),
            isolated=self._read_list("isolated", problems) & machine.all_cpus,
            caches=topology.caches,
            memory_unknown=unknown,
            merged=None if merged is machine else merged,
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
            return self._members_by_socket(present, online, problems)
        members, claimed = {}, 0
        for numa in sorted(numas, key=str, reverse=True):  # of several nodes the last one by name has a CPU
            listed = self._read_members(numa, problems)
            members[numa] = listed & ~claimed
            claimed |= listed
        return _Lists(online, tuple((numa, members[numa]) for numa in numas))

    def _read_online(self, present: CPUSet, problems: list[Problem]) -> CPUSet:
        """Online CPUs; without the list, each CPU's own file says so, and without that file it is online."""
        path = self._cpu_dir / "online"
        text = _text(path)
        if text is None:
            return present & ~self._offline_cpus(present)
        try:
            listed = cpuset.parse(_without_junk(text) or text or "no CPU")
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, "the CPUs' own files cpuN/online are used instead"))
            return present & ~self._offline_cpus(present)
        return listed & present

    def _offline_cpus(self, present: CPUSet) -> CPUSet:
        return cpuset.of(
            cpu for cpu in cpuset.ids(present) if _text(self._cpu_dir / f"cpu{cpu}/online") == "0"
        )

    def _read_members(self, numa: int, problems: list[Problem]) -> CPUSet:
        """CPUs of a NUMA node: its cpuN entries, as cAdvisor takes them, else its list."""
        directory = self._node_dir / f"node{numa}"
        members = cpuset.of(_entries(directory, _CPU_ENTRY))
        if members:
            return members
        path = directory / "cpulist"
        try:
            return cpuset.parse(_without_junk(_text(path) or ""))
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, "the NUMA node is shown without CPUs"))
            return 0

    def _members_by_socket(self, present: CPUSet, online: CPUSet, problems: list[Problem]) -> _Lists:
        """Group CPUs by socket on a kernel without NUMA nodes, as cAdvisor does."""
        packages: dict[int, CPUSet] = {}
        lost = 0
        for cpu in cpuset.ids(present):
            package = _number(self._cpu_dir / f"cpu{cpu}/topology/physical_package_id")
            if package is None:
                lost |= 1 << cpu
            else:
                packages[package] = packages.get(package, 0) | 1 << cpu
        ids = _numa_ids(packages)
        members = {ids[package]: cpus for package, cpus in packages.items()} or {0: 0}
        members[min(members)] |= lost  # mostly offline ones, whose socket is not told
        problems.append(
            Problem(
                SYSFS,
                NO_NUMA_NODES,
                f"{self._node_dir} lists no NUMA node: the kernel was built without NUMA support; each "
                "socket is shown as one NUMA node",
            )
        )
        numas = sorted(members)
        sockets = {numa: package for package, numa in ids.items()}
        return _Lists(
            online,
            tuple((numa, members[numa]) for numa in numas),
            present=present.bit_count(),
            sockets=tuple(sockets.get(numa, numa) for numa in numas),
        )

    def _read_topology(self, lists: _Lists) -> _CPUTopology:
        problems: list[Problem] = []
        caches: dict[tuple[int, int], KnownCache] = {}
        s390 = self.is_s390() or self._has_books(lists.online)
        cpus = list(self._read_cpus(lists, caches, problems, s390=s390, books=s390))
        merged = list(self._read_cpus(lists, {}, [], s390=s390, books=False)) if s390 else cpus
        if not cpus:
            problems = [
                Problem(
                    SYSFS,
                    NO_TOPOLOGY,
                    f"{self._cpu_dir}: no online CPU has topology files, so the kubelet knows none of them "
                    "and runs only with cpuManagerPolicy none",
                )
            ]
        counted = lists.present or len(cpus)
        return _CPUTopology(
            lists,
            tuple(cpus),
            tuple(caches[key] for key in sorted(caches)),
            tuple(problems),
            None if counted == len(cpus) else counted,
            tuple(merged),
        )

    def _read_cpus(
        self,
        lists: _Lists,
        caches: dict[tuple[int, int], KnownCache],
        problems: list[Problem],
        *,
        s390: bool,
        books: bool,
    ) -> Iterator[CPU]:
        """Yield the CPUs by NUMA node; ``books``: whether books and drawers tell cores apart."""
        sizes = any(self._has_sizes(cpu) for cpu in cpuset.ids(lists.online))
        for numa, members in lists.members:
            threads = self._read_threads(members & lists.online, problems, s390=books)
            uncore = self._read_caches(threads, caches, s390=s390, sizes=sizes)
            core = _core_ids(threads)
            for cpu, at in threads.items():
                yield CPU(cpu, core[cpu], at.socket, at.die, numa, uncore.get(cpu))

    def is_s390(self) -> bool:
        """Return whether /proc/cpuinfo names an s390x."""
        try:
            with self._cpuinfo.open("rb") as file:
                return _S390.encode() in file.read(_CPUINFO_BYTES)
        except OSError:
            return False

    def _has_books(self, cpus: CPUSet) -> bool:
        """Return whether CPUs are in books, as on s390x alone."""
        return any((self._cpu_dir / f"cpu{cpu}/topology/book_id").exists() for cpu in cpuset.ids(cpus))

    def _has_sizes(self, cpu: int) -> bool:
        """Return whether a CPU's caches have sizes or types; recordings of before 0.3 keep neither."""
        directory = self._cpu_dir / f"cpu{cpu}/cache"
        return any(
            (directory / name / key).exists()
            for name in _cache_names(directory) or ()
            for key in ("type", "size")
        )

    def _read_threads(self, cpus: CPUSet, problems: list[Problem], *, s390: bool) -> dict[int, _Thread]:
        threads = {}
        for cpu in cpuset.ids(cpus):
            topology = self._cpu_dir / f"cpu{cpu}/topology"
            core, socket = _number(topology / "core_id"), _number(topology / "physical_package_id")
            places = [_text(topology / name) for name in ("drawer_id", "book_id")] if s390 else []
            if core is None or socket is None or None in places:
                needed = "core_id, physical_package_id" + (", book_id or drawer_id" if s390 else "")
                problems.append(
                    Problem(
                        SYSFS,
                        "CPUWithoutTopology",
                        f"{topology} lacks {needed}; CPU {cpu} is left out, as in the kubelet",
                    )
                )
                continue
            threads[cpu] = _Thread(
                core, socket, _number(topology / "die_id") or 0, "/".join(map(str, places))
            )
        return threads

    def _read_caches(
        self,
        threads: dict[int, _Thread],
        caches: dict[tuple[int, int], KnownCache],
        *,
        s390: bool,
        sizes: bool,
    ) -> dict[int, int]:
        """Collect caches above L2; return CPU → id of its uncore cache, for the CPUs that have one."""
        cores: dict[tuple[str, int, int], list[int]] = {}
        for cpu in sorted(threads, key=str):
            at = threads[cpu]
            cores.setdefault((at.book, at.socket, at.core), []).append(cpu)
        uncore: dict[int, int] = {}
        for siblings in cores.values():
            found = self._caches_of(siblings[0], s390=s390, sizes=sizes)
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

    def _caches_of(self, cpu: int, *, s390: bool, sizes: bool) -> list[KnownCache] | None:
        """Return caches above L2 of a CPU in the order of their names; None where one cannot be read."""
        directory = self._cpu_dir / f"cpu{cpu}/cache"
        names = _cache_names(directory)
        if names is None:
            return None
        found = []
        for name in names:
            level = _number(directory / name / "level")
            number = 0 if s390 else _number(directory / name / "id")
            cpus = self._shared_cpus(directory / name)
            if level is None or number is None or cpus is None:
                return None
            if sizes and not _has_size_and_type(directory / name):
                return None
            if level > _CORE_CACHE_LEVEL:
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

    def _read_nodes(self, lists: _Lists, problems: list[Problem]) -> tuple[tuple[NUMANode, ...], int]:
        """Return NUMA nodes with their memory, and the mask of those whose memory is unknown."""
        numas = [numa for numa, _ in lists.members]
        nodes, unknown, alone = [], 0, len(numas) == 1
        # Nobody tells how much of the machine's memory a socket has: the kubelet counts none.
        without = lists.sockets is not None and not alone
        for numa, kubelet_id in zip(numas, lists.kubelet_ids, strict=True):
            directory = self._node_dir / f"node{numa}"
            memory = 0 if without else self._read_memory(directory, alone=alone, problems=problems)
            if memory is None:
                unknown |= 1 << numa
            nodes.append(
                NUMANode(
                    id=numa,
                    memory=memory or 0,
                    hugepages=self._read_hugepages(directory, alone=alone, problems=problems),
                    distances=self._read_distances(directory, len(numas), problems),
                    kubelet_id=kubelet_id,
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
                    Problem(
                        SYSFS,
                        "HugepagesUnreadable",
                        f"{path} contains no number; huge pages of this size are left out",
                    )
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
                    f"{path} contains {text!r:.80}, not {count} numbers; the distances are left out",
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
            return cpuset.parse(_without_junk(_text(path) or ""))
        except cpuset.InvalidCPUSet as error:
            problems.append(_invalid_list(path, error, f"no CPU is shown as {name}"))
            return 0


def _numa_ids(packages: Iterable[int]) -> dict[int, int]:
    """Return socket id → NUMA id: its own where that can be one, else the lowest that is left."""
    ids = {package: package for package in packages if 0 <= package <= cpuset.MAX_ID}
    left = (numa for numa in count() if numa not in ids)
    return ids | {package: next(left) for package in sorted(packages) if package not in ids}


def _core_ids(threads: Mapping[int, _Thread]) -> dict[int, int]:
    """Return CPU → core id; where cores of different books have equal ids, those of their lowest threads."""
    books: dict[tuple[int, int], set[str]] = {}
    lowest: dict[tuple[str, int, int], int] = {}
    for cpu, at in threads.items():
        books.setdefault((at.socket, at.core), set()).add(at.book)
        lowest.setdefault((at.book, at.socket, at.core), cpu)
    if all(len(found) == 1 for found in books.values()):
        return {cpu: at.core for cpu, at in threads.items()}
    return {cpu: lowest[at.book, at.socket, at.core] for cpu, at in threads.items()}


def _cache_names(directory: Path) -> list[str] | None:
    """Return the names of a CPU's caches in their order; None where they cannot be listed."""
    try:
        return sorted(entry.name for entry in directory.iterdir() if entry.name.startswith("index"))
    except OSError:
        return None


def _has_size_and_type(cache: Path) -> bool:
    """Return whether cAdvisor can read size and type of a cache, which it gives up without."""
    size = _text(cache / "size")
    return size is not None and _CACHE_SIZE.match(size) is not None and _text(cache / "type") is not None


def _without_junk(text: str) -> str:
    """Return a list without what follows it: NUL bytes, other lines, what no list has."""
    return _JUNK.sub("", text).strip(" ,")


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
