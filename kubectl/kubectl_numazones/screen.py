"""How answers are shown: tables and bars on a terminal, JSON for programs.

Tables carry no lines, as kubectl's, and are cut to the terminal; where there is none (a pipe, a file) nothing
is cut and nothing is coloured. ``NO_COLOR`` is honoured by rich.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 400
_GAP = 3
"""Blanks between columns."""
_BAR = "█▉▊▋▌▍▎▏"


def console() -> Console:
    """Return the console of standard output."""
    found = Console(highlight=False, soft_wrap=False, legacy_windows=False)
    if not found.is_terminal:
        found = Console(highlight=False, width=_PIPE_WIDTH, legacy_windows=False)
    return found


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Iterable[str] = (),
    cut: bool = True,
) -> None:
    """Print rows below their columns' names; ``right`` names the columns of figures.

    ``cut``: whether a table that is wider than the terminal is made to fit.
    """
    rows = [tuple(row) for row in rows]
    aligned = set(right)
    target = console()
    if not target.is_terminal or not (cut or _fits(columns, rows, target.width)):
        _print_plain(columns, rows, aligned)
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in aligned else "left",
            no_wrap=name in aligned,
        )
    for row in rows:
        table.add_row(*map(literal, row))
    target.print(table)


def _fits(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int) -> bool:
    return _needed(columns, rows, range(len(columns))) <= width


def _needed(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], kept: Iterable[int]) -> int:
    """How wide a terminal must be for these columns."""
    return sum(max(len(row[index]) for row in (columns, *rows)) + _GAP for index in kept) - _GAP


def literal(cell: str | Text) -> Text:
    """Show text as it is: names and messages may hold brackets, which rich would take for its markup."""
    return cell if isinstance(cell, Text) else Text(cell)


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


def print_json(document: Any) -> None:
    """Print a document for programs."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def warn(message: str) -> None:
    """Say something beside the answer, on standard error; an empty message is none."""
    if message:
        click.echo(f"warning: {message}", err=True)


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
    """Return the columns that a terminal has room for, by index; those that may go go in the order given."""
    target = console()
    kept = list(range(len(columns)))
    for index in expendable:
        if not target.is_terminal or _needed(columns, rows, kept) <= target.width:
            break
        kept.remove(index)
    return kept
