"""Interrupts by CPU: ``/proc/interrupts`` and the affinities in ``/proc/irq``.

Formats: ``kernel/irq/proc.c`` and ``fs/proc/interrupts.c``. The first line names the online CPUs; each other
line has a count for each of them and says what the interrupt is for; lines of two errors have one count.
Container runtimes mask the file in containers (it shows thermal events), so the host's must be mounted.
On large machines it has megabytes: it is read line by line, and a line that has not changed is not parsed.
"""

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from numazones.wording import visible
from numazones_node.problems import SourceError

INTERRUPTS = "interrupts"
"""This source's name in metrics and logs."""
DEVICE, PROCESSOR, TIMER = "device", "processor", "timer"
"""Kinds of interrupts: numbered ones, which an affinity can keep away; those between and of CPUs; ticks."""

_HEAD = re.compile(rb"\s*CPU[0-9]{1,5}(\s+CPU[0-9]{1,5})*\s*")
_NAME = re.compile(rb"\s*([0-9A-Za-z_.-]{1,32}):")
_TIMER = re.compile(r"(?:^|[\s_-])timer\b")
_AFFINITY = re.compile(r"[0-9,-]{1,4096}")
_LONGEST_LINE = 1 << 20
_CELL = 11
"""Characters of a count: the kernel writes a blank and ten, most of them blanks."""
_NONZERO = bytes(ord("x") if byte in b"123456789" else ord(" ") for byte in range(256))
"""Translates a digit that makes a number more than zero to x, and the rest to blanks."""
_MOST_LINES = 1 << 16
_LONGEST_DESCRIPTION = 100
_COUNTER = 0xFFFFFFFF
"""The kernel's counters have 32 bits."""


class Interrupt(NamedTuple):
    """One line of the file."""

    name: str
    """Number, or abbreviation such as ``RES``."""
    description: str

    @property
    def kind(self) -> str:
        """The kind of interrupt."""
        if self.name == "LOC" or _TIMER.search(self.description):
            return TIMER
        return DEVICE if self.name.isdigit() else PROCESSOR


@dataclass(slots=True)
class _Line:
    """A line as last read."""

    digest: int
    interrupt: Interrupt
    counts: "array[int]"


class InterruptsReader:
    """Reads the file again and again; keeps the counts of the last time."""

    def __init__(self, procfs: Path) -> None:
        """``procfs`` has the host's ``interrupts`` and ``irq``."""
        self._file = procfs / "interrupts"
        self._irq = procfs / "irq"
        self._cpus: list[int] = []
        self._lines: dict[bytes, _Line] = {}

    def read(self) -> dict[Interrupt, dict[int, int]]:
        """Return interrupt → CPU → how many came since the last reading; empty the first time.

        Counts of an interrupt that is new, or whose device is another now, begin again, as do all when CPUs
        come or go. A count that went backwards says nothing.

        Raises:
            SourceError: the file is missing, masked, or none of the kernel's.
        """
        found: dict[Interrupt, dict[int, int]] = {}
        lines: dict[bytes, _Line] = {}
        try:
            with self._file.open("rb") as file:
                cpus = self._head(file.readline(_LONGEST_LINE))
                if cpus != self._cpus:
                    self._cpus, self._lines = cpus, {}
                for _ in range(_MOST_LINES):
                    text = file.readline(_LONGEST_LINE)
                    if not text:
                        break
                    self._take(text, lines, found)
        except OSError as error:
            raise SourceError("Unreadable", f"{self._file}: {error.strerror or error}") from error
        self._lines = lines
        return found

    def _take(self, text: bytes, lines: dict[bytes, _Line], found: dict[Interrupt, dict[int, int]]) -> None:
        """Read one line into ``lines``, and what came into ``found``."""
        match = _NAME.match(text)
        if match is None:
            raise SourceError(
                "Malformed", f"{self._file} has a line that the kernel does not write: {text[:80]!r}"
            )
        before, digest = self._lines.get(match[1]), hash(text)
        if before is not None and before.digest == digest:
            lines[match[1]] = before
            return
        found_here = _counts(text[match.end() :], len(self._cpus))
        if found_here is None:
            return  # ERR and MIS count for no CPU
        nonzero, rest = found_here
        counts = array("I", bytes(4 * len(self._cpus)))
        for index, count in nonzero.items():
            counts[index] = count & _COUNTER
        described = " ".join(rest.decode("ascii", errors="replace").split())[:_LONGEST_DESCRIPTION]
        interrupt = Interrupt(match[1].decode("ascii"), visible(described, lines=False))
        lines[match[1]] = _Line(digest, interrupt, counts)
        if before is not None and before.interrupt == interrupt:
            gained = {self._cpus[at]: counts[at] - before.counts[at] for at in nonzero}
            if came := {cpu: count for cpu, count in gained.items() if count > 0}:
                found[interrupt] = came

    def _head(self, text: bytes) -> list[int]:
        if not text.strip():
            raise SourceError(
                "Masked",
                f"{self._file} is empty, as container runtimes mask it; mount the host's /proc/interrupts "
                "there, and name the directory by --procfs",
            )
        if _HEAD.fullmatch(text) is None:
            raise SourceError("Malformed", f"{self._file} does not begin with the CPUs' names: {text[:80]!r}")
        return [int(word[3:]) for word in text.split()]

    def affinity(self, interrupt: Interrupt) -> str:
        """Return the CPUs that an interrupt is really sent to; empty where the kernel does not say."""
        if not interrupt.name.isdigit():
            return ""
        for name in ("effective_affinity_list", "smp_affinity_list"):
            try:
                text = (self._irq / interrupt.name / name).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                continue
            if _AFFINITY.fullmatch(text):
                return text
        return ""


def _counts(text: bytes, number: int) -> tuple[dict[int, int], bytes] | None:
    """Return CPU's place → its count, where it is not zero, and what follows; None without that many counts.

    Most counts of most interrupts are zero, so where the columns are as wide as the kernel writes them, only
    the others are looked at.
    """
    cells = text[: _CELL * number]
    found: dict[int, int] = {}
    if cells[::_CELL].count(b" ") == number and cells[_CELL - 1 :: _CELL].isdigit():
        marks = cells.translate(_NONZERO)
        at = marks.find(b"x")
        while at >= 0:
            place = at // _CELL
            word = cells[place * _CELL : (place + 1) * _CELL].strip()
            if not word.isdigit():
                return None
            found[place] = int(word)
            at = marks.find(b"x", (place + 1) * _CELL)
        return found, text[_CELL * number :]
    words = text.split(None, number)
    if len(words) < number or not all(map(bytes.isdigit, words[:number])):
        return None
    found = {place: int(word[:20]) for place, word in enumerate(words[:number]) if word != b"0"}
    return found, words[number] if len(words) > number else b""


class Disturbance(NamedTuple):
    """An interrupt that lands on an exclusive CPU."""

    per_second: float
    cpu: int
    interrupt: Interrupt


def disturbances(
    came: Mapping[Interrupt, Mapping[int, int]], exclusive: int, seconds: float
) -> Iterator[Disturbance]:
    """Yield what landed on exclusive CPUs, timer ticks aside, which every busy CPU has."""
    for interrupt, counts in came.items():
        if interrupt.kind != TIMER:
            for cpu, count in counts.items():
                if exclusive >> cpu & 1:
                    yield Disturbance(count / seconds, cpu, interrupt)
