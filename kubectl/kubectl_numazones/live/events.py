"""Events for ``live``: those of one object, asked for again and again, and those that the operator writes."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from kubectl_numazones.printing.screen import details_table
from kubectl_numazones.reading.files import Object
from kubectl_numazones.reading.pod_reports import reference_of
from numazones.cluster.waiting import last_seen
from numazones_client import APIError
from numazones_client.resources import EVENTS
from numazones_program.columns import Column

if TYPE_CHECKING:
    from numazones_client import Client

_MAX_SHOWN = 50
_MAX_LISTED = 500
OPERATOR = "numazones-operator"
"""The source of the operator's events."""

ReadEvents = Callable[[], Awaitable[Sequence[Object]]]
"""Returns the events about something, as they are now."""


def time_of(event: Object) -> str:
    """Return when an event was seen last, or else was made, RFC 3339; empty if it does not say."""
    return last_seen(event) or str(event["metadata"].get("creationTimestamp") or "")


def latest_first(events: Iterable[Object]) -> list[Object]:
    """Sort events, the latest first."""
    return sorted(events, key=time_of, reverse=True)


def object_of(event: Object) -> str:
    """Name what an event is about: KIND NAMESPACE/NAME."""
    about = reference_of(event)
    name = "/".join(part for part in (about.get("namespace"), about.get("name")) if part)
    if about.get("kind") == "RebalanceRecommendation":
        name = str(about.get("name"))  # its events are in a namespace, it is not
    return f"{about.get('kind') or '?'} {name}"


def is_about(event: Object, kind: str, namespace: str, name: str) -> bool:
    """Return whether an event is about an object."""
    about = reference_of(event)
    same = (about.get("kind"), about.get("name")) == (kind, name)
    return same and (not namespace or about.get("namespace") == namespace)


def events_about(client: "Client", kind: str, namespace: str, names: Sequence[str]) -> ReadEvents:
    """Return what asks the API server for the events of some objects of a kind."""

    async def ask() -> Sequence[Object]:
        found: list[Object] = []
        for name in names:
            selector = f"involvedObject.kind={kind},involvedObject.name={name}"
            try:
                pages = client.pages(EVENTS, namespace=namespace, field_selector=selector, limit=_MAX_LISTED)
                async for page in pages:
                    found += page.items
            except APIError as error:
                return [_not_read(str(error))]
        return found

    return ask


def events_in(said: Iterable[Object], kind: str, namespace: str, names: Sequence[str]) -> ReadEvents:
    """Return the events of some objects that a dump holds."""
    held = [item for item in said if item.get("kind") == "Event"]

    async def look() -> Sequence[Object]:
        return [item for item in held if any(is_about(item, kind, namespace, name) for name in names)]

    return look


def _not_read(message: str) -> Object:
    """Something to show in place of events that cannot be had."""
    return {"metadata": {}, "type": "Warning", "reason": "NotRead", "message": message}


def event_table(events: Iterable[Object]) -> RenderableType:
    """Draw events, the latest first."""
    shown = latest_first(events)[:_MAX_SHOWN]
    if not shown:
        return Text("Events: none", "dim")
    return details_table(_COLUMNS, map(event_cells, shown), title="Events")


class EventCells(NamedTuple):
    """Cells that are shown of an event."""

    moment: str
    kind: str
    reason: str
    message: str


_COLUMNS: tuple[Column[EventCells], ...] = (
    Column("LAST SEEN", lambda event: Text(event.moment)),
    Column("TYPE", lambda event: Text(event.kind)),
    Column("REASON", lambda event: Text(event.reason)),
    Column("MESSAGE", lambda event: Text(event.message)),
)


def event_cells(event: Object) -> EventCells:
    """Return what is shown of an event."""
    moment = time_of(event)
    return EventCells(
        moment[5:19].replace("T", " "),
        str(event.get("type") or ""),
        str(event.get("reason") or ""),
        str(event.get("message") or ""),
    )
