"""A node as a picture for documents: SVG, as lstopo draws machines, coloured by who holds what.

It follows the reader's light or dark mode, uses the fonts of the system, and says in its description what the
colours say. Every name is escaped; characters that XML does not know are replaced.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any, NamedTuple

from numazones import cpuset
from numazones.alignment.pod_alignment import PodAlignment
from numazones.apimachinery.quantity import format_rounded
from numazones.apimachinery.resources import MEMORY
from numazones.placement.occupancy import Holder, Occupancy, ZoneUse
from numazones.wording import pluralize
from numazones_page.documents import machine_document

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_COLOURS = ("f2b134", "7cc4f0", "62c79e", "efe15a", "9db1f5", "f39a76", "e3a6cb", "c3b9a8")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_WIDTH = 960
_MARGIN = 20
_GAP = 14
_PAD = 12
_CELL = 18
_ROW = 20
_MAX_SQUARES = 12
_NAME = 46
"""Characters of a name that fit into a column of the legend."""

_STYLE = """
svg { --paper: #ffffff; --box: #f4f7f9; --ink: #14202b; --quiet: #51606e; --line: #cfd8e0;
  --held: #2569a3; --track: #dde5ec; --reserved: #aab6c1;
  --warn: #9a4a06; }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1319; --box: #18212a; --ink: #e6edf3;
  --quiet: #9fb0bf; --line: #34424f; --held: #5ba6d8; --track: #2a3641; --reserved: #61717f;
  --warn: #eb9f51; } }
text { font: 12px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--ink); }
.h { font-size: 17px; font-weight: 650; } .b { font-weight: 600; } .q { fill: var(--quiet); }
.w { fill: var(--warn); }
.m { font-size: 11px; font-weight: 650; text-anchor: middle; fill: #16191c; }
.paper { fill: var(--paper); } .box { fill: var(--box); } .line { fill: none; stroke: var(--line); }
.track { fill: var(--track); } .held { fill: var(--held); }
.core { fill: var(--paper); stroke: var(--line); }
.free { fill: var(--paper); stroke: var(--reserved); } .hatch { stroke: var(--reserved); }
.reserved { fill: url(#hatch); stroke: var(--reserved); }
.shared { fill: var(--paper); stroke: var(--line); stroke-dasharray: 2 2; }
.offline { fill: none; stroke: var(--line); }
""" + "".join(f".c{index} {{ fill: #{colour}; }}\n" for index, colour in enumerate(_COLOURS))


class _Mark(NamedTuple):
    """Drawing of a CPU or a device."""

    kind: str
    letter: str
    says: str


def machine_svg(
    name: str, occupancy: Occupancy, lying: Mapping[str, PodAlignment] = MappingProxyType({})
) -> str:
    """Draw a node; ``lying``: pod's NAMESPACE/NAME → how what it holds lies, said of what is not aligned."""
    picture = _Picture(occupancy, lying)
    height = picture.draw(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">\n'
        f'<title id="title">{_text(name)}</title>\n<desc id="desc">{_text(_description(occupancy))}</desc>\n'
        f"<style>{_STYLE}</style>\n"
        '<defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path d="M0 0V4" class="hatch" stroke-width="2"/></pattern></defs>\n'
        f'<rect width="{_WIDTH}" height="{height}" rx="10" class="paper"/>\n'
        + "\n".join(picture.parts)
        + "\n</svg>\n"
    )


def _description(occupancy: Occupancy) -> str:
    if not occupancy.exclusive:
        return "No container has exclusive CPUs."
    zones = (f"NUMA node {zone.numa}: CPUs {_cpus(zone)}" for zone in occupancy.zones)
    return "; ".join(zones) + f"; {pluralize(len(occupancy.holders), 'pod')}"


class _Picture:
    """Drawing so far, from the top down."""

    def __init__(self, occupancy: Occupancy, lying: Mapping[str, PodAlignment]) -> None:
        self.parts: list[str] = []
        self._lying = lying
        self._occupancy = occupancy
        self._zones = {zone.numa: zone for zone in occupancy.zones}
        self._marks = _marks(occupancy)

    def draw(self, name: str) -> int:
        """Draw everything; return the height."""
        self._write(_MARGIN, 36, name, "h")
        settings = " · ".join(f"{key} {value}" for key, value in self._occupancy.settings)
        self._write(_MARGIN, 56, settings, "q")
        y = 72
        for row in _rows(machine_document(self._occupancy)["sockets"]):
            width = (_WIDTH - 2 * _MARGIN - _GAP * (len(row) - 1)) // len(row)
            lowest = max(
                self._socket(socket, _MARGIN + index * (width + _GAP), y, width)
                for index, socket in enumerate(row)
            )
            y = lowest + _GAP
        return self._legend(y + 4) + _MARGIN

    def _socket(self, socket: Mapping[str, Any], x: int, y: int, width: int) -> int:
        at = len(self.parts)
        self._write(
            x + _PAD, y + 20, "without CPUs" if socket["id"] is None else f"Socket {socket['id']}", "q"
        )
        columns = min(2, len(socket["zones"]))
        inner = (width - 2 * _PAD - _GAP * (columns - 1)) // columns
        top = y + 30
        for first in range(0, len(socket["zones"]), columns):
            row = socket["zones"][first : first + columns]
            bottoms = [
                self._zone(zone, x + _PAD + index * (inner + _GAP), top, inner)
                for index, zone in enumerate(row)
            ]
            top = max(bottoms) + _GAP
        self._box(x, y, width, top - y, "line", at=at, radius=10)
        return top

    def _zone(self, zone: Mapping[str, Any], x: int, y: int, width: int) -> int:
        at, inner = len(self.parts), width - 2 * _PAD
        continued = f", continued from socket {zone['continued']}" if "continued" in zone else ""
        self._write(x + _PAD, y + 22, f"NUMA node {zone['id']}{continued}", "b")
        top = y + 32
        use = None if continued else self._zones.get(zone["id"])
        for label, says, share in _amounts(zone, use, exclusive=self._occupancy.exclusive):
            self._write(x + _PAD, top + 12, label, "q")
            self._write(x + _PAD + inner, top + 12, says, "", anchor="end")
            self._bar(x + _PAD, top + 17, inner, share)
            top += 30
        top += 2
        left, bottom = x + _PAD, top
        for cache in zone["caches"]:
            wide = min(inner, 12 + sum(_core_width(core) + 4 for core in cache["cores"]))
            if left > x + _PAD and left + wide > x + _PAD + inner:
                left, top = x + _PAD, bottom + 8
            bottom = max(bottom, self._cache(cache, left, top, wide))
            left += wide + 8
        top = bottom + 8 if zone["caches"] else top
        if offline := zone.get("offline"):
            top = self._offline(offline, x + _PAD, top, inner)
        for one in use.devices if use else ():
            if one.healthy:
                top = self._devices(zone["id"], one.resource, one.healthy, x + _PAD, top, inner)
        self._box(x, y, width, top + 4 - y, "box", at=at, radius=8)
        return top + 4

    def _cache(self, cache: Mapping[str, Any], x: int, y: int, width: int) -> int:
        at, top = len(self.parts), y + 8
        if cache["id"] is not None:
            self._write(x + 8, y + 16, f"L3 {cache['id']}", "q")
            top = y + 24
        left = x + 8
        for core in cache["cores"]:
            wide = _core_width(core)
            if left + wide > x + width - 8:
                left, top = x + 8, top + _CELL + 8
            self.parts.append(
                f'<rect x="{left}" y="{top}" width="{wide}" height="{_CELL + 4}" rx="4" class="core"/>'
            )
            for index, cpu in enumerate(core):
                self._cell(left + 2 + index * (_CELL + 2), top + 2, self._marks[cpu])
            left += wide + 4
        bottom = top + _CELL + 12
        self._box(x, y, width, bottom - y, "line", at=at, radius=6)
        return bottom

    def _offline(self, cpus: Sequence[int], x: int, y: int, width: int) -> int:
        """Draw CPUs that are offline, in rows."""
        self._write(x, y + 15, "offline", "q", says=f"offline: CPUs {cpuset.format(cpuset.of(cpus))}")
        left, top = x + 60, y + 2
        for cpu in cpus:
            if left + _CELL > x + width:
                left, top = x + 60, top + _CELL + 4
            self._cell(left, top, _Mark("offline", "", f"CPU {cpu}: offline"))
            left += _CELL + 3
        return top + _CELL + 4

    def _devices(self, numa: int, resource: str, whole: int, x: int, y: int, width: int) -> int:
        """One resource's devices near a zone, a square each as long as there is room."""
        held = list(_device_marks(self._occupancy, numa, resource))[:whole]
        self._write(x, y + 15, _cut(resource.rpartition("/")[2], 20), "q")
        self._write(x + width, y + 15, f"{len(held)} of {whole}", "", anchor="end")
        marks = held + [_Mark("free", "", f"{resource}: free")] * (whole - len(held))
        for index, mark in enumerate(marks[:_MAX_SQUARES]):
            self._cell(x + 130 + index * (_CELL + 3), y + 2, mark)
        return y + _CELL + 6

    def _legend(self, y: int) -> int:
        half = (_WIDTH - 2 * _MARGIN) // 2
        top = y
        for index, holder in enumerate(self._occupancy.holders):
            x = _MARGIN + index % 2 * half
            top = y + index // 2 * _ROW
            self._cell(x, top, _mark(holder, index))
            self._write(x + _CELL + 8, top + 13, f"{_cut(holder.name, _NAME)}", "b", says=holder.name)
            cpus, lying = cpuset.format(holder.cpus), self._lying.get(holder.name)
            if lying is None or lying.aligned:
                self._write(x + half - _GAP, top + 13, _cut(cpus, 18), "q", anchor="end")
            else:
                says = f"{cpus}: {lying.sentence}" if cpus else lying.sentence
                said = f"{lying.alignment} {_cut(cpus, 18)}"
                self._write(x + half - _GAP, top + 13, said, "w", anchor="end", says=says)
        if self._occupancy.holders:
            top += _ROW + 8
        kinds: tuple[tuple[str, str], ...] = (
            (("free", "free"), ("reserved", "reserved"))
            if self._occupancy.exclusive
            else (("shared", "shared"),)
        )
        if self._occupancy.offline:
            kinds = (*kinds, ("offline", "offline"))
        for index, (kind, says) in enumerate(kinds):
            self._cell(_MARGIN + index * 110, top, _Mark(kind, "", says))
            self._write(_MARGIN + index * 110 + _CELL + 8, top + 13, says, "q")
        return top + _ROW

    # Strokes

    def _cell(self, x: int, y: int, mark: _Mark) -> None:
        self.parts.append(
            f'<g><title>{_text(mark.says)}</title><rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" '
            f'rx="3" class="{mark.kind}"/>'
            + (
                f'<text x="{x + _CELL / 2:g}" y="{y + 13}" class="m">{mark.letter}</text>'
                if mark.letter
                else ""
            )
            + "</g>"
        )

    def _bar(self, x: int, y: int, width: int, share: float) -> None:
        self._box(x, y, width, 5, "track", radius=2)
        if share > 0:
            self._box(x, y, max(3, round(width * min(share, 1.0))), 5, "held", radius=2)

    def _box(
        self, x: int, y: int, width: int, height: int, kind: str, *, at: int | None = None, radius: int
    ) -> None:
        """Draw a box; ``at``: below what was drawn since."""
        drawn = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" class="{kind}"/>'
        self.parts.insert(len(self.parts) if at is None else at, drawn)

    def _write(self, x: int, y: int, text: str, kind: str, *, anchor: str = "", says: str = "") -> None:
        title = f"<title>{_text(says)}</title>" if says else ""
        end = ' text-anchor="end"' if anchor else ""
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}"{end}>{title}{_text(text)}</text>')


def _core_width(core: list[int]) -> int:
    return len(core) * (_CELL + 2) + 2


def _rows(sockets: list[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Sockets of one zone stand side by side, larger ones alone."""
    row: list[Mapping[str, Any]] = []
    for socket in sockets:
        if len(socket["zones"]) > 1:
            if row:
                yield row
            yield [socket]
            row = []
            continue
        row.append(socket)
        if len(row) == 2:  # noqa: PLR2004 - side by side
            yield row
            row = []
    if row:
        yield row


def _amounts(
    zone: Mapping[str, Any], use: ZoneUse | None, *, exclusive: bool
) -> Iterator[tuple[str, str, float]]:
    """(resource, held of allocatable, share) for each bar of a zone."""
    if use is not None and exclusive and zone["caches"]:
        yield "CPUs", _cpus(use), use.cpus[0] / use.cpus[1] if use.cpus[1] else 0.0
    kinds = () if use is None else use.memory
    for kind, held, whole in kinds:
        yield kind, f"{format_rounded(held)} of {format_rounded(whole)}", held / whole if whole else 0.0
    if zone["memory"] and not any(kind == MEMORY for kind, _, _ in kinds):
        yield MEMORY, f"{format_rounded(zone['memory'])}, not managed per NUMA node", 0.0


def _cpus(zone: ZoneUse) -> str:
    return f"{zone.cpus[0]} of {zone.cpus[1]} held"


def _marks(occupancy: Occupancy) -> dict[int, _Mark]:
    """CPU → how it is drawn."""
    kind = "free" if occupancy.exclusive else "shared"
    marks = {cpu.id: _Mark(kind, "", f"CPU {cpu.id}: {kind}") for cpu in occupancy.cpus}
    for cpu in cpuset.ids(occupancy.reserved):
        marks[cpu] = _Mark("reserved", "", f"CPU {cpu}: reserved")
    for index, holder in enumerate(occupancy.holders):
        for cpu in cpuset.ids(holder.cpus):
            marks[cpu] = _mark(holder, index)._replace(says=f"CPU {cpu}: {holder.name}")
    return marks


def _device_marks(occupancy: Occupancy, numa: int, resource: str) -> Iterator[_Mark]:
    for index, holder in enumerate(occupancy.holders):
        for held in holder.devices:
            if held.resource == resource:
                for device in held.near_numa(numa).ids:
                    yield _mark(holder, index)._replace(says=f"{resource} {device}: {holder.name}")


def _mark(holder: Holder, index: int) -> _Mark:
    return _Mark(f"c{index % len(_COLOURS)}", LETTERS[index % len(LETTERS)], holder.name)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    return escape(_NO_XML.sub("\N{REPLACEMENT CHARACTER}", text), quote=False)
