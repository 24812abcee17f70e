"""Writes on the zones of an exporter that gives no sign of life that they may be out of date.

Zones stay as their exporter left them, Ready included, when its pod is gone: whoever looks with kubectl would
believe them for ever. The exporter's Lease knows better, so the replica that leads writes ``status.silence``
once the Lease has run out, and takes it back once it is renewed. That field is the operator's alone (its own
field manager; an admission policy holds it to that), so exporter and operator never overwrite each other.
What the zones carry is known from their watch: a write is made only where that differs from what the Lease
says, and no faster than ``_RATE``, however many exporters vanish at once.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.api.meta import API_VERSION
from numazones.api.numazone import NUMAZONE, Silence
from numazones.apimachinery import timestamp
from numazones_client import APIError, Client, NotFound
from numazones_client.resources import LEASES, NUMAZONES
from numazones_operator.events import COMPONENT
from numazones_operator.faults import ObjectReference, of_node, of_zone
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.rate_limit import TokenBucket

_PERIOD = 5.0
_RATE = 25.0
"""Zones per second."""

_log = logging.getLogger(__name__)


@dataclass
class StaleExporters:
    """Keeps ``status.silence`` of all zones equal to what the Leases say."""

    client: Client
    state: ClusterState
    _: KW_ONLY
    namespace: str
    """Namespace of the exporters' Leases."""
    metrics: Metrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Tells since when an exporter is silent where no Lease does."""
    _bucket: TokenBucket = field(init=False, default_factory=lambda: TokenBucket(_RATE, _RATE))
    _suspects: frozenset[str] = field(init=False, default=frozenset())
    """Nodes that were silent at the last look, too; an exporter that begins writes its zones first."""

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_PERIOD)

    async def look(self) -> None:
        """Write what has to be written now; writes that fail are tried again the next time."""
        silent: dict[str, list[str]] = {}
        heard: list[str] = []
        faults = self.state.faults
        asked = faults.over(self.state.zones, lambda zone: self.state.silent(zone.node), _node_of)
        for zone, is_silent in asked:
            if is_silent:
                silent.setdefault(zone.node, []).extend(() if zone.silent else (zone.name,))
            elif zone.silent:
                heard.append(zone.name)
        suspects, self._suspects = self._suspects, frozenset(silent)
        for name in heard:
            with faults.of(of_zone(name)):
                await self._write(name, None)
        for node, names in silent.items():
            with faults.of(of_node(node)):
                silence = await self._silence(node) if names and node in suspects else None
                for name in names if silence is not None else ():
                    await self._write(name, silence)

    async def _silence(self, node: str) -> Silence | None:
        """Return the silence to report of a node; None if the API server has a later Lease than the watch."""
        known = self.state.heartbeats.get(node)
        renewed: str | None = None
        try:
            lease = await self.client.get(LEASES, f"numazones-exporter-{node}", namespace=self.namespace)
            renewed = (lease.get("spec") or {}).get("renewTime") or ""
        except NotFound:
            pass
        except APIError as error:
            _log.info("could not read the Lease of the exporter on %s: %s", node, error)
            return None
        if renewed != (None if known is None else known.renewed):
            return None
        since = _moment(known) or self.now()
        told = (
            "has no Lease" if known is None else f"has not renewed its Lease since {timestamp.format(since)}"
        )
        return Silence(
            state="Silent",
            since=timestamp.format(since),
            message=f"the exporter on {node} {told}, so the NUMAZone may be out of date; check that "
            f"its pod is running: kubectl -n {self.namespace} get pods -o wide",
        )

    async def _write(self, name: str, silence: Silence | None) -> None:
        await self._bucket.wait()
        status: dict[str, Any] = {} if silence is None else {"silence": silence.to_api()}
        metadata = {"name": name}
        body = {"apiVersion": API_VERSION, "kind": NUMAZONE.kind, "metadata": metadata, "status": status}
        try:
            await self.client.apply(NUMAZONES, body, field_manager=COMPONENT, subresource="status")
            self.metrics.count_write(NUMAZONES)
        except APIError as error:
            self.metrics.count_write(NUMAZONES, error)
            _log.info("could not write status.silence of NUMAZone %s: %s", name, error)


def _node_of(zone: ZoneReport) -> ObjectReference:
    return of_node(zone.node)


def _moment(heartbeat: Heartbeat | None) -> datetime | None:
    try:
        return None if heartbeat is None else timestamp.parse(heartbeat.renewed)
    except timestamp.InvalidTimestamp:
        return None
