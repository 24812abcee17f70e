"""Random clusters of all placement models as the objects that an API server would serve of them."""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from hypothesis import strategies as st

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones_koordinator.admission import admit as admit_koordinator
from numazones_koordinator.identity import NAME as KOORDINATOR
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_simulated_models.koordinator.koord_scheduler import books
from numazones_simulator import node_kinds, placement_models
from numazones_simulator.kubelet import pod_status
from numazones_simulator.kubelet.kubelet import NoDecision, SimulatedKubelet
from numazones_simulator.node_spec import NodeSpec, node_object
from numazones_simulator.placement_models import PublishedObject
from numazones_simulator.workload import PodStream

Object = dict[str, Any]
CREATED = "2026-01-31T08:00:00Z"


class SimulatedNode:
    """A node of some model, and the pods that it runs, without any API server."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.kubelet = SimulatedKubelet(spec)
        simulation = placement_models.simulation_of(spec.model)
        self.plugin = None if simulation is None else simulation.plugin(spec)
        self._simulation = simulation
        self.books: KoordinatorNode | None = books([spec])[spec.name] if spec.model == KOORDINATOR else None
        self.pods: dict[str, Object] = {}

    def run(self, body: Object) -> bool:
        """Bind a pod; return whether it runs, as a whole. One that does not is deleted."""
        uid = body["metadata"]["uid"]
        pod = ClusterPod.from_api(body)
        try:
            if self.books is not None and pod.admission is not None:
                decision = admit_koordinator(self.books, pod.admission)
                if not decision.admitted:
                    return False
                body["metadata"].setdefault("annotations", {}).update(decision.annotations)
                self.books = decision.node
            verdict = self.kubelet.admit(body)
            if verdict.rejection is not None:
                self._forget(uid)
                return False
            if self.plugin is not None and self.plugin.create(body):
                self._forget(uid)
                return False
        except (NoDecision, NumazonesError):
            self._forget(uid)
            return False
        now = body["metadata"]["creationTimestamp"]
        body["status"] = pod_status.running(
            body, qos_class=verdict.qos_class, host_ip="10.0.0.1", pod_ip="10.1.0.1", now=now
        )
        self.pods[uid] = body
        return True

    def end(self, uid: str) -> None:
        """Delete a pod."""
        del self.pods[uid]
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        self.kubelet.remove(uid)
        if self.plugin is not None:
            self.plugin.remove(uid)
        if self.books is not None:
            self.books = self.books.remove(uid)

    def published(self) -> Sequence[PublishedObject]:
        """Return what agents of its model publish of it."""
        return () if self._simulation is None else self._simulation.published(self.spec, self.plugin)

    def node(self) -> Object:
        """The Node."""
        return node_object(self.spec, now=CREATED)

    def zones(self) -> list[Object]:
        """Its zones as an exporter publishes them."""
        pods = {pod.uid: (pod.namespace, pod.name) for pod in self.kubelet.pods}
        zones = zones_from_node(
            self.kubelet.node, node_name=self.spec.name, pods=pods, version=self.spec.version
        )
        return [zone.to_api() for zone in zones]


def installed(nodes: Iterable[SimulatedNode]) -> Iterator[Object]:
    """The objects that clusters with such nodes have beside them."""
    for name in {node.spec.model for node in nodes}:
        simulation = placement_models.simulation_of(name)
        for _, body in () if simulation is None else simulation.installed:
            yield body


@st.composite
def clusters(draw: st.DrawFn, *, most_pods: int = 8) -> tuple[list[SimulatedNode], list[Object]]:
    """Nodes of random kinds with pods that came and went, and all pods that run, in the order they came."""
    kinds = (*node_kinds.KINDS, *placement_models.node_kinds())
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    nodes = [SimulatedNode(kind(f"node-{n}", f"10.77.0.{n + 1}")) for n, kind in enumerate(chosen)]
    seed = draw(st.integers(0, 500))
    choose = random.Random(seed)
    streams = {
        node.spec.model: iter(
            PodStream(seed).pods()
            if placement_models.simulation_of(node.spec.model) is None
            else placement_models.pods_for(node.spec.model, seed)
        )
        for node in nodes
    }
    running: list[Object] = []
    for number in range(draw(st.integers(0, most_pods))):
        node = choose.choice(nodes)
        (body,) = islice(streams[node.spec.model], 1)
        body["metadata"] |= {
            "uid": f"uid-{number}",
            "namespace": "default",
            "creationTimestamp": f"2026-01-31T08:{number // 60:02}:{number % 60:02}Z",
        }
        body["spec"]["nodeName"] = node.spec.name
        body.pop("status", None)
        if node.run(body):
            running.append(body)
    return nodes, running
