"""Inputs of rebalancing apart from the cluster: templates, as the API server defaults them, and the past."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from numazones.cluster.cluster import Cluster
from numazones.rebalance.moves import pod_from_template
from numazones.rebalance.recommendation import Recommendation
from numazones_client import Client, ClusterConfig
from numazones_operator.faults import ObjectFaults
from numazones_operator.rebalance import inputs as inputs_module
from numazones_operator.rebalance.conflicts import last_to_empty
from numazones_operator.rebalance.inputs import OWNERS, Defaulting, Inputs, OwnerTemplate
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.objects import PolicyObject


def inputs() -> Inputs:
    return Inputs(Intent(Client(ClusterConfig(server="http://127.0.0.1:1"))))


def owner(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", **spec.pop("container", {})}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}}
    return {"metadata": {"namespace": "default", "name": "rs", "uid": "u"}, "spec": {"template": template}}


def made(inputs_: Inputs, body: dict[str, Any]) -> Any:
    inputs_.templates[OWNERS[0]].put(OwnerTemplate.from_api(body))
    pod = inputs_.template("u")
    assert pod is not None
    assert pod.admission is not None
    return pod


def test_requests_default_to_limits_as_on_the_pods() -> None:
    limits = {"cpu": "10", "memory": "1Gi"}
    pod = made(inputs(), owner(container={"resources": {"limits": limits}}))
    assert pod.admission.qos.value == "Guaranteed"
    assert pod.requests["cpu"] == 10_000


def test_limit_ranges_count_once_they_are_seen() -> None:
    found = inputs()
    assert made(found, owner()).admission.qos.value == "BestEffort"
    amounts = {"cpu": "4", "memory": "1Gi"}
    limits = [{"type": "Container", "default": amounts, "defaultRequest": amounts}]
    for namespace in ("elsewhere", "default"):
        body = {"metadata": {"namespace": namespace, "name": "defaults"}, "spec": {"limits": limits}}
        found.limit_ranges.put(Defaulting.from_api(body))
        pod = found.template("u")
        assert pod is not None
        assert pod.admission is not None
        assert (pod.requests.get("cpu") == 4000) is (namespace == "default")


def test_replacement_has_its_runtime_class_overhead_and_node_selector() -> None:
    found = inputs()
    body = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "500m"}},
        "scheduling": {"nodeSelector": {"runtime": "kata"}},
    }
    found.runtime_classes.put(Defaulting.from_api(body))
    amounts = {"cpu": "2", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    pod = made(found, owner(runtimeClassName="kata", container={"resources": resources}))
    assert pod.requests["cpu"] == 2500
    assert pod.constraints.node_selector == (("runtime", "kata"),)


def test_owner_without_template_makes_an_unreadable_pod() -> None:
    found = inputs()
    body = {"metadata": {"namespace": "default", "name": "rs", "uid": "u"}, "spec": {}}
    found.templates[OWNERS[0]].put(OwnerTemplate.from_api(body))
    pod = found.template("u")
    assert pod is not None
    assert pod.admission is None
    assert "no containers" in pod.problem


def test_a_template_that_is_edited_or_gone_is_not_remembered() -> None:
    found = inputs()
    for cpus in (2, 4):
        limits = {"cpu": str(cpus), "memory": "1Gi"}
        assert made(found, owner(container={"resources": {"limits": limits}})).requests["cpu"] == 1000 * cpus
    found.templates[OWNERS[0]].discard("u")
    assert found.template("u") is None


def test_situation_makes_pods_on_demand_from_templates_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def noted(body: Any, defaults: Any) -> Any:
        read.append(body["metadata"]["uid"])
        return pod_from_template(body, defaults)

    monkeypatch.setattr(inputs_module, "pod_from_template", noted)
    found = inputs()
    for uid in ("u", "v"):
        body = owner(container={"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}})
        body["metadata"]["uid"] = uid
        found.templates[OWNERS[0]].put(OwnerTemplate.from_api(body))
    templates = found.situation(Cluster({}), datetime.now(UTC), policy="").templates
    found.templates[OWNERS[0]].discard("u")
    assert (set(templates), read) == ({"u", "v"}, [])
    assert templates["u"].requests["cpu"] == 2000
    assert templates.get("u") is templates["u"]
    assert templates.get("w") is None
    assert read == ["u"]


def recommendation(phase: str, **spec: Any) -> Recommendation:
    """One whose first move brought its pod to n2, whose second failed, and whose third was not begun."""
    names = ("a", "b", "c")
    pods = [{"namespace": "default", "name": name, "uid": name} for name in names]
    moves = [
        {
            "pod": pod,
            "owner": {"kind": "ReplicaSet", "name": pod["name"], "uid": f"rs-{pod['name']}"},
            "source": {"node": "n1"},
            "target": {"node": "n2"},
        }
        for pod in pods
    ]
    since = "2026-01-31T12:00:00Z"
    progress = [
        {"pod": pods[0], "phase": "Verified", "since": since, "node": "n2"},
        {"pod": pods[1], "phase": "Verified" if phase == "Succeeded" else "Failed", "since": since},
        {"pod": pods[2], "phase": "Pending"},
    ]
    complete = {
        "type": "Complete",
        "status": "True",
        "reason": phase,
        "message": "",
        "lastTransitionTime": "2026-01-31T12:05:00Z",
    }
    body = {
        "metadata": {"name": "plan", "uid": "r"},
        "spec": {
            "policy": "p",
            "goal": "g",
            "moves": moves,
            "gain": {"before": 0, "after": 1, "total": 1, "minimal": True},
            "disruption": {"evictions": 3, "cpus": "3"},
            "digest": "d",
            **spec,
        },
        "status": {"phase": phase, "progress": progress, "conditions": [complete]},
    }
    return Recommendation.from_api(body)


def test_useful_plan_rests_owners_and_failed_plan_bars_its_moves() -> None:
    ended = datetime(2026, 1, 31, 12, 5, tzinfo=UTC)
    barred = {("rs-a", "n1", "n2"): ended, ("rs-b", "n1", "n2"): ended}
    for phase, resting, failed in (
        ("Succeeded", {"rs-a", "rs-b"}, {}),
        ("Executing", {"rs-a"}, {}),
        ("Failed", set(), barred),
    ):
        found = inputs()
        found.intent.recommendations.put(recommendation(phase))
        history = found.situation(Cluster({}, {}), ended, policy="p").history
        assert {owner for owner, _ in history.moved} == resting, phase
        assert history.failed == failed, phase


def policy(name: str, **spec: Any) -> PolicyObject:
    return PolicyObject.from_api({"metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec})


FREE = {"pendingPods": False, "free": {"nodeName": "n1"}}
FOR_PODS = [{"pod": {"namespace": "default", "name": "big", "uid": "b"}, "target": {"node": "n1"}}]


@pytest.mark.parametrize(
    ("asks", "phase", "goals", "spec", "closed"),
    [
        ("q", "Succeeded", FREE, {}, {"n1"}),
        ("q", "Executing", FREE, {}, {"n1"}),
        ("p", "Succeeded", FREE, {}, set()),  # its own
        ("q", "Failed", FREE, {}, set()),  # gained nothing
        ("q", "Succeeded", {"free": {"nodeName": "n2"}}, {}, set()),  # nobody wants that room any more
        ("q", "Succeeded", {"shapes": [{"name": "s", "resources": {"memory": "1Gi"}}]}, {}, set()),
        ("q", "Succeeded", {"pendingPods": True}, {"placements": FOR_PODS}, {"n1"}),
        ("q", "Succeeded", FREE, {"placements": FOR_PODS}, set()),
    ],
)
def test_room_made_by_a_policy_is_kept_from_other_policies(
    asks: str, phase: str, goals: dict[str, Any], spec: dict[str, Any], closed: set[str]
) -> None:
    found = inputs()
    found.intent.policies.put(policy("p", goals=goals))
    found.intent.policies.put(policy("q"))
    found.intent.recommendations.put(recommendation(phase, goalKey="free/n1", **spec))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for hours, expected in ((23, closed), (24, set())):
        now = noon + timedelta(hours=hours)
        history = found.situation(Cluster({}, {}), now, policy=asks).history
        assert history.closed_nodes(now).keys() == expected, hours
    suspended = policy("p", goals=goals, schedule={"suspend": True})
    found.intent.policies.put(suspended)
    assert found.situation(Cluster({}, {}), noon, policy=asks).history.emptied == {}


def test_a_plan_that_no_policy_made_keeps_nothing() -> None:
    found = inputs()
    found.intent.recommendations.put(recommendation("Succeeded", goalKey="free/n1"))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.situation(Cluster({}, {}), noon, policy="q").history.emptied == {}


def test_finished_plans_are_kept_while_their_room_is_kept() -> None:
    first, second = recommendation("Succeeded"), replace(recommendation("Succeeded"), name="later")
    later = tuple(one.model_copy(update={"since": "2026-01-31T13:00:00Z"}) for one in second.status.progress)
    second = replace(second, status=second.status.model_copy(update={"progress": later}))
    failed = replace(recommendation("Failed"), name="failed")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert last_to_empty([second, first, failed], noon - timedelta(seconds=1), ObjectFaults()) == {"later"}
    assert last_to_empty([first, failed], noon - timedelta(seconds=1), ObjectFaults()) == {"plan"}
    assert last_to_empty([first, second], noon + timedelta(hours=1), ObjectFaults()) == frozenset()
