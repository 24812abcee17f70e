"""Text and tables folded to a width: nothing is cut, words stay whole where they can."""

import re
from collections.abc import Iterable, Iterator, Sequence

GAP, NARROW_GAP = 3, 2
"""Blanks between columns, and where there is little room."""
_WORDS = 24
"""What the last column keeps before others are folded."""
_LEAST = 4
_PARTS = re.compile(r"[^,/.\-]*[,/.\-]|[^,/.\-]+")
"""Long words (names, lists of CPUs) are broken behind these."""


def folded(text: str, width: int, *, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text, at most so wide; all but the first begin with the indent."""
    line = ""
    for word in text.split():
        if line.strip() and len(line) + 1 + len(word) <= width:
            line += f" {word}"
            continue
        if line.strip():
            yield line
            line = indent
        for part in _parts(word, width - len(indent)):
            if line.strip() and len(line) + len(part) > width:
                yield line
                line = indent
            line += part
    yield line


def _parts(word: str, width: int) -> Iterator[str]:
    """Yield the word; of one that is too long the parts between which it may be broken."""
    if len(word) <= width:
        yield word
        return
    for part in _PARTS.findall(word):
        yield from (part[at : at + width] for at in range(0, len(part), width))


def natural_widths(rows: Iterable[Sequence[object]]) -> list[int]:
    """Return how wide each column is."""
    return [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]


def column_widths(natural: Sequence[int], room: int, *, fixed: Iterable[int] = ()) -> tuple[list[int], int]:
    """Return widths of columns and the gap between them, so that a table has so much room.

    The last column, which says why, gives way first, then the widest; ``fixed`` cannot be folded. What is too
    narrow for any table stays too wide.
    """
    widths, gap = list(natural), GAP
    if sum(widths) + GAP * (len(widths) - 1) <= room:
        return widths, gap
    gap = NARROW_GAP
    excess = sum(widths) + gap * (len(widths) - 1) - room
    last = len(widths) - 1
    kept = set(fixed)
    if excess > 0 and last not in kept:
        given = min(excess, max(0, widths[last] - _WORDS))
        widths[last] -= given
        excess -= given
    foldable = [index for index in range(len(widths)) if index not in kept]
    while excess > 0 and any(widths[index] > _LEAST for index in foldable):
        widest = max(foldable, key=lambda index: (widths[index], index))
        widths[widest] -= 1
        excess -= 1
    return widths, gap
