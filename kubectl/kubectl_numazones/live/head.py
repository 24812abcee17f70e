"""The lines above a list of ``live``: which cluster, when, what is wrong, and which lists there are."""

from collections.abc import Mapping
from datetime import datetime

from rich.text import Text

from kubectl_numazones.live.board import Board
from kubectl_numazones.live.listing import EVENTS, PLANS, STUCK, ZONES, ListView
from numazones.apimachinery import timestamp
from numazones.apimachinery.duration import human_duration
from numazones.wording import pluralize, visible

TABS = {ZONES: "NUMA nodes", STUCK: "Stuck pods", PLANS: "Plans", EVENTS: "Events"}


def title(board: Board | None, problem: str, now: datetime | None) -> Text:
    """Say what is seen, as of when, and why it may be behind or cannot be shown.

    ``now``: None for a dump.
    """
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("numazones  ", "bold cyan")
    if board is not None:
        situation = board.seen.situation
        text.append(f"{pluralize(len(situation.cluster.nodes), 'node')}  ")
        seen = situation.context.now
        if now is None:
            text.append(f"dumped {timestamp.format(seen)}", "dim")
        else:
            age = human_duration((now - seen).total_seconds())
            text.append(f"live {now:%H:%M:%S} UTC, last change {age} ago", "dim")
        misaligned = sum(map(len, board.misaligned.values()))
        if misaligned:
            text.append(f"  {pluralize(misaligned, 'pod')} not aligned", "yellow")
        for doubt in board.doubts:
            text.append(f"  not certain: {visible(doubt, lines=False)}", "yellow")
    if problem:
        text.append(f"  {visible(problem, lines=False)}", "bold red")
    return text


def tabs(view: ListView, counts: Mapping[str, int | None], *, grouped: bool) -> Text:
    """Name the lists, with how many lines each has, and what of the chosen one is shown."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for number, (tab, name) in enumerate(TABS.items(), 1):
        count = counts.get(tab)
        style = "bold reverse" if tab == view.tab else "dim"
        text.append(f" {number} {name}{'' if count is None else f' {count}'} ", style).append(" ")
    if view.tab == ZONES:
        text.append(f"{'grouped, by' if grouped else 'sorted by'} {view.order}", "dim italic")
    elif grouped:
        text.append("grouped by reason", "dim italic")
    if view.group:
        text.append(f" only {visible(view.group, lines=False)} (escape: all)", "italic")
    return text
