"""Misses: a pod on whose node a wrong answer was predicted."""

from typing import Any

from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit
from numazones.kubelet.node_info import NodeInfo
from numazones.whatif.wrong_prediction import Answer, WrongPrediction
from numazones_simulator import node_kinds


def pod(name: str, *, cpu: int, **metadata: Any) -> ClusterPod:
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    resources = {"limits": amounts, "requests": amounts}
    small = {key: {"cpu": "500m", "memory": "64Mi"} for key in ("requests", "limits")}
    affinity = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    spec = {
        "containers": [{"name": "main", "resources": resources}],
        "initContainers": [{"name": "side", "restartPolicy": "Always", "resources": small}],
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [affinity]}
            }
        },
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata}
    return ClusterPod.from_api({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


def missed(*, cpu: int, **around: Any) -> WrongPrediction:
    """A pod that came to a node of two zones, of which one pod has taken 20 of 30 CPUs."""
    first = pod("first", cpu=20)
    assert first.admission is not None
    state = admit(node_kinds.single_numa_node("node", "10.0.0.1").empty_node(), first.admission).node
    amounts = {"cpu": 60_000, "memory": 1 << 40}
    usual = {"allocatable": amounts, "labels": {"zone": "a"}, "pods": {"uid-first": first.info}}
    node = NodeInfo(state, name="node", **{**usual, **around})
    wrong = Answer("Admitted")
    return WrongPrediction(
        pod("late", cpu=cpu).info, node, wrong, Answer("Other"), "2026-01-31T12:00:00Z", "0.3.0"
    )
