"""An extender on a mirror that tests feed by hand, with a stand-in for the API server that binds."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from numazones.cluster.cluster import ClusterPod
from numazones.prediction.node_choice import Ranking
from numazones_client import APIError, NotFound
from numazones_client.errors import Conflict, Request
from numazones_client.resources import PODS
from numazones_operator.faults import ObjectFaults
from numazones_operator.prevention.extender import messages
from numazones_operator.prevention.extender.extender import Extender
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.unknown_nodes import UnknownNodes
from numazones_operator.prevention.held_room import HeldRoom
from tests.operator.offline_pipeline import Clock, OfflinePipeline
from tests.operator.pods import pod_body


class Server:
    """Keeps pods as an API server does, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.failures: list[APIError] = []
        self.losing_answers = False
        """Whether bindings are made though their answers are lost."""
        self.patches: list[tuple[str, Any]] = []
        self.bindings: list[tuple[str, str]] = []
        self.evicted: list[str] = []

    async def create(
        self, resource: Any, body: dict[str, Any], *, namespace: str, subresource: str
    ) -> dict[str, Any]:
        assert (resource, subresource) == (PODS, "binding")
        if self.failures and not self.losing_answers:
            raise self.failures.pop(0)
        metadata = body["metadata"]
        pod = self._pod(metadata["name"], namespace)
        if metadata["uid"] != pod["metadata"]["uid"]:
            raise Conflict(Request("create", "pods/binding"), "the UID is another one", code=409)
        if pod["spec"].get("nodeName"):
            raise Conflict(Request("create", "pods/binding"), "the pod is bound already", code=409)
        pod["spec"]["nodeName"] = body["target"]["name"]
        self.bindings.append((metadata["name"], body["target"]["name"]))
        if self.failures:
            raise self.failures.pop(0)
        return {}

    async def get(self, _resource: Any, name: str, *, namespace: str) -> dict[str, Any]:
        if self.failures:
            raise self.failures.pop(0)
        return deepcopy(self._pod(name, namespace))

    async def evict(self, name: str, *, namespace: str, uid: str, resource_version: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        metadata = self._pod(name, namespace)["metadata"]
        if (metadata["uid"], metadata["resourceVersion"]) != (uid, resource_version):
            raise Conflict(Request("create", "pods/eviction"), "the pod has changed", code=409)
        del self.pods[f"{namespace}/{name}"]
        self.evicted.append(name)

    async def patch(self, _resource: Any, name: str, patch: Any, *, namespace: str, **_: Any) -> None:
        self._pod(name, namespace)
        self.patches.append((name, patch))

    def _pod(self, name: str, namespace: str) -> dict[str, Any]:
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is None:
            raise NotFound(Request("get", f"pods {namespace}/{name}"), "no such pod", code=404)
        return pod


class Cluster:
    """Nodes of two zones with 30 CPUs each, pods, and the extender."""

    def __init__(
        self,
        *nodes: str,
        unknown: UnknownNodes = UnknownNodes.LAST_RESORT,
        faults: ObjectFaults | None = None,
    ) -> None:
        self.offline = OfflinePipeline(faults=faults)
        for name in nodes:
            self.offline.add_node(name)
        self.state = self.offline.state
        self.server = Server()
        self.wall = Clock()
        self.held = HeldRoom(self.state, proven=lambda _pod: True, clock=self.offline.clock, wall=self.wall)
        self.registry = CollectorRegistry()
        self.ready = True
        self.extender = Extender(
            self.server,  # type: ignore[arg-type]
            self.state,
            self.held,
            unknown=unknown,
            ranking=Ranking,
            metrics=ExtenderMetrics(self.registry),
            ready=lambda: self.ready,
            clock=self.offline.clock,
            wall=self.wall,
        )

    def pod(self, name: str, *, mirrored: bool = True, **parts: Any) -> dict[str, Any]:
        """Create a pod; on a node if ``nodeName`` says so."""
        body = pod_body(name, **parts)
        body["metadata"]["uid"] = f"uid-{name}"
        body["status"] = {"phase": "Pending"}
        self.server.pods[f"default/{name}"] = body
        if mirrored:
            self.mirror(name)
        return body

    def offer(self, node: str, resource: str, amount: int) -> None:
        """Let a node offer an extended resource, as a device plugin does."""
        known = self.state.nodes.get(node)
        assert known is not None
        self.state.nodes.put(replace(known, allocatable={**known.allocatable, resource: amount}))

    def mirror(self, name: str) -> None:
        """Let the mirror see a pod as the server has it."""
        self.state.pods.put(ClusterPod.from_api(deepcopy(self.server.pods[f"default/{name}"])))

    def ask_to_delete(self, name: str) -> None:
        """Let a pod be deleted, which takes until ``delete``."""
        self.server.pods[f"default/{name}"]["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        self.mirror(name)

    def delete(self, name: str) -> None:
        """Let a pod vanish."""
        self.state.pods.remove(ClusterPod.from_api(self.server.pods.pop(f"default/{name}")))

    async def filter(self, pod: dict[str, Any], names: list[str]) -> Any:
        return await self._ask(self.extender.filter, {"Pod": pod, "Nodes": None, "NodeNames": names})

    async def prioritize(self, pod: dict[str, Any], names: list[str]) -> dict[str, int]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": names}
        return {item["Host"]: item["Score"] for item in await self._ask(self.extender.prioritize, body)}

    async def preempt(self, pod: dict[str, Any], victims: dict[str, list[str]]) -> dict[str, list[str]]:
        meta = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for node, uids in victims.items()
        }
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
        answer = await self._ask(self.extender.preempt, body)
        kept = answer["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in some["Pods"]] for node, some in kept.items()}

    async def bind(self, name: str, node: str, *, uid: str = "") -> str:
        body = {
            "PodName": name,
            "PodNamespace": "default",
            "PodUID": uid or f"uid-{name}",
            "Node": node,
        }
        return str((await self._ask(self.extender.bind, body))["Error"])

    async def _ask(self, verb: Any, body: dict[str, Any]) -> Any:
        return msgspec.json.decode(messages.encode(await verb(messages.encode(body))))

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0
