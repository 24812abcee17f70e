"""Keeps the NodeResourceTopology object of this node current, which the scheduler plugins and others read.

One object per node, named after it, written by server-side apply when it differs from what the API server
holds. Its definition and its vocabulary belong to the scheduler plugins (topology.node.k8s.io/v1alpha2).
Agents of placement models and node-feature-discovery write an object of that very name, too: fields that
somebody else owns are not taken from them, since two writers would overwrite each other forever.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from numazones.api.noderesourcetopology import from_zones
from numazones.api.numazone import NUMAZone
from numazones_client import Conflict, NotFound, UnknownResource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_exporter.publishing import RESYNC_SECONDS, ObjectWriter, canonical

_log = logging.getLogger(__name__)

_ENVELOPE = frozenset({"apiVersion", "kind", "metadata"})


@dataclass
class NodeResourceTopologyPublisher:
    """Publishes the NodeResourceTopology of one node."""

    writer: ObjectWriter
    node_name: str
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    _published: str | None = field(init=False, default=None)
    _conflict: str = field(init=False, default="")
    """Message of the API server about the other program that writes it; empty while there is none."""
    _asked_at: float = field(init=False, default=0.0)

    async def publish(self, zones: Sequence[NUMAZone]) -> int:
        """Write the object if it differs; return the number of writes.

        Raises:
            APIError: a request failed.
        """
        body = from_zones(zones).to_api()
        desired = _own_content(body)
        if self._conflict and self.clock() - self._asked_at < RESYNC_SECONDS:
            return 0
        if self._published is None or self.clock() - self._asked_at >= RESYNC_SECONDS:
            self._published = await self._fetch()
            self._asked_at = self.clock()
        if self._published == desired:
            return 0
        self._published = None
        try:
            await self.writer.apply("NodeResourceTopology", NODE_RESOURCE_TOPOLOGIES, body, force=False)
        except Conflict as error:
            self._leave_alone(error)
            return 0
        self._published, self._conflict = desired, ""
        return 1

    def forget(self) -> None:
        """Ask what the API server holds before the next publishing."""
        self._published = None

    def _leave_alone(self, error: Conflict) -> None:
        """Log once who else writes the object; whether they still do is checked now and then."""
        if error.message != self._conflict:
            _log.warning(
                "not writing NodeResourceTopology %s, because another program writes it: %s; let only "
                "one program write it: remove noderesourcetopologies from --publish, or stop the other "
                "program and delete the object",
                self.node_name,
                error.message,
            )
        self._conflict = error.message
        self._asked_at = self.clock()

    async def _fetch(self) -> str:
        try:
            found = await self.writer.client.get(NODE_RESOURCE_TOPOLOGIES, self.node_name)
        except UnknownResource:
            raise
        except NotFound:
            return ""
        return _own_content(found)


def _own_content(body: Mapping[str, Any]) -> str:
    """Write what this program owns of the object, so that equal objects give equal texts."""
    content = {name: value for name, value in body.items() if name not in _ENVELOPE}
    return canonical([body["metadata"].get("ownerReferences") or [], content])
