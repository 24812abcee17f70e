"""Tells of objects that cannot be read, on the objects themselves: why, and that they count as gone.

kopf's handlers write a condition on policies and recommendations, which are ours. A Node, a pod, an owner or
a NUMAZone is somebody else's, so it gets an event, where ``kubectl describe`` shows it.
"""

import asyncio
import logging

from numazones_client import APIError, Client, Unreadable
from numazones_client.resources import EVENTS
from numazones_operator.predictions.events import event_on

_MOST = 1000
"""Objects that are remembered, so that each is told once per problem."""

_log = logging.getLogger(__name__)


class UnreadableObjects:
    """Takes what reflectors could not read, and tells of it while this replica leads."""

    def __init__(self, client: Client, *, identity: str) -> None:
        self._client = client
        self._identity = identity
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
        """Tell until cancelled; who begins to lead tells of all."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            for key, found in list(self._found.items()):
                if self._told.get(key) != found.problem:
                    self._told[key] = found.problem
                    await self._tell(found)

    async def _tell(self, found: Unreadable) -> None:
        name, namespace = str(found.metadata.get("name") or ""), str(found.metadata.get("namespace") or "")
        # kubectl describe looks for events on a node by its name, which is what kubelets write as the UID.
        uid = name if found.kind == "Node" else str(found.metadata.get("uid") or "")
        about = {"apiVersion": found.api_version, "kind": found.kind, "name": name, "uid": uid}
        body = event_on(
            about | ({"namespace": namespace} if namespace else {}),
            kind="Warning",
            reason="Unreadable",
            message=f"it cannot be read and counts as gone: {found.problem}",
            instance=self._identity,
        )
        try:
            await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])
        except APIError as error:
            _log.info("an event on %s %s was lost: %s", found.kind, name, error)
