"""What of each NUMA node's memory is in use, and how often the kernel had to give memory of another one.

The kernel's files below ``/sys/devices/system/node/nodeN`` (Documentation/ABI/stable/sysfs-devices-node and
admin-guide/numastat): ``meminfo`` in KiB, ``numastat`` in pages since the machine started, and free huge
pages by size. They change all the time, so they become metrics and no part of the zones.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from numazones.apimachinery.resources import hugepage_type
from numazones_exporter.observation import NOT_FOUND
from numazones_node.problems import Problem

NUMA_MEMORY = "numa-memory"
"""This source's name in metrics and logs."""
_KIB = 1024
_MEMINFO = re.compile(rb"^Node [0-9]{1,5} (MemUsed|MemFree|FilePages):\s*([0-9]{1,15}) kB\s*$", re.MULTILINE)
_MEMORY = {b"MemUsed": "used", b"MemFree": "free", b"FilePages": "file"}
_NUMASTAT = re.compile(rb"^numa_(miss|foreign) ([0-9]{1,20})\s*$", re.MULTILINE)
_POOL = re.compile(r"hugepages-([1-9][0-9]{0,11})kB")
_COUNT = re.compile(rb"[0-9]{1,15}")
_LARGEST = 65536
"""Bytes of a file that are looked at; the kernel's have some hundreds."""


@dataclass(slots=True)
class NUMAUsage:
    """What was found; a NUMA node of which a file is missing has no entry."""

    memory: dict[tuple[int, str], int] = field(default_factory=dict)
    """(NUMA id, used, free or file) → bytes."""
    free_hugepages: dict[tuple[int, str], int] = field(default_factory=dict)
    """(NUMA id, resource) → bytes."""
    pages: dict[tuple[int, str], int] = field(default_factory=dict)
    """(NUMA id, miss or foreign) → pages."""
    problems: tuple[Problem, ...] = ()


def read(sysfs: Path, numas: Iterable[int]) -> NUMAUsage:
    """Read the files of NUMA nodes; what cannot be read becomes one problem for each kind of file."""
    found = NUMAUsage()
    missing: dict[str, list[str]] = {}
    for numa in numas:
        directory = sysfs / f"devices/system/node/node{numa}"
        sizes = _amounts(directory / "meminfo", _MEMINFO, _MEMORY, missing, "numazones_numa_memory_*")
        found.memory |= {(numa, name): size * _KIB for name, size in sizes}
        pages = _amounts(
            directory / "numastat",
            _NUMASTAT,
            {b"miss": "miss", b"foreign": "foreign"},
            missing,
            "numazones_numa_*_pages_total",
        )
        found.pages |= {(numa, name): count for name, count in pages}
        found.free_hugepages |= {
            (numa, hugepage_type(kib)): count * kib * _KIB
            for kib, count in _free_hugepages(directory / "hugepages", missing)
        }
    found.problems = tuple(
        Problem(
            NUMA_MEMORY, NOT_FOUND, f"{paths[0]}{_others(paths)} cannot be read, so its {metric} is missing"
        )
        for metric, paths in missing.items()
    )
    return found


def _others(paths: list[str]) -> str:
    return f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""


def _amounts(
    path: Path,
    pattern: re.Pattern[bytes],
    names: Mapping[bytes, str],
    missing: dict[str, list[str]],
    metric: str,
) -> list[tuple[str, int]]:
    """Return (name, amount) of the lines that match; a file without all of them is missing."""
    found = {names[key]: int(amount) for key, amount in pattern.findall(_content(path))}
    if len(found) < len(names):
        missing.setdefault(metric, []).append(str(path))
    return list(found.items())


def _free_hugepages(directory: Path, missing: dict[str, list[str]]) -> Iterator[tuple[int, int]]:
    """Yield page size in KiB and free pages; a kernel without huge pages has no such directory."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError:
        return
    for name in sorted(names):
        if (match := _POOL.fullmatch(name)) is None or int(match[1]).bit_count() != 1:
            continue  # sizes are powers of two
        path = directory / name / "free_hugepages"
        if (count := _COUNT.fullmatch(_content(path).strip())) is None:
            missing.setdefault("numazones_numa_hugepages_free_bytes", []).append(str(path))
        else:
            yield int(match[1]), int(count[0])


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""
