"""The table of a list of ``live``: as few cells as possible are drawn anew, for there may be thousands."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from kubectl_numazones.live.lines import Line
from kubectl_numazones.printing import screen
from numazones_program.columns import Cell

_NARROWEST = 12
"""Columns that need more are at least as wide as this; if they still don't fit, the table scrolls."""


class LineTable(DataTable[Any]):
    """The list of a tab; its own key for enter is told in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Details")]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cursor_foreground_priority="renderable")
        self.lines: list[Line] = []
        self._widths: tuple[tuple[str, int], ...] = ()

    @property
    def chosen(self) -> Line | None:
        """The line under the cursor."""
        return self.lines[self.cursor_row] if 0 <= self.cursor_row < len(self.lines) else None

    @property
    def is_grouped(self) -> bool:
        """Return whether lines with something in common share one."""
        return any(line.groups for line in self.lines)

    def show(self, columns: Sequence[str], found: list[Line]) -> None:
        """Show lines; what was chosen stays chosen, if it is still among them."""
        chosen, before = self.chosen, self.lines
        self.lines = found
        needed = [
            max(0, cell_len(name), *(_cell_width(line.cells[at]) for line in found))
            for at, name in enumerate(columns)
        ]
        # One column of cells is the scroll bar's.
        room = self.outer_size.width - 1 - 2 * self.cell_padding * len(needed)
        widths = tuple(zip(columns, _narrowed(needed, room), strict=True))
        keys = [line.key for line in found]
        if widths != self._widths:
            # The table measures by itself, but not always what comes after columns without rows.
            self.clear(columns=True)
            for name, width in widths:
                self.add_column(name, width=width)
            self._widths = widths
            self._fill()
        elif keys == [line.key for line in before] and self._heights(before) == self._heights(found):
            self._renew(before)
        else:
            self.clear()
            self._fill()
        if chosen is not None and chosen.key in keys:
            self.cursor_coordinate = Coordinate(keys.index(chosen.key), 0)

    def _fill(self) -> None:
        for line, height in zip(self.lines, self._heights(self.lines), strict=True):
            self.add_row(*map(screen.literal, line.cells), key=line.key, height=height)

    def _heights(self, found: Sequence[Line]) -> list[int]:
        """Return how many rows of the screen each line takes: cells wider than their column wrap."""
        return [max(map(self._cell_height, line.cells, self._widths)) for line in found]

    def _cell_height(self, cell: Cell, column: tuple[str, int]) -> int:
        width = column[1]
        return 1 if _cell_width(cell) <= width else len(screen.literal(cell).wrap(self.app.console, width))

    def _renew(self, before: Sequence[Line]) -> None:
        """Bring the cells of the same lines up to date."""
        for row, (old, new) in enumerate(zip(before, self.lines, strict=True)):
            for column, (was, cell) in enumerate(zip(old.cells, new.cells, strict=True)):
                if was != cell:
                    self.update_cell_at(Coordinate(row, column), screen.literal(cell))


def _narrowed(needed: Sequence[int], room: int) -> Sequence[int]:
    """Make the widest columns equally narrow, until all fit; before the first layout there is no room."""
    width = max(needed, default=0)
    while room > 0 and width > _NARROWEST and sum(min(one, width) for one in needed) > room:
        width -= 1
    return [min(one, width) for one in needed]


def _cell_width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(str(cell))
