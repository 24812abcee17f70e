"""A node drawn down to the thread, each CPU marked with who holds it."""

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from rich.text import Text

from numazones import cpuset
from numazones.alignment.pod_alignment import PodAlignment
from numazones.apimachinery.quantity import format_rounded
from numazones.apimachinery.resources import MEMORY
from numazones.kubelet.machine import CPU
from numazones.placement.occupancy import Occupancy

_COLOURS = (
    "cyan",
    "magenta",
    "blue",
    "yellow",
    "green",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_blue",
)
_RESERVED, _FREE, _SHARED, _OFFLINE = "▒", "·", "○", "✕"
_PLAIN = {_RESERVED: "#", _FREE: ".", _SHARED: "o", _OFFLINE: "-"}
WIDTH = 100
"""Columns where the width of the output is not known."""
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


class Drawing:
    """One node's picture, line by line."""

    def __init__(
        self,
        name: str,
        occupancy: Occupancy,
        lying: Mapping[str, PodAlignment] = MappingProxyType({}),
        *,
        plain: bool,
        width: int = WIDTH,
    ) -> None:
        """Prepare the picture of a node.

        Args:
            name: of the node.
            occupancy: who holds what.
            lying: pod's NAMESPACE/NAME → how what it holds lies; the legend names what is not aligned.
            plain: ASCII characters only.
            width: columns; rows of cores are folded to them.
        """
        self._width = width
        self._name, self._occupancy, self._lying, self._plain = name, occupancy, lying, plain
        self._holders = [holder for holder in occupancy.holders if holder.cpus]
        self._holder_of = {
            cpu: number for number, holder in enumerate(self._holders) for cpu in cpuset.ids(holder.cpus)
        }
        self._zones = {zone.numa: zone for zone in occupancy.zones}

    def lines(self) -> Iterator[Text]:
        """Yield the picture: a heading, the sockets with their NUMA nodes, the legend."""
        yield Text(f"{self._name}: {self._occupancy.summary}", style="bold")
        cpus = self._occupancy.cpus
        first: dict[int, int] = {}
        for socket in sorted({cpu.socket for cpu in cpus}):
            yield Text(f"{self._edge('┌')} socket {socket}", style="bold")
            for numa in self._zones:
                here = [cpu for cpu in cpus if cpu.socket == socket and cpu.numa == numa]
                if here and first.setdefault(numa, socket) != socket:
                    yield self._heading(numa, f"  continued from socket {first[numa]}")
                    yield from self._cores(here)
                elif here:
                    yield from self._zone(numa, here)
        bare = sorted(self._zones.keys() - {cpu.numa for cpu in cpus})
        if bare:
            yield Text(f"{self._edge('┌')} no socket: memory only", style="bold")
        for numa in bare:
            yield from self._zone(numa, [])
        yield from self._legend()

    def _zone(self, numa: int, cpus: Iterable[CPU]) -> Iterator[Text]:
        bar = self._edge("│")
        yield self._heading(numa, self._memory(numa))
        yield from self._cores(cpus)
        if offline := self._occupancy.offline.get(numa, 0):
            signs = [(self._sign(_OFFLINE), "dim")]
            title = f"offline {cpuset.format(offline)}: "
            yield from self._row(title, [signs] * offline.bit_count())
        devices = "; ".join(
            f"{use.resource} {use.healthy - use.held} of {use.total} free"
            for use in self._zones[numa].devices
        )
        if devices:
            yield Text(f"{bar}    {devices}")

    def _heading(self, numa: int, says: str) -> Text:
        return Text(f"{self._edge('│')}  NUMA node {numa}{says}", style="bold")

    def _cores(self, cpus: Iterable[CPU]) -> Iterator[Text]:
        for cache, cores in _cores_by_cache(cpus):
            title = "" if cache is None else f"L3 {cache}: "
            yield from self._row(title, [[self._mark(cpu) for cpu in core] for core in cores])

    def _row(self, title: str, cores: Iterable[Sequence[tuple[str, str]]]) -> Iterator[Text]:
        """Yield a title and cores, in as many lines as the width needs."""
        frame = f"{self._edge('│')}    "
        line = Text(frame + title)
        start = len(line)
        for core in cores:
            if len(line) > start and len(line) + 1 + len(core) > self._width:
                yield line
                line = Text(frame + " " * len(title))
            line.append(" " if len(line) > start else "")
            for mark in core:
                line.append(*mark)
        yield line

    def _mark(self, cpu: int) -> tuple[str, str]:
        holder = self._holder_of.get(cpu)
        if holder is not None:
            return _LETTERS[holder % len(_LETTERS)], _COLOURS[holder % len(_COLOURS)]
        if self._occupancy.reserved >> cpu & 1:
            return self._sign(_RESERVED), "dim"
        return self._sign(_FREE if self._occupancy.exclusive else _SHARED), "dim"

    def _memory(self, numa: int) -> str:
        """Memory in use and in all, where somebody binds it to zones."""
        parts = [
            f"{format_rounded(held)} of {format_rounded(whole)}{'' if kind == MEMORY else f' {kind}'}"
            for kind, held, whole in self._zones[numa].memory
        ]
        if not parts:
            amount = self._occupancy.total_memory.get(numa, 0)
            return f"  {format_rounded(amount)} (not managed per NUMA node)" if amount else "  no memory"
        return "  " + ", ".join(parts) + " in use"

    def _legend(self) -> Iterator[Text]:
        yield Text()
        for number, holder in enumerate(self._holders):
            line = Text()
            line.append(_LETTERS[number % len(_LETTERS)], _COLOURS[number % len(_COLOURS)])
            line.append(f" {holder.name}: {cpuset.format(holder.cpus)}")
            lying = self._lying.get(holder.name)
            if lying is not None and not lying.aligned:
                line.append(f"  {lying.sentence}", "yellow")
            yield line
        offline = f"   {self._sign(_OFFLINE)} offline" if self._occupancy.offline else ""
        if self._occupancy.exclusive:
            says = f"{self._sign(_RESERVED)} reserved   {self._sign(_FREE)} free (shared pool)"
        else:
            says = f"{self._sign(_SHARED)} shared: the CPU Manager allocates no exclusive CPUs"
        yield Text(says + offline, style="dim")

    def _sign(self, sign: str) -> str:
        return _PLAIN[sign] if self._plain else sign

    def _edge(self, edge: str) -> str:
        return {"┌": "+", "│": "|"}[edge] if self._plain else edge


def _cores_by_cache(cpus: Iterable[CPU]) -> Iterator[tuple[int | None, list[list[int]]]]:
    """Group CPUs by their uncore cache, and there by their cores."""
    groups: dict[int | None, dict[int, list[int]]] = {}
    for cpu in sorted(cpus, key=lambda cpu: cpu.id):
        groups.setdefault(cpu.uncore_cache, {}).setdefault(cpu.core, []).append(cpu.id)
    for cache, cores in groups.items():
        yield cache, sorted(cores.values())
