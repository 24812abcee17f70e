"""The screens that ``live`` puts over its lists: everything about a line, with its events, and a question."""

import asyncio
from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from kubectl_numazones.live.events import ReadEvents, event_table
from kubectl_numazones.printing import screen
from kubectl_numazones.reading.files import Object
from numazones.wording import visible

_PERIOD = 2.0
"""Seconds between two looks at the events of what is shown."""
_WORKING = Text("computing …", "dim")


class Details(ModalScreen[None]):
    """Everything about one line; below it the events about it, which are followed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,d", "dismiss", "Back"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(
        self, title: str, details: Callable[[], RenderableType], events: ReadEvents | None = None
    ) -> None:
        """``details`` may take seconds; ``events`` are asked for again and again."""
        super().__init__()
        self._title, self._details, self._events = title, details, events
        self._content: RenderableType = _WORKING

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        box = VerticalScroll(Static(screen.Visible(self._content)))
        box.border_title = Content(visible(self._title, lines=False))
        yield box
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to work it out, and to follow its events."""
        self.run_worker(self._fill())

    async def _fill(self) -> None:
        self._content = await asyncio.to_thread(self._details)
        self._show(None)
        await self._look()
        if self._events is not None:
            self.set_interval(_PERIOD, self._look)

    async def _look(self) -> None:
        if self._events is not None:
            self._show(await self._events())

    def _show(self, events: Iterable[Object] | None) -> None:
        below = () if events is None else (Text(), event_table(events))
        self.query_one(Static).update(screen.Visible(Group(self._content, *below)))


class Confirm(ModalScreen[bool]):
    """A question to be answered with yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, title: str, content: RenderableType, question: str) -> None:
        super().__init__()
        self._title, self._content, self._question = title, content, question

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        asked = Text.assemble((self._question, "bold"), "  y: yes, n: no")
        box = VerticalScroll(Static(screen.Visible(Group(self._content, Text(), asked))))
        box.border_title = Content(visible(self._title, lines=False))
        yield box
        yield Footer(show_command_palette=False)

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - a key's argument
        """Close it with the answer."""
        self.dismiss(answer)
