"""Control groups: where the memory of pods really is, and on which CPUs they run.

The Memory Manager promises; the kernel gives memory where it is first touched. ``memory.numa_stat`` of a
pod's group has what its containers have together, in bytes (cgroup v2) or in pages (v1, whose
``hierarchical_`` lines have the sums, those of huge pages, too). Layouts are those of the kubelet's drivers
(``cm/cgroup_manager_linux``, kubelet 1.36):
``kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice`` with systemd,
``kubepods/burstable/pod<uid>`` with cgroupfs, without the middle for Guaranteed pods, below any root. In a
pod's group each container has its own: ``cri-containerd-<id>.scope``, ``crio-<id>.scope``, or ``<id>``.
"""

import errno
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_exporter.observation import NOT_FOUND
from numazones_node.problems import SourceError

_V2_MARK = "cgroup.controllers"
_STAT = "memory.numa_stat"
_RESIDENT = {"anon", "file"}
"""What is resident, of all that a v2 file counts: ``file`` holds shared memory, the other lines are parts of
these two or the kernel's own."""
_RESIDENT_V1 = {f"hierarchical_{key}" for key in _RESIDENT}
_POD = re.compile(r"(?:^|-)pod([0-9A-Za-z][0-9A-Za-z_-]*?)(?:\.slice)?$")
_PODS_ROOT = re.compile(r"(?:^|-)kubepods(?:\.slice)?$")
_QOS_LEVEL = re.compile(r"(?:^|-)(?:burstable|besteffort)(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:^|-)[0-9a-z]{64}(?:\.scope)?$")
_CONMON = "crio-conmon"
"""Start of the groups of CRI-O's monitors, which lie beside the containers."""
_CPUS_V2 = ("cpuset.cpus.effective",)
_CPUS_V1 = ("cpuset.effective_cpus", "cpuset.cpus")
_GONE = {errno.ENODEV, errno.ESTALE}
"""What the kernel answers for a group that is being removed."""
_DEPTH = 3
"""How deep below the mount the kubelet's root is looked for; kind has it in a slice of its own."""
_NODE = re.compile(r"N([0-9]{1,5})=([0-9]{1,20})")
_LINE = re.compile(rf"\S+(?: {_NODE.pattern})+")
_HUGE = {"total"}
_HUGE_V1 = {f"hierarchical_{key}" for key in _HUGE}
_HUGETLB = re.compile(r"hugetlb\.[^.]+\.numa_stat")
"""What is used; what is reserved is in ``hugetlb.SIZE.rsvd.numa_stat``."""


@dataclass(frozen=True, slots=True)
class PodMemory:
    """Memory of one pod, in bytes."""

    resident: Mapping[int, int]
    """NUMA id → ordinary memory."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """NUMA id → huge pages of all sizes."""


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """CPUs that one container may run on, and its memory."""

    uid: str
    """Its pod's."""
    cpus: CPUSet
    memory: PodMemory


class CgroupReader:
    """Reads the control groups of the pods of a node; nothing is kept but where they are."""

    def __init__(self, root: Path) -> None:
        """``root`` is where the host's /sys/fs/cgroup is mounted."""
        self._root = root
        self._pods_roots: list[Path] = []
        self._is_v2 = False
        """As it was when the pods' groups were looked for."""

    def read(self, uids: Container[str]) -> dict[str, PodMemory]:
        """Return pod uid → what it has, of these pods; one without a group, or that vanishes, is left out.

        Of a static pod the uid is the kubelet's, not that of its mirror.

        Raises:
            SourceError: nothing is mounted there, the kubelet's groups are not found, or a file is none of
                the kernel's.
        """
        found = {}
        for uid, path in self._groups():
            if uid in uids and (memory := self._memory_of(path)) is not None:
                found[uid] = memory
        return found

    def confined(
        self, exclusive: Container[str], wanted: Callable[[CPUSet], bool]
    ) -> Iterator[ContainerGroup]:
        """Yield the containers whose CPUs are wanted, of pods that have no exclusive CPUs.

        A pod's sandbox may have a group of its own; no cpuset confines it.

        Args:
            exclusive: uids of pods that are left out.
            wanted: tells of the CPUs that a group may use whether to read on.

        Raises:
            SourceError: as ``read``.
        """
        for uid, path in self._groups():
            if uid in exclusive:
                continue
            for group in _directories(path):
                if _CONTAINER.search(group.name) is None or group.name.startswith(_CONMON):
                    continue
                cpus = self._cpus_of(group)
                if cpus is not None and wanted(cpus) and (memory := self._memory_of(group)) is not None:
                    yield ContainerGroup(uid, cpus, memory)

    def _cpus_of(self, path: Path) -> CPUSet | None:
        """Return the CPUs that a group may use; None where it vanishes or the kernel does not say."""
        where = path
        if not self._is_v2:
            where = self._root / "cpuset" / path.relative_to(self._root / "memory")
        for name in _CPUS_V2 if self._is_v2 else _CPUS_V1:
            text = _text_of(where / name)
            if text is None or not text.strip():
                continue
            try:
                return cpuset.parse(text.strip())
            except cpuset.InvalidCPUSet as error:
                raise SourceError(
                    "Malformed", f"{where / name} is not a list of CPUs: {text[:80]!r}"
                ) from error
        return None

    def _groups(self) -> Iterator[tuple[str, Path]]:
        """Yield pod uid → the directory that counts its memory."""
        if not self._pods_roots or not all(path.is_dir() for path in self._pods_roots):
            self._pods_roots = self._find_pods_roots()
        for base in self._pods_roots:
            for entry in _directories(base):
                if _QOS_LEVEL.search(entry.name):
                    yield from filter(None, map(_pod_of, _directories(entry)))
                elif (found := _pod_of(entry)) is not None:
                    yield found

    def _find_pods_roots(self) -> list[Path]:
        self._is_v2 = (self._root / _V2_MARK).is_file()
        if self._is_v2:
            top = self._root
        elif (self._root / "memory").is_dir():
            top = self._root / "memory"
        else:
            raise SourceError(
                "NotMounted",
                f"{self._root} is not a cgroup mount: mount the host's /sys/fs/cgroup there, read-only, "
                "or omit --cgroups",
            )
        found = list(_below(top, _DEPTH))
        if not found:
            raise SourceError(
                NOT_FOUND,
                f"no kubelet cgroup (kubepods) found within {_DEPTH} levels of {top}: mount the host's "
                "whole /sys/fs/cgroup, not this container's own, or omit --cgroups",
            )
        return found

    def _memory_of(self, path: Path) -> PodMemory | None:
        """Return what a group counts; None where it vanishes or the kernel counts nothing by NUMA node."""
        text = _text_of(path / _STAT)
        if text is None:
            return None
        return PodMemory(_resident(text, path / _STAT), dict(self._hugepages(path)))

    def _hugepages(self, path: Path) -> Iterator[tuple[int, int]]:
        """Yield NUMA id → bytes of huge pages; v1 counts them below another mount."""
        where = path
        if not self._is_v2:
            where = self._root / "hugetlb" / path.relative_to(self._root / "memory")
        total: dict[int, int] = {}
        for name in _names(where):
            if _HUGETLB.fullmatch(name):
                file = where / name
                for _, amounts in _summed(_text_of(file) or "", file, _HUGE, _HUGE_V1)[0]:
                    _add(total, amounts)
        yield from total.items()


def _text_of(file: Path) -> str | None:
    """Return what a file of the kernel's says; None where its group is gone."""
    try:
        return file.read_bytes().decode("ascii", errors="replace")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise SourceError("Unreadable", f"{file}: {error.strerror or error}") from error


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):  # the kernel counts no huge pages
        return []


def _below(top: Path, depth: int) -> Iterator[Path]:
    """Yield the kubelet's roots below a directory; what is in one is not looked at."""
    for entry in _directories(top):
        if _PODS_ROOT.search(entry.name):
            yield entry
        elif depth > 1:
            yield from _below(entry, depth - 1)


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # it vanished
        return []


def _pod_of(path: Path) -> tuple[str, Path] | None:
    match = _POD.search(path.name)
    return None if match is None else (match[1].replace("_", "-"), path)


def _resident(text: str, file: Path) -> dict[int, int]:
    """Return NUMA id → bytes, of either version's file."""
    lines, old = _summed(text, file, _RESIDENT, _RESIDENT_V1)
    unit = os.sysconf("SC_PAGE_SIZE") if old else 1
    found: dict[int, int] = {}
    for _, amounts in lines:
        _add(found, {numa: amount * unit for numa, amount in amounts.items()})
    if not found:
        raise SourceError("Malformed", f"{file} has no per-NUMA-node values of anon and file: {text[:80]!r}")
    return found


def _summed(
    text: str, file: Path, wanted: set[str], wanted_v1: set[str]
) -> tuple[list[tuple[str, dict[int, int]]], bool]:
    """Return the lines that count the groups below, too, and whether they are v1's.

    There the plain lines leave these out: a pod's group itself has nothing.
    """
    lines = list(_lines(text, file, wanted | wanted_v1))
    old = any(key in wanted_v1 for key, _ in lines)
    return [line for line in lines if (line[0] in wanted_v1) == old], old


def _lines(text: str, file: Path, wanted: Container[str]) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield key and NUMA id → amount of these keys; v1 has a sum behind the key, ``anon=12 N0=8 N1=4``.

    A file has many lines that nobody asks for: they are looked at, not read.
    """
    for line in text.splitlines():
        if _LINE.fullmatch(line) is None:
            raise SourceError("Malformed", f"{file} has an unexpected line: {line[:80]!r}")
        head, _, rest = line.partition(" ")
        if (key := head.partition("=")[0]) in wanted:
            yield key, {int(numa): int(amount) for numa, amount in _NODE.findall(rest)}


def _add(total: dict[int, int], amounts: Mapping[int, int]) -> None:
    for numa, amount in amounts.items():
        total[numa] = total.get(numa, 0) + amount
