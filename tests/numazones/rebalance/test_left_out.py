"""Pods and nodes about which something raises are distinguished, and left out of plans."""

from dataclasses import replace
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones.errors import About, NodeName, ObjectFault, Passing
from numazones.kubelet import admission
from numazones.kubelet.admission import Admission
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.fragmentation import Shape
from numazones.rebalance import moves
from numazones.rebalance.budgets import Budget
from numazones.rebalance.candidates import Situation
from numazones.rebalance.goals import FitMore, Vacate, Wanted, pending_goals
from numazones.rebalance.left_out import LeftOut
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.rebalance.proof import prove


def fault(*objects: Any) -> ObjectFault:
    return ObjectFault.about(ValueError("no digits"), *objects)


def test_error_names_its_innermost_object_first() -> None:
    pod = ClusterPod("default", "web", "1")
    with pytest.raises(ObjectFault) as raised, About(NodeName("n1")), About(pod):
        raise ValueError("no digits")
    assert str(raised.value) == "pod default/web: ValueError: no digits"
    assert [one.name for one in raised.value.objects] == ["web", "n1"]


def test_what_is_raised_on_purpose_passes() -> None:
    with pytest.raises(Passing), About(NodeName("n1")):
        raise Passing


def test_error_is_the_pods_fault_until_a_second_pod_raises(build: Any) -> None:
    node, pods = build.node("n1"), [build.pod("a", 1), build.pod("b", 1)]
    left_out = LeftOut()
    assert left_out.take(fault(pods[0], node))
    assert (dict(left_out.pods), dict(left_out.nodes)) == ({"a": "ValueError: no digits"}, {})
    assert left_out.take(fault(pods[1], node))
    assert (dict(left_out.pods), dict(left_out.nodes)) == ({}, {"n1": "ValueError: no digits"})
    assert str(left_out) == "left out: node n1 (ValueError: no digits)"


def test_pod_that_raises_elsewhere_too_is_at_fault(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node, bad = build.node("n1"), [build.pod("bad-1", 1), build.pod("bad-2", 1)]
    admit = admission.admit

    def raise_for_bad(state: Node, pod: Pod) -> Admission:
        if "bad" in pod.name:
            raise ValueError("no digits")
        return admit(state, pod)

    monkeypatch.setattr(moves, "admit", raise_for_bad)
    left_out = LeftOut()
    for pod in bad:
        assert left_out.take(fault(pod, node))
    assert set(left_out.pods) == {"bad-1", "bad-2"}
    assert not left_out.nodes


def test_node_that_raises_with_any_pod_is_at_fault(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node, admit = build.node("n1"), admission.admit

    def raise_for_node(state: Node, pod: Pod) -> Admission:
        if state is node.state:
            raise ValueError("no digits")
        return admit(state, pod)

    monkeypatch.setattr(moves, "admit", raise_for_node)
    left_out = LeftOut()
    assert left_out.take(fault(build.pod("a", 1), node))
    assert (set(left_out.pods), set(left_out.nodes)) == (set(), {"n1"})


def test_same_error_of_a_node_leaves_out_nothing_more(build: Any) -> None:
    left_out, error = LeftOut(), fault(build.node("n1"))
    assert [left_out.take(error) for _ in range(2)] == [True, False]
    assert len(left_out) == 1


def test_error_of_a_budget_is_found_but_leaves_out_nothing() -> None:
    left_out, budget = LeftOut(), Budget("default", "web", None)
    assert not left_out.take(fault(budget))
    assert len(left_out) == 0
    assert str(left_out) == "left out: PodDisruptionBudget default/web (ValueError: no digits)"


def test_pod_that_is_left_out_is_not_decided_about(build: Any) -> None:
    left_out, pod = LeftOut(), build.pod("a", 1)

    def work() -> str:
        raise ValueError("no digits")

    assert left_out.decide(pod, work, str.upper) == "POD DEFAULT/A: VALUEERROR: NO DIGITS"
    assert left_out.decide(pod, lambda: "decided", str.upper) == "VALUEERROR: NO DIGITS"


def test_goals_about_what_is_left_out_have_no_plan(build: Any) -> None:
    big = replace(build.pod("big", 4), phase="Pending")
    situation = build.situation([build.node("n1", cpus=4)])
    for one in (big, situation.cluster.nodes["n1"]):
        situation.left_out.take(fault(one))
    reasons = [
        plan(goal, situation, Policy(), expired=lambda: False).reason
        for goal in (*pending_goals([big]), Vacate("n1"))
    ]
    assert reasons == [
        "no pod is left to make room for",
        "the state of node n1 is unknown: ValueError: no digits",
    ]


def test_work_begins_again_without_what_it_has_left_out(build: Any) -> None:
    nodes, waiting = [build.node("n1"), build.node("n2")], replace(build.pod("big", 1), phase="Pending")
    situation = build.situation(nodes)
    situation = replace(situation, cluster=replace(situation.cluster, pending={"big": waiting}))
    seen = []

    def work(sound: Situation) -> str:
        seen.append((sorted(sound.cluster.nodes), sorted(sound.cluster.pending)))
        if len(seen) == 1:  # work that decides pod by pod takes an error before it meets the next
            situation.left_out.take(fault(nodes[0]))
            raise fault(nodes[0])
        if len(seen) == 2:
            raise fault(waiting)
        return "done"

    assert situation.isolated(work) == "done"
    assert seen == [(["n1", "n2"], ["big"]), (["n2"], ["big"]), (["n2"], [])]


def test_error_that_leaving_out_does_not_help_is_raised(build: Any) -> None:
    def work(_: Situation) -> None:
        raise fault(Budget("default", "web", None))

    with pytest.raises(ObjectFault, match="PodDisruptionBudget default/web: ValueError: no digits"):
        build.situation([build.node("n1")]).isolated(work)


def test_no_plan_leaves_the_scheduler_a_node_that_raises(build: Any) -> None:
    first = build.put(build.node("n1", cpus=4), build.pod("a", 3), build.pod("b", 1))
    situation = build.situation([first, build.node("n2", zones=1, cpus=2), build.node("n3", zones=1, cpus=2)])
    goal = FitMore((Wanted.shape("big", Shape.parse("cpu=4,memory=1Gi")),))
    situation.left_out.take(fault(situation.cluster.nodes["n2"]))
    found = plan(goal, situation, Policy(), expired=lambda: False).plan
    assert found is not None
    assert [(move.node, move.affinity) for move in found.moves] == [("n3", ("n3",))]
    freer = replace(found, moves=(replace(found.moves[0], affinity=()),))
    proof = prove(freer, goal, situation.sound(), Policy())
    assert (
        proof.reason
        == "the scheduler could choose node n2 for default/b, and the state of that node is unknown"
    )
