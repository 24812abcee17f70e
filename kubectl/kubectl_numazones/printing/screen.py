"""Rendering of answers: tables and bars on a terminal, JSON for programs.

Tables carry no lines, as kubectl's, and are folded to the terminal; where there is none (a pipe, a file)
nothing is folded and nothing is coloured. ``NO_COLOR`` is honoured by rich.
"""

import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime

import click
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kubectl_numazones.printing.folding import GAP, NARROW_GAP, column_widths, folded, natural_widths
from numazones.apimachinery import timestamp
from numazones.apimachinery.duration import human_duration
from numazones.wording import visible
from numazones_program.columns import Cell, Column, Row, cells, lay_out, shown

_PIPE_WIDTH = 400
_BAR, _BAR_WIDTH = "█▉▊▋▌▍▎▏", 10


def console() -> Console:
    """Return the console of standard output."""
    found = _Console(highlight=False, soft_wrap=False, legacy_windows=False)
    if not found.is_terminal:
        found = _Console(highlight=False, width=_PIPE_WIDTH, legacy_windows=False)
    return found


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, as ``click.echo`` does; nothing in it can command the terminal."""
    click.echo(visible(text), err=err, nl=nl)


class Visible:
    """Renderable without any control sequence that could command the terminal."""

    def __init__(self, content: RenderableType) -> None:
        """``content``: may hold text from anywhere."""
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the content."""
        yield from map(_visible_segment, console.render(self._content, options))


class _Console(Console):
    """Shows what text from anywhere holds, and does not obey it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, text being text."""
        return map(_visible_segment, super().render(renderable, options))


def _visible_segment(segment: Segment) -> Segment:
    return segment if segment.control else segment._replace(text=visible(segment.text))


def print_table(
    columns: Iterable[Column[Row]], rows: Iterable[Row], *, wide: bool = False, fold: bool = True
) -> None:
    """Print rows below their columns' titles; a narrow terminal goes without expendable columns.

    ``wide``: show wide columns, and drop no expendable ones; ``fold``: make a table fit that is wider than
    the terminal.
    """
    target, listed = console(), shown(columns, wide=wide)
    lines = [[_one_line(cell) for cell in cells(listed, row)] for row in rows]
    if target.is_terminal:
        widths = natural_widths([[column.title for column in listed], *lines])
    if not target.is_terminal or not (fold or _needed(widths, GAP) <= target.width):
        click.echo(lay_out(listed, lines), nl=False)
        return
    kept = range(len(listed)) if wide else _that_fit(listed, widths, lines, target.width)
    _print_folded(
        [listed[index] for index in kept],
        [[line[index] for index in kept] for line in lines],
        [widths[index] for index in kept],
        target,
    )


def _that_fit(
    columns: Sequence[Column[Row]], widths: Sequence[int], lines: Sequence[Sequence[str | Text]], room: int
) -> list[int]:
    """Return the columns that there is room for, by index.

    Those that are empty go first, then the expendable ones; if none is expendable, all stay.
    """
    expendable = sorted(
        (column.expendable, index) for index, column in enumerate(columns) if column.expendable
    )
    kept = list(range(len(columns)))
    empty = [index for index in kept if expendable and not any(line[index] for line in lines)]
    for index in dict.fromkeys((*empty, *(index for _, index in expendable))):
        if _needed([widths[one] for one in kept], NARROW_GAP) <= room:
            break
        kept.remove(index)
    return kept


def _needed(widths: Sequence[int], gap: int) -> int:
    """Return how wide a terminal must be for the columns."""
    return sum(widths) + gap * (len(widths) - 1)


def _print_folded(
    columns: Sequence[Column[Row]],
    lines: Sequence[Sequence[str | Text]],
    natural: Sequence[int],
    target: Console,
) -> None:
    """Print to a terminal; what is styled, such as a bar, is not folded."""
    fixed = {index for line in lines for index, cell in enumerate(line) if isinstance(cell, Text)}
    widths, gap = column_widths(natural, target.width, fixed=fixed)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            _folded(column.title, width),
            justify="right" if column.right else "left",
            no_wrap=True,
            min_width=width,
        )
    for line in lines:
        table.add_row(*(_folded(cell, width) for cell, width in zip(line, widths, strict=True)))
    target.print(table, overflow="ignore", no_wrap=True)


def details_table(columns: Iterable[Column[Row]], rows: Iterable[Row], *, title: str = "") -> Table:
    """Return a table for a screen of ``live``, which folds it; everything is aligned to the left."""
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold dim",
        title=title or None,
        title_justify="left",
        title_style="bold",
    )
    columns = list(columns)
    for column in columns:
        table.add_column(column.title, overflow="fold")
    for row in rows:
        table.add_row(*map(literal, cells(columns, row)))
    return table


def say(line: str) -> None:
    """Print a line of an answer; on a terminal it is folded at words, what follows indented beneath."""
    line, target = visible(line), console()
    if not target.is_terminal or len(line) <= target.width:
        click.echo(line)
        return
    blanks = line[: len(line) - len(line.lstrip())]
    indent = blanks + ("  " if line.lstrip().startswith("- ") else "")
    first, *others = folded(line, target.width - len(blanks), indent=indent.removeprefix(blanks))
    for text in (first, *others):
        click.echo(f"{blanks}{text}")


def age(since: str, now: datetime) -> str:
    """Return how long ago a moment was, as kubectl writes ages."""
    return human_duration((now - timestamp.parse(since)).total_seconds()) if since else "<unknown>"


def literal(cell: Cell) -> Text:
    """Show text as it is: names and messages may hold brackets, which rich would take for its markup."""
    return cell if isinstance(cell, Text) else Text(visible(str(cell), lines=False))


def _one_line(cell: Cell) -> str | Text:
    return cell if isinstance(cell, Text) else visible(str(cell), lines=False)


def _folded(cell: str | Text, width: int) -> Text:
    return cell if isinstance(cell, Text) else Text("\n".join(folded(cell, width)))


def warn(message: str) -> None:
    """Say something beside the answer, on standard error; an empty message is none."""
    if message:
        echo(f"warning: {message}", err=True)


def warn_of(doubts: Iterable[str]) -> None:
    """Say what is not certain about the answer, on standard error."""
    warn("; ".join(f"not certain: {doubt}" for doubt in doubts))


def bar(share: float) -> Text:
    """Draw a share from 0 to 1 as a bar; what is scarce stands out."""
    share = min(max(share, 0.0), 1.0)
    colour = "green" if share < 0.7 else "yellow" if share < 0.95 else "red"  # noqa: PLR2004 - what the eye expects
    full, rest = divmod(round(share * _BAR_WIDTH * 8), 8)
    drawn = _BAR[0] * full + (_BAR[8 - rest] if rest else "")
    return Text(drawn.ljust(_BAR_WIDTH, "·"), style=colour)


def width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns
