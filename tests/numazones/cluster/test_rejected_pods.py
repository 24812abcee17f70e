"""Rejected pods that their owner has replaced."""

from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.rejected_pods import rejected_pods

INDEX = "batch.kubernetes.io/job-completion-index"


def pod(name: str, phase: str = "Running", *, kind: str = "ReplicaSet", **more: Any) -> ClusterPod:
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": more.pop("labels", {})}
    if kind:
        owner = {"apiVersion": "x", "kind": kind, "name": "web", "uid": "owner", "controller": True}
        metadata["ownerReferences"] = [owner]
    status = {"phase": phase, **more}
    spec = {"nodeName": "worker-1", "containers": [{"name": "main"}]}
    return ClusterPod.from_api({"metadata": metadata, "spec": spec, "status": status})


def rejected(name: str = "bad", **more: Any) -> ClusterPod:
    return pod(name, "Failed", reason="TopologyAffinityError", message="Pod was rejected: no", **more)


def owner(kind: str = "ReplicaSet", *, status: Any = None, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "web", "uid": "owner"}, "spec": spec, "status": status or {}}


def verdicts(pods: list[ClusterPod], *owners: dict[str, Any]) -> dict[str, bool]:
    return {one.name: one.replaced for one in rejected_pods(pods, owners)}


@pytest.mark.parametrize(
    ("others", "replicas", "replaced"),
    [
        (["Running", "Pending"], 2, True),
        (["Running"], 2, False),  # an older replica is no replacement
        (["Running", "Failed"], 2, False),
        ([], 0, True),
        ([], None, False),
        (["Running"], None, True),
    ],
)
def test_a_replica_set_must_have_all_its_replicas(
    others: list[str],
    replicas: int | None,
    replaced: bool,  # noqa: FBT001
) -> None:
    spec: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
    pods = [rejected(), *(pod(f"p{number}", phase) for number, phase in enumerate(others))]
    assert verdicts(pods, owner(**spec)) == {"bad": replaced}


@pytest.mark.parametrize(
    ("body", "others", "replaced"),
    [
        (owner("Job", parallelism=2), [pod("a", kind="Job"), pod("b", kind="Job")], True),
        (owner("Job", parallelism=2), [pod("a", kind="Job")], False),
        (owner("Job", parallelism=2, completions=3, status={"succeeded": 2}), [pod("a", kind="Job")], True),
        (owner("Job", status={"conditions": [{"type": "Complete", "status": "True"}]}), [], True),
        (owner("Job", status={"conditions": [{"type": "Failed", "status": "True"}]}), [], False),
        (owner("Job", suspend=True, parallelism=0), [], False),
    ],
)
def test_a_job_must_have_the_pods_it_still_wants(
    body: dict[str, Any],
    others: list[ClusterPod],
    replaced: bool,  # noqa: FBT001
) -> None:
    assert verdicts([rejected(kind="Job"), *others], body) == {"bad": replaced}


def test_indexed_job_must_have_a_pod_of_the_same_index() -> None:
    bad = [rejected(f"bad-{index}", kind="Job", labels={INDEX: str(index)}) for index in (0, 1)]
    good = pod("good", kind="Job", labels={INDEX: "1"})
    assert verdicts([*bad, good], owner("Job", parallelism=1)) == {"bad-0": False, "bad-1": True}


@pytest.mark.parametrize("kind", ["", "StatefulSet", "DaemonSet", "RayCluster"])
def test_pods_of_other_owners_are_never_replaced(kind: str) -> None:
    assert verdicts([rejected(kind=kind), pod("good", kind=kind)], owner(kind)) == {"bad": False}


def test_owners_that_are_gone_have_replaced_nothing() -> None:
    assert verdicts([rejected(), pod("good")]) == {"bad": False}
    deleting = owner(replicas=1)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
    assert verdicts([rejected(), pod("good")], deleting) == {"bad": False}


def test_pods_that_ran_or_wait_are_not_rejected() -> None:
    ran = [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]
    pods = [
        pod("crashed", "Failed", reason="Evicted", containerStatuses=ran),
        pod("ended", "Failed"),
        pod("runs"),
    ]
    assert verdicts(pods, owner(replicas=0)) == {}
