"""The full-screen view: three lists, moved through by keys, and everything about what is chosen.

Wide terminals show what is chosen beside the list. Asking the library happens in a thread, so that keys are
answered while a large cluster is read.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import Worker, WorkerError

from kubectl_numazones import screen
from kubectl_numazones.cluster import Seen, Source, connect, read_cluster
from kubectl_numazones.kinds import Kind
from kubectl_numazones.live import lines
from kubectl_numazones.live.board import Board, Planned, board_of, plans_of
from kubectl_numazones.live.cluster_mirror import ClusterMirror
from kubectl_numazones.live.lines import Line
from kubectl_numazones.zone_figures import ORDERS
from numazones import timestamp
from numazones.errors import NumazonesError
from numazones.wording import pluralize, visible

ZONES, STUCK, PLANS = "zones", "stuck", "plans"
_TABS = {ZONES: "Zones", STUCK: "Stuck pods", PLANS: "Plans"}
_WIDE = 140
"""Columns from which on what is chosen is shown beside the list."""
_ROOMY = 100
"""Columns from which on a list that has them to itself shows all it knows."""
_INTERRUPTED = 130
_NOTHING = {
    ZONES: "no zones: kubectl numazones doctor says why",
    STUCK: "no pod waits, and none was rejected",
    PLANS: "no pod waits, so there is nothing to plan",
}


class Details(ModalScreen[None]):
    """Everything about one line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Back"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, title: str, content: RenderableType) -> None:
        super().__init__()
        self._title, self._content = title, content

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        box = VerticalScroll(Static(screen.Visible(self._content)))
        box.border_title = Content(visible(self._title, lines=False))
        yield box
        yield Footer(show_command_palette=False)


class _List(DataTable[Any]):
    """The list of a tab; its own key for enter is told in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Details")]


class Live(App[None]):
    """The view."""

    TITLE = "numazones"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    * { scrollbar-size: 0 1; scrollbar-color: $primary-darken-1; scrollbar-background: $background; }
    #title { height: 1; background: $panel; color: $text; padding: 0 1; }
    #forbidden { height: 1; padding: 0 1; color: $text-warning; display: none; }
    #tabs { height: 1; margin: 0 0 1 0; }
    #filter { height: 1; border: none; padding: 0 1; background: $panel; display: none; }
    #filter.open { display: block; }
    DataTable { height: 1fr; background: $background; }
    DataTable:focus { background-tint: transparent 0%; }
    DataTable > .datatable--header { background: $background; color: $text-muted; text-style: bold; }
    DataTable > .datatable--cursor { background: $primary 35%; color: $text; text-style: none; }
    #list { width: 1fr; background: $background; }
    #beside { width: 1fr; border-left: vkey $primary-darken-2; padding: 0 2; display: none; }
    #beside.open { display: block; }
    #empty { width: 100%; padding: 1 2; color: $text-muted; display: none; }
    Details { align: center middle; background: $background 60%; }
    Details VerticalScroll {
        width: 94%; height: 92%; border: round $primary; background: $surface; padding: 1 2;
        border-title-color: $text; border-title-style: bold;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('zones')", "Zones", show=False),
        Binding("2", "show('stuck')", "Stuck pods", show=False),
        Binding("3", "show('plans')", "Plans", show=False),
        Binding("left,h", "turn(-1)", "Previous", show=False, priority=True),
        Binding("right,l", "turn(1)", "Next", show=False, priority=True),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("escape", "unfilter", show=False),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(self, source: Source, seen: Seen | None) -> None:
        """Show a cluster as it was seen, or follow that of the source."""
        super().__init__()
        self.failure: NumazonesError | None = None
        """Why the cluster could not be followed at all."""
        self._source = source
        self._board = None if seen is None else board_of(seen)
        self._following: Worker[None] | None = None
        self._plans: list[Planned] | None = None
        self._planned_for: Seen | None = None
        self._problem = ""
        """Why what is seen may be behind."""
        self._unreadable = ""
        """Why what is seen cannot be shown."""
        self._forbidden: tuple[Kind, ...] = ()
        self._tab = ZONES
        self._order = next(iter(ORDERS))
        self._words = ""
        self._lines: list[Line] = []
        self._columns: tuple[tuple[str, int], ...] = ()

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static(id="title")
        yield Static(id="forbidden")
        yield Static(id="tabs")
        yield Input(placeholder="filter: any words of a line", id="filter")
        with Horizontal():
            with VerticalScroll(id="list", can_focus=False):
                yield Static(id="empty")
                yield _List(cursor_type="row", cursor_foreground_priority="renderable")
            with VerticalScroll(id="beside", can_focus=False):
                yield Static(id="chosen")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to show, and to follow."""
        self.query_one(DataTable).focus()
        self.query("#beside").set_class(self.size.width >= _WIDE, "open")
        self._draw()
        if self._board is None:
            # What the client logs would be written across the picture; the title says it.
            logging.getLogger("numazones_client").addHandler(logging.NullHandler())
            self._following = self.run_worker(self._follow(), exit_on_error=False)
            self.set_interval(1.0, self._draw_head)

    async def on_unmount(self) -> None:
        """Have the connections closed before the event loop ends: Textual cancels workers and goes on."""
        if self._following is None:
            return
        if not self._following.is_cancelled:
            self._following.cancel()  # once: a second time would interrupt the closing
        with suppress(WorkerError):
            await self._following.wait()

    def on_resize(self, event: Resize) -> None:
        """Use the room there is."""
        # The first one may come before there is anything on the screen.
        self.query("#beside").set_class(event.size.width >= _WIDE, "open")
        self.call_after_refresh(self._draw)

    # Following the cluster

    async def _follow(self) -> None:
        try:
            client = await connect(self._source)
        except NumazonesError as error:
            self.failure = error
            self.exit()
            return
        async with client, asyncio.TaskGroup() as tasks:
            following = ClusterMirror(client)
            tasks.create_task(following.run())
            tasks.create_task(self._watch_over(following))
            async for items in following.states():
                try:
                    seen = await asyncio.to_thread(read_cluster, items, datetime.now(UTC))
                    self._board = await asyncio.to_thread(board_of, seen)
                    self._unreadable = ""
                except NumazonesError as error:
                    self._unreadable = str(error)
                self._draw()

    async def _watch_over(self, following: ClusterMirror) -> None:
        while True:
            self._problem = following.problem
            self._forbidden = following.forbidden
            await asyncio.sleep(1.0)

    async def _seek_plans(self, seen: Seen) -> None:
        self._plans = await asyncio.to_thread(plans_of, seen)
        self._draw()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Leave keys to the filter while it is written, and to the details while they are open."""
        if action in {"turn", "show", "move", "sort", "filter", "quit"}:
            return self.screen is self.screen_stack[0] and not isinstance(self.focused, Input)
        return True

    def action_show(self, tab: str) -> None:
        """Show one of the lists."""
        self._tab = tab
        self._draw()

    def action_turn(self, by: int) -> None:
        """Show the next list, or the one before."""
        tabs = list(_TABS)
        self.action_show(tabs[(tabs.index(self._tab) + by) % len(tabs)])

    def action_move(self, by: int) -> None:
        """Choose the next line, or the one before."""
        table = self.query_one(DataTable)
        table.move_cursor(row=table.cursor_row + by)

    def on_data_table_row_selected(self) -> None:
        """Show everything about the chosen line."""
        line = self._chosen_line()
        if line is not None:
            self.push_screen(Details(line.key, line.details()))

    def action_filter(self) -> None:
        """Write words that lines must have."""
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def action_unfilter(self) -> None:
        """Show all lines again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("open")
        self.query_one(DataTable).focus()

    def action_sort(self) -> None:
        """Sort the zones by the next order."""
        orders = list(ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._draw()

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends programs."""
        self.exit(return_code=_INTERRUPTED)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is written."""
        self._words = event.value.lower()
        self._draw()

    def on_input_submitted(self) -> None:
        """Go back to the list with what was written."""
        self.query_one(DataTable).focus()

    def on_data_table_row_highlighted(self) -> None:
        """Show beside the list what is chosen."""
        if self.query_one("#beside").has_class("open"):
            line = self._chosen_line()
            self.query_one("#chosen", Static).update("" if line is None else screen.Visible(line.details()))

    def _chosen_line(self) -> Line | None:
        row = self.query_one(DataTable).cursor_row
        return self._lines[row] if 0 <= row < len(self._lines) else None

    # Drawing

    def _draw(self) -> None:
        if not self.is_running:
            return
        chosen = self._chosen_line()
        columns, found = self._list()
        self._lines = [line for line in found if all(word in line.words for word in self._words.split())]
        self._draw_head()
        table = self.query_one(DataTable)
        wide = tuple(
            (name, max(0, cell_len(name), *(_cell_width(line.cells[at]) for line in self._lines)))
            for at, name in enumerate(columns)
        )
        if wide != self._columns:
            # The table measures by itself, but not always what comes after columns without rows.
            table.clear(columns=True)
            for name, width in wide:
                table.add_column(name, width=width)
            self._columns = wide
        else:
            table.clear()
        for line in self._lines:
            table.add_row(*map(screen.literal, line.cells), key=line.key)
        keys = [line.key for line in self._lines]
        if chosen is not None and chosen.key in keys:
            table.cursor_coordinate = Coordinate(keys.index(chosen.key), 0)
        empty = self.query_one("#empty", Static)
        empty.display = not self._lines
        empty.update(Text(self._reason_for_no_lines()))
        self.on_data_table_row_highlighted()

    def _draw_head(self) -> None:
        self.query_one("#title", Static).update(self._title())
        forbidden = self.query_one("#forbidden", Static)
        forbidden.display = bool(self._forbidden)
        told = lines.forbidden(self._forbidden, self.size.width - 2)
        forbidden.update(Text(visible(told), no_wrap=True, overflow="ellipsis"))
        tabs = Text()
        counts = {ZONES: None, STUCK: None, PLANS: None} if self._board is None else self._counts(self._board)
        for number, (tab, name) in enumerate(_TABS.items(), 1):
            count = "" if counts[tab] is None else f" {counts[tab]}"
            style = "bold reverse" if tab == self._tab else "dim"
            tabs.append(f" {number} {name}{count} ", style).append(" ")
        if self._tab == ZONES:
            tabs.append(f"by {self._order}", "dim italic")
        self.query_one("#tabs", Static).update(tabs)

    def _counts(self, board: Board) -> dict[str, int | None]:
        plans = None if self._plans is None else len(self._plans)
        return {ZONES: len(board.zones), STUCK: len(board.stuck), PLANS: plans}

    def _title(self) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("numazones  ", "bold cyan")
        if self._board is not None:
            seen = self._board.seen
            text.append(f"{pluralize(len(seen.situation.cluster.nodes), 'node')}  ")
            moment = timestamp.format(seen.situation.surroundings.now)
            text.append(f"dumped {moment}" if self._source.files else f"live {moment[11:19]}", "dim")
        problem = self._problem or self._unreadable
        if problem:
            text.append(f"  {visible(problem)}", "bold red")
        return text

    def _reason_for_no_lines(self) -> str:
        if self._board is None:
            return "reading the cluster …"
        if self._words:
            return f"no line has the words {self._words!r}; escape shows all"
        if self._tab == PLANS and self._plans is None:
            return "seeking plans …"
        return _NOTHING[self._tab]

    def _list(self) -> tuple[tuple[str, ...], Iterable[Line]]:
        board = self._board
        if board is None:
            return (), ()
        roomy = self.size.width >= _ROOMY and not self.query_one("#beside").has_class("open")
        if self._tab == STUCK:
            shown = [lines.stuck_line(item, board, roomy=roomy) for item in board.stuck]
            return lines.stuck_columns(roomy=roomy), shown
        if self._tab == PLANS:
            if self._planned_for is not board.seen:
                self._planned_for = board.seen
                self.run_worker(self._seek_plans(board.seen), exclusive=True, group=PLANS)
            return lines.PLAN_COLUMNS, map(lines.plan_line, self._plans or ())
        zones = sorted(board.zones, key=ORDERS[self._order])
        shown = [lines.zone_line(zone, board, roomy=roomy) for zone in zones]
        shown += [lines.unknown_line(name, why, roomy=roomy) for name, why in board.unknown]
        return lines.zone_columns(roomy=roomy), shown


def _cell_width(cell: str | Text) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)
