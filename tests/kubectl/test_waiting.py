"""``why`` of pods that wait for something else than a node: what that is, and exit code 1."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from numazones.api.zones_from_node import zones_from_node
from tests.follow_advice import Object
from tests.kubectl.small_cluster import node_body, pod_body, written
from tests.numazones.kubelet import building

Run = Callable[..., Result]
GATED = {"schedulingGates": [{"name": "numazones.io/admission"}]}
FOREIGN_GATE = {"schedulingGates": [{"name": "example.com/quota"}]}
OPTED_IN = {"numazones.io/admission-gate": "enabled"}
CLAIM: Object = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"namespace": "team", "name": "other"},
    "spec": {},
}
UNBOUND = "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims."


def unscheduled(message: str) -> Object:
    said = {"status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [{"type": "PodScheduled", **said}]}


def operator() -> Object:
    body = pod_body("operator", 1, phase="Running", spec={"nodeName": "worker-1"})
    body["metadata"]["labels"] = {"app.kubernetes.io/name": "numazones-operator"}
    return body


def namespace(labels: dict[str, str]) -> Object:
    return {"kind": "Namespace", "metadata": {"name": "team", "labels": labels}}


def event(reason: str, message: str) -> Object:
    about = {"namespace": "team", "name": "waiting", "uid": "waiting"}
    return {
        "kind": "Event",
        "metadata": {"namespace": "team", "name": "e"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-01-31T08:00:00Z",
    }


def dumped(tmp_path: Path, spec: Object, status: Object, *others: Object) -> Path:
    """A node with room, and a pod that would fit there."""
    wanted = pod_body("waiting", 2, spec=spec, **status)
    zones = zones_from_node(building.node(), node_name="worker-1", pods={}, version="v1.36.2")
    items = [node_body("worker-1"), *(zone.to_api() for zone in zones), wanted, *others]
    return written(tmp_path / "dump.json", items)


@pytest.mark.parametrize(
    ("spec", "status", "others", "code", "said"),
    [
        pytest.param({}, {}, [], 0, "1 of 1 nodes would admit it", id="nothing"),
        pytest.param(
            GATED, {}, [namespace({}), operator()], 1, "has not opted in: kubectl label", id="opt-in"
        ),
        pytest.param(
            GATED, {}, [namespace(OPTED_IN)], 1, "no running pod of the operator was found", id="operator"
        ),
        pytest.param(GATED, {}, [namespace(OPTED_IN), operator()], 1, "has not removed its gate", id="held"),
        pytest.param(
            GATED,
            {},
            [
                namespace(OPTED_IN),
                operator(),
                event("AdmissionGateNotServed", "the operator runs without it"),
            ],
            1,
            "the operator runs without it",
            id="not served",
        ),
        pytest.param(FOREIGN_GATE, {}, [], 1, "its scheduling gate example.com/quota must be", id="gate"),
        pytest.param({}, unscheduled(UNBOUND), [], 1, f"cannot place it: {UNBOUND}", id="condition"),
        pytest.param(
            {}, {}, [event("FailedScheduling", UNBOUND)], 1, f"cannot place it: {UNBOUND}", id="event"
        ),
        pytest.param(
            {"schedulerName": "mine"},
            {},
            [operator()],
            1,
            "no scheduler named mine seems to be running",
            id="scheduler",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
            {},
            [CLAIM],
            1,
            "PersistentVolumeClaim data of namespace team does not exist",
            id="claim",
        ),
    ],
)
def test_why_says_what_a_pod_waits_for(
    run: Run, tmp_path: Path, spec: Object, status: Object, others: list[Object], code: int, said: str
) -> None:
    result = run("why", "waiting", "-n", "team", "-f", dumped(tmp_path, spec, status, *others))
    assert said in result.output.splitlines()[0]
    assert result.return_value == code


NAMED = {"key": "metadata.name", "operator": "In", "values": ["worker-9"]}
HOST = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-8", "worker-9"]}


@pytest.mark.parametrize(
    ("terms", "released", "said"),
    [
        (
            [{"matchFields": [NAMED]}],
            True,
            "released it to worker-9 only, and each of these nodes is gone, cordoned or tainted",
        ),
        ([{"matchExpressions": [HOST]}], True, "released it to worker-8, worker-9 only"),
        ([{"matchFields": [NAMED]}], False, ""),  # the affinity is its own
        ([], True, ""),
    ],
)
def test_pod_released_to_deleted_nodes_must_be_recreated(
    run: Run, tmp_path: Path, terms: list[Object], *, released: bool, said: str
) -> None:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    told = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    wanted = pod_body(
        "late", 2, spec={"affinity": {"nodeAffinity": affinity} if terms else {}}, **unscheduled(told)
    )
    if released:
        wanted["metadata"]["annotations"] = {"numazones.io/admission-released": "2026-01-31T08:00:00Z"}
    result = run("why", "late", "-n", "team", "-f", dumped(tmp_path, {}, {}, wanted))
    assert said in result.output
    cure = "kubectl delete pod -n team late, and recreate it"
    assert (cure in result.output) == bool(said)
    assert result.return_value == 1


def test_pod_whose_released_nodes_are_full_may_need_recreation(run: Run, tmp_path: Path) -> None:
    named = {"key": "metadata.name", "operator": "In", "values": ["worker-1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    full = "0/1 nodes are available: 1 Insufficient cpu."
    wanted = pod_body("late", 100, spec={"affinity": {"nodeAffinity": affinity}}, **unscheduled(full))
    wanted["metadata"]["annotations"] = {"numazones.io/admission-released": "2026-01-31T08:00:00Z"}
    result = run("why", "late", "-n", "team", "-f", dumped(tmp_path, {}, {}, wanted))
    assert "released it to worker-1 only, and the scheduler cannot place it there" in result.output
    assert "delete it, and its owner creates a replacement" in result.output
    assert result.return_value == 1


def test_pod_without_a_node_shows_what_the_scheduler_was_told(run: Run, tmp_path: Path) -> None:
    told = "0/1 nodes are available: 1 node(s) that would not admit the pod (kubelet: TopologyAffinityError)."
    dump = dumped(tmp_path, {}, {}, pod_body("huge", 30, **unscheduled(told)))
    result = run("why", "huge", "-n", "team", "-f", dump)
    assert f"The scheduler says: {told}" in result.output


def test_rejected_pod_shows_the_moment_of_rejection_first(run: Run, tmp_path: Path) -> None:
    rejected = pod_body("gone", 2, spec={"nodeName": "worker-1"})
    why = {"reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
    rejected["status"] = {"phase": "Failed", **why}
    prediction = {
        "kind": "AdmissionPrediction",
        "metadata": {"namespace": "team", "name": "gone"},
        "spec": {"podUID": rejected["metadata"]["uid"]},
        "status": {
            "outcome": {
                "node": "worker-1",
                "actual": "Rejected",
                "explanation": ["hints", "needs 2 exclusive CPUs on one NUMA node; none is free"],
                "advice": ["request 1 CPU instead of 2 in container main"],
            }
        },
    }
    result = run("why", "gone", "-n", "team", "-f", dumped(tmp_path, {}, {}, rejected, prediction))
    assert result.output.splitlines()[:4] == [
        "team/gone: rejected on worker-1 with TopologyAffinityError (no)",
        "When it arrived: needs 2 exclusive CPUs on one NUMA node; none is free",
        "What would have helped then: request 1 CPU instead of 2 in container main",
        "Now: 1 of 1 nodes would admit it; best is worker-1 on NUMA node 0",
    ]


def test_why_says_that_a_rejected_bare_pod_is_not_retried(run: Run, tmp_path: Path) -> None:
    rejected = pod_body("gone", 2, spec={"nodeName": "worker-1"})
    rejected["status"] = {"phase": "Failed", "reason": "SMTAlignmentError", "message": "Pod was rejected: no"}
    result = run("why", "gone", "-n", "team", "-f", dumped(tmp_path, {}, {}, rejected))
    created = rejected["metadata"]["creationTimestamp"]
    assert result.output.splitlines()[1] == (
        f"It was created at {created}; a rejected pod is not retried: delete and recreate it"
    )


@pytest.mark.parametrize("owned", [True, False])
def test_why_reports_a_missing_node_object(run: Run, tmp_path: Path, *, owned: bool) -> None:
    lost = pod_body("lost", 2, phase="Running", spec={"nodeName": "worker-9"})
    if owned:
        owner = {
            "kind": "ReplicaSet",
            "name": "web",
            "uid": "web",
            "controller": True,
            "apiVersion": "apps/v1",
        }
        lost["metadata"]["ownerReferences"] = [owner]
    dump = dumped(tmp_path, {}, {}, lost)
    sentence = (
        "bound to worker-9, which has no Node object: the node was removed, or is missing from the dump; "
        "Kubernetes deletes such a pod about a minute after its node"
        f"{'; its owner creates a replacement' * owned}"
    )
    result = run("why", "lost", "-n", "team", "-f", dump)
    assert (result.output, result.return_value) == (f"team/lost: {sentence}\n", 1)
    listed = run("why", "lost", "waiting", "-n", "team", "-f", dump)
    assert sentence in listed.output
    document = json.loads(run("why", "lost", "-n", "team", "-f", dump, "-o", "json").output)
    assert document["waits"] == [{"reason": "NodeMissing", "sentence": sentence}]


def test_room_that_is_held_for_others_is_said(run: Run, tmp_path: Path) -> None:
    first, second = (
        pod_body(name, cpus, nominatedNodeName="worker-1") for name, cpus in (("first", 7), ("second", 5))
    )
    big = pod_body("big", 7)
    result = run("why", "big", "-n", "team", "-f", dumped(tmp_path, {}, {}, first, second, big))
    assert "is held for other pods on their way" in result.output
    assert "worker-1: room is held for team/first, team/second" in result.output
    assert result.return_value == 1
