"""The next pods of owners whose pods kubelets reject one after the other."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones_operator.faults import ObjectFaults
from numazones_operator.rebalance.rejected_pods import is_next_pod, next_pods, with_next_pods

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
REJECTED = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
RUNS = {"phase": "Running", "containerStatuses": [{"name": "main"}]}
WAITS = {"phase": "Pending"}
MACHINE = Machine((CPU(id=0, core=0, socket=0, die=0, numa=0),), (NUMANode(0, 1 << 30),))


def pod(name: str, *, ago: float, status: dict[str, Any], gates: tuple[str, ...] = ()) -> ClusterPod:
    """A pod of the owner, created some seconds ago."""
    created = (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    amounts = {"cpu": "4", "memory": "1Gi"}
    return ClusterPod.from_api(
        {
            "metadata": {
                "namespace": "default",
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": created,
                "ownerReferences": [OWNER],
            },
            "spec": {
                "nodeName": "" if status is WAITS else "n1",
                "schedulingGates": [{"name": gate} for gate in gates],
                "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
            },
            "status": status,
        }
    )


TEMPLATE = pod("template", ago=0, status=WAITS)


def found(*pods: ClusterPod, template: ClusterPod | None = TEMPLATE) -> dict[str, ClusterPod]:
    return next_pods(pods, lambda _uid: template, NOW, ObjectFaults())


def test_an_owner_whose_newest_pod_was_rejected_makes_another() -> None:
    older = pod("a", ago=60, status=RUNS)
    (following,) = found(older, pod("b", ago=5, status=REJECTED), pod("c", ago=1, status=WAITS)).values()
    assert (following.uid, following.name, following.node, following.phase) == ("rs", "b", "", "Pending")
    assert is_next_pod(following)
    assert not is_next_pod(older)


@pytest.mark.parametrize(
    ("pods", "template"),
    [
        pytest.param(
            [pod("a", ago=5, status=REJECTED), pod("b", ago=1, status=RUNS)], TEMPLATE, id="admitted"
        ),
        pytest.param([pod("a", ago=601, status=REJECTED)], TEMPLATE, id="long ago"),
        pytest.param([pod("a", ago=5, status=REJECTED)], None, id="owner gone"),
        pytest.param(
            [pod("a", ago=5, status=REJECTED)],
            pod("template", ago=0, status=WAITS, gates=(GATE,)),
            id="held back from now on",
        ),
        pytest.param([pod("a", ago=5, status=WAITS)], TEMPLATE, id="waits"),
    ],
)
def test_otherwise_no_owner_is_in_a_loop(pods: list[ClusterPod], template: ClusterPod | None) -> None:
    assert found(*pods, template=template) == {}


def test_of_pods_made_in_one_second_the_rejected_one_counts() -> None:
    assert found(pod("z", ago=5, status=RUNS), pod("a", ago=5, status=REJECTED))


def test_rejection_loop_pods_take_no_room_in_plans() -> None:
    decided, passing = pod("a", ago=9, status=RUNS), replace(pod("b", ago=1, status=WAITS), node="n1")
    node = ClusterNode.from_api({"metadata": {"name": "n1"}}).with_pods((decided, passing))
    following = found(decided, pod("c", ago=2, status=REJECTED))
    unknown = with_next_pods(Cluster({"n1": node}), following, ObjectFaults())
    assert list(unknown.nodes["n1"].pods) == ["uid-a", "uid-b"]
    empty = Node.fresh(MACHINE, KubeletConfiguration.from_api({}))
    assert list(
        with_next_pods(Cluster({"n1": node.with_state(empty)}), following, ObjectFaults()).nodes["n1"].pods
    ) == ["uid-a"]


def test_next_pod_replaces_the_owners_current_pods() -> None:
    passing, other = (
        pod("b", ago=1, status=WAITS),
        ClusterPod.from_api(
            {"metadata": {"namespace": "default", "name": "o", "uid": "o"}, "spec": {"containers": []}}
        ),
    )
    waiting = {one.uid: one for one in (passing, other)}
    cluster = with_next_pods(
        Cluster(pending=waiting), found(pod("a", ago=5, status=REJECTED)), ObjectFaults()
    )
    assert list(cluster.pending) == ["o", "rs"]
