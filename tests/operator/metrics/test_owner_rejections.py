"""Creators of the pods that kubelets reject, and never more of them than can be shown."""

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster.cluster import ClusterPod, Owner
from numazones_operator.metrics import registry as module
from numazones_operator.metrics.registry import OwnerRejections


def pod(kind: str, name: str) -> ClusterPod:
    return ClusterPod("shop", "pod", "uid", owners=(Owner(kind, name, "uid", controller=True),))


def test_the_owner_that_was_counted_longest_ago_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SERIES", 2)
    registry = CollectorRegistry()
    rejections = OwnerRejections(registry)
    for name in ("a", "b", "a", "c"):
        rejections.count(pod("Job", name), "TopologyAffinityError")

    def counted(owner: str) -> float | None:
        labels = {"namespace": "shop", "owner_kind": "Job", "owner": owner, "reason": "TopologyAffinityError"}
        return registry.get_sample_value("numazones_owner_rejections_total", labels)

    assert [counted(name) for name in ("a", "b", "c")] == [2, None, 1]
