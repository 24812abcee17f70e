"""Pods that kube-scheduler preempts on a node, and the node that it chooses among several."""

from typing import Any

import pytest

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.rebalance.budgets import Budget
from numazones.rebalance.preemption import Victims, best, victims


def node(*pods: ClusterPod, cpu: str = "8", name: str = "n", **spec: Any) -> ClusterNode:
    body = {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}},
    }
    return ClusterNode.from_api(body).with_pods(pods)


def pod(name: str, cpu: int, priority: int, *, started: str = "", **spec: Any) -> ClusterPod:
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return ClusterPod.from_api(
        {
            "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {"app": name}},
            "spec": {"containers": [container], "priority": priority, **spec},
            "status": {"startTime": started} if started else {},
        }
    )


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}


def chosen(found: Victims | None) -> list[str] | None:
    return None if found is None else [pod.name for pod in found.pods]


@pytest.mark.parametrize(
    ("asking", "pods", "expected"),
    [
        pytest.param(pod("p", 4, 9), [pod("a", 4, 1), pod("b", 4, 2)], ["a"], id="the least important"),
        pytest.param(
            pod("p", 4, 9),
            [pod("a", 4, 1, started=LATE), pod("b", 4, 1, started=EARLY)],
            ["a"],
            id="of equal ones who started last",
        ),
        pytest.param(pod("p", 4, 9), [pod("a", 6, 1), pod("b", 2, 2)], ["a"], id="who can stay stays"),
        pytest.param(pod("p", 8, 9), [pod("a", 6, 1), pod("b", 2, 2)], ["b", "a"], id="all if need be"),
        pytest.param(pod("p", 4, 1), [pod("a", 8, 1)], None, id="nobody of equal priority"),
        pytest.param(pod("p", 8, 9), [pod("a", 4, 1), pod("b", 4, 9)], None, id="not enough without them"),
        pytest.param(pod("p", 4, 9), [pod("a", 4, 1)], None, id="sums fit: the scheduler binds"),
        pytest.param(
            pod("p", 4, 9, preemptionPolicy="Never"), [pod("a", 8, 1)], None, id="it must not preempt"
        ),
        pytest.param(pod("p", 4, 9, affinity=APART), [pod("a", 8, 1)], None, id="a rule about other pods"),
        pytest.param(pod("p", 4, 9), [pod("a", 8, 1, affinity=APART)], None, id="another pod's rule"),
        pytest.param(pod("p", 4, 9, nodeSelector={"a": "b"}), [pod("a", 8, 1)], None, id="another node"),
    ],
)
def test_the_scheduler_preempts(
    asking: ClusterPod, pods: list[ClusterPod], expected: list[str] | None
) -> None:
    assert chosen(victims(asking, node(*pods))) == expected


def budget(app: str, allowed: int) -> Budget:
    return Budget.from_api(
        {
            "metadata": {"name": app, "namespace": "team"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        }
    )


def test_pods_protected_by_a_budget_are_preempted_last() -> None:
    full = node(pod("a", 4, 1), pod("b", 4, 2))
    asking = pod("p", 4, 9)
    assert chosen(victims(asking, full, [budget("a", 1)])) == ["a"]
    assert chosen(victims(asking, full, [budget("a", 0)])) == ["b"]
    both = victims(asking, full, [budget("a", 0), budget("b", 0)])
    assert both is not None
    assert (chosen(both), both.violations) == (["a"], 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(Victims("n", (pod("a", 1, 9),)), Victims("n", (pod("a", 1, 1),), 1), id="budgets"),
        pytest.param(
            Victims("n", (pod("a", 1, 1), pod("b", 1, 1))), Victims("n", (pod("a", 1, 2),)), id="the highest"
        ),
        pytest.param(
            Victims("n", (pod("a", 1, 5),)), Victims("n", (pod("a", 1, 5), pod("b", 1, -5))), id="fewer"
        ),
        pytest.param(
            Victims("n", (pod("a", 1, 1, started=LATE),)),
            Victims("n", (pod("a", 1, 1, started=EARLY),)),
            id="who has run for less long",
        ),
    ],
)
def test_scheduler_preempts_on_the_node_with_the_least_harm(first: Victims, second: Victims) -> None:
    assert best([second, first]) is first
    assert best([]) is None
