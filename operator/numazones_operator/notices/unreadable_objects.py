"""Posts events on objects that cannot be read, and count as gone, or about which something is undecided.

kopf's handlers write a condition on policies and recommendations, which are ours. A Node, a pod, an owner or
a NUMAZone is somebody else's, so it gets an event, where ``kubectl describe`` shows it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from numazones_client import Unreadable
from numazones_operator.events import WARNING, EventPoster
from numazones_operator.faults import ObjectReference

_MOST = 1000
"""Objects that are remembered, so that each is told once per problem."""
_RETRY_PERIOD = 1.0
"""Seconds after which it goes on where the rate let no more events through."""


UNREADABLE = "Unreadable"
UNDECIDED = "Undecided"


class _Problem(NamedTuple):
    """An event that is due."""

    about: ObjectReference
    reason: str
    message: str


@dataclass
class UnreadableObjects:
    """Takes objects that cannot be read or decided about; posts events on them while this replica leads."""

    events: EventPoster
    _: KW_ONLY
    count: Callable[[str, str], None] = lambda _kind, _error: None
    """Called with the kind and the error of each object that cannot be read."""
    _found: dict[tuple[str, str], _Problem] = field(init=False, default_factory=dict)
    _told: dict[tuple[str, str], _Problem] = field(init=False, default_factory=dict)
    """(kind, key) → the problem that was told."""
    _news: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def take(self, found: Unreadable) -> None:
        """Take an object that cannot be read."""
        self.count(found.kind, found.error)
        name, namespace = str(found.metadata.get("name") or ""), str(found.metadata.get("namespace") or "")
        # kubectl describe looks for events on a node by its name, which is what kubelets write as the UID.
        uid = name if found.kind == "Node" else str(found.metadata.get("uid") or "")
        about = {"apiVersion": found.api_version, "kind": found.kind, "name": name, "uid": uid}
        if namespace:
            about["namespace"] = namespace
        message = f"numazones cannot read this object and ignores it: {found.problem}"
        self._note((found.kind, found.key), _Problem(about, UNREADABLE, message))

    def take_undecided(self, about: ObjectReference, problem: str) -> None:
        """Take an object about which something could not be decided."""
        key = (about.get("kind", ""), about.get("uid") or about.get("name", ""))
        message = f"numazones cannot fully evaluate this object and treats it as Unknown: {problem}"
        self._note(key, _Problem(about, UNDECIDED, message))

    def _note(self, key: tuple[str, str], problem: _Problem) -> None:
        self._found.pop(key, None)
        self._found[key] = problem
        while len(self._found) > _MOST:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self._told.pop(oldest, None)
        self._news.set()

    async def run(self) -> None:
        """Post events until cancelled; a replica that begins to lead posts all of them."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            if not self._tell_all():
                await asyncio.sleep(_RETRY_PERIOD)
                self._news.set()

    def _tell_all(self) -> bool:
        """Post each problem that was not posted; return whether the rate let all of them through."""
        for key, found in list(self._found.items()):
            if self._told.get(key) != found:
                if not self.events.post(
                    found.about, type=WARNING, reason=found.reason, message=found.message
                ):
                    return False
                self._told[key] = found
        return True
