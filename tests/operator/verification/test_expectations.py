"""Expectations of kubelets beyond their managers, and of nodes that just rejected pods."""

from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from tests.operator.offline_pipeline import OfflinePipeline
from tests.operator.pods import pod_body

RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [{"name": "main"}]}


def burstable(name: str, cpu: str, **status: Any) -> ClusterPod:
    """A pod that shares CPUs; NUMA placement does not concern it."""
    body = pod_body(name, nodeName="node")
    body["metadata"]["uid"] = f"uid-{name}"
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})


def guaranteed(name: str, cpu: int, **status: Any) -> ClusterPod:
    body = pod_body(name, cpu=cpu, nodeName="node")
    body["metadata"]["uid"] = f"uid-{name}"
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})


@pytest.fixture
def node() -> OfflinePipeline:
    """62 CPUs for pods, of which 60 can be exclusive, and all but 6 are requested."""
    setting = OfflinePipeline()
    setting.add_node()
    setting.pipeline.synced = True
    (known,) = setting.state.all_nodes()
    free = known.allocatable["cpu"] // 1000
    setting.state.pods.put(burstable("crowd", str(free - 6), **RUNNING))
    return setting


def test_pod_accepted_only_by_managers_is_expected_to_be_rejected(node: OfflinePipeline) -> None:
    node.state.pods.put(guaranteed("big", 8))
    node.state.pods.put(guaranteed("big", 8, phase="Failed", reason="OutOfcpu"))
    assert node.outcomes() == {("Inadmissible", "OutOfcpu"): 1}


def test_rejected_pods_momentary_resources_are_free_afterwards(node: OfflinePipeline) -> None:
    for name in ("big", "bigger"):
        node.state.pods.put(guaranteed(name, 8))  # rejected, which the API does not say for a while
    node.state.pods.put(guaranteed("fits", 6))
    node.state.pods.put(guaranteed("fits", 6, **RUNNING))
    assert node.outcomes() == {("Admissible", "Admitted"): 1}


def test_rejected_pods_with_shared_cpus_hold_nothing(node: OfflinePipeline) -> None:
    node.state.pods.put(burstable("shares", "7"))
    node.state.pods.put(guaranteed("fits", 6))
    node.state.pods.put(guaranteed("fits", 6, **RUNNING))
    node.state.pods.put(burstable("shares", "7", phase="Failed", reason="OutOfcpu"))
    # Nobody is told about pods that NUMA placement does not concern.
    assert node.outcomes() == {("Admissible", "Admitted"): 1}


def test_pod_thought_rejected_counts_once_it_runs(node: OfflinePipeline) -> None:
    node.state.pods.put(burstable("shares", "7"))
    node.state.pods.put(burstable("shares", "7", **RUNNING))
    node.state.pods.put(guaranteed("late", 6))
    node.state.pods.put(guaranteed("late", 6, phase="Failed", reason="OutOfcpu"))
    assert node.outcomes() == {("Inadmissible", "OutOfcpu"): 1}
