"""Doubts about kubelets' releases in what the operator publishes."""

from numazones import build
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.prediction.forecast import predict
from numazones_operator.predictions.admission_predictions import status_of


def node(name: str, version: str) -> ClusterNode:
    state = build.node(build.machine(numa=2, cores=8, memory="16Gi"), version=version)
    return ClusterNode(name, allocatable={"cpu": 14000, "memory": 15 << 30}).with_state(state)


def test_a_prediction_says_which_kubelets_are_not_certain() -> None:
    pod = ClusterPod.from_api(build.pod_body("web", cpu=2, memory="1Gi"))
    nodes = [node("old", "v1.36.2"), node("new", "v1.38.0"), node("newer", "v1.38.1")]
    status = status_of(predict(pod, nodes))
    assert status["doubts"] == [
        "kubelet 1.38 is not released yet: it is predicted with the rules of its second alpha (new, newer)"
    ]
    assert "doubts" not in status_of(predict(pod, nodes[:1]))
