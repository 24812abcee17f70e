"""Released pods are admitted whichever of them come to a node, and in whatever order."""

import asyncio
import random
from copy import deepcopy
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_simulator import node_kinds
from numazones_simulator.workload import PodStream
from tests.laws import examples
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates
from tests.random_clusters import SimulatedNode

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def released_to(patch: Object) -> list[str]:
    """The nodes that a pod may go to."""
    affinity = patch["spec"].get("affinity") or {}
    terms = (affinity.get("nodeAffinity") or {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return [term["matchFields"][0]["values"][0] for term in terms]


def taken_over(nodes: list[SimulatedNode]) -> Cluster:
    """A mirror that shows nodes and their pods."""
    cluster = Cluster()
    for node in nodes:
        cluster.state.nodes.put(ClusterNode.from_api(node.node()))
        cluster.state.heartbeats.put(Heartbeat(node.spec.name, "2026-01-31T08:00:00Z", 0.0))
        cluster.offline.beat(node.spec.name)
        for zone in node.zones():
            cluster.state.zones.put(ZoneReport.from_api(zone))
        for body in node.pods.values():
            cluster.state.pods.put(ClusterPod.from_api(body))
    return cluster


@settings(max_examples=examples(150))
@given(
    kinds=st.lists(st.sampled_from(node_kinds.KINDS), min_size=1, max_size=2),
    seed=st.integers(0, 10_000),
    running=st.integers(0, 14),
    gated=st.integers(2, 8),
)
def test_no_order_of_arrival_leads_to_a_rejection(
    kinds: list[Any], seed: int, running: int, gated: int
) -> None:
    nodes = [SimulatedNode(kind(f"node-{n}", f"10.0.0.{n + 1}")) for n, kind in enumerate(kinds)]
    draw, pods = random.Random(seed), PodStream(seed).pods()
    for number, body in enumerate(islice(pods, running)):
        node = draw.choice(nodes)
        body["metadata"] |= {"uid": f"running-{number}", "creationTimestamp": "2026-01-31T08:00:00Z"}
        body["spec"]["nodeName"] = node.spec.name
        node.run(body)
    leaving = [body for node in nodes for body in node.pods.values() if draw.random() < 1 / 6]
    for body in leaving:
        body["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
    cluster = taken_over(nodes)
    waiting = {body["metadata"]["name"]: body for body in islice(pods, gated)}
    for name, body in waiting.items():
        body["metadata"] |= {"uid": f"uid-{name}"}
        body["spec"]["schedulingGates"] = [{"name": GATE}]
        cluster.server.pods[f"default/{name}"] = body
        cluster.mirror(name)

    async def release() -> None:
        await cluster.offline.renew()
        await offline_gates(cluster).release()

    asyncio.run(release())
    # Each goes to one of its nodes, or nowhere; those that leave go at any moment.
    events: list[tuple[str, Object]] = [("ends", body) for body in leaving]
    for name, patch in cluster.server.patches:
        if choice := released_to(patch):
            body = deepcopy(waiting[name])
            del body["spec"]["schedulingGates"]
            body["spec"]["nodeName"] = draw.choice([*choice, *choice, ""])
            events.append(("arrives", body))
    draw.shuffle(events)
    kubelets = {node.spec.name: node.kubelet for node in nodes}
    for what, body in events:
        kubelet = kubelets.get(body["spec"]["nodeName"])
        if kubelet is None:
            continue
        if what == "ends":
            kubelet.remove(body["metadata"]["uid"])
            continue
        verdict = kubelet.admit(body)
        assert verdict.rejection is None, (body["metadata"]["name"], verdict.rejection)
