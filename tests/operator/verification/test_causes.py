"""Accuracy of predictions: what explains a wrong one, and when that is known."""

from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body

ALL_OF_A_ZONE = 30
RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}
REJECTED: dict[str, Any] = {"phase": "Failed", "reason": "TopologyAffinityError"}


def pod(name: str, **status: Any) -> ClusterPod:
    body = pod_body(name, cpu=ALL_OF_A_ZONE, nodeName="node")
    body["metadata"]["uid"] = f"uid-{name}"
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})


def accuracy(setting: OfflinePipeline) -> dict[str, float]:
    setting.pipeline.explain_misses()
    return {
        sample.labels["accuracy"]: sample.value
        for metric in setting.metrics.accuracy.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.value
    }


@pytest.fixture
def setting() -> OfflinePipeline:
    """A node of two zones that is free."""
    made = OfflinePipeline()
    made.add_node()
    made.pipeline.synced = True
    return made


def put(setting: OfflinePipeline, *pods: ClusterPod) -> None:
    for item in pods:
        setting.state.pods.put(item)


def test_a_prediction_that_comes_true_is_right(setting: OfflinePipeline) -> None:
    put(setting, pod("a"), pod("a", **RUNNING))
    assert accuracy(setting) == {"right": 1}


def test_pod_that_ended_unnoticed_explains_an_admission(setting: OfflinePipeline) -> None:
    put(setting, pod("a", **RUNNING), pod("b", **RUNNING), pod("c"), pod("c", **RUNNING))
    assert accuracy(setting) == {}  # nothing explains it yet
    put(setting, pod("a", phase="Succeeded"))
    assert accuracy(setting) == {"race": 1}
    assert accuracy(setting) == {"race": 1}


def test_pod_that_ran_before_its_status_explains_a_rejection(setting: OfflinePipeline) -> None:
    put(setting, pod("a", **RUNNING), pod("b", **RUNNING))
    put(setting, pod("c"))  # expected to be rejected, but one of the others has just ended
    put(setting, pod("a", phase="Succeeded"), pod("d"))  # so this one is expected to find its share
    put(setting, pod("d", **REJECTED))
    assert accuracy(setting) == {}
    put(setting, pod("c", **RUNNING))
    assert accuracy(setting) == {"race": 2}


def test_pod_presumed_gone_explains_a_rejection(setting: OfflinePipeline) -> None:
    put(setting, pod("a", **RUNNING), pod("b", **RUNNING))
    put(setting, replace(pod("a", **RUNNING), deleting=True), pod("c"), pod("c", **REJECTED))
    assert accuracy(setting) == {"race": 1}


def test_zones_that_were_old_explain_what_no_pod_explains(setting: OfflinePipeline) -> None:
    (node,) = setting.state.all_nodes()
    assert node.state is not None
    empty = taken = node.state
    for name in ("ghost", "shadow"):
        ghost = pod(name).admission
        assert ghost is not None
        taken = admit(taken, ghost).node
    setting.publish("node", taken)
    put(setting, pod("a"), pod("a", **RUNNING))
    assert accuracy(setting) == {}
    setting.publish("node", empty)
    assert accuracy(setting) == {"stale": 1}


def test_unexplained_misses_count_against_the_model_eventually(
    setting: OfflinePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    put(setting, pod("a"), pod("a", **REJECTED))
    setting.clock.now += 29.0
    assert accuracy(setting) == {}
    assert not caplog.records
    setting.clock.now += 2.0
    assert accuracy(setting) == {"model": 1}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "predicted Admissible, but the outcome was TopologyAffinityError; cause: model" in caplog.text
