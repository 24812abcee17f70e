"""A coordination.k8s.io Lease per node, which shows that its zones are kept current without rewriting them.

As with the kubelet's node leases (KEP-589), the renewal time is the message: as long as it is younger than
``leaseDurationSeconds``, what the zones say holds. It is renewed only while reading and publishing work,
so that the node of an exporter that runs but cannot read counts as stale. The Lease belongs to the
Node and is deleted with it. Renewals follow a monotonic clock; only the time written is the wall clock's.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.api.meta import NODE_LABEL
from numazones.apimachinery import timestamp
from numazones.errors import NumazonesError
from numazones_client.resources import LEASES
from numazones_exporter.publishing import ObjectWriter

RENEWALS_PER_DURATION = 3
"""Two renewals may be lost before the node counts as stale."""
RETRY_SECONDS = 10.0
"""After a renewal that failed, or was not due as publishing failed: soon after, the node is known again."""

_log = logging.getLogger(__name__)


def lease_name(node_name: str) -> str:
    """Return the name of the Lease of a node's exporter."""
    return f"numazones-exporter-{node_name}"


def lease(
    node_name: str, *, namespace: str, node_uid: str, duration: float, renewed_at: datetime
) -> dict[str, Any]:
    """Describe the Lease; ``duration`` in seconds, written as whole ones (at least 1)."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {
            "name": lease_name(node_name),
            "namespace": namespace,
            "labels": {NODE_LABEL: node_name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}],
        },
        "spec": {
            "holderIdentity": node_name,
            "leaseDurationSeconds": max(1, round(duration)),
            "renewTime": timestamp.format_micro(renewed_at),
        },
    }


@dataclass
class LeaseKeeper:
    """Renews the Lease of one node while the exporter does its work."""

    writer: ObjectWriter
    node_name: str
    _: KW_ONLY
    namespace: str
    duration: float
    current: Callable[[], bool]
    """Returns whether the published zones are up to date."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _node_uid: str | None = field(init=False, default=None)
    _owner_changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def set_owner(self, node_uid: str) -> None:
        """Set the uid of the Node, known since the first publish; a Node made anew has another."""
        if node_uid != self._node_uid:
            self._node_uid = node_uid
            self._owner_changed.set()

    async def run(self) -> None:
        """Renew until cancelled, from the moment the owner is known, and at once when it is another.

        The Lease of a Node that is gone is deleted with it.
        """
        await self._owner_changed.wait()
        while True:
            self._owner_changed.clear()
            usual = self.duration / RENEWALS_PER_DURATION
            pause = min(usual, RETRY_SECONDS)
            if self.current():
                try:
                    await self.renew()
                except NumazonesError as error:
                    _log.warning("the node's Lease was not renewed: %s", error)
                else:
                    pause = usual
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._owner_changed.wait()

    async def renew(self) -> None:
        """Write the Lease once.

        Raises:
            APIError: the request failed.
        """
        body = lease(
            self.node_name,
            namespace=self.namespace,
            node_uid=self._node_uid or "",
            duration=self.duration,
            renewed_at=self.now(),
        )
        await self.writer.apply("Lease", LEASES, body, namespace=self.namespace)
