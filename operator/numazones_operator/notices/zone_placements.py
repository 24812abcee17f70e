"""Writes on the zones what their exporter cannot know: placement models' books, and devices of claims (DRA).

An exporter sees a kubelet, and publishes what that gives away: nothing, where another model places pods. The
replica that leads follows each model, so it writes ``status.placement`` beside it: who decides, what is
assigned and what is free by the model's own books, and what of the state cannot be rebuilt from objects, from
which a new leader and the plugin go on. ``status.dynamicResources`` has the devices that drivers publish in
ResourceSlices and the scheduler allocates to claims. These fields are the operator's alone (a field manager
of its own, beside that of ``stale_exporters``; an admission policy holds the operator to all three). Nodes on
which kubelets decide and that have no such devices cost no write. Changes of a node are collected for
``_PERIOD``, and written zone by zone, the ones that differ alone.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from numazones.api.amounts import in_gibibytes
from numazones.api.dynamic_resources import DynamicResources, dynamic_resources
from numazones.api.meta import API_VERSION
from numazones.api.numazone import MAX_RECORD, NUMAZONE, UNKNOWN_MODEL, ModelAmounts, ZonePlacement
from numazones.apimachinery import quantity
from numazones.apimachinery.resources import MEMORY
from numazones.cluster.cluster import ClusterNode
from numazones.placement.model import TOPOLOGY_KIND, Model, Object
from numazones.placement.occupancy import ZoneUse
from numazones_client import APIError, Client, Forbidden, NotFound
from numazones_client.resources import NUMAZONES
from numazones_operator.events import WARNING, EventPoster
from numazones_operator.faults import of_node
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import ZoneReport
from numazones_operator.mirror.mirrored_node import MirroredNode
from numazones_operator.rate_limit import TokenBucket

FIELD_MANAGER = "numazones-operator-placement"
"""Not that of the other fields: what a manager applies replaces all that it applied before."""
_PERIOD = 1.0
_RETRY = 30.0
"""Seconds after which a write that failed is tried again."""
_UNKNOWN = "?"
_MAX_SENTENCE = 1024

_log = logging.getLogger(__name__)


class ZonePlacements:
    """Keeps ``status.placement`` and ``status.dynamicResources`` of all zones true."""

    def __init__(
        self, client: Client, state: ClusterState, *, rate: float, events: EventPoster, metrics: Metrics
    ) -> None:
        """``rate`` in writes per second."""
        self._client = client
        self._state = state
        self._bucket = TokenBucket(rate, 2 * rate)
        self._events = events
        self._metrics = metrics
        self._failed: set[str] = set()
        """Nodes whose zones have to be written again."""
        self._refused: set[str] = set()
        """Nodes of which an event says that the right is missing."""
        self._records: dict[str, tuple[Object, str]] = {}
        """Node → its record, and that as text: written once as long as it is the same."""

    async def run(self) -> None:
        """Look now and then, until cancelled; who begins to lead looks at all nodes."""
        self._state.changed_placements.update(zone.node for zone in self._state.zones)
        retry = asyncio.create_task(self._retry())
        try:
            while True:
                await self.look()
                await asyncio.sleep(_PERIOD)
        finally:
            retry.cancel()

    async def look(self) -> None:
        """Write what has to be written now."""
        names = self._state.changed_placements.copy()
        self._state.changed_placements.clear()
        for name in sorted(names):
            with self._state.faults.of(of_node(name)):
                await self._write_node(name)
            await asyncio.sleep(0)  # a new leader looks at all nodes, and others have work to do, too
        self._records = {name: known for name, known in self._records.items() if self._state.record(name)}

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(_RETRY)
            self._state.changed_placements.update(self._failed)
            self._failed.clear()

    async def _write_node(self, name: str) -> None:
        record = self._state.record(name)
        node = self._state.node(name)
        if record is None or node is None:
            return
        placements, devices = self._placements(record, node), self._devices(record, node)
        for numa, report in sorted(record.reports.items()):
            wanted = {"placement": placements.get(numa), "dynamicResources": devices.get(numa)}
            status = {field: found.to_api() for field, found in wanted.items() if found is not None}
            told = {"placement": report.placement, "dynamicResources": report.dynamic_resources}
            if status == {field: found for field, found in told.items() if found is not None}:
                continue
            if not await self._write(report, status):
                self._failed.add(name)
                return
        self._refused.discard(name)

    async def _write(self, zone: ZoneReport, status: Mapping[str, Any]) -> bool:
        """Write what a zone has to say; return False where that has to be tried again."""
        await self._bucket.wait()
        metadata = {"name": zone.name}
        body = {"apiVersion": API_VERSION, "kind": NUMAZONE.kind, "metadata": metadata, "status": status}
        try:
            await self._client.apply(NUMAZONES, body, field_manager=FIELD_MANAGER, subresource="status")
            self._metrics.count_write(NUMAZONES)
        except APIError as error:
            self._metrics.count_write(NUMAZONES, error)
            if not isinstance(error, NotFound):  # it has just gone
                self._tell(zone, error)
                return False
        return True

    def _tell(self, zone: ZoneReport, error: APIError) -> None:
        sentence = (
            f"could not write the placement model and the claimed devices to NUMAZone {zone.name}: {error}"
        )
        if not isinstance(error, Forbidden):
            _log.info("%s", sentence)
        elif zone.node not in self._refused:
            self._refused.add(zone.node)
            _log.warning("%s", sentence)
            about = of_node(zone.node)
            self._events.post(about, type=WARNING, reason="PlacementNotWritten", message=sentence)

    # What is to be said

    def _devices(self, record: MirroredNode, node: ClusterNode) -> Mapping[int, DynamicResources]:
        """NUMA id → devices that claims get there; empty where no driver publishes any."""
        if node.dra is None or not node.dra.devices or not record.reports:
            return {}
        policies = {report.cpu_manager_policy for report in record.reports.values()}
        policy = policies.pop() if len(policies) == 1 else ""
        return dynamic_resources(node.dra, record.reports, self._state.devices.classes, policy)

    def _placements(self, record: MirroredNode, node: ClusterNode) -> dict[int, ZonePlacement]:
        """NUMA id → what its zone has to say; empty where the kubelet decides."""
        if not record.reports or not record.other.shown_by(node):
            return {}
        model = record.other.model_of(node)
        common: dict[str, Any] = {
            "model": UNKNOWN_MODEL if model is None else model.name,
            "decider": "" if model is None else model.decider,
            "objects": () if model is None else self._objects(record, model),
        }
        occupancy = node.occupancy
        if occupancy is None:
            why = "the CPUs of the node are unknown" if node.unknown is None else node.unknown.message
            common |= {"assigned": _UNKNOWN, "free": _UNKNOWN, "memory_free": _UNKNOWN}
            said = ZonePlacement(**common, unknown=why[:_MAX_SENTENCE])
            found = dict.fromkeys(record.reports, said)
            # What was known before is what the state is read from, once it can be read again.
            text = record.published_record
        else:
            uses = {zone.numa: zone for zone in occupancy.zones}
            found = {numa: ZonePlacement(**common, **_figures(uses.get(numa))) for numa in record.reports}
            text = self._record(record)
        lowest = min(found)
        found[lowest] = found[lowest].model_copy(update={"record": text})
        return found

    def _objects(self, record: MirroredNode, model: Model) -> tuple[str, ...]:
        """The kinds of objects of which there is one that the model reads."""
        own, shared = record.other.objects, self._state.model_objects
        here = [kind for kind in model.objects if (kind.kind in own if kind.of_node else len(shared[kind]))]
        topology = () if record.other.topology is None else (TOPOLOGY_KIND,)
        return (*topology, *(kind.kind for kind in here))

    def _record(self, record: MirroredNode) -> str:
        """Return what cannot be rebuilt from objects, as text; empty if all can be."""
        found = record.other.record()
        if found is None:
            return ""
        known = self._records.get(record.name)
        if known is None or known[0] is not found:
            text = json.dumps(found, separators=(",", ":"), sort_keys=True)
            if len(text) > MAX_RECORD:
                _log.warning(
                    "the placement model's state for node %s has %d characters, but a NUMAZone has room "
                    "for only %d, so it is not stored; a new leader and kubectl numazones will not have it",
                    record.name,
                    len(text),
                    MAX_RECORD,
                )
                text = ""
            known = self._records[record.name] = (found, text)
        return known[1]


def _figures(zone: ZoneUse | None) -> dict[str, Any]:
    """Return the figures of a NUMA node in a model's books; of one that they lack, it gives nothing."""
    held, free = (0, 0) if zone is None else (zone.cpus[0], max(zone.free, 0))
    figures: dict[str, Any] = {
        "cpu": ModelAmounts(assigned=str(held), available=str(free)),
        "assigned": str(held),
        "free": str(free),
    }
    for kind, used, total in () if zone is None else zone.memory:
        if kind == MEMORY:
            left = max(total - used, 0)
            figures["memory"] = ModelAmounts(
                assigned=quantity.format_bytes(used), available=quantity.format_bytes(left)
            )
            figures["memory_free"] = in_gibibytes(left)
    return figures
