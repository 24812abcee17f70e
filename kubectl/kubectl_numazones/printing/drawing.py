"""A node drawn down to the thread, each CPU marked with who holds it."""

import string
from collections.abc import Iterable, Iterator, Mapping
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
_RESERVED, _FREE, _SHARED = "▒", "·", "○"
_PLAIN = {_RESERVED: "#", _FREE: ".", _SHARED: "o"}
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
    ) -> None:
        """``lying``: pod's NAMESPACE/NAME → how what it holds lies; the legend names what is not aligned."""
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
        for socket in sorted({cpu.socket for cpu in cpus}):
            yield Text(f"{self._edge('┌')} socket {socket}", style="bold")
            for numa in self._zones:
                here = [cpu for cpu in cpus if cpu.socket == socket and cpu.numa == numa]
                if here:
                    yield from self._zone(numa, here)
        bare = sorted(self._zones.keys() - {cpu.numa for cpu in cpus})
        if bare:
            yield Text(f"{self._edge('┌')} no socket: memory alone", style="bold")
        for numa in bare:
            yield from self._zone(numa, [])
        yield from self._legend()

    def _zone(self, numa: int, cpus: Iterable[CPU]) -> Iterator[Text]:
        bar = self._edge("│")
        yield Text(f"{bar}  NUMA node {numa}{self._memory(numa)}", style="bold")
        for cache, cores in _cores_by_cache(cpus):
            line = Text(f"{bar}    " + (f"L3 {cache}: " if cache is not None else ""))
            for position, core in enumerate(cores):
                line.append(" " if position else "")
                for cpu in core:
                    line.append(*self._mark(cpu))
            yield line
        devices = "; ".join(
            f"{use.resource} {use.healthy - use.held} of {use.total} free"
            for use in self._zones[numa].devices
        )
        if devices:
            yield Text(f"{bar}    {devices}")

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
            return f"  {format_rounded(amount)} (not managed)" if amount else "  no memory"
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
        if self._occupancy.exclusive:
            yield Text(
                f"{self._sign(_RESERVED)} reserved   {self._sign(_FREE)} free (shared pool)", style="dim"
            )
        else:
            yield Text(f"{self._sign(_SHARED)} shared: the CPU manager gives no exclusive CPUs", style="dim")

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
