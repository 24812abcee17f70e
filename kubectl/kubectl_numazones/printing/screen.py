"""How answers are shown: tables and bars on a terminal, JSON for programs.

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

_PIPE_WIDTH = 400
_BAR = "█▉▊▋▌▍▎▏"


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
    """What rich shows, without anything in it that could command the terminal."""

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
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Iterable[str] = (),
    fold: bool = True,
) -> None:
    """Print rows below their columns' names; ``right`` names the columns of figures.

    ``fold``: whether a table that is wider than the terminal is made to fit.
    """
    rows = [tuple(map(_cell, row)) for row in rows]
    aligned = set(right)
    target = console()
    if not target.is_terminal or not (fold or _fits(columns, rows, target.width)):
        _print_plain(columns, rows, aligned)
        return
    cells = [tuple(columns), *rows]
    bars = {index for row in rows for index, cell in enumerate(row) if isinstance(cell, Text)}
    widths, gap = column_widths(natural_widths(cells), target.width, fixed=bars)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", show_header=True)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(
            _folded(name, width),
            justify="right" if name in aligned else "left",
            no_wrap=True,
            min_width=width,
        )
    for row in rows:
        table.add_row(*(_folded(cell, width) for cell, width in zip(row, widths, strict=True)))
    target.print(table, overflow="ignore", no_wrap=True)


def print_node_groups(groups: Iterable[tuple[int, str, str, str]]) -> None:
    """Print what nodes say to a pod, those that say the same in one line; nothing for none.

    ``groups``: of each (how many, the nearest, verdict, why).
    """
    rows = [(str(count), node, verdict, why) for count, node, verdict, why in groups]
    if rows:
        print_table(("NODES", "NEAREST", "VERDICT", "WHY"), rows, right=("NODES",))


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


def _fits(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int) -> bool:
    return _needed(columns, rows, range(len(columns)), GAP) <= width


def _needed(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], kept: Iterable[int], gap: int
) -> int:
    """How wide a terminal must be for these columns."""
    return sum(max(len(row[index]) for row in (columns, *rows)) + gap for index in kept) - gap


def literal(cell: str | Text) -> Text:
    """Show text as it is: names and messages may hold brackets, which rich would take for its markup."""
    return cell if isinstance(cell, Text) else Text(visible(cell, lines=False))


def _cell(cell: str | Text) -> str | Text:
    """A cell of a table, which is one line."""
    return cell if isinstance(cell, Text) else visible(cell, lines=False)


def _folded(cell: str | Text, width: int) -> Text:
    return cell if isinstance(cell, Text) else Text("\n".join(folded(cell, width)))


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: set[str]) -> None:
    """Print to a pipe: every cell whole, no trailing blanks."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        line = "   ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        )
        click.echo(line.rstrip())


def warn(message: str) -> None:
    """Say something beside the answer, on standard error; an empty message is none."""
    if message:
        echo(f"warning: {message}", err=True)


def bar(share: float, *, width: int = 10) -> Text:
    """Draw a share from 0 to 1 as a bar; what is scarce stands out."""
    share = min(max(share, 0.0), 1.0)
    full, rest = divmod(round(share * width * 8), 8)
    drawn = _BAR[0] * full + (_BAR[8 - rest] if rest else "")
    colour = "green" if share < 0.7 else "yellow" if share < 0.95 else "red"  # noqa: PLR2004 - what the eye expects
    return Text(drawn.ljust(width, "·"), style=colour)


def width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def columns_that_fit(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, expendable: Iterable[int]
) -> list[int]:
    """Return the columns that a terminal has room for, by index.

    Those that are empty go first, then those that may go in the order given; if none may, all stay.
    """
    target = console()
    expendable = list(expendable)
    kept = list(range(len(columns)))
    empty = [index for index in kept if expendable and not any(len(row[index]) for row in rows)]
    for index in dict.fromkeys((*empty, *expendable)):
        if not target.is_terminal or _needed(columns, rows, kept, NARROW_GAP) <= target.width:
            break
        kept.remove(index)
    return kept
