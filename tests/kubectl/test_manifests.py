"""``fit``, ``size`` and ``whatif`` of manifests: every template is answered, beside the others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kubectl_numazones.reading.bad_dump import BadDump
from numazones import cpuset

Run = Callable[..., Result]


def template(cpu: int, **metadata: Any) -> dict[str, Any]:
    resources = {"limits": {"cpu": str(cpu), "memory": "256Mi"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": resources}]}}


def task(name: str, replicas: int, cpu: int) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": template(cpu)}


def volcano(*tasks: dict[str, Any], least: int) -> dict[str, Any]:
    spec = {"minAvailable": least, "tasks": list(tasks)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": spec,
    }


def write(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_templates_of_a_gang_are_placed_beside_each_other(run: Run, dump: Path, tmp_path: Path) -> None:
    """worker-1 has two NUMA nodes with 4 CPUs free; each fits by itself, not both tasks."""
    manifest = write(tmp_path / "job.yaml", volcano(task("ps", 1, 2), task("worker", 2, 4), least=2))
    result = run("fit", "--pod", manifest, "-f", dump, "-o", "json")
    found = json.loads(result.stdout)
    fit = {one["name"]: (one["fitting"], one["replicas"], one["verdict"]) for one in found["templates"]}
    total = sum(count for count, _, _ in fit.values())
    assert set(fit) == {"train/ps", "train/worker"}
    assert (found["replicas"], found["fitting"]) == (3, total)
    assert total < 3
    assert result.return_value == 1
    said = run("fit", "--pod", manifest, "-f", dump).output
    assert (
        f"train needs 2 pods at once (minAvailable) and {'starts' if total >= 2 else 'does not start'}"
        in said
    )
    alone = write(tmp_path / "alone.yaml", volcano(task("worker", 1, 4), least=1))
    assert run("fit", "--pod", alone, "-f", dump).return_value == 0


def test_every_document_and_list_item_is_answered(run: Run, dump: Path, tmp_path: Path) -> None:
    pods = [{"kind": "Pod", **template(1, name=name)} for name in ("a", "b")]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}}
    for documents in ((service, *pods), ({"kind": "List", "items": pods},)):
        manifest = write(tmp_path / "all.yaml", *documents)
        found = json.loads(run("fit", "--pod", manifest, "-f", dump, "-o", "json").stdout)
        assert [(one["name"], one["fitting"]) for one in found["templates"]] == [("a", 1), ("b", 1)]
        assert found["notes"] == []


def test_pods_of_several_documents_get_cpus_of_their_own(run: Run, dump: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "pods.yaml",
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **template(cpu)}
            for name, cpu in (("p", 2), ("q", 1), ("r", 2))
        ),
    )
    found = json.loads(run("fit", "--pod", file, "-f", dump, "-o", "json").stdout)
    cpus = [cpuset.parse(place["cpus"]) for place in found["placements"]]
    assert (found["verdict"], [mask.bit_count() for mask in cpus]) == ("Admissible", [2, 1, 2])
    assert cpuset.union(cpus).bit_count() == 5


def test_replicas_of_one_template_can_be_overridden(run: Run, dump: Path, tmp_path: Path) -> None:
    spec = {"replicas": 2, "template": template(1)}
    manifest = write(tmp_path / "web.yaml", {"kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    assert run("fit", "--pod", manifest, "-f", dump).output.startswith("2 of 2 fit")
    assert run("fit", "--pod", manifest, "--replicas", "1", "-f", dump).output.startswith("1 of 1 fit")
    several = write(tmp_path / "job.yaml", volcano(task("a", 1, 1), task("b", 1, 1), least=2))
    error = run("fit", "--pod", several, "--replicas", "3", "-f", dump).exception
    assert "--replicas applies to one template" in str(error)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "spec": {"template": {"spec": {"domain": {}}}},
            },
            "VirtualMachine v (kubevirt.io/v1) has no pod template",
        ),
        (
            {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "NodeSet",
                "spec": {"replicas": 3, "slurmd": {}, "template": {"spec": {}}},
            },
            "NodeSet v (slinky.slurm.net/v1beta1) has no pod template",
        ),
        (
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "spec": {"trainer": {"numNodes": 2}},
            },
            "TrainJob v (trainer.kubeflow.org/v1alpha1) has no pod template",
        ),
    ],
)
def test_kinds_without_a_pod_template_are_named(
    body: dict[str, Any], named: str, run: Run, dump: Path, tmp_path: Path
) -> None:
    body = {**body, "metadata": {"name": "v"}}
    error = run("fit", "--pod", write(tmp_path / "alone.yaml", body), "-f", dump).exception
    assert isinstance(error, BadDump)
    assert named in str(error)
    both = write(tmp_path / "both.yaml", body, {"kind": "Pod", **template(1, name="p")})
    result = run("fit", "--pod", both, "-f", dump)
    assert f"skipped: {named}" in result.stderr
    assert result.stdout.startswith("1 of 1 fit")


def test_devices_of_networks_are_mentioned(run: Run, dump: Path, tmp_path: Path) -> None:
    network = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": "fast",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": "vendor.example/nic"},
        },
    }
    pod = template(1, name="p", annotations={"k8s.v1.cni.cncf.io/networks": "team/fast,plain@eth1"})
    manifest = write(tmp_path / "pod.yaml", network, {"kind": "Pod", **pod})
    (note,) = json.loads(run("fit", "--pod", manifest, "-f", dump, "-o", "json").stdout)["notes"]
    assert note.startswith("p: networks team/fast (vendor.example/nic), plain may add devices")


def test_pods_without_exclusive_cpus_are_explained(run: Run, dump: Path, tmp_path: Path) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
    manifest = write(tmp_path / "pod.yaml", pod)
    machine = ("--machine", "numa=2,cores=8,memory=16Gi")
    for command in (("fit", "--pod", manifest, "-f", dump), ("size", manifest, *machine)):
        result = run(*command)
        assert result.return_value == 0
        assert "p: no exclusive CPUs: only Guaranteed pods that request whole CPUs get them" in result.stderr


def test_a_mistake_names_its_template(run: Run, dump: Path, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"name": "bad", "template": template(1)}
    wrong["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "x"
    manifest = write(tmp_path / "job.yaml", volcano(task("good", 1, 1), wrong, least=1))
    error = run("fit", "--pod", manifest, "-f", dump).exception
    assert "train/bad: spec.containers[0].resources.limits.cpu" in str(error)


def test_templates_are_groups_of_size_and_whatif(run: Run, tmp_path: Path) -> None:
    manifest = write(tmp_path / "job.yaml", volcano(task("ps", 1, 2), task("worker", 3, 4), least=4))
    machine = "sockets=2,numa=2,cores=16,threads=1,memory=64Gi"
    sized = json.loads(run("size", manifest, "--machine", machine, "-o", "json").stdout)
    amounts = json.loads(
        run("size", "1xcpu=2,memory=256Mi", "3xcpu=4,memory=256Mi", "--machine", machine, "-o", "json").stdout
    )
    assert sized == amounts
    played = run(
        "whatif", "--machine", machine, "--pods", manifest, "--set", "topologyManagerScope=pod", "--runs", "1"
    )
    assert "1xtrain/ps, then 3xtrain/worker on 1 node" in played.output


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        ("list", {"p": 1}),
        ("podtemplate", {"c": 1}),
        ("pytorch", {"s/Master": 1, "s/Worker": 3}),
        ("ray", {"r/head": 1, "r/g": 2}),
        ("rayjob", {"r/head": 1, "r/g": 2}),
        ("volcano", {"j/ps": 1, "j/worker": 2}),
    ],
)
def test_workloads_of_numa_aware_clusters_are_answered(
    name: str, fitting: dict[str, int], run: Run, shared: Path
) -> None:
    folder = shared / "cases" / "fit-manifests"
    result = run("fit", "--pod", folder / f"{name}.yaml", "-f", folder / "dump.json", "-o", "json")
    assert {one["name"]: one["fitting"] for one in json.loads(result.stdout)["templates"]} == fitting
    assert result.return_value == 0
