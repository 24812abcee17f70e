"""Keeps the NodeResourceTopology object of this node current, which the scheduler plugins and others read.

One object per node, named after it, written by server-side apply when it differs from what the API server
holds. Its definition and its vocabulary belong to the scheduler plugins (topology.node.k8s.io/v1alpha2).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numazones.api.noderesourcetopology import from_zones
from numazones.api.numazone import NUMAZone
from numazones_client import NotFound, UnknownResource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_exporter.publish import RESYNC_SECONDS, Writer, canonical

_ENVELOPE = frozenset({"apiVersion", "kind", "metadata"})


class NodeResourceTopologyPublisher:
    """Publishes the NodeResourceTopology of one node."""

    def __init__(
        self, writer: Writer, node_name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is asked of the API server yet."""
        self._writer = writer
        self._node_name = node_name
        self._clock = clock
        self._held: str | None = None
        self._asked_at = 0.0

    async def publish(self, zones: Sequence[NUMAZone]) -> int:
        """Write the object if it differs; return the number of writes.

        Raises:
            APIError: a request failed.
        """
        body = from_zones(zones).to_api()
        wanted = _comparable(body)
        if self._held is None or self._clock() - self._asked_at >= RESYNC_SECONDS:
            self._held = await self._ask()
            self._asked_at = self._clock()
        if self._held == wanted:
            return 0
        self._held = None
        await self._writer.apply("NodeResourceTopology", NODE_RESOURCE_TOPOLOGIES, body)
        self._held = wanted
        return 1

    async def _ask(self) -> str:
        try:
            found = await self._writer.client.get(NODE_RESOURCE_TOPOLOGIES, self._node_name)
        except UnknownResource:
            raise
        except NotFound:
            return ""
        return _comparable(found)


def _comparable(body: Mapping[str, Any]) -> str:
    """Write what this program owns of the object, so that equal objects give equal texts."""
    content = {name: value for name, value in body.items() if name not in _ENVELOPE}
    return canonical([body["metadata"].get("ownerReferences") or [], content])
