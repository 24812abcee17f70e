"""A pipeline on one node, without an API server but with a stand-in that keeps what is written."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones_operator.events import EventPoster
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.options import OperatorOptions
from numazones_operator.pipeline import Pipeline
from numazones_simulator import node_kinds
from numazones_simulator.node_spec import node_object
from tests.operator.pods import pod_body


class Server:
    """Stands in for the client: keeps what is written, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.version = 0
        self.accepts = asyncio.Event()
        self.accepts.set()

    def _versioned(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    async def create(self, resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(("create", resource.plural))
        await self.accepts.wait()
        if resource.plural == "admissionpredictions":
            self.objects[body["metadata"]["name"]] = self._versioned(body)
        return self._versioned(body)

    async def apply(self, resource: Any, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(("apply", resource.plural))
        if self.failures:
            raise self.failures.pop(0)
        name = body["metadata"]["name"]
        self.objects[name] = self._versioned({**self.objects[name], "status": body["status"]})
        return self.objects[name]

    async def delete(self, resource: Any, name: str, **_: Any) -> None:
        self.calls.append(("delete", resource.plural))
        self.objects.pop(name, None)

    def verdict(self, name: str) -> str:
        return str((self.objects.get(name, {}).get("status") or {}).get("verdict", ""))

    def applied(self) -> int:
        return self.calls.count(("apply", "admissionpredictions"))


class OneNodePipeline:
    """A pipeline on one node, fed by hand."""

    def __init__(self, server: Server | None = None) -> None:
        self.now = 1000.0
        self.server = server or Server()
        self.leads = True
        self.metrics = Metrics(CollectorRegistry())
        self.events = EventPoster(
            self.server,  # type: ignore[arg-type]
            identity="test",
            rate=5.0,
            metrics=self.metrics,
            clock=lambda: self.now,
        )
        self.pipeline = Pipeline(
            self.server,  # type: ignore[arg-type]
            OperatorOptions(debounce=0.0, write_rate=1e6),
            events=self.events,
            metrics=self.metrics,
            counts=lambda: self.leads,
            clock=lambda: self.now,
            wall=lambda: self.now,
        )
        self.state = self.pipeline.state
        spec = node_kinds.single_numa_node("node", "10.0.0.1")
        self.state.nodes.put(ClusterNode.from_api(node_object(spec, now="2026-01-31T08:00:00Z")))
        self.state.heartbeats.put(Heartbeat("node", "2026-01-31T08:00:00Z", 0.0))
        self.state.heartbeats.put(Heartbeat("node", "again", 1e6))
        for zone in zones_from_node(spec.empty_node(), node_name="node", pods={}):
            self.state.zones.put(ZoneReport.from_api(zone.to_api()))
        self.pipeline.synced = True

    def pod(self, name: str, *, cpu: int = 4, node: str = "", uid: str = "", **status: Any) -> ClusterPod:
        body = pod_body(name, cpu=cpu, nodeName=node)
        body["metadata"]["uid"] = uid or f"uid-{name}"
        pod = ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})
        self.state.pods.put(pod)
        return pod

    async def renew(self) -> None:
        await self.pipeline.renew()

    def outcomes(self) -> dict[tuple[str, str], float]:
        samples = next(iter(self.metrics.outcomes.collect())).samples
        return {
            (one.labels["predicted"], one.labels["actual"]): one.value
            for one in samples
            if one.name.endswith("_total")
        }
