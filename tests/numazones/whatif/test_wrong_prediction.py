"""Kept wrong predictions: what is written is read again and decided alike; other data is named."""

import gzip
import json
from typing import Any

import pytest

from numazones.cluster import ClusterPod
from numazones.constraints import Taint
from numazones.kubelet.admission import admit
from numazones.kubelet.node_info import NodeInfo
from numazones.whatif.wrong_prediction import (
    Answer,
    InvalidRecord,
    WrongPrediction,
    decide,
    read,
    replay,
    write,
)
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


@pytest.mark.parametrize(
    ("cpu", "around", "reason"),
    [
        (30, {}, "Admitted"),
        (40, {}, "TopologyAffinityError"),
        (30, {"allocatable": {"cpu": 40_000, "memory": 1 << 40}}, "OutOfcpu"),
        (30, {"ended": frozenset({"uid-first"}), "pods": {}}, "Admitted"),
        (10, {"labels": {"zone": "b"}}, "NodeAffinity"),
        (10, {"taints": (Taint("other", "", "NoExecute"),)}, "TaintToleration"),
        (10, {"pod_slots": 1}, "OutOfpods"),
    ],
)
def test_a_miss_that_was_kept_is_decided_as_it_was(cpu: int, around: dict[str, Any], reason: str) -> None:
    kept = missed(cpu=cpu, **around)
    before = replay(kept)
    again = read(write(kept))
    assert replay(again) == before
    assert decide(again).sentence == decide(kept).sentence
    assert (again.pod, again.node.labels, again.actual, again.time) == (
        kept.pod,
        kept.node.labels,
        kept.actual,
        kept.time,
    )
    assert before.reason == reason


def test_nothing_of_labels_and_annotations_is_kept_that_admission_does_not_read() -> None:
    kept = missed(cpu=4)
    secret = pod("late", cpu=4, labels={"a": "secret"}, annotations={"b": "secret"}).info
    data = write(WrongPrediction(secret, kept.node, kept.predicted, kept.actual, kept.time, kept.version))
    assert b"secret" not in gzip.decompress(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a kept wrong prediction"),
        (b"\x1f\x8bnonsense", "not a kept wrong prediction"),
        (b"{}", "not a kept wrong prediction of format numazones-miss/1 but of None"),
        (b'{"format": "numazones-miss/9"}', "replay it with its own release"),
        (b'{"format": "numazones-miss/1"}', "the kept prediction is damaged: 'zones'"),
    ],
)
def test_what_is_no_miss_is_named(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        read(data)


def test_a_miss_that_was_edited_is_named() -> None:
    document = json.loads(gzip.decompress(write(missed(cpu=4))))
    document["pod"]["pod"]["containers"] = "none"
    with pytest.raises(InvalidRecord, match=r"damaged: pod\.containers: Input should be a valid tuple"):
        read(json.dumps(document).encode())
