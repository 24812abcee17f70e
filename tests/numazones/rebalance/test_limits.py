"""Limits on the evictions of a plan, and which one stops it."""

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.cluster.cluster import ClusterPod, Owner
from numazones.rebalance.limits import (
    NAMESPACE_REACHED,
    NODE_REACHED,
    ONLY_REPLICA,
    TOTAL_REACHED,
    WORKLOAD_REACHED,
    PlannedEvictions,
    default_per_workload,
)


def pod(name: str, *, node: str = "n1", namespace: str = "shop", owner: str = "") -> ClusterPod:
    owners = (Owner("ReplicaSet", owner, owner, controller=True),) if owner else ()
    return ClusterPod(namespace=namespace, name=name, uid=name, node=node, owners=owners)


def planned(limits: EvictionLimits, *pods: ClusterPod, replicas: dict[str, int] | None = None) -> list[str]:
    """The result of each eviction in turn; rejected ones do not count."""
    tally, results = PlannedEvictions(limits, replicas or {}), []
    for each in pods:
        results.append(tally.rejection(each))
        if not results[-1]:
            tally = tally.after(each)
    return results


A, B = pod("a"), pod("b")

ROWS = [
    ("no limit", EvictionLimits(), (A, B), ["", ""]),
    ("a total of one", EvictionLimits(total=1), (A, B), ["", TOTAL_REACHED]),
    ("a total of nothing", EvictionLimits(total=0), (A,), [TOTAL_REACHED]),
    ("per node", EvictionLimits(per_node=1), (A, B, pod("c", node="n2")), ["", NODE_REACHED, ""]),
    (
        "per namespace",
        EvictionLimits(per_namespace=1),
        (A, B, pod("c", namespace="bank")),
        ["", NAMESPACE_REACHED, ""],
    ),
    ("total is named before node", EvictionLimits(total=1, per_node=1), (A, B), ["", TOTAL_REACHED]),
    (
        "node is named before namespace",
        EvictionLimits(per_node=1, per_namespace=1),
        (A, B),
        ["", NODE_REACHED],
    ),
]


@pytest.mark.parametrize(
    ("limits", "pods", "results"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_limits_in_the_order_of_the_descheduler(
    limits: EvictionLimits, pods: tuple[ClusterPod, ...], results: list[str]
) -> None:
    assert planned(limits, *pods) == results


@pytest.mark.parametrize(
    ("replicas", "allowed"), [(2, 1), (3, 1), (4, 2), (10, 2), (11, 1), (19, 1), (20, 2), (100, 10)]
)
def test_the_limit_per_workload_follows_koordinator(replicas: int, allowed: int) -> None:
    assert default_per_workload(replicas) == allowed
    pods = [pod(f"p{index}", node=f"n{index}", owner="rs") for index in range(replicas)]
    results = planned(EvictionLimits(), *pods, replicas={"rs": replicas})
    assert results == [""] * allowed + [WORKLOAD_REACHED] * (replicas - allowed)


def test_the_only_replica_stays_unless_the_policy_lets_it_go() -> None:
    only = pod("a", owner="rs")
    assert planned(EvictionLimits(), only, replicas={"rs": 1}) == [ONLY_REPLICA]
    assert planned(EvictionLimits(single_replicas=True), only, replicas={"rs": 1}) == [""]


def test_a_limit_per_workload_that_is_set_replaces_the_default() -> None:
    pods = [pod(f"p{index}", owner="rs") for index in range(4)]
    results = planned(EvictionLimits(per_workload=3), *pods, replicas={"rs": 11})
    assert results == ["", "", "", WORKLOAD_REACHED]
