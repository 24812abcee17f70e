"""Interrupts by CPU: ``/proc/interrupts`` and the affinities in ``/proc/irq``.

Formats: ``kernel/irq/proc.c`` and ``fs/proc/interrupts.c``. The first line names the online CPUs; each other
line has a count for each of them and says what the interrupt is for; lines of two errors have one count.
Container runtimes mask the file in containers (it shows thermal events), so the host's must be mounted.
On large machines it has megabytes: it is read line by line, and a line that has not changed is not parsed.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from numazones.wording import visible
from numazones_node.problems import SourceError

INTERRUPTS = "interrupts"
"""This source's name in metrics and logs."""
DEVICE, PROCESSOR, TIMER = "device", "processor", "timer"
"""Kinds of interrupts: numbered ones, which an affinity can keep away; those between and of CPUs; ticks."""

_HEAD = re.compile(rb"\s*CPU[0-9]{1,5}(\s+CPU[0-9]{1,5})*\s*")
_NAME = re.compile(rb"[ \t]*([!-9;-~]{1,32}):")
"""Printable, as ``I/O`` of s390x."""
_TIMER = re.compile(r"(?:^|[\s_-])timer\b")
_AFFINITY = re.compile(rb"[0-9,-]{1,4096}")
_LONGEST_LINE = 1 << 20
_LARGEST_FILE = 256 << 20
"""Bytes; 4,096 interrupts on 1,024 CPUs have 46 MiB."""
_CELL = 11
"""Characters of a count: the kernel writes a blank and ten, most of them blanks."""
_NONZERO = bytes(ord("x") if byte in b"123456789" else ord(" ") for byte in range(256))
"""Translates a digit that makes a number more than zero to x, and the rest to blanks."""
_MOST_LINES = 1 << 16
_BLANK = ord(" ")
_FEW = 16
"""Counts that are not zero, up to which the others are compared with zeros."""
_LONGEST_DESCRIPTION = 100
_COUNTER = 0xFFFFFFFF
"""The kernel's counters have 32 bits."""


class Interrupt(NamedTuple):
    """One line of the file."""

    name: str
    """Number, or abbreviation such as ``RES``."""
    description: str
    kind: str


def _interrupt(name: str, text: bytes) -> Interrupt:
    """Return the interrupt of this name; ``text`` follows its counts."""
    words = " ".join(text.decode("ascii", errors="replace").split())[:_LONGEST_DESCRIPTION]
    description = visible(words, lines=False)
    kind = DEVICE if name.isdigit() else PROCESSOR
    return Interrupt(name, description, TIMER if name == "LOC" or _TIMER.search(description) else kind)


class _Line(NamedTuple):
    """A line as last read."""

    interrupt: Interrupt
    places: "array[int]"
    """Places of the CPUs in the head line whose counts are not zero, ascending."""
    counts: "array[int]"
    digest: int
    """Digest of the text, where many counts are not zero; else 0."""
    gaps: tuple[tuple[int, int, bytes], ...] = ()
    """(begin, end, text) of the zeros before each of these counts, where they are few."""
    last: tuple[int, int, bytes] = (0, 0, b"")
    """The zeros after them."""
    rest: bytes = b""
    """Text after all counts."""

    def renewed(self, text: bytes) -> "_Line | None":
        """Return the line as it is now, itself if nothing changed; None: it must be parsed.

        Most interrupts go to one CPU or a few, so most of a long line is compared with zeros and not parsed.
        """
        if self.digest:
            return self if self.digest == hash(text) else None
        begin, end, zeros = self.last
        if text[begin:end] != zeros or text[end:] != self.rest:
            return None
        counts = array("I")
        for begin, at, zeros in self.gaps:
            word = text[at + 1 : at + _CELL].strip()
            if text[begin:at] != zeros or text[at] != _BLANK or not word.isdigit():
                return None
            counts.append(int(word) & _COUNTER)
        if counts == self.counts:
            return self
        return _Line(self.interrupt, self.places, counts, 0, self.gaps, self.last, self.rest)


@lru_cache(maxsize=4096)
def _shared(text: bytes) -> bytes:
    """Return one object for texts that are equal, as long rows of zeros are."""
    return text


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
        come or go, or after a reading that failed. A count that went backwards says nothing.

        Raises:
            SourceError: the file is missing, masked, or none of the kernel's.
        """
        before, self._lines = self._lines, {}
        found: dict[Interrupt, dict[int, int]] = {}
        lines: dict[bytes, _Line] = {}
        size = 0
        try:
            with self._file.open("rb") as file:
                cpus = self._head(file.readline(_LONGEST_LINE))
                if cpus != self._cpus:
                    self._cpus, before = cpus, {}
                for _ in range(_MOST_LINES):
                    text = file.readline(_LONGEST_LINE)
                    if not text:
                        break
                    size += len(text)
                    if size > _LARGEST_FILE or not text.endswith(b"\n"):
                        raise SourceError("Malformed", f"{self._file} is too large, or truncated")
                    self._take(text, before, lines, found)
        except OSError as error:
            raise SourceError("Unreadable", f"{self._file}: {error.strerror or error}") from error
        self._lines = lines
        return found

    def _take(
        self,
        text: bytes,
        known: Mapping[bytes, _Line],
        lines: dict[bytes, _Line],
        found: dict[Interrupt, dict[int, int]],
    ) -> None:
        """Read one line into ``lines``, and what came into ``found``."""
        match = _NAME.match(text)
        if match is None:
            raise SourceError("Malformed", f"{self._file} has an unexpected line: {text[:80]!r}")
        name = match[1]
        before = known.get(name)
        line = (before and before.renewed(text)) or self._parsed(text, name, match.end())
        if line is None:
            return  # ERR and MIS count for no CPU
        lines[name] = line
        if before is None or before is line or before.interrupt != line.interrupt:
            return
        old: Iterable[int] = before.counts
        if line.places is not before.places:
            counted = dict(zip(before.places, before.counts, strict=True))
            old = [counted.get(place, 0) for place in line.places]
        came = {
            self._cpus[place]: count - less
            for place, count, less in zip(line.places, line.counts, old, strict=True)
            if count > less
        }
        if came:
            found[line.interrupt] = came

    def _parsed(self, text: bytes, name: bytes, start: int) -> _Line | None:
        found = _counts(text[start:], len(self._cpus))
        if found is None:
            return None
        interrupt = _interrupt(name.decode("ascii"), found.rest)
        places = array("I", found.nonzero)
        counts = array("I", [count & _COUNTER for count in found.nonzero.values()])
        if not found.in_cells or len(places) > _FEW:
            return _Line(interrupt, places, counts, hash(text) or 1)
        cells = [start + place * _CELL for place in (*places, len(self._cpus))]
        begins = [start, *(cell + _CELL for cell in cells[:-1])]
        *gaps, last = (
            (begin, cell, _shared(text[begin:cell])) for begin, cell in zip(begins, cells, strict=True)
        )
        return _Line(interrupt, places, counts, 0, tuple(gaps), last, found.rest)

    def _head(self, text: bytes) -> list[int]:
        if not text.strip():
            raise SourceError(
                "Masked",
                f"{self._file} is empty because container runtimes mask it; mount the host's "
                "/proc/interrupts, and set --procfs to its directory",
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
                with (self._irq / interrupt.name / name).open("rb") as file:
                    text = file.read(_LONGEST_LINE).strip()
            except OSError:
                continue
            if _AFFINITY.fullmatch(text):
                return text.decode("ascii")
        return ""


class _Counts(NamedTuple):
    """Counts of a line."""

    nonzero: dict[int, int]
    """Place of the CPU → its count, where it is not zero."""
    rest: bytes
    """Text after the counts."""
    in_cells: bool
    """True if each count has as many characters as the kernel gives it."""


def _counts(text: bytes, number: int) -> _Counts | None:
    """Return the counts of a line; None without that many.

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
        return _Counts(found, text[_CELL * number :], True)
    words = text.split(None, number)
    if len(words) < number or not all(map(bytes.isdigit, words[:number])):
        return None
    found = {place: int(word[:20]) for place, word in enumerate(words[:number]) if word != b"0"}
    return _Counts(found, words[number] if len(words) > number else b"", False)


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
