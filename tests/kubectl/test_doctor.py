"""``doctor``: each check finds what it is for, names the cure, and says when it could not look."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from numazones.api.zones_from_node import zones_from_node
from tests.kubectl.healthy_cluster import (
    EXPORTER,
    LATER,
    Item,
    changed,
    healthy,
    lease,
    namespace,
    program,
    topology,
    without,
)
from tests.kubectl.small_cluster import TIME, pod_body, written
from tests.numazones.kubelet import building
from tests.places import ROOT

Run = Callable[..., Result]


def zones_of(name: str = "worker-2", *, machine: Any = None, **config: Any) -> list[Item]:
    """The healthy cluster with other settings or another machine of one node."""
    zones = zones_from_node(building.node(machine, **config), node_name=name, pods={}, version="v1.36.2")
    kept = [it for it in healthy() if it["kind"] != "NUMAZone" or it["spec"]["nodeName"] != name]
    return [*kept, *(zone.to_api() for zone in zones)]


def replicas(count: int, **fields: Any) -> list[Item]:
    """Pods of one ReplicaSet that kubelets rejected."""
    bodies = []
    for number in range(count):
        body = pod_body(f"web-{number}", 5, phase="Failed", spec={"nodeName": "worker-1"})
        body["status"] |= {"reason": "TopologyAffinityError", "message": "Pod was rejected: no", **fields}
        owner = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
        bodies.append(body)
    return bodies


def gated() -> Item:
    return pod_body("gated", 2, spec={"schedulingGates": [{"name": "numazones.io/admission"}]})


def serving() -> list[Item]:
    """The healthy cluster, its operator serving gates."""
    return changed(
        "Pod", "operator", lambda it: it["spec"]["containers"][0].update(args=["--admission-gate"])
    )


def waiting(cpu: int | str, memory: str = "1Gi") -> Item:
    body = pod_body("wants", 1)
    body["spec"]["containers"] = [building.container("main", cpu, memory)]
    return body


def _unschedulable(item: Item) -> None:
    item["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]


def _creating(pod: Item) -> Item:
    """A pod whose containers its kubelet does not come to creating."""
    pod["status"]["containerStatuses"] = [
        {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    ]
    return pod


def _failed_mount(message: str, at: str) -> Item:
    return {
        "kind": "Event",
        "metadata": {"name": f"mount-{at}", "namespace": "numazones-system"},
        "involvedObject": {
            "kind": "Pod",
            "uid": program("numazones-exporter", "worker-2")["metadata"]["uid"],
        },
        "reason": "FailedMount",
        "message": message,
        "lastTimestamp": at,
    }


def found(run: Run, tmp_path: Path, items: list[Item]) -> tuple[dict[str, Any], int]:
    result = run("doctor", "-f", written(tmp_path / "dump.json", items), "-o", "json")
    assert result.exception is None, result.exception
    return json.loads(result.output), result.return_value


def test_nothing_is_found_where_nothing_is_wrong(run: Run, tmp_path: Path) -> None:
    report, code = found(run, tmp_path, healthy())
    assert report["findings"] == []
    assert list(report["notChecked"]) == ["access"]
    assert code == 0


@pytest.mark.parametrize(("fail_on", "code"), [("warning", 1), ("error", 0)])
def test_warnings_fail_unless_errors_alone_should(fail_on: str, code: int, run: Run, tmp_path: Path) -> None:
    dump = written(tmp_path / "dump.json", without("CustomResourceDefinition", "rebalancepolicies"))
    result = run("doctor", "-f", dump, "-o", "json", f"--fail-on={fail_on}")
    assert {it["severity"] for it in json.loads(result.output)["findings"]} == {"warning"}
    assert result.return_value == code


def test_missing_zones_are_an_error_even_with_skipped_checks(run: Run, tmp_path: Path) -> None:
    report, code = found(run, tmp_path, [it for it in healthy() if it["kind"] in {"Node", "Pod"}])
    (finding,) = (it for it in report["findings"] if it["check"] == "zones")
    assert (finding["severity"], finding["subjects"]) == ("error", ["NUMAZones"])
    assert finding["message"] == "there are none, so nothing is known about any node"
    assert "kubectl apply -k manifests/exporter" in finding["cure"]
    assert code == 1


CASES: dict[str, tuple[list[Item], str, str, list[str], str, str]] = {
    "a kind is not defined": (
        without("CustomResourceDefinition", "rebalancepolicies"),
        *("definitions", "warning", ["rebalancepolicies.numazones.io"]),
        *("is not defined", "kubectl apply -k crds"),
    ),
    "a kind is not served": (
        changed("CustomResourceDefinition", "numazones.n", lambda it: it["spec"]["versions"].clear()),
        *("definitions", "error", ["numazones.numazones.io"]),
        *("does not serve version v1alpha1", "kubectl apply -k crds"),
    ),
    "a definition is older": (
        changed(
            "CustomResourceDefinition",
            "numazones.n",
            lambda it: it["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
                "properties"
            ].pop("headroom"),
        ),
        *("definitions", "warning", ["numazones.numazones.io"]),
        *("lacks status.headroom, status.headroom.exclusiveCPUs", "kubectl apply -k crds"),
    ),
    "the exporter is not installed": (
        [it for it in without("NUMAZone", "worker-2") if EXPORTER not in it["metadata"]["name"]],
        *("exporters", "error", ["worker-2"]),
        *("no NUMAZones are published: no exporter pods were found", "kubectl apply -k manifests/exporter"),
    ),
    "dra-driver-cpu beside the static CPU manager": (
        [
            *healthy(),
            {
                "kind": "ResourceSlice",
                "metadata": {"name": "worker-2-dra.cpu-x"},
                "spec": {
                    "driver": "dra.cpu",
                    "nodeName": "worker-2",
                    "pool": {"name": "worker-2", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "cpudevnuma000"}],
                },
            },
        ],
        *("drivers", "warning", ["worker-2"]),
        *("two containers may get the same CPUs", "set cpuManagerPolicy: none"),
    ),
    "the exporter's image cannot be pulled": (
        [
            *(it for it in without("NUMAZone", "worker-2") if EXPORTER not in it["metadata"]["name"]),
            program(
                "numazones-exporter",
                "worker-2",
                conditions=[],
                containerStatuses=[{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            ),
        ],
        *("exporters", "error", ["worker-2"]),
        *("pod numazones-exporter-xy is ImagePullBackOff", "kubectl describe pod -n numazones-system"),
    ),
    "the kubelet's directory is elsewhere": (
        [
            *(it for it in without("NUMAZone", "worker-2") if EXPORTER not in it["metadata"]["name"]),
            _creating(program("numazones-exporter", "worker-2", phase="Pending", conditions=[])),
            _failed_mount('MountVolume.SetUp failed for volume "token" : timed out', "2026-11-20T10:00:00Z"),
            _failed_mount(
                'MountVolume.SetUp failed for volume "kubelet" : hostPath type check failed: '
                "/var/lib/kubelet is not a directory",
                "2026-11-20T10:00:09Z",
            ),
        ],
        *("exporters", "error", ["worker-2"]),
        *(
            'is ContainerCreating: MountVolume.SetUp failed for volume "kubelet"',
            "/var/lib/k0s/kubelet on k0s",
        ),
    ),
    "a volume of the exporter cannot be mounted": (
        [
            *(it for it in without("NUMAZone", "worker-2") if EXPORTER not in it["metadata"]["name"]),
            _creating(program("numazones-exporter", "worker-2", phase="Pending", conditions=[])),
            _failed_mount('MountVolume.SetUp failed for volume "token" : timed out', "2026-11-20T10:00:00Z"),
        ],
        *("exporters", "error", ["worker-2"]),
        *('volume "token" : timed out', "kubectl describe pod -n numazones-system numazones-exporter-xy"),
    ),
    "the exporter's node selector leaves a node out": (
        [
            it
            for it in changed("Pod", EXPORTER, lambda it: it["spec"].update(nodeSelector={"numa": "yes"}))
            if it.get("spec", {}).get("nodeName") != "worker-2"
        ],
        *("exporters", "hint", ["worker-2"]),
        *("the exporter's node selector numa=yes", "label the node"),
    ),
    "a taint keeps the exporter away": (
        [
            it
            for it in changed("Node", "worker-2", _unschedulable)
            if it.get("spec", {}).get("nodeName") != "worker-2"
        ],
        *("exporters", "error", ["worker-2"]),
        *("its taint gpu:NoSchedule keeps the exporter away", "add a toleration"),
    ),
    "zones are incomplete": (
        without("NUMAZone", "worker-2-numa-1"),
        *("exporters", "error", ["worker-2"]),
        *("its NUMAZones cannot be used: ", "kubectl logs -n numazones-system numazones-exporter-x"),
    ),
    "a lease is missing": (
        without("Lease", "worker-2"),
        *("leases", "error", ["worker-2"]),
        *("no Lease confirms its NUMAZones", "kubectl logs"),
    ),
    "a lease has expired": (
        [*without("Lease"), lease("worker-2", TIME), lease("worker-1", LATER)],
        *("leases", "error", ["worker-2"]),
        *(f"last confirmed them at {TIME}, 300 s ago (180 s are allowed)", "kubectl logs"),
    ),
    "a node is gone and its zones are not": (
        without("Node", "worker-2"),
        *("leases", "warning", ["worker-2"]),
        *("is not a node in the cluster", "kubectl delete numazones -l numazones.io/node=worker-2"),
    ),
    "pods are bound to a node that is gone": (
        [
            *healthy(),
            pod_body("lost", 1, phase="Running", spec={"nodeName": "worker-9"}),
            pod_body("ended", 1, phase="Succeeded", spec={"nodeName": "worker-9"}),
        ],
        *("nodes", "warning", ["worker-9"]),
        *("so its pods are not counted: 1 pod", "--field-selector spec.nodeName=worker-9"),
    ),
    "a source cannot be read": (
        changed(
            "NUMAZone",
            "worker-2",
            lambda it: it["status"].update(
                conditions=[{"type": "Ready", "status": "Unknown", "reason": "TimedOut", "message": "slow"}]
            ),
        ),
        *("readings", "warning", ["worker-2"]),
        *("TimedOut: slow", "the kubelet is restarting, overloaded or hanging"),
    ),
    "sources disagree": (
        changed(
            "NUMAZone",
            "worker-2",
            lambda it: it["status"].update(
                conditions=[
                    {"type": "Ready", "status": "Unknown", "reason": "SourcesDisagree", "message": "see"},
                    {
                        "type": "Consistent",
                        "status": "False",
                        "reason": "SourcesDisagree",
                        "message": "3 and 4",
                    },
                ]
            ),
        ),
        *("readings", "error", ["worker-2"]),
        *("sources disagree: 3 and 4", "restart the kubelet"),
    ),
    "pods share exclusive CPUs": (
        changed(
            "NUMAZone",
            "worker-2",
            lambda it: it["status"]["conditions"].append(
                {
                    "type": "CPUsExclusive",
                    "status": "False",
                    "reason": "CPUsOfTwoPods",
                    "message": "ns/a and ns/b both hold CPU 2: delete ns/b",
                }
            ),
        ),
        *("readings", "error", ["worker-2"]),
        *("ns/a and ns/b both hold CPU 2: delete ns/b", "make all cores equal"),
    ),
    "two models show on a node": (
        changed(
            "Node", "worker-2", lambda it: it["metadata"]["labels"].update({"node.koordinator.sh/cpu": "x"})
        ),
        *("readings", "error", ["worker-2"]),
        *("both place pods on the node", "let only one of them place pods"),
    ),
    "a clock is ahead": (
        [*without("Lease", "worker-1"), lease("worker-1", TIME, written_at="2026-11-20T09:59:00Z")],
        *("clocks", "warning", ["worker-1"]),
        *("its clock is 60 s ahead of the API server's", "synchronise"),
    ),
    "there is no operator": (
        without("Pod", "numazones-operator"),
        *("operator", "hint", ["numazones-operator"]),
        *("no operator is running", "kubectl apply -k manifests/operator"),
    ),
    "the operator fails": (
        changed("Pod", "operator", lambda it: it["status"].update(conditions=[], phase="Pending")),
        *("operator", "error", ["numazones-system/numazones-operator-x"]),
        *("is Pending, not ready", "kubectl describe pod"),
    ),
    "a gate waits for no operator": (
        [*without("Pod", "numazones-operator"), gated()],
        *("gates", "error", ["team/gated"]),
        *("no operator is running", "kubectl apply -k manifests/operator"),
    ),
    "a gate that the operator does not serve": (
        [*healthy(), gated()],
        *("gates", "error", ["team/gated"]),
        *("the operator does not release gated pods", "--admission-gate"),
    ),
    "a gate in a namespace that does not opt in": (
        [*(it for it in serving() if it["kind"] != "Namespace"), namespace(), gated()],
        *("gates", "error", ["team/gated"]),
        *("does not opt in", "kubectl label namespace team numazones.io/admission-gate=enabled"),
    ),
    "a loop without a gate": (
        [*without("Namespace"), namespace(), *replicas(3)],
        *("gates", "warning", ["team/web"]),
        *("rejected 3 pods of this ReplicaSet", "kubectl label namespace team"),
    ),
    "no topology policy": (
        zones_of(policy="none"),
        *("settings", "warning", ["worker-2"]),
        *("topologyManagerPolicy is none", "set topologyManagerPolicy: single-numa-node"),
    ),
    "a policy that rejects nothing": (
        zones_of(policy="best-effort"),
        *("settings", "hint", ["worker-2"]),
        *("topologyManagerPolicy is best-effort", "restricted"),
    ),
    "no exclusive CPUs": (
        zones_of(cpus="none"),
        *("settings", "warning", ["worker-2"]),
        *("cpuManagerPolicy is none", "set cpuManagerPolicy: static"),
    ),
    "memory that is not bound": (
        zones_of(memory="None"),
        *("settings", "hint", ["worker-2"]),
        *("memoryManagerPolicy is None: memory comes", "set memoryManagerPolicy: Static"),
    ),
    "hugepages that are not bound": (
        zones_of(memory="None", machine=building.machine(hugepages={1 << 20: 2})),
        *("settings", "warning", ["worker-2"]),
        *("memory and hugepages come from any NUMA node", "set memoryManagerPolicy: Static"),
    ),
    "one NUMA node": (
        zones_of(machine=building.machine(1)),
        *("settings", "hint", ["worker-2"]),
        *("has one NUMA node", "leave it"),
    ),
    "an option that never acts": (
        zones_of(cpu_options={"distribute-cpus-across-numa": "true"}),
        *("settings", "hint", ["worker-2"]),
        *("distribute-cpus-across-numa has no effect", "restricted"),
    ),
    "two writers": (
        [*without("NodeResourceTopology"), topology("koordlet", "numazones-exporter")],
        *("writers", "error", ["worker-1"]),
        *("is written by koordlet and numazones-exporter", "--publish"),
    ),
    "three CPUs on whole cores of two": (
        [*zones_of(cpu_options={"full-pcpus-only": "true"}), waiting(3)],
        *("requests", "warning", ["team/wants"]),
        *(
            "container main requests 3 CPUs; the kubelet only assigns whole cores of 2 threads",
            "request 4 or 2 CPUs",
        ),
    ),
    "one CPU on whole cores of two": (
        [*zones_of(cpu_options={"full-pcpus-only": "true"}), waiting(1)],
        *("requests", "warning", ["team/small", "team/wants"]),
        *(
            "container main requests 1 CPU; the kubelet only assigns whole cores of 2 threads",
            "request 2 CPUs",
        ),
    ),
    "a CPU more than a NUMA node has": (
        [*healthy(), waiting(9)],
        *("requests", "warning", ["team/wants"]),
        *("requests 9 CPUs; a NUMA node can provide at most 8", "request 8 CPUs"),
    ),
    "a Guaranteed pod that pins nothing": (
        [*healthy(), waiting("2500m")],
        *("pinning", "hint", ["team/wants"]),
        *("requests a fraction of a CPU in container main", "request whole CPUs"),
    ),
    "a zone that no shape can use": (
        without("Pod", "small"),
        *("stranded", "hint", ["worker-1, NUMA node 1"]),
        *(
            "2 CPUs are free, but no pod of the 2 shapes seen in this cluster can use them",
            "kubectl numazones plan",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found_with_its_cure(run: Run, tmp_path: Path, case: str) -> None:
    items, check, severity, subjects, message, cure = CASES[case]
    report, code = found(run, tmp_path, items)
    of_check = [it for it in report["findings"] if it["check"] == check and it["subjects"] == subjects]
    assert of_check, report
    assert any(
        it["severity"] == severity and message in it["message"] and cure in it["cure"] for it in of_check
    ), of_check
    assert code == int(any(it["severity"] != "hint" for it in report["findings"]))


def test_checks_that_could_not_look_are_named(run: Run, dump: Path) -> None:
    output = run("doctor", "-f", dump).output
    assert "skipped: definitions: no CustomResourceDefinition objects were read" in output
    assert "skipped: leases: no Lease objects were read" in output
    assert "skipped: access: your permissions are unknown: a dump does not contain them\n" in output


def test_managed_fields_that_were_left_out_are_asked_for(run: Run, tmp_path: Path) -> None:
    items = healthy()
    for item in items:
        item["metadata"].pop("managedFields", None)
    report, _ = found(run, tmp_path, items)
    assert "--show-managed-fields" in report["notChecked"]["clocks"]
    assert "--show-managed-fields" in report["notChecked"]["writers"]


def test_the_worst_comes_first_and_is_counted(run: Run, tmp_path: Path) -> None:
    items = [*without("Pod", "numazones-operator"), gated(), waiting(9)]
    lines = run("doctor", "-f", written(tmp_path / "dump.json", items)).output.splitlines()
    heads = [line.split()[0] for line in lines if line.split()[0] in {"ERROR", "WARNING", "HINT"}]
    assert heads == ["ERROR", "WARNING", "HINT"]
    assert lines[-2] == "1 error, 1 warning, 1 hint from 19 checks"


@pytest.mark.parametrize(("version", "named"), [("v1.36.2", 0), ("v1.99.0", 1)])
def test_a_kubelet_newer_than_what_is_modelled_is_named(
    version: str, named: int, run: Run, tmp_path: Path
) -> None:
    def upgrade(zone: Item) -> None:
        zone["status"]["kubelet"]["version"] = version

    items = changed("NUMAZone", "worker-1", upgrade)
    output = run("doctor", "-f", written(tmp_path / "dump.json", items)).output
    assert output.count("kubelet 1.99 is predicted with the rules of") == named


def test_an_option_of_no_release_is_named(run: Run, tmp_path: Path) -> None:
    def set_option(zone: Item) -> None:
        kubelet = zone["status"]["kubelet"]
        kubelet["topologyManagerPolicyOptions"] = {"prefer-most-allocated-numa-node": "true"}
        kubelet["featureGates"] = {"TopologyManagerPolicyAlphaOptions": True}

    items = changed("NUMAZone", "worker-1", set_option)
    output = " ".join(run("doctor", "-f", written(tmp_path / "dump.json", items)).output.split())
    assert "no kubelet release has option prefer-most-allocated-numa-node" in output


CONFIGURATION = yaml.safe_load((ROOT / "manifests" / "scheduler" / "configuration.yaml").read_text())


def configured(change: Callable[[dict[str, Any]], object], *, ready: bool = True) -> list[Item]:
    """The healthy cluster and the second scheduler as shipped, but for what ``change`` does to it."""
    settings = yaml.safe_load(CONFIGURATION["data"]["scheduler.yaml"])
    change(settings)
    data = {"scheduler.yaml": yaml.safe_dump(settings)}
    pod = program("numazones-scheduler")
    if not ready:
        pod["status"]["conditions"] = []
    return [*healthy(), pod, {**CONFIGURATION, "data": data}]


def _of_extender(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda settings: settings["extenders"][0].update(fields)


TRAPS: dict[str, tuple[Callable[[dict[str, Any]], object], str, str, str]] = {
    "sampling": (
        lambda settings: settings.pop("percentageOfNodesToScore"),
        *("warning", "considers only some of the nodes", "set percentageOfNodesToScore: 100"),
    ),
    "sampling in the profile": (
        lambda settings: settings["profiles"][0].update(percentageOfNodesToScore=50),
        *("warning", "considers only some of the nodes", "set percentageOfNodesToScore: 100"),
    ),
    "ignorable": (
        _of_extender(ignorable=True),
        *("error", "pods go anywhere while it is down", "set ignorable: false"),
    ),
    "no bind": (_of_extender(bindVerb=""), *("error", "bindVerb is missing", "set bindVerb: bind")),
    "no filter": (_of_extender(filterVerb=""), *("error", "filterVerb is missing", "set filterVerb")),
    "a low weight": (_of_extender(weight=1), *("warning", "weight 1 lets", "set weight: 125")),
    "whole nodes": (
        _of_extender(nodeCacheCapable=False),
        *("warning", "sends whole nodes", "set nodeCacheCapable: true"),
    ),
    "no extender": (
        lambda settings: settings.update(extenders=[]),
        *("error", "calls no extender", "add the extender"),
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_trap_in_the_schedulers_configuration_is_named_with_its_cure(
    name: str, run: Run, tmp_path: Path
) -> None:
    change, severity, message, cure = TRAPS[name]
    report, _ = found(run, tmp_path, configured(change))
    (only,) = report["findings"]
    assert (only["check"], only["severity"]) == ("extender", severity)
    assert only["subjects"] == ["numazones-operator/numazones-scheduler"]
    assert message in only["message"]
    assert cure in only["cure"]


def test_the_scheduler_as_shipped_has_none_of_the_traps(run: Run, tmp_path: Path) -> None:
    pod = pod_body("asks", 2, spec={"schedulerName": "numazones"})
    report, code = found(run, tmp_path, [*configured(dict.copy), pod])
    assert (report["findings"], code) == ([], 0)


def test_a_configuration_that_cannot_be_seen_is_not_checked(run: Run, tmp_path: Path) -> None:
    report, _ = found(run, tmp_path, [*healthy(), program("numazones-scheduler")])
    assert "extender" in report["notChecked"]


@pytest.mark.parametrize("text", ["KubeSchedulerConfiguration: [", "kind: KubeSchedulerConfiguration", "[]"])
def test_what_is_no_configuration_of_ours_is_passed_over(text: str, run: Run, tmp_path: Path) -> None:
    report, _ = found(run, tmp_path, [*healthy(), {**CONFIGURATION, "data": {"scheduler.yaml": text}}])
    assert report["findings"] == []


@pytest.mark.parametrize("schedulers", ["none", "not ready"])
def test_pods_of_a_scheduler_that_does_not_run_are_reported(
    schedulers: str, run: Run, tmp_path: Path
) -> None:
    pod = pod_body("asks", 2, spec={"schedulerName": "numazones"})
    items = healthy() if schedulers == "none" else configured(dict.copy, ready=False)
    report, code = found(run, tmp_path, [*items, pod])
    (only,) = report["findings"]
    assert (only["check"], only["severity"], code) == ("scheduler", "error", 1)
    assert only["subjects"] == ["team/asks"]
    assert "it is never scheduled" in only["message"]


def test_pods_of_a_scheduler_outside_the_cluster_are_no_finding(run: Run, tmp_path: Path) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = pod_body("asks", 2, spec={"schedulerName": "numazones"}, conditions=[condition])
    assert found(run, tmp_path, [*healthy(), pod])[0]["findings"] == []


def test_an_operator_outside_the_cluster_is_known_by_its_lease(run: Run, tmp_path: Path) -> None:
    held = lease("worker-1")
    held["metadata"] |= {"name": "numazones-operator", "labels": {}}
    held["spec"] |= {"holderIdentity": "elsewhere"}
    opted = namespace(**{"numazones.io/admission-gate": "enabled"})
    items = [it for it in without("Pod", "numazones-operator") if it["kind"] != "Namespace"]
    assert found(run, tmp_path, [*items, held, opted, gated()])[0]["findings"] == []


def test_kind_or_minikube_node_is_explained_without_errors(run: Run, tmp_path: Path) -> None:
    """One NUMA node, no static policies, nothing reserved."""
    bare: dict[str, Any] = {"reserved": "", "reservedMemory": [], "systemReserved": {}}
    items = zones_of(machine=building.machine(1), policy="none", cpus="none", memory="None", **bare)
    report, code = found(run, tmp_path, items)
    (only,) = report["findings"]
    assert (only["check"], only["severity"], only["subjects"], code) == ("settings", "hint", ["worker-2"], 0)
    assert "as on kind and minikube" in only["message"]
    assert "numazones-simulator demo" in only["cure"]


@pytest.mark.parametrize(
    ("said", "found_there"),
    [
        (
            'Post "http://127.0.0.1:9409/filter": context deadline exceeded (Client.Timeout exceeded)',
            "calls to the extender time out",
        ),
        (
            'Post "https://numazones-extender.numazones-operator.svc/filter": dial tcp: connection refused',
            "cannot reach the extender",
        ),
        ('Post "http://127.0.0.1:8888/filter": context deadline exceeded', ""),  # another one's
        ("failed filter with extender at URL http://127.0.0.1:9409/filter, code 500", ""),
    ],
    ids=["time-out", "away", "another extender", "an answer"],
)
def test_pods_whose_scheduler_misses_the_extender_are_reported(
    run: Run, tmp_path: Path, said: str, found_there: str
) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": said}
    pod = pod_body("asks", 2, spec={"schedulerName": "numazones"}, conditions=[condition])
    report, _ = found(run, tmp_path, [*configured(dict.copy), pod])
    problems = [
        (one["severity"], one["subjects"], one["message"])
        for one in report["findings"]
        if one["check"] == "calls"
    ]
    assert report["notChecked"]["traffic"] == "a dump has no metrics"
    assert bool(problems) == bool(found_there)
    for severity, subjects, message in problems:
        assert (severity, subjects) == ("error", ["team/asks"])
        assert found_there in message
