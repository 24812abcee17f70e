"""A run of mirror, predictions, gate, extender, gauges, notices and page, with marked objects."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

from prometheus_client import CollectorRegistry

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.admission_gate import GATE, RELEASED
from numazones.placement.fragmentation import Shape
from numazones_client import Decoder, Reflector, by_uid
from numazones_client.resources import (
    DEVICE_CLASSES,
    LEASES,
    NODES,
    NUMAZONES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from numazones_operator.faults import ObjectFaults
from numazones_operator.mirror import decoding
from numazones_operator.mirror.cluster_gauges import ClusterGauges
from numazones_operator.notices.shared_cpu_events import SharedCPUEvents
from numazones_operator.notices.stale_exporters import StaleExporters
from numazones_operator.notices.zone_placements import ZonePlacements
from numazones_operator.page.updater import PageUpdater
from numazones_operator.page.usage import PageUsage
from numazones_operator.predictions.gauges import PredictionGauges
from numazones_operator.prevention.extender.metrics import ExtenderMetrics, HeldRoomGauges
from numazones_operator.prevention.extender.server import ExtenderServer
from numazones_operator.prevention.gauges import GateGauges, WaitingPodsGauges
from numazones_operator.prevention.pods_with_lost_nodes import PodsWithLostNodes
from numazones_operator.process import _reference
from numazones_operator.rebalance.inputs import Inputs
from numazones_operator.rebalance.intent import Intent
from numazones_simulator import node_kinds
from numazones_simulator.node_spec import node_object
from tests.numazones.dra import building
from tests.operator.offline_pipeline import RUNNING
from tests.operator.pods import pod_body
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates

_AT_EIGHT = "2026-01-31T08:00:00Z"
GOOD = ("good", "other")
_GPU = "gpu.example"


class Request:
    """A request to the extender, as aiohttp hands it over."""

    def __init__(self, body: Any) -> None:
        self._body = json.dumps(body).encode()
        self.headers: dict[str, str] = {}
        self.content = self

    async def iter_any(self) -> Any:
        yield self._body


async def _at_once(work: Any, *arguments: Any, **named: Any) -> Any:
    """Stand in for ``asyncio.to_thread``."""
    return work(*arguments, **named)


class Mirrors:
    """Two pods that wait, are released, asked about, bound, run and end, among marked objects."""

    def __init__(self, kind: str, names: list[str]) -> None:
        self.problems: list[str] = []
        faults = ObjectFaults(tell=lambda _about, problem: self.problems.append(problem))
        self.cluster = Cluster("a", "b", faults=faults)
        self.pipeline = self.cluster.offline.pipeline
        self.state = self.cluster.state
        self.pipeline.synced = True
        self.faults = faults
        self.names = names
        self.marked = names if kind in {"pod", "blocked_pod"} else []
        self.cpus = 31 if kind == "blocked_pod" else 1
        pods = Decoder(self.state.sharing.pod, key=by_uid)
        devices = self.state.devices
        tables: list[tuple[Resource, Decoder[Any], Any]] = [
            (PODS, pods, self.state.pods),
            (NODES, decoding.NODES, self.state.nodes),
            (NUMAZONES, decoding.ZONES, self.state.zones),
            (LEASES, decoding.HEARTBEATS, self.state.heartbeats),
            (DEVICE_CLASSES, decoding.DEVICE_CLASSES, devices.classes),
            (RESOURCE_SLICES, decoding.RESOURCE_SLICES, devices.slices),
            (RESOURCE_CLAIMS, decoding.RESOURCE_CLAIMS, devices.claims),
        ]
        self.reflectors = {table[0]: self._reflector(*table) for table in tables}
        self.seen: dict[str, Any] = {}
        specs = {name: node_kinds.single_numa_node(name, "10.0.0.1") for name in names}
        self._specs = {name: node_object(spec, now=_AT_EIGHT) for name, spec in specs.items()}
        self._zones = {
            name: [zone.to_api() for zone in zones_from_node(spec.empty_node(), node_name=name, pods={})]
            for name, spec in specs.items()
        }
        self._put: Callable[[], None] = getattr(self, f"_put_{kind}")

    def _reflector(self, resource: Resource, decoder: Decoder[Any], table: Any) -> Any:
        reflector = Reflector(
            None,  # type: ignore[arg-type]
            resource,
            decoder=decoder,
            table=table,
            unreadable=lambda found: self.problems.append(found.problem),
            failed=lambda item, error: (self.faults.take(_reference(decoder.kind, item), error), None)[1],
        )
        return reflector, decoder

    def event(self, kind: str, body: dict[str, Any], resource: Resource = PODS) -> None:
        """Let a watch bring an event."""
        reflector, decoder = self.reflectors[resource]
        whole = {"kind": "Any", "apiVersion": "v1", **body}
        reflector._handle(decoder.event(json.dumps({"type": kind, "object": whole}).encode()))

    # What is marked

    def _put_pod(self) -> None:
        """The marked pods come with the others."""

    def _put_blocked_pod(self) -> None:
        """The same, too large for any NUMA node."""

    def _put_node(self) -> None:
        for name in self.names:
            self.event("ADDED", self._specs[name], NODES)
            metadata = {"name": name, "labels": {"numazones.io/node": name}}
            for kind, renewed in (("ADDED", "at some time"), ("MODIFIED", "later")):
                spec = {"renewTime": renewed, "leaseDurationSeconds": 60}
                self.event(kind, {"metadata": metadata, "spec": spec}, LEASES)
            for zone in self._zones[name]:
                self.event("ADDED", zone, NUMAZONES)
            self.event("ADDED", self.body(f"on-{name}", 3) | self._bound(name))

    def _put_slice(self) -> None:
        for name in self.names:
            self._slice(name, node="b")

    def _put_claim(self) -> None:
        for name in self.names:
            body = building.claim(building.result("gpu-1", pool="pool-b"), name=name)
            self.event("ADDED", body, RESOURCE_CLAIMS)

    def _put_device_class(self) -> None:
        for name in self.names:
            self.event(
                "ADDED", building.device_class(name, "true", resource=f"{name}.example/gpu"), DEVICE_CLASSES
            )

    def _slice(self, name: str, *, node: str) -> None:
        devices = [building.device("gpu-1", 0)]
        self.event(
            "ADDED", building.resource_slice(*devices, name=name, pool=name, node=node), RESOURCE_SLICES
        )

    # Running

    def body(self, name: str, cpu: int, **spec: Any) -> dict[str, Any]:
        number = self.names.index(name) if name in self.names else 0
        body = pod_body(name, cpu=cpu, memory=f"{1024 + number}Mi", **spec)
        body["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": _AT_EIGHT}
        return body | {"status": {"phase": "Pending"}}

    @staticmethod
    def _bound(node: str) -> dict[str, Any]:
        return {"status": RUNNING, "spec": {**pod_body("x", cpu=3)["spec"], "nodeName": node}}

    def observe(self) -> dict[str, Any]:
        with mock.patch.object(asyncio, "to_thread", _at_once):
            return asyncio.run(self._observe())

    async def _observe(self) -> dict[str, Any]:
        self._put()
        self._slice("pool-a", node="a")
        self._slice("pool-b", node="b")
        self.event("ADDED", building.device_class(_GPU, "true"), DEVICE_CLASSES)
        publishing = asyncio.create_task(self.pipeline.publisher.run())
        await asyncio.sleep(0)
        self.bodies = {name: self.body(name, self.cpus) for name in self.marked}
        self.bodies |= {"good": self.body("good", 5), "other": self.body("other", 7)}
        await self._wait_at_the_gate()
        await self._ask_the_extender()
        await self._look_around()
        await self._bind()
        assert not publishing.done(), publishing.exception()
        publishing.cancel()
        await asyncio.wait((publishing,))
        return self.seen

    async def _wait_at_the_gate(self) -> None:
        for name, body in self.bodies.items():
            self.cluster.server.pods[f"default/{name}"] = body
            gated = {**body, "spec": {**body["spec"], "schedulingGates": [{"name": GATE}]}}
            self.event("ADDED", gated)
        await self._renew()
        self.seen["published"] = self._verdicts()
        self.gates = offline_gates(self.cluster)
        await self.gates.release()
        self.seen["released"] = sorted(name for name, _ in self.cluster.server.patches if name in GOOD)

    async def _ask_the_extender(self) -> None:
        server = ExtenderServer(self.cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()))
        for name, body in self.bodies.items():
            for verb in ("filter", "prioritize"):
                answer = await server._answer(
                    verb,
                    getattr(self.cluster.extender, verb),
                    Request({"Pod": body, "Nodes": None, "NodeNames": ["a", "b", *self._nodes()]}),  # type: ignore[arg-type]
                )
                assert answer.status in {200, 400}
                if name in GOOD and verb == "filter":
                    text = answer.body if isinstance(answer.body, bytes) else b"{}"
                    self.seen[f"filter {name}"] = sorted(
                        {"a", "b"} & set(json.loads(text).get("NodeNames") or ())
                    )

        await self.cluster.extender.rejected.wake()

    def _nodes(self) -> list[str]:
        return [node.name for node in self.state.nodes if node.name in self.names]

    async def _look_around(self) -> None:
        """Have each part look that looks now and then."""
        offline, client = self.cluster.offline, self.cluster.offline.writes
        for name, body in self.bodies.items():
            released = {**body["metadata"], "annotations": {RELEASED: _AT_EIGHT}}
            self.event(
                "MODIFIED",
                {
                    **body,
                    "metadata": released,
                    "status": {"phase": "Pending", "nominatedNodeName": "b" if name in self.names else ""},
                },
            )
        events, metrics = offline.events, offline.metrics
        lost = PodsWithLostNodes(client, self.state, events, replaces=True, metrics=metrics)  # type: ignore[arg-type]
        await lost.look()
        await StaleExporters(client, self.state, namespace="n", metrics=metrics).look()  # type: ignore[arg-type]
        placements = ZonePlacements(client, self.state, rate=1e6, events=events, metrics=metrics)  # type: ignore[arg-type]
        await placements.look()
        self.seen["placements to try again"] = sorted(placements._failed & {"a", "b"})
        SharedCPUEvents(self.state, events=events).look()
        shapes = (Shape.parse("cpu=4"),)
        for gauges in (
            ClusterGauges(self.state, shapes),
            PredictionGauges(self.pipeline.forecasts, faults=self.faults),
            GateGauges(self.gates, lost),
            WaitingPodsGauges(self.state),
            HeldRoomGauges(self.cluster.held),
        ):
            names = [family.name for family in gauges.families()]
            assert names, gauges
        page = PageUpdater(
            self.pipeline,
            Inputs(Intent(client, faults=self.faults), faults=self.faults),  # type: ignore[arg-type]
            self.cluster.held,
            options=offline.options,
            metrics=metrics,
            usage=PageUsage.of(offline.options, client),  # type: ignore[arg-type]
            identity="test",
        )
        await page._update()
        shown = set(page._nodes) | page._keys["waiting"] | page._keys["held"]
        self.seen["shown"] = sorted(key for key in shown if "bad-" not in key)

    async def _bind(self) -> None:
        for body in self.bodies.values():
            self.event("MODIFIED", {**body, "spec": {**body["spec"], "nodeName": "a"}})
        await self._renew()
        for body in self.bodies.values():
            spec = {**body["spec"], "nodeName": "a"}
            self.event("MODIFIED", {**body, "spec": spec, "status": RUNNING})
        self.pipeline.explain_misses()
        self.cluster.offline.let_pass(31.0)
        self.pipeline.explain_misses()
        await self.pipeline.misses.write()
        node = self.state.node("a")
        self.seen["node"] = node is not None and {*GOOD} <= {pod.name for pod in node.pods.values()}
        for name in self.marked:
            body = self.bodies[name]
            self.event("DELETED", {**body, "spec": {**body["spec"], "nodeName": "a"}})
        self.event("ADDED", self.body("late", 2))
        await self._renew()
        self.seen["late"] = self._verdicts().get("late")

    async def _renew(self) -> None:
        await self.pipeline.renew()
        await self.pipeline.publisher.wait_until_written(0.5)
        self.pipeline.verdict_events.post_due()

    def _verdicts(self) -> dict[str, Any]:
        objects = self.cluster.offline.writes.objects
        found = {name: (body.get("status") or {}).get("verdict") for name, body in objects.items()}
        return {name: verdict for name, verdict in found.items() if "bad-" not in name}
