"""The full-screen view: lists, moved through by keys, and everything about what is chosen.

Wide terminals show what is chosen beside the list. Asking the library happens in threads, so that keys are
answered while a large cluster is read, and while it is worked out what would help a pod. Plans can be
approved and rejected, by those who may; nothing else changes the cluster.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.widgets import Footer, Input, Static
from textual.worker import Worker, WorkerError

from kubectl_numazones.live import head, lines
from kubectl_numazones.live.board import Board, Planned, board_of, plans_of
from kubectl_numazones.live.cluster_mirror import ClusterMirror
from kubectl_numazones.live.deciding import decide, is_open
from kubectl_numazones.live.events import ReadEvents, events_about, events_in
from kubectl_numazones.live.head import TABS
from kubectl_numazones.live.keys import KEYS
from kubectl_numazones.live.line_table import LineTable
from kubectl_numazones.live.lines import Line
from kubectl_numazones.live.listing import EVENTS, PLANS, STUCK, ZONES, ListView, listing
from kubectl_numazones.live.screens import Details
from kubectl_numazones.live.style import CSS
from kubectl_numazones.plans import decisions
from kubectl_numazones.plans.decisions import PlanDecision
from kubectl_numazones.printing import screen
from kubectl_numazones.printing.zone_figures import ORDERS
from kubectl_numazones.reading.cluster import ClusterView, read_cluster
from kubectl_numazones.reading.files import Object
from kubectl_numazones.reading.kinds import NeededKind
from kubectl_numazones.reading.source import Source, connect
from numazones.errors import NumazonesError
from numazones.wording import visible
from numazones_client import Client

_WIDE = 140
"""Columns from which on what is chosen is shown beside the list."""
_ROOMY = 100
"""Columns from which on a list that has them to itself shows all it knows."""
_INTERRUPTED = 130
_HOLD = 0.15
"""Seconds that a line must stay chosen before it is worked out what takes a while."""
_WHERE = {"decide": (STUCK, PLANS), "refuse": (STUCK, PLANS), "group": (ZONES, STUCK), "sort": (ZONES,)}
"""Key → the lists that it is for."""
_OF_LISTS = {"turn", "show", "move", "sort", "filter", "quit", "group", "decide", "refuse", "describe"}
"""Keys for the lists alone, not for what is opened from them."""
_NOTHING = {
    ZONES: "no NUMAZones; run kubectl numazones doctor to see why",
    STUCK: "no pods are waiting or rejected",
    PLANS: "no pods are waiting, so there is nothing to plan",
    EVENTS: "there are no events from the operator",
}


class Live(App[None]):
    """The view."""

    TITLE = "numazones"
    ENABLE_COMMAND_PALETTE = False
    CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('zones')", "Zones", show=False),
        Binding("2", "show('stuck')", "Stuck pods", show=False),
        Binding("3", "show('plans')", "Plans", show=False),
        Binding("4", "show('events')", "Events", show=False),
        Binding("left,h", "turn(-1)", "Previous", show=False, priority=True),
        Binding("right,l", "turn(1)", "Next", show=False, priority=True),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("a", "decide('approve')", "Approve"),
        Binding("x", "decide('reject')", "Reject"),
        # Where a decision is not offered, its key says why.
        Binding("a", "refuse('approve')", show=False),
        Binding("x", "refuse('reject')", show=False),
        Binding("d", "describe", "Describe", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("g", "group", "Group"),
        Binding("s", "sort", "Sort"),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("escape", "unfilter", show=False),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(self, source: Source, seen: ClusterView | None) -> None:
        """Show a cluster as it was seen, or follow that of the source."""
        super().__init__()
        self.failure: NumazonesError | None = None
        """Why the cluster could not be followed at all."""
        self._source = source
        self._board = None if seen is None else board_of(seen)
        self._following: Worker[None] | None = None
        self._plans: list[Planned] | None = None
        self._planned_for: ClusterView | None = None
        self._problem = ""
        """Why what is seen may be behind."""
        self._unreadable = ""
        """Why what is seen cannot be shown."""
        self._forbidden: tuple[NeededKind, ...] = ()
        self._missing = ""
        """Which right is missing to decide about plans."""
        self._view = ListView()
        self._table = LineTable()
        self._beside: tuple[int, str] = (0, "")
        """The board and line that are shown beside the list."""
        self._client: Client | None = None
        self._mirror: ClusterMirror | None = None
        self._follows_events = False

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static(id="title")
        yield Static(id="forbidden")
        yield Static(id="rights")
        yield Static(id="tabs")
        yield Input(placeholder="filter: words that a line contains", id="filter")
        with Horizontal():
            with VerticalScroll(id="list", can_focus=False):
                yield Static(id="empty")
                yield self._table
            with VerticalScroll(id="beside", can_focus=False):
                yield Static(id="chosen")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to show, and to follow."""
        self._table.focus()
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
            self._client, self._mirror = client, following
            self._follow_events_if_shown()
            tasks.create_task(following.run())
            tasks.create_task(self._watch_over(following))
            tasks.create_task(self._ask_for_rights(client))
            async for items in following.states():
                started = time.monotonic()
                try:
                    seen = await asyncio.to_thread(read_cluster, items, datetime.now(UTC))
                    self._board = await asyncio.to_thread(board_of, seen)
                    self._unreadable = ""
                except NumazonesError as error:
                    self._unreadable = str(error)
                self._draw()
                # Reading a large cluster slows the keys down, so at least half of the time is theirs.
                await asyncio.sleep(time.monotonic() - started)

    async def _ask_for_rights(self, client: Client) -> None:
        self._missing = await decisions.missing_right(client)

    def _follow_events_if_shown(self) -> None:
        """Begin to follow the operator's events when they are first looked at and the cluster is there."""
        if self._view.tab == EVENTS and self._mirror is not None and not self._follows_events:
            self._follows_events = True
            self.run_worker(self._follow_events(self._mirror), exit_on_error=False)

    async def _follow_events(self, following: ClusterMirror) -> None:
        changed = asyncio.Event()
        reading = asyncio.create_task(following.follow_events(changed.set))
        try:
            while True:
                await changed.wait()
                changed.clear()
                self._draw()
                await asyncio.sleep(_HOLD)
        finally:
            reading.cancel()

    async def _watch_over(self, following: ClusterMirror) -> None:
        while True:
            self._problem = following.problem
            self._forbidden = following.forbidden
            await asyncio.sleep(1.0)

    async def _seek_plans(self, seen: ClusterView) -> None:
        self._plans = await asyncio.to_thread(plans_of, seen)
        self._draw()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave keys to the filter while it is written, and to the details while they are open."""
        if self._view.tab not in _WHERE.get(action, TABS):
            return False
        if action == "decide" and not self._offers(PlanDecision(str(parameters[0]))):
            return False
        if action in _OF_LISTS:
            return self.screen is self.screen_stack[0] and not isinstance(self.focused, Input)
        return True

    def action_show(self, tab: str) -> None:
        """Show one of the lists."""
        self._view.tab, self._view.group = tab, ""
        self._follow_events_if_shown()
        self.refresh_bindings()
        self._draw()

    def action_turn(self, by: int) -> None:
        """Show the next list, or the one before."""
        tabs = list(TABS)
        self.action_show(tabs[(tabs.index(self._view.tab) + by) % len(tabs)])

    def action_move(self, by: int) -> None:
        """Choose the next line, or the one before."""
        self._table.move_cursor(row=self._table.cursor_row + by)

    def on_data_table_row_selected(self) -> None:
        """Show everything about the chosen line, or the lines of its group."""
        line = self._table.chosen
        if line is not None and line.groups:
            self._view.group = line.groups
            self._draw()
            self._table.move_cursor(row=0)
        elif line is not None:
            self.action_describe()

    def action_describe(self) -> None:
        """Show everything about the chosen line, with its events."""
        line = self._table.chosen
        if line is not None:
            self.push_screen(Details(line.key, line.details, self._events_of(line)))

    def _events_of(self, line: Line) -> ReadEvents | None:
        kind, namespace, names = line.about
        if not kind:
            return None
        if self._client is not None:
            return events_about(self._client, kind, namespace, names)
        return events_in([] if self._board is None else self._board.seen.said, kind, namespace, names)

    def action_decide(self, verb: str) -> None:
        """Approve or reject the plan of the chosen line, after a question."""
        decision = PlanDecision(verb)
        self.run_worker(
            decide(self, self._client, self._table.chosen, decision), exclusive=True, group="decide"
        )

    action_refuse = action_decide

    def _offers(self, decision: PlanDecision) -> bool:
        """Return whether something would come of a decision about the chosen line's plan."""
        line, board = self._table.chosen, self._board
        if line is None or board is None or self._client is None or self._missing:
            return False
        return bool(line.plan) and is_open(board.seen, line.plan, decision)

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
        if self._view.group:
            self._view.group = ""
            self._draw()
        self._table.focus()

    def action_sort(self) -> None:
        """Sort the zones by the next order."""
        orders = list(ORDERS)
        self._view.order = orders[(orders.index(self._view.order) + 1) % len(orders)]
        self._draw()

    def action_group(self) -> None:
        """Have lines with something in common share one, or not."""
        self._view.grouped[self._view.tab] = not self._table.is_grouped
        self._view.group = ""
        self._draw()

    def action_keys(self) -> None:
        """Show what each key does."""
        self.push_screen(Details("Keys", lambda: Text(KEYS)))

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends programs."""
        self.exit(return_code=_INTERRUPTED)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is written."""
        self._view.words = event.value.lower()
        self._draw()

    def on_input_submitted(self) -> None:
        """Go back to the list with what was written."""
        self._table.focus()

    def on_data_table_row_highlighted(self) -> None:
        """Show beside the list what is chosen."""
        self.refresh_bindings()
        if not self.query_one("#beside").has_class("open"):
            return
        line = self._table.chosen
        shown = (id(self._board), "" if line is None else line.key)
        if shown == self._beside and line is not None and line.slow:
            return
        self._beside = shown
        chosen = self.query_one("#chosen", Static)
        if line is None or not line.slow:
            self.workers.cancel_group(self, "beside")
            chosen.update("" if line is None else screen.Visible(line.details()))
            return
        chosen.update(Text("computing …", "dim"))
        self.run_worker(self._fill_beside(line), exclusive=True, group="beside")

    async def _fill_beside(self, line: Line) -> None:
        await asyncio.sleep(_HOLD)  # nothing is worked out for those who only pass by
        content = await asyncio.to_thread(line.details)
        self.query_one("#chosen", Static).update(screen.Visible(content))

    # Drawing

    def _draw(self) -> None:
        if not self.is_running:
            return
        columns, found = self._list()
        self._table.show(columns if found else (), found)
        self._draw_head()
        self.screen_stack[0].query_one("#empty", Static).display = not found
        if self.screen is self.screen_stack[0]:
            self.on_data_table_row_highlighted()

    def _draw_head(self) -> None:
        """Draw what changes by itself, without any object: what is wrong, and why there are no lines."""
        base = self.screen_stack[0]
        problem = self._problem or self._unreadable
        title = head.title(self._board, problem, None if self._source.files else datetime.now(UTC))
        base.query_one("#title", Static).update(title)
        told = {
            "#forbidden": lines.forbidden(self._forbidden, self.size.width - 2),
            "#rights": "you may not approve or reject plans; press a or x to see why"
            if self._missing
            else "",
        }
        for name, text in told.items():
            line = base.query_one(name, Static)
            line.display = bool(text)
            line.update(Text(visible(text), no_wrap=True, overflow="ellipsis"))
        counts = {} if self._board is None else self._counts(self._board)
        base.query_one("#tabs", Static).update(head.tabs(self._view, counts, grouped=self._table.is_grouped))
        base.query_one("#empty", Static).update(Text(visible(self._reason_for_no_lines())))

    def _counts(self, board: Board) -> dict[str, int | None]:
        plans = None if self._plans is None else len(self._plans)
        known = self._source.files if self._mirror is None else self._mirror.events_known
        events = len(self._events()) if known else None
        return {ZONES: len(board.zones), STUCK: board.counts.stuck, PLANS: plans, EVENTS: events}

    def _events(self) -> Sequence[Object]:
        """The operator's events, as followed; those of a dump."""
        if self._mirror is not None:
            return self._mirror.events
        said = () if self._board is None else self._board.seen.said
        return [item for item in said if item["kind"] == "Event"]

    def _reason_for_no_lines(self) -> str:
        if self._board is None:
            return "reading the cluster …"
        if self._view.words:
            return f"no line contains {self._view.words!r}; press escape to show all lines"
        if self._view.tab == PLANS and self._plans is None:
            return "looking for plans …"
        if self._view.tab == EVENTS and self._mirror is not None:
            problem = self._mirror.events_problem
            if problem or not self._mirror.events_known:
                return problem or "reading the operator's events …"
        return _NOTHING[self._view.tab]

    def _list(self) -> tuple[tuple[str, ...], list[Line]]:
        board = self._board
        if board is None:
            return (), []
        beside = self.screen_stack[0].query_one("#beside").has_class("open")
        if self._view.tab == PLANS and self._planned_for is not board.seen:
            self._planned_for = board.seen
            self.run_worker(self._seek_plans(board.seen), exclusive=True, group=PLANS)
        return listing(
            self._view,
            board,
            self._plans or (),
            self._events(),
            roomy=self.size.width >= _ROOMY and not beside,
        )
