"""A command's output as an animated SVG: a terminal that shows one page after the other.

No script, no font, no request: style sheets animate an SVG wherever images are shown, as in a README. Who
asks for less motion sees the last page.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from numazones_simulator.screen import broken

_COLUMNS = 80
"""Longer lines are broken."""
_CELL, _LINE, _MARGIN = 7.25, 18, 16
_SHORTEST, _PER_LINE = 4.0, 0.35
"""Seconds that a page stays: at least, and more for each line."""
_STYLE = """
svg {{ background: #16181d; border-radius: 8px; }}
text {{ font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6d9e0;
    white-space: pre; }}
.title {{ fill: #6cd4c4; font-weight: bold; }}
g {{ visibility: hidden; animation-duration: {total:.1f}s; animation-iteration-count: infinite;
    animation-timing-function: step-end; }}
{frames}
@media (prefers-reduced-motion) {{ g {{ animation: none; }} g:last-of-type {{ visibility: visible; }} }}
"""


def animated(pages: Sequence[Sequence[str]]) -> str:
    """Return the SVG; the first line of each page is its title, pages without lines are left out."""
    texts = ("\n".join(page).strip("\n") for page in pages)
    shown = [
        [part for line in text.splitlines() for part in broken(line, _COLUMNS)] for text in texts if text
    ]
    times = [_SHORTEST + _PER_LINE * len(page) for page in shown]
    width = _COLUMNS * _CELL + 2 * _MARGIN
    height = max(map(len, shown)) * _LINE + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>numazones-simulator demo</title>",
            f"<style>{_STYLE.format(total=sum(times), frames=_frames(times))}</style>",
            *(_group(number, page) for number, page in enumerate(shown)),
            "</svg>\n",
        ]
    )


def _frames(times: Sequence[float]) -> str:
    """Return the frames that show each page for its share of the time."""
    rules, before, total = [], 0.0, sum(times)
    for number, seconds in enumerate(times):
        begin, before = 100 * before / total, before + seconds
        steps = (
            f"{begin:.2f}% {{ visibility: visible; }} {100 * before / total:.2f}% {{ visibility: hidden; }}"
        )
        hidden = "0% { visibility: hidden; } " if number else ""
        rules.append(
            f"@keyframes p{number} {{ {hidden}{steps} }}\n.p{number} {{ animation-name: p{number}; }}"
        )
    return "\n".join(rules)


def _group(number: int, page: Sequence[str]) -> str:
    lines = (
        f'<text class="{"text" if row else "title"}" x="{_MARGIN}" y="{_MARGIN + _LINE * row + 12}">'
        f"{escape(line)}</text>"
        for row, line in enumerate(page)
        if line
    )
    return f'<g class="p{number}">\n' + "\n".join(lines) + "\n</g>"
