"""Posts events on objects that cannot be read: why, and that they count as gone.

kopf's handlers write a condition on policies and recommendations, which are ours. A Node, a pod, an owner or
a NUMAZone is somebody else's, so it gets an event, where ``kubectl describe`` shows it.
"""

import asyncio

from numazones_client import Unreadable
from numazones_operator.events import WARNING, EventPoster

_MOST = 1000
"""Objects that are remembered, so that each is told once per problem."""
_RETRY_PERIOD = 1.0
"""Seconds after which it goes on where the rate let no more events through."""


class UnreadableObjects:
    """Takes objects that reflectors could not read, and posts events on them while this replica leads."""

    def __init__(self, events: EventPoster) -> None:
        self._events = events
        self._found: dict[tuple[str, str], Unreadable] = {}
        self._told: dict[tuple[str, str], str] = {}
        """(kind, key) → the problem that was told."""
        self._news = asyncio.Event()

    def take(self, found: Unreadable) -> None:
        """Take an object that cannot be read."""
        key = (found.kind, found.key)
        self._found.pop(key, None)
        self._found[key] = found
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
            if self._told.get(key) != found.problem:
                if not self._tell(found):
                    return False
                self._told[key] = found.problem
        return True

    def _tell(self, found: Unreadable) -> bool:
        name, namespace = str(found.metadata.get("name") or ""), str(found.metadata.get("namespace") or "")
        # kubectl describe looks for events on a node by its name, which is what kubelets write as the UID.
        uid = name if found.kind == "Node" else str(found.metadata.get("uid") or "")
        about = {"apiVersion": found.api_version, "kind": found.kind, "name": name, "uid": uid}
        return self._events.post(
            about | ({"namespace": namespace} if namespace else {}),
            type=WARNING,
            reason="Unreadable",
            message=f"it cannot be read and counts as gone: {found.problem}",
        )
