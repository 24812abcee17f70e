"""Owners of pods, by the names that people know."""

import pytest

from numazones.cluster.cluster import ClusterPod, Owner
from numazones.cluster.owners import owner_of

HASH = {"pod-template-hash": "5d4f8"}


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
    owners = (Owner(kind, name, "uid", controller=True),) if kind else ()
    assert owner_of(ClusterPod("shop", "pod", "uid", owners=owners, labels=labels)) == expected
