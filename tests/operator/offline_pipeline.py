"""A pipeline without an API server, which tests feed object by object."""

from collections import Counter
from typing import Any

from prometheus_client import CollectorRegistry

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit
from numazones.kubelet.node import Node
from numazones.prediction.forecast import Prediction
from numazones_client import NotFound
from numazones_client.errors import Request
from numazones_operator.events import EventPoster
from numazones_operator.faults import ObjectFaults
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.options import OperatorOptions
from numazones_operator.pipeline import Pipeline
from numazones_simulator import node_kinds
from numazones_simulator.node_spec import node_object
from tests.operator.pods import pod_body

SETTLE = 10.0


ALL_OF_A_ZONE = 30


RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}


class Clock:
    """A time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Writes:
    """Stands in for the client: takes every write, with a version, like a server that is there."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.verbs: Counter[str] = Counter()
        self._version = 0

    async def create(self, _resource: Any, body: dict[str, Any], **_options: Any) -> dict[str, Any]:
        self.verbs["create"] += 1
        if body["kind"] != "Event":
            self.objects[body["metadata"]["name"]] = body
        return self._versioned(body)

    async def apply(self, _resource: Any, body: dict[str, Any], **_options: Any) -> dict[str, Any]:
        self.verbs["apply"] += 1
        self.objects.setdefault(body["metadata"]["name"], dict(body))["status"] = body["status"]
        return self._versioned(self.objects[body["metadata"]["name"]])

    async def get(self, resource: Any, name: str, **_options: Any) -> dict[str, Any]:
        raise NotFound(Request("get", f"{resource.plural} {name}"), "no such object", code=404)

    def _versioned(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}


class OfflinePipeline:
    """A pipeline fed by hand, and what it publishes."""

    def __init__(self, options: OperatorOptions | None = None, *, faults: ObjectFaults | None = None) -> None:
        self.clock = Clock()
        self.options = options or OperatorOptions(settle=SETTLE, debounce=0.0, candidates=3, write_rate=1e6)
        self.metrics = Metrics(CollectorRegistry())
        self.writes = Writes()
        self.events = EventPoster(
            self.writes,  # type: ignore[arg-type]
            identity="test",
            rate=5.0,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.pipeline = Pipeline(
            self.writes,  # type: ignore[arg-type]
            self.options,
            events=self.events,
            metrics=self.metrics,
            faults=faults,
            clock=self.clock,
            wall=self.clock,
        )
        self.state = self.pipeline.state
        self.published: dict[str, Prediction] = {}

    def add_node(self, name: str = "node", node: Node | None = None) -> list[dict[str, Any]]:
        """A node with zones and a Lease; returns the zones as they were published."""
        spec = node_kinds.single_numa_node(name, "10.0.0.1")
        self.state.nodes.put(ClusterNode.from_api(node_object(spec, now="2026-01-31T08:00:00Z")))
        self.state.heartbeats.put(Heartbeat(name, "2026-01-31T08:00:00Z", 0.0))
        self.beat(name)
        return self.publish(name, spec.empty_node() if node is None else node)

    def beat(self, name: str = "node") -> None:
        self.state.heartbeats.put(Heartbeat(name, f"at {self.clock.now}", 60.0))

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and what that alone changes be noticed."""
        self.clock.now += seconds
        for _ in self.state.expiring():
            pass

    def publish(self, name: str, node: Node) -> list[dict[str, Any]]:
        bodies = [zone.to_api() for zone in zones_from_node(node, node_name=name, pods={})]
        for body in bodies:
            self.state.zones.put(ZoneReport.from_api(body))
        return bodies

    def put_pod(self, name: str, **spec: Any) -> None:
        body = pod_body(name, **spec)
        body["metadata"]["uid"] = f"uid-{name}"
        self.state.pods.put(ClusterPod.from_api(body))

    def outcomes(self) -> dict[tuple[str, str], float]:
        """(predicted, actual) → how many pods that got a node."""
        return {
            (sample.labels["predicted"], sample.labels["actual"]): sample.value
            for metric in self.metrics.outcomes.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }

    async def verdict(self, name: str = "pod") -> str:
        await self.renew()
        return self.published[name].verdict

    async def renew(self) -> None:
        async for pods, prediction, _ in self.pipeline.forecasts.renew():
            self.published |= {pod.name: prediction for pod in pods}


def pod(name: str, **status: Any) -> ClusterPod:
    body = pod_body(name, cpu=ALL_OF_A_ZONE, nodeName="node")
    body["metadata"]["uid"] = f"uid-{name}"
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})


def zones_show(setting: OfflinePipeline, *names: str) -> None:
    """Zones that show pods as what they were given when they came."""
    state = node_kinds.single_numa_node("node", "10.0.0.1").empty_node()
    for name in names:
        wanted = pod(name).admission
        assert wanted is not None
        state = admit(state, wanted).node
    setting.publish("node", state)
