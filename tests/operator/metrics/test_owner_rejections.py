"""Who creates the pods that kubelets reject: named as people know them, and never more than can be shown."""

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster import ClusterPod, Owner
from numazones_operator.metrics import owner_rejections
from numazones_operator.metrics.owner_rejections import OwnerRejections, owner_of

HASH = {"pod-template-hash": "5d4f8"}


def pod(kind: str = "", name: str = "", *, labels: dict[str, str] | None = None) -> ClusterPod:
    owners = (Owner(kind, name, "uid", controller=True),) if kind else ()
    return ClusterPod("shop", "pod", "uid", owners=owners, labels=labels or {})


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "web-5d4f8", HASH, ("Deployment", "web")),
        ("ReplicaSet", "web-5d4f8", {}, ("ReplicaSet", "web-5d4f8")),
        ("ReplicaSet", "web", HASH, ("ReplicaSet", "web")),
        ("Job", "batch-5d4f8", HASH, ("Job", "batch-5d4f8")),
        ("StatefulSet", "db", {}, ("StatefulSet", "db")),
        ("", "", {}, ("", "")),
    ],
)
def test_owners_are_named_as_people_know_them(
    kind: str, name: str, labels: dict[str, str], expected: tuple[str, str]
) -> None:
    assert owner_of(pod(kind, name, labels=labels)) == expected


def test_the_owner_that_was_counted_longest_ago_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_rejections, "_MAX_SERIES", 2)
    registry = CollectorRegistry()
    rejections = OwnerRejections(registry)
    for name in ("a", "b", "a", "c"):
        rejections.count(pod("Job", name), "TopologyAffinityError")

    def counted(owner: str) -> float | None:
        labels = {"namespace": "shop", "owner_kind": "Job", "owner": owner, "reason": "TopologyAffinityError"}
        return registry.get_sample_value("numazones_owner_rejections_total", labels)

    assert [counted(name) for name in ("a", "b", "c")] == [2, None, 1]
