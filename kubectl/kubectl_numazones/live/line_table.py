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

    def show(self, columns: Sequence[str], found: list[Line]) -> None:
        """Show lines; what was chosen stays chosen, if it is still among them."""
        chosen, before = self.chosen, self.lines
        self.lines = found
        widths = tuple(
            (name, max(0, cell_len(name), *(_cell_width(line.cells[at]) for line in found)))
            for at, name in enumerate(columns)
        )
        keys = [line.key for line in found]
        if widths != self._widths:
            # The table measures by itself, but not always what comes after columns without rows.
            self.clear(columns=True)
            for name, width in widths:
                self.add_column(name, width=width)
            self._widths = widths
            self._fill()
        elif keys == [line.key for line in before]:
            self._renew(before)
        else:
            self.clear()
            self._fill()
        if chosen is not None and chosen.key in keys:
            self.cursor_coordinate = Coordinate(keys.index(chosen.key), 0)

    def _fill(self) -> None:
        for line in self.lines:
            self.add_row(*map(screen.literal, line.cells), key=line.key)

    def _renew(self, before: Sequence[Line]) -> None:
        """Bring the cells of the same lines up to date."""
        for row, (old, new) in enumerate(zip(before, self.lines, strict=True)):
            for column, (was, cell) in enumerate(zip(old.cells, new.cells, strict=True)):
                if was != cell:
                    self.update_cell_at(Coordinate(row, column), screen.literal(cell))


def _cell_width(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(str(cell))
