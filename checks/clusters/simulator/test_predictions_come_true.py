"""A random workload on nodes of every kind: what is predicted when a pod is bound is what its kubelet does.

The way from kubelet to prediction is the real one: the node's zones, as JSON, read back into a state.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from numazones.api.numazone import NUMAZone
from numazones.api.zones import node_from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.prediction import forecast as prediction
from numazones.prediction.forecast import NodeAnswer, NodeVerdict, PodKind
from numazones_simulator import node_kinds
from numazones_simulator.kubelet.kubelet import SimulatedKubelet, Verdict
from numazones_simulator.node_spec import node_object
from numazones_simulator.scheduler import choose
from numazones_simulator.workload import PodStream

NODES = 20
PODS = 2600
CROWD = 150
"""Running pods from which on most new ones take the place of an old one."""


@dataclass
class Cluster:
    """Simulated kubelets, and what a scheduler and a predictor know of their nodes."""

    kubelets: dict[str, SimulatedKubelet]
    nodes: dict[str, ClusterNode]
    draw: random.Random
    running: list[ClusterPod] = field(default_factory=list)

    def known(self, name: str) -> ClusterNode:
        """The node as somebody sees it who knows nothing but its published zones."""
        zones = zones_from_node(self.kubelets[name].node, node_name=name, pods={})
        published = [json.dumps(zone.to_api()) for zone in zones]
        return self.nodes[name].with_state(
            node_from_zones([NUMAZone.from_api(json.loads(text)) for text in published])
        )

    def run(self, pod: ClusterPod) -> None:
        self.running.append(pod)
        self.nodes[pod.node] = self.nodes[pod.node].with_pod(pod)

    def end_one(self) -> None:
        pod = self.running.pop(self.draw.randrange(len(self.running)))
        self.kubelets[pod.node].remove(pod.uid)
        self.nodes[pod.node] = self.nodes[pod.node].without_pod(pod.uid)


def mixed_cluster(seed: int) -> Cluster:
    specs = node_kinds.mixed(NODES)
    return Cluster(
        {spec.name: SimulatedKubelet(spec) for spec in specs},
        {spec.name: ClusterNode.from_api(node_object(spec, now="")) for spec in specs},
        random.Random(seed),
    )


def outcome(verdict: Verdict) -> tuple[NodeAnswer, tuple[tuple[str, str], ...]]:
    if verdict.rejection is None:
        return NodeAnswer.ADMITS, ()
    return NodeAnswer.REJECTS, ((verdict.rejection.reason, verdict.rejection.message),)


def bound(body: dict[str, Any], number: int) -> dict[str, Any]:
    body["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": f"2026-01-01T00:00:00.{number:06}Z"}
    return body


@pytest.mark.slow
def test_every_prediction_at_binding_time_equals_the_outcome() -> None:
    cluster = mixed_cluster(seed=20)
    seen: Counter[str] = Counter()
    kinds: Counter[tuple[str, NodeAnswer]] = Counter()
    for number, body in enumerate(islice(PodStream(21).pods(), PODS)):
        pod = ClusterPod.from_api(bound(body, number))
        choice = choose(pod, cluster.nodes.values())
        if choice.node is None:
            for _ in range(3):
                cluster.end_one()
            continue
        predicted: NodeVerdict = prediction.ask(
            PodKind.of(pod) or pytest.fail(pod.problem), cluster.known(choice.node)
        )
        verdict = cluster.kubelets[choice.node].admit(body)
        assert (predicted.answer, predicted.obstacles) == outcome(verdict), (choice.node, body)

        seen[verdict.rejection.reason if verdict.rejection else "Running"] += 1
        kind = cluster.kubelets[choice.node].spec.labels[node_kinds.KIND_LABEL]
        kinds[kind, predicted.answer] += 1
        if verdict.rejection is None:
            cluster.run(pod.placed(choice.node))
        if len(cluster.running) > CROWD and cluster.draw.random() < 3 / 4:
            cluster.end_one()
    assert seen.total() >= 2000
    assert seen["Running"] > 1500
    assert seen.keys() >= {"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"}
    assert {kind for kind, _ in kinds} == {
        "single-numa-node",
        "restricted-pods",
        "best-effort-full-cores",
        "single-numa-node-pods",
        "unaligned",
    }


def test_pods_that_pass_by_the_scheduler_are_foretold_as_well() -> None:
    """Bound by nodeName they may be too large for the node; the order of the kubelet's checks decides."""
    cluster = mixed_cluster(seed=5)
    seen: Counter[str] = Counter()
    for number, body in enumerate(islice(PodStream(6).pods(), 400)):
        pod = ClusterPod.from_api(bound(body, number))
        name = cluster.draw.choice(list(cluster.kubelets)[:5])
        node = cluster.known(name)
        assert node.known is not None
        assert pod.admission is not None
        by_kubelet = prediction.ask_placement(pod.admission, node.known)
        by_scheduler = prediction.ask(PodKind.of(pod) or pytest.fail(pod.problem), node)
        verdict = cluster.kubelets[name].admit(body)
        # A device resource that the node does not have is nothing to its kubelet.
        lacking = {f"Insufficient {name}" for name in pod.requests.keys() & node.allocatable.keys()}
        objections = [reason for reason, _ in by_scheduler.obstacles if reason in lacking]
        if by_kubelet.answer is NodeAnswer.REJECTS or not objections:
            assert (by_kubelet.answer, by_kubelet.obstacles) == outcome(verdict)
        else:
            assert verdict.rejection is not None
            resource = verdict.rejection.reason.removeprefix("OutOf")
            assert f"Insufficient {resource}" in objections
        seen[verdict.rejection.reason if verdict.rejection else "Running"] += 1
        if verdict.rejection is None:
            cluster.run(pod.placed(name))
        if len(cluster.running) > 60:
            cluster.end_one()
    assert seen["OutOfcpu"] > 5
    assert seen["Running"] > 100
