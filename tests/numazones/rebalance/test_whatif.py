"""Tests of what a policy would do to a dump."""

from datetime import datetime
from typing import Any

import pytest

from numazones.api.eviction_limits import EvictionLimits
from numazones.api.rebalance import RebalancePolicy
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.answer import document
from numazones.cluster.dump import Dump, InvalidDump
from numazones.errors import ObjectFault
from numazones.placement.fragmentation import Shape
from numazones.rebalance.candidates import why_not
from numazones.rebalance.custom_resources import goals_of, policy_of, title
from numazones.rebalance.dump import situation_of
from numazones.rebalance.goals import FitMore, Wanted
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import Effort, what_if

NOW = datetime.fromisoformat("2026-01-31T12:00:00Z")
POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "keep-room"},
    "spec": {
        "goals": {"shapes": [{"name": "large", "resources": {"cpu": "5", "memory": "1Gi"}}]},
        "limits": {"maxNoOfPodsToEvictTotal": 1, "evictSingleReplicas": True},
    },
}


@pytest.fixture
def dump(build: Any) -> dict[str, Any]:
    """Two nodes with a pod of one CPU in the way of five, two with room for it; as kubectl prints them."""
    nodes = [build.put(build.node(f"n{n}", zones=1, cpus=6), build.pod(f"p{n}", 1)) for n in range(2)]
    nodes += [build.node(f"free-{index}", zones=1, cpus=3) for index in range(2)]
    items: list[dict[str, Any]] = []
    for node in nodes:
        items.append(
            {
                "kind": "Node",
                "metadata": {"name": node.name, "labels": dict(node.labels)},
                "status": {
                    "allocatable": {"cpu": f"{node.allocatable['cpu']}m", "memory": "100Gi", "pods": "20"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        pods = {pod.uid: (pod.namespace, pod.name) for pod in node.pods.values()}
        items += [zone.to_api() for zone in zones_from_node(node.state, node_name=node.name, pods=pods)]
        for pod in node.pods.values():
            amounts = {"cpu": "1", "memory": "1Gi"}
            items.append(
                {
                    "kind": "Pod",
                    "metadata": {
                        "namespace": pod.namespace,
                        "name": pod.name,
                        "uid": pod.uid,
                        "creationTimestamp": "2026-01-31T10:00:00Z",
                        "ownerReferences": [
                            {"kind": "ReplicaSet", "name": "rs", "uid": f"{pod.name}-rs", "controller": True}
                        ],
                    },
                    "spec": {
                        "nodeName": node.name,
                        "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
                    },
                    "status": {"phase": "Running", "startTime": "2026-01-31T10:00:00Z"},
                }
            )
    return {"kind": "List", "items": items}


def test_plans_follow_one_another_until_none_is_left(dump: dict[str, Any]) -> None:
    spec = RebalancePolicy.from_api(POLICY, strict=True).spec
    (goal,) = goals_of(spec.goals)
    policy = policy_of(spec, {})
    report = document(what_if(goal, situation_of(Dump.of(dump["items"]), NOW), policy, effort=200_000))
    assert policy.protections.effective[0] == "PodsWithLocalStorage"
    assert title(goal) == "shape large"
    assert (report["before"], report["after"], report["evictions"]) == (0, 2, 2)
    assert [plan["moves"][0]["pod"] for plan in report["plans"]] == ["default/p0", "default/p1"]
    assert [plan["moves"][0]["affinity"] for plan in report["plans"]] == [["free-0"], ["free-0"]]
    assert report["unmovable"] == {}
    assert report["reason"].startswith("after these 2 plans, ")


def test_pods_that_stay_are_counted_by_rule(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "Pod":
            item["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    situation = situation_of(Dump.of(dump["items"]), NOW)
    goal = FitMore((Wanted.shape("large", Shape.parse("cpu=5")),))
    answer = what_if(goal, situation, Policy(limits=EvictionLimits(single_replicas=True)), effort=1000)
    assert (answer.plans, answer.reason) == ((), "no pod may be moved")
    assert answer.unmovable == {"PodsWithLocalStorage": 2}


def test_plan_that_reaches_the_goal_is_not_called_unneeded(dump: dict[str, Any]) -> None:
    goal = FitMore((Wanted.shape("large", Shape.parse("cpu=5"), count=1),))
    policy = policy_of(RebalancePolicy.from_api(POLICY).spec, {})
    answer = what_if(goal, situation_of(Dump.of(dump["items"]), NOW), policy, effort=1000)
    assert len(answer.plans) == 1
    assert answer.reason == "after this plan, there is nothing to do: the goal is reached"


def test_report_names_its_limit_and_what_it_leaves_out(dump: dict[str, Any]) -> None:
    goal = FitMore((Wanted.shape("large", Shape.parse("cpu=5")),))
    policy = policy_of(RebalancePolicy.from_api(POLICY).spec, {})
    situation = situation_of(Dump.of(dump["items"]), NOW)
    situation.left_out.take(ObjectFault.about(ValueError("no digits"), situation.cluster.nodes["n1"]))
    answer = what_if(goal, situation, policy, effort=1000, max_plans=1)
    assert [move.pod.name for made in answer.plans for move in made.moves] == ["p0"]
    assert answer.reason == "the search stopped after 1 plan; left out: node n1 (ValueError: no digits)"


def test_a_dump_without_nodes_is_rejected() -> None:
    with pytest.raises(InvalidDump, match="kubectl get nodes,pods,numazones"):
        situation_of(Dump.of([{"kind": "Pod", "metadata": {"name": "a"}}]), NOW)


def test_nodes_whose_zones_make_no_sense_take_part_in_nothing(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "NUMAZone" and item["spec"]["nodeName"] == "n0":
            item["status"]["zones"] = 2
    situation = situation_of(Dump.of(dump["items"]), NOW)
    assert situation.cluster.nodes["n0"].state is None
    assert situation.cluster.nodes["n1"].state is not None


def test_nodes_of_silent_exporters_take_part_in_nothing(dump: dict[str, Any]) -> None:
    for item in dump["items"]:
        if item["kind"] == "NUMAZone":
            item["status"]["silence"] = {"state": "Silent", "message": "the exporter is silent"}
    situation = situation_of(Dump.of(dump["items"]), NOW)
    unknown = [node.unknown for node in situation.cluster.nodes.values()]
    assert [(one.reason, one.message) for one in unknown if one] == [
        ("ExporterSilent", "the exporter is silent")
    ] * 4


def test_effort_runs_out_the_same_everywhere() -> None:
    effort = Effort(2)
    assert [effort(), effort(), effort(), effort()] == [False, False, True, True]


def test_everything_that_keeps_a_pod_is_named(dump: dict[str, Any]) -> None:
    situation = situation_of(Dump.of(dump["items"]), NOW)
    pod = next(pod for pod in situation.cluster.nodes["n0"].pods.values() if pod.name == "p0")

    def objections(**spec: Any) -> list[tuple[str, str]]:
        policy = policy_of(RebalancePolicy.from_api({**POLICY, "spec": spec}, strict=True).spec, {})
        return [(found.rule, found.message) for found in why_not(pod, situation, policy)]

    assert objections(protections={"minReplicas": 2, "minPodAge": "9h"}) == [
        ("MinReplicas", "owner has 1 replica which is less than minReplicas of 2"),
        ("MinPodAge", "pod age is not older than MinPodAge: 9:00:00"),
        (
            "Limits",
            "pod is the only replica of its workload; to allow its eviction, set limits.evictSingleReplicas",
        ),
    ]
    assert objections(limits={"maxNoOfPodsToEvictPerNode": 1}) == [
        (
            "Limits",
            "pod is the only replica of its workload; to allow its eviction, set limits.evictSingleReplicas",
        )
    ]


def test_templates_get_the_same_defaults_as_pods(dump: dict[str, Any]) -> None:
    """Limits alone make a Guaranteed pod: its replacement needs CPUs of its own, and has nowhere to go."""
    container = {"name": "c", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}
    owner = {
        "kind": "ReplicaSet",
        "metadata": {"namespace": "default", "name": "rs", "uid": "p0-rs"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    dump["items"].append(owner)
    template = situation_of(Dump.of(dump["items"]), NOW).templates["p0-rs"]
    assert template.admission is not None
    assert template.requests["cpu"] == 4000
