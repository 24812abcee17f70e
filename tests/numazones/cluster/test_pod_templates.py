"""Pod templates in workloads: where they stand, their names, and how many pods they make."""

from typing import Any

import pytest

from numazones.cluster.pod_templates import InvalidWorkload, networks, workloads

T: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}


def replicas(count: int, **more: Any) -> dict[str, Any]:
    return {"replicas": count, "template": T, **more}


def found(kind: str, spec: dict[str, Any], **more: Any) -> dict[str, int]:
    body = {"kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}
    return {one.name_of(each): each.replicas for one in workloads(body) for each in one.templates}


LWS = {"leaderTemplate": T, "workerTemplate": T, "size": 4}
RAY = {
    "headGroupSpec": {"rayStartParams": {}, "template": T},
    "workerGroupSpecs": [
        {"groupName": "gpu", **replicas(2), "numOfHosts": 4},
        {"groupName": "cpu", **replicas(3)},
    ],
}
JOBS = {
    "replicatedJobs": [
        {"name": "driver", "template": {"spec": {"template": T}}},
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 3, "completions": 9, "template": T}},
        },
    ]
}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Deployment", replicas(3), {"x": 3}),
        ("StatefulSet", {"template": T}, {"x": 1}),
        ("Job", {"parallelism": 4, "completions": 2, "template": T}, {"x": 2}),
        ("CronJob", {"jobTemplate": {"spec": {"parallelism": 2, "template": T}}}, {"x": 2}),
        ("Rollout", replicas(5), {"x": 5}),
        ("Service", {"template": T, "traffic": []}, {"x": 1}),
        (
            "Job",
            {"minAvailable": 3, "tasks": [{"name": "ps", **replicas(1)}, {"name": "worker", **replicas(2)}]},
            {"x/ps": 1, "x/worker": 2},
        ),
        ("Job", {"tasks": [replicas(1), replicas(2)]}, {"x/tasks[0]": 1, "x/tasks[1]": 2}),
        ("RayCluster", RAY, {"x/head": 1, "x/gpu": 8, "x/cpu": 3}),
        (
            "RayJob",
            {"rayClusterSpec": RAY, "submitterPodTemplate": T},
            {"x/head": 1, "x/gpu": 8, "x/cpu": 3, "x/submitter": 1},
        ),
        ("RayService", {"rayClusterConfig": RAY}, {"x/head": 1, "x/gpu": 8, "x/cpu": 3}),
        ("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": LWS}, {"x/leader": 2, "x/worker": 6}),
        (
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": T}},
            {"x/worker": 8},
        ),
        ("JobSet", JOBS, {"x/driver": 1, "x/workers": 6}),
        ("TrainingRuntime", {"template": {"spec": JOBS}}, {"x/driver": 1, "x/workers": 6}),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"template": T}, "Worker": replicas(3)}},
            {"x/Master": 1, "x/Worker": 3},
        ),
        ("TFJob", {"tfReplicaSpecs": {"PS": replicas(2), "Chief": replicas(1)}}, {"x/PS": 2, "x/Chief": 1}),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(16)}},
            {"x/Launcher": 1, "x/Worker": 16},
        ),
        ("Workload", {"podSets": [{"name": "main", "count": 7, "template": T}]}, {"x/main": 7}),
        (
            "AppWrapper",
            {"components": [{"template": {"kind": "Job", "spec": {"parallelism": 2, "template": T}}}]},
            {"x/components[0]": 2},
        ),
        ("Job", {"tasks": ["ps", T, {"name": "worker", **T}]}, {"x/tasks[1]": 1, "x/worker": 1}),
        ("Tree", {"a": {"b": {"template": T}}}, {"x/a/b": 1}),
        ("NodeSet", {"replicas": 3, "slurmd": {"resources": {}}, "template": {"spec": {}}}, {}),
        ("VirtualMachine", {"template": {"spec": {"domain": {"cpu": {"cores": 8}}}}}, {}),
    ],
)
def test_every_template_is_found_with_its_name_and_replicas(
    kind: str, spec: dict[str, Any], expected: dict[str, int]
) -> None:
    assert found(kind, spec) == expected


def test_pods_templates_and_lists_are_found() -> None:
    assert found("PodTemplate", {}, template=T) == {"x": 1}
    assert found("Pod", T["spec"]) == {"x": 1}
    items = [{"metadata": {"name": name}, "spec": T["spec"]} for name in ("a", "b")]
    for kind, apart in (("PodList", items), ("List", [{"kind": "Pod", **item} for item in items])):
        listed = list(workloads({"kind": kind, "items": apart}))
        assert [(one.kind, one.name, len(one.templates)) for one in listed] == [
            ("Pod", "a", 1),
            ("Pod", "b", 1),
        ]
    nested = {"kind": "List", "items": ["a", {"kind": "PodList", "items": items}]}
    assert [one.name for one in workloads(nested)] == ["a", "b"]


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"minAvailable": 3}, 3),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}, 2),
        ({"minAvailable": "50%"}, 0),
        ({}, 0),
    ],
)
def test_a_gang_says_how_many_of_its_pods_must_run(spec: dict[str, Any], least: int) -> None:
    (one,) = workloads({"kind": "Job", "spec": spec})
    assert one.least == least


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": "two", "template": T}, "spec.replicas must be a whole number of pods, not 'two'"),
        ({"replicas": -1, "template": T}, "spec.replicas must be a whole number of pods, not -1"),
        ({"replicas": True, "template": T}, "spec.replicas must be a whole number of pods, not True"),
        ({"replicas": 10**9, "template": T}, "spec.template creates 1000000000 pods"),
        ({"template": "x"}, "spec.template must be a mapping, not 'x'"),
    ],
)
def test_numbers_of_pods_that_are_none_are_named(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidWorkload) as wrong:
        found("Deployment", spec)
    assert str(wrong.value).startswith(message)


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        ("sriov-a, other/sriov-b@net1,sriov-a", ("sriov-a", "other/sriov-b")),
        ('[{"name": "sriov-a", "namespace": "x"}]', ("sriov-a",)),
        ("", ()),
    ],
)
def test_networks_are_read_in_both_forms(annotation: str, names: tuple[str, ...]) -> None:
    template = {**T, "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": annotation}}}
    (one,) = workloads({"kind": "Deployment", "spec": {"template": template}})
    assert networks(one.templates[0]) == names
