"""Nodes of which only a NodeResourceTopology tells are used as far as that goes, and say so."""

from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.prediction.forecast import predict
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import TopologyReport
from numazones_simulator import node_kinds
from numazones_simulator.node_spec import node_object
from tests.operator.pods import pod_body


def topology(name: str, *, free: int, policy: str = "single-numa-node") -> dict[str, Any]:
    """Two zones of 32 CPUs, 30 of them for pods."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [
                    {"name": "cpu", "capacity": "32", "allocatable": "30", "available": str(free)},
                    {"name": "memory", "capacity": "64Gi", "allocatable": "60Gi", "available": "60Gi"},
                ],
            }
            for zone in (0, 1)
        ],
    }


def state_with(report: dict[str, Any]) -> ClusterState:
    state = ClusterState(settle=10, pod_changed=lambda _old, _new: None)
    spec = node_kinds.single_numa_node("foreign", "10.0.0.1")
    state.nodes.put(ClusterNode.from_api(node_object(spec, now="")))
    state.topologies.put(TopologyReport.from_api(report))
    return state


def test_a_topology_gives_approximate_answers() -> None:
    state = state_with(topology("foreign", free=12))
    nodes = list(state.all_nodes())
    assert [node.approximate for node in nodes] == [True]
    small = predict(ClusterPod.from_api(pod_body("small", cpu=8)), nodes)
    assert small.verdict == "Admissible"
    assert small.candidates[0].approximate
    assert predict(ClusterPod.from_api(pod_body("big", cpu=20)), nodes).verdict == "Inadmissible"


def test_it_is_renewed_and_forgotten_with_its_object() -> None:
    state = state_with(topology("foreign", free=12))
    big = ClusterPod.from_api(pod_body("big", cpu=20))
    state.topologies.put(TopologyReport.from_api(topology("foreign", free=24)))
    assert predict(big, state.all_nodes()).verdict == "Admissible"
    state.topologies.retain(set())
    assert predict(big, state.all_nodes()).verdict == "Unknown"


def test_one_that_makes_no_sense_is_unknown_and_says_so() -> None:
    broken = topology("foreign", free=12)
    broken["zones"][0]["resources"][0]["available"] = "plenty"
    result = predict(ClusterPod.from_api(pod_body("a", cpu=8)), state_with(broken).all_nodes())
    assert result.verdict == "Unknown"
    assert result.reasons[0].reason == "TopologyUnreadable"
    assert "zones.0.resources.0.available" in result.reasons[0].message
