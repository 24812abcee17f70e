"""Tables that programs print: a table is its columns, each of which says what it shows of a row, and when.

How a table is drawn (colours, folding) is the program's own; ``plain`` is the form for pipes and files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_GAP = "   "


class Cell(Protocol):
    """Text, plain or styled."""

    def __len__(self) -> int: ...

    def __str__(self) -> str: ...


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table whose rows are of one type."""

    title: str
    cell: Callable[[Row], Cell]
    """What it shows of a row."""
    right: bool = False
    """Whether it is aligned to the right, as figures are."""
    wide: bool = False
    """Whether only the wide form of the table has it."""
    expendable: int = 0
    """When a narrow terminal goes without it: 1 first, 2 next, …; 0 never."""


def shown(columns: Iterable[Column[Row]], *, wide: bool = False) -> tuple[Column[Row], ...]:
    """Return the columns of the usual form of a table, or of the wide one."""
    return tuple(column for column in columns if wide or not column.wide)


def cells(columns: Iterable[Column[Row]], row: Row) -> tuple[Cell, ...]:
    """Return what columns show of a row."""
    return tuple(column.cell(row) for column in columns)


def plain(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """Lay rows out below the columns' titles as kubectl does: nothing is cut, no line ends in blanks."""
    return lay_out(columns, [cells(columns, row) for row in rows])


def lay_out(columns: Sequence[Column[Row]], lines: Iterable[Sequence[Cell]]) -> str:
    """Lay out what columns show, line by line."""
    table = [[column.title for column in columns], *([*map(str, line)] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "".join(
        _GAP.join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        + "\n"
        for line in table
    )
