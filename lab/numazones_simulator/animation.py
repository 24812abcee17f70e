"""A command's output as an animated SVG: a terminal of 80 columns that fills, and is cleared when it is full.

No script, no font, no request: style sheets animate an SVG wherever images are shown, as in a README. Who
asks for less motion sees the last screen.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

_COLUMNS, _ROWS = 80, 25
"""Longer lines are broken; what does not fit under the rest begins a new screen."""
_CELL, _LINE, _MARGIN, _BAR = 7.83, 19, 18, 34
_SHORTEST, _PER_LINE = 2.5, 0.28
"""Seconds that a part stays before the next one comes: at least, and more for each line."""
_GAP = re.compile(r" {2,}(?=\S)")
_WIDEST_INDENT = 40
"""Where the last column of a row begins further right, what is broken off it is indented by less."""
_INDENT = "    "
_COMMAND = re.compile(r"^kubectl ")
_HEADING = re.compile(r"^[A-Z][A-Z-]+(?: [A-Z]+)*(?: {2,}[A-Z-]+(?: [A-Z]+)*)+ *$")
_WORDS = re.compile(
    r"(?P<bad>\b(?:Failed|Inadmissible|TopologyAffinityError|SMTAlignmentError|rejected)\b)"
    r"|(?P<good>\b(?:Running|Admissible|Admitted|Succeeded|came true)\b)"
    r"|(?P<quiet>\b(?:Excluded|Pending|Waiting)\b|<none>)"
)
_STYLE = """
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    fill: #d6d9e0; white-space: pre; }}
.window {{ fill: #16181d; }} .bar {{ fill: #262a32; }} .name {{ fill: #8a919e; }}
.title {{ fill: #6cd4c4; font-weight: bold; }} .command {{ fill: #ffffff; font-weight: bold; }}
.heading, .quiet {{ fill: #8a919e; }} .bad {{ fill: #ff8f80; }} .good {{ fill: #7bd88f; }}
g {{ visibility: hidden; animation-duration: {total:.1f}s; animation-iteration-count: infinite;
    animation-timing-function: step-end; }}
{frames}
@media (prefers-reduced-motion) {{ g {{ animation: none; }} .last {{ visibility: visible; }} }}
"""


class _Part(NamedTuple):
    """A page of the output, or what of it fits a screen."""

    lines: tuple[str, ...]
    screen: int
    row: int
    """On the screen, where it begins."""
    titled: bool

    @property
    def seconds(self) -> float:
        return _SHORTEST + _PER_LINE * len(self.lines)


def animated(pages: Sequence[Sequence[str]]) -> str:
    """Return the SVG; the first line of each page is its title, pages without lines are left out."""
    parts = list(_parts(pages))
    width = _COLUMNS * _CELL + 2 * _MARGIN
    height = _BAR + _ROWS * _LINE + 2 * _MARGIN
    last = parts[-1].screen
    style = _STYLE.format(total=sum(part.seconds for part in parts), frames=_frames(parts))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>numazones-simulator demo</title>",
            f"<style>{style}</style>",
            *_window(width, height),
            *(_group(number, part, last=part.screen == last) for number, part in enumerate(parts)),
            "</svg>\n",
        ]
    )


def _window(width: float, height: float) -> Iterator[str]:
    """Draw the terminal's frame and its bar."""
    yield f'<rect class="window" width="{width:.0f}" height="{height}" rx="10"/>'
    yield f'<path class="bar" d="M0 {_BAR}V10a10 10 0 0 1 10-10H{width - 10:.0f}a10 10 0 0 1 10 10V{_BAR}z"/>'
    for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        yield f'<circle cx="{20 + 18 * number}" cy="{_BAR / 2}" r="5.5" fill="{colour}"/>'
    place = f'x="{width / 2:.0f}" y="{_BAR / 2 + 4.5}"'
    yield f'<text class="name" {place} text-anchor="middle">make demo</text>'


def _parts(pages: Sequence[Sequence[str]]) -> Iterator[_Part]:
    """Lay pages out on screens, one below the other as long as there is room."""
    screen = row = 0
    for page in pages:
        text = "\n".join(page).strip("\n")
        lines = [part for line in text.splitlines() for part in _broken(line)]
        if row and row + 1 + len(lines) > _ROWS:
            screen, row = screen + 1, 0
        row += bool(row and lines)
        titled = True
        while lines:
            end = _end_of_screen(lines, _ROWS - row)
            yield _Part(tuple(lines[:end]), screen, row, titled)
            row, lines, titled = row + end, lines[end:], False
            while lines and not lines[0]:
                lines.pop(0)
            if lines:
                screen, row = screen + 1, 0


def _end_of_screen(lines: Sequence[str], room: int) -> int:
    """Return how many lines to show: up to a blank one, where not all fit."""
    if len(lines) <= room:
        return len(lines)
    return max((index for index in range(1, room + 1) if not lines[index]), default=room)


def _broken(line: str) -> list[str]:
    """Break a line that is too long: below its last column, or below what a list's item says."""
    item = re.match(r" *- ", line)
    gaps = [match.end() for match in _GAP.finditer(line) if match.end() <= _WIDEST_INDENT]
    indent = " " * (item.end() if item else gaps[-1] if gaps and not line.startswith(" ") else len(_INDENT))
    return textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, replace_whitespace=False) or [""]


def _frames(parts: Sequence[_Part]) -> str:
    """Return the frames that show each part from its turn on until its screen is cleared."""
    total = sum(part.seconds for part in parts)
    rules, before = [], 0.0
    for number, part in enumerate(parts):
        until = sum(other.seconds for other in parts if other.screen <= part.screen)
        steps = (
            f"{100 * before / total:.2f}% {{ visibility: visible; }} "
            f"{100 * until / total:.2f}% {{ visibility: hidden; }}"
        )
        hidden = "0% { visibility: hidden; } " if number else ""
        rules.append(
            f"@keyframes p{number} {{ {hidden}{steps} }}\n.p{number} {{ animation-name: p{number}; }}"
        )
        before += part.seconds
    return "\n".join(rules)


def _group(number: int, part: _Part, *, last: bool) -> str:
    lines = []
    for index, line in enumerate(part.lines):
        if line:
            y = _BAR + _MARGIN + _LINE * (part.row + index) + 13
            lines.append(_text(line, y, title=part.titled and not index))
    return f'<g class="p{number}{" last" if last else ""}">\n' + "\n".join(lines) + "\n</g>"


def _text(line: str, y: int, *, title: bool) -> str:
    if title:
        prompt = '<tspan class="quiet">$ </tspan>' if _COMMAND.match(line) else ""
        kind = "title command" if prompt else "title"
        return f'<text class="{kind}" x="{_MARGIN}" y="{y}">{prompt}{escape(line)}</text>'
    kind = "heading" if _HEADING.match(line) else "text"
    return f'<text class="{kind}" x="{_MARGIN}" y="{y}">{_coloured(line)}</text>'


def _coloured(line: str) -> str:
    """Return a line in which the words that tell good from bad are marked."""
    parts, end = [], 0
    for match in _WORDS.finditer(line):
        parts += [
            escape(line[end : match.start()]),
            f'<tspan class="{match.lastgroup}">{escape(match[0])}</tspan>',
        ]
        end = match.end()
    return "".join([*parts, escape(line[end:])])
