from typing import Any

import pytest

from numazones.cluster import ClusterNode, ClusterPod
from numazones_simulator.kubelet.node_resources import Rejection, rejection

NODE = ClusterNode.from_api(
    {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "status": {
            "allocatable": {
                "cpu": "46",
                "memory": "8Gi",
                "pods": "3",
                "hugepages-2Mi": "1Gi",
                "v.example/nic": "2",
            }
        },
    }
)


def pod(name: str, requests: dict[str, str] | None = None, **spec: Any) -> ClusterPod:
    return ClusterPod.from_api(
        {
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests or {}}}], **spec},
        }
    )


BUSY = NODE.with_pods([pod("other", {"cpu": "44750m", "memory": "6Gi", "v.example/nic": "1"})])
FULL = NODE.with_pods([pod(name) for name in "abc"])


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "1250m", "memory": "2Gi", "v.example/nic": "1"}, None),
        (
            {"cpu": "2"},
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 44750, capacity: 46000",
        ),
        (
            {"memory": "3Gi", "v.example/nic": "5"},
            (
                "OutOfmemory: Node didn't have enough resource: memory, "
                "requested: 3221225472, used: 6442450944, capacity: 8589934592"
            ),
        ),
        (
            {"v.example/nic": "2"},
            (
                "OutOfv.example/nic: Node didn't have enough resource: v.example/nic, "
                "requested: 2, used: 1, capacity: 2"
            ),
        ),
        (
            {"hugepages-2Mi": "2Gi"},
            (
                "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, "
                "requested: 2147483648, used: 0, capacity: 1073741824"
            ),
        ),
        ({"elsewhere.example/licence": "9"}, None),
        ({"hugepages-1Gi": "0"}, None),
    ],
)
def test_requests_are_weighed_against_what_is_left(requests: dict[str, str], expected: str | None) -> None:
    found = rejection(pod("new", requests), BUSY)
    assert (None if found is None else f"{found.reason}: {found.message}") == expected


def test_pod_slots_come_first() -> None:
    assert rejection(pod("new", {"cpu": "99"}), FULL) == Rejection(
        "OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
    )


def test_node_affinity_is_checked_again() -> None:
    assert rejection(pod("new", nodeSelector={"zone": "a"}), NODE) is None
    assert rejection(pod("new", nodeSelector={"zone": "b"}), NODE) == Rejection(
        "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )


@pytest.mark.parametrize(("effect", "rejected"), [("NoExecute", True), ("NoSchedule", False)])
def test_only_taints_that_evict_concern_the_kubelet(effect: str, *, rejected: bool) -> None:
    node = ClusterNode.from_api(
        {
            "metadata": {"name": "n1"},
            "spec": {"taints": [{"key": "k", "effect": effect}]},
            "status": {"allocatable": {"pods": "1"}},
        }
    )
    found = rejection(pod("new"), node)
    assert (found is not None) == rejected
    if found:
        assert found.reason == "TaintToleration"
    assert rejection(pod("new", tolerations=[{"key": "k", "operator": "Exists"}]), node) is None
