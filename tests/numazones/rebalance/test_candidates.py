"""Pods that a plan may draw on, and what is said about the others."""

from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod, Owner
from numazones.placement import Unknown
from numazones.rebalance.candidates import EvictionCandidate, candidates, why_not
from numazones.rebalance.moves import Disruption
from numazones.rebalance.policy import Policy


def test_candidates_come_in_order_of_eviction(build: Any) -> None:
    pods = (build.pod("c", 1, priority=10), build.pod("b", 1), build.pod("a", 1, priority=5))
    found = candidates(build.situation([build.put(build.node("n1"), *pods)]), Policy())
    assert [(each.pod.name, each.index) for each in found] == [("b", 0), ("a", 1), ("c", 2)]
    assert [each.replacement.uid for each in found] == ["b~", "a~", "c~"]


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        ({"phase": "Pending"}, "Phase", "pod is Pending, not Running"),
        (
            {"owners": (Owner("ReplicaSet", "rs", "p-rs"),)},
            "Replacement",
            "no owner of the pod is its controller, so nothing would replace it",
        ),
        ({"admission": None, "problem": "odd"}, "Replacement", "pod cannot be read: odd"),
    ],
)
def test_a_pod_that_nothing_would_replace_stays(
    build: Any, change: dict[str, Any], rule: str, message: str
) -> None:
    node = build.put(build.node("n1"), build.pod("p", 1))
    pod = replace(node.pods["p"], **change)
    found = why_not(pod, build.situation([node.with_pod(pod)]), Policy())
    assert [(each.rule, each.message) for each in found] == [(rule, message)]


def test_unreadable_template_keeps_its_pods_in_place(build: Any) -> None:
    node = build.put(build.node("n1"), build.pod("p", 1))
    broken = replace(build.pod("template", 1), admission=None, problem="cpu is 'much'")
    situation = replace(build.situation([node]), templates={"p-rs": broken})
    (objection,) = why_not(node.pods["p"], situation, Policy())
    assert objection.message == "template of ReplicaSet p-rs cannot be read: cpu is 'much'"


def test_pods_stay_on_uncertain_nodes(build: Any) -> None:
    node = build.put(build.node("n1"), build.pod("p", 1)).with_placement(Unknown("Stale", "old"))
    (objection,) = why_not(node.pods["p"], build.situation([node]), Policy())
    assert (objection.rule, objection.message) == (
        "NodeState",
        "the state of node n1 is not known: old",
    )
    assert candidates(build.situation([node]), Policy()) == ()


def test_replacement_is_made_lazily_and_once(build: Any) -> None:
    asked: list[str] = []

    class Templates(dict[str, ClusterPod]):
        def get(self, owner: str, default: Any = None) -> Any:
            asked.append(owner)
            return super().get(owner, default)

    pod = build.pod("p", 1)
    one, _other = (
        EvictionCandidate(pod, Disruption.of(pod), index, templates=Templates()) for index in range(2)
    )
    assert asked == []
    assert one.replacement is one.replacement
    assert one.replacement.uid == "p~"
    assert asked == [pod.controller.uid]
