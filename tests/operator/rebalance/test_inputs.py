"""What rebalancing reads beside the cluster: templates as the API server makes pods of them, and the past."""

from datetime import UTC, datetime
from typing import Any

from numazones.cluster import Cluster
from numazones_client import Client, ClusterConfig
from numazones_operator.rebalance.inputs import OWNERS, Defaulting, Inputs, Template
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.objects import Recommendation


def inputs() -> Inputs:
    return Inputs(Intent(Client(ClusterConfig(server="http://127.0.0.1:1"))))


def owner(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", **spec.pop("container", {})}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}}
    return {"metadata": {"namespace": "default", "name": "rs", "uid": "u"}, "spec": {"template": template}}


def made(inputs_: Inputs, body: dict[str, Any]) -> Any:
    inputs_.templates[OWNERS[0]].put(Template.from_api(body))
    pod = inputs_.template("u")
    assert pod is not None
    assert pod.admission is not None
    return pod


def test_requests_default_to_limits_as_on_the_pods() -> None:
    limits = {"cpu": "10", "memory": "1Gi"}
    pod = made(inputs(), owner(container={"resources": {"limits": limits}}))
    assert pod.admission.qos.value == "Guaranteed"
    assert pod.requests["cpu"] == 10_000


def test_limit_ranges_of_the_namespace_count_from_when_they_are_seen() -> None:
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


def test_a_runtime_classs_overhead_and_node_selector_belong_to_the_replacement() -> None:
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


def test_an_owner_without_a_template_makes_a_pod_that_cannot_be_read() -> None:
    found = inputs()
    body = {"metadata": {"namespace": "default", "name": "rs", "uid": "u"}, "spec": {}}
    found.templates[OWNERS[0]].put(Template.from_api(body))
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


def recommendation(phase: str) -> Recommendation:
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
        },
        "status": {"phase": phase, "progress": progress, "conditions": [complete]},
    }
    return Recommendation.from_api(body)


def test_owners_rest_after_a_plan_of_use_and_after_one_that_failed_only_its_moves_are_barred() -> None:
    ended = datetime(2026, 1, 31, 12, 5, tzinfo=UTC)
    barred = {("rs-a", "n1", "n2"): ended, ("rs-b", "n1", "n2"): ended}
    for phase, resting, failed in (
        ("Succeeded", {"rs-a", "rs-b"}, {}),
        ("Executing", {"rs-a"}, {}),
        ("Failed", set(), barred),
    ):
        found = inputs()
        found.intent.recommendations.put(recommendation(phase))
        history = found.situation(Cluster({}, {}), ended).history
        assert {owner for owner, _ in history.moved} == resting, phase
        assert history.failed == failed, phase
