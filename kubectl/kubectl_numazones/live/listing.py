"""Lines of a list in ``live``: the matching ones, or groups if there are many."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubectl_numazones.live import lines
from kubectl_numazones.live.board import Board, Planned
from kubectl_numazones.live.events import latest_first
from kubectl_numazones.live.lines import Line
from kubectl_numazones.printing.zone_figures import ORDERS
from kubectl_numazones.reading.files import Object
from numazones_program.columns import Column, shown

ZONES, STUCK, PLANS, EVENTS = "zones", "stuck", "plans", "events"
_MANY_ZONES = 200
_MANY_OWNERS = 20
"""Of more lines than these, those with something in common share one."""
_MAX_EVENTS = 1000

_Item = TypeVar("_Item")


@dataclass(slots=True)
class ListView:
    """Selection and scroll position of a list."""

    tab: str = ZONES
    order: str = field(default_factory=lambda: next(iter(ORDERS)))
    """What zones are sorted by."""
    words: str = ""
    """Words that lines must have; they are looked for in all lines, not in groups."""
    group: str = ""
    """The group whose lines are looked at; empty: all."""
    grouped: dict[str, bool] = field(default_factory=dict)
    """List → whether people want it grouped; without an entry it is, where there are many lines."""

    def is_grouped(self, *, many: bool) -> bool:
        """Return whether lines with something in common are merged."""
        return not self.words and not self.group and self.grouped.get(self.tab, many)

    def picked(self, found: Iterable[Line]) -> list[Line]:
        """Return the lines of the group that is looked at which have all words."""
        words = self.words.split()
        return [
            line
            for line in found
            if (not self.group or line.group == self.group) and all(word in line.words for word in words)
        ]


def listing(
    view: ListView,
    board: Board,
    plans: Sequence[Planned],
    events: Iterable[Object],
    *,
    roomy: bool,
) -> tuple[tuple[str, ...], list[Line]]:
    """Return the titles of a list's columns, and its lines."""
    if view.tab == STUCK:
        return _titles(lines.STUCK_COLUMNS, roomy=roomy), _stuck(view, board, roomy=roomy)
    if view.tab == PLANS:
        return _titles(lines.PLAN_COLUMNS), view.picked(map(lines.plan_line, plans))
    if view.tab == EVENTS:
        shown = latest_first(events)[:_MAX_EVENTS]
        return _titles(lines.EVENT_COLUMNS), view.picked(
            lines.event_line(event, number) for number, event in enumerate(shown)
        )
    return _titles(lines.ZONE_COLUMNS, roomy=roomy), _zones(view, board, roomy=roomy)


def _titles(columns: Iterable[Column[Any]], *, roomy: bool = False) -> tuple[str, ...]:
    return tuple(column.title for column in shown(columns, wide=roomy))


def _zones(view: ListView, board: Board, *, roomy: bool) -> list[Line]:
    zones = sorted(board.zones, key=ORDERS[view.order])
    if view.is_grouped(many=len(zones) > _MANY_ZONES):
        by_node = _by(zones, lambda zone: zone.node)
        found = [
            lines.node_line(sorted(node, key=ORDERS["node"]), board, roomy=roomy) for node in by_node.values()
        ]
        reasons = _by(board.unknown, lambda item: lines.unknown_group(*item))
        return found + [
            lines.unknown_group_line(why, [name for name, _ in items], roomy=roomy)
            for why, items in reasons.items()
        ]
    found = [lines.zone_line(zone, board, roomy=roomy) for zone in zones]
    return view.picked(found + [lines.unknown_line(name, why, roomy=roomy) for name, why in board.unknown])


def _stuck(view: ListView, board: Board, *, roomy: bool) -> list[Line]:
    found = [lines.stuck_line(item, board, roomy=roomy) for item in board.stuck]
    if not view.is_grouped(many=len(found) > _MANY_OWNERS):
        return view.picked(found)
    groups = _by(zip(found, board.stuck, strict=True), lambda pair: pair[0].group)
    return [
        lines.stuck_group_line(group, [item for _, item in pairs], roomy=roomy)
        for group, pairs in groups.items()
    ]


def _by(items: Iterable[_Item], key: Callable[[_Item], str]) -> dict[str, list[_Item]]:
    """Group items, in the order in which they come."""
    found: dict[str, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
