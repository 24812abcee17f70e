"""How long each CPU has done what since the machine started: psutil reads it from ``/proc/stat``.

psutil counts CPUs and does not name them. The kernel writes one line for each online CPU, ascending
(``fs/proc/stat.c``), so the list of online CPUs in sysfs names them; a CPU that goes or comes in between is
noticed, and the files are read again.
"""

import math
import threading
from pathlib import Path
from typing import NamedTuple

import psutil

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones_node.problems import SourceError

CPU_TIMES = "cpu-times"
"""This source's name in metrics and logs."""
_ATTEMPTS = 3
_PROCFS_LOCK = threading.Lock()
"""psutil reads below one path for the whole process."""


class CPUTimes(NamedTuple):
    """Seconds of one CPU by mode."""

    user: float
    """With time at low priority, and of guests."""
    system: float
    irq: float
    softirq: float
    steal: float
    idle: float
    """With time waiting for disks."""


MODES = CPUTimes._fields


class CPUTimesReader:
    """Reads the times of all online CPUs."""

    def __init__(self, procfs: Path, sysfs: Path) -> None:
        """``procfs`` has the host's ``stat``, ``sysfs`` the list of its online CPUs."""
        self._procfs = procfs
        self._online = sysfs / "devices/system/cpu/online"

    def read(self, otherwise: CPUSet = 0) -> dict[int, CPUTimes]:
        """Return CPU → its times.

        ``otherwise``: the online CPUs where the kernel's list cannot be read.

        Raises:
            SourceError: the file is missing or none of the kernel's, or does not fit the online CPUs.
        """
        for _ in range(_ATTEMPTS):
            before = self._online_cpus(otherwise)
            rows = self._rows()
            if before == self._online_cpus(otherwise) and before.bit_count() == len(rows):
                return dict(zip(cpuset.ids(before), rows, strict=True))
        raise SourceError(
            "CPUsDiffer",
            f"{self._procfs / 'stat'} has times for {len(rows)} CPUs, but {self._online} lists "
            f"{before.bit_count()}; mount /proc and /sys from the same machine",
        )

    def _online_cpus(self, otherwise: CPUSet) -> CPUSet:
        try:
            return cpuset.parse(self._online.read_text(encoding="ascii").strip())
        except (OSError, ValueError, cpuset.InvalidCPUSet):
            return otherwise

    def _rows(self) -> list[CPUTimes]:
        file = self._procfs / "stat"
        with _PROCFS_LOCK:
            usual, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(self._procfs)
            try:
                rows = psutil.cpu_times(percpu=True)
            except OSError as error:
                raise SourceError("Unreadable", f"{file}: {error.strerror or error}") from error
            except (TypeError, ValueError, OverflowError) as error:
                raise SourceError("Malformed", f"{file} has an unexpected line: {error}") from error
            finally:
                psutil.PROCFS_PATH = usual
        found = [
            CPUTimes(
                row.user + row.nice,
                row.system,
                row.irq,
                row.softirq,
                getattr(row, "steal", 0.0),
                row.idle + row.iowait,
            )
            for row in rows
        ]
        if not all(0 <= seconds < math.inf for times in found for seconds in times):
            raise SourceError("Malformed", f"{file} has values that are not times")
        return found
