"""The Helm chart: kustomize's objects, values that do what they say, definitions that upgrade."""

import asyncio
import json
import re
import shutil
import tarfile
import tomllib
from collections.abc import Iterator
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kubectl_numazones.reading.kinds import DOCTORS
from numazones.api import crd
from numazones.api.meta import VERSION as VERSION_OF_KINDS
from numazones_apiserver.server import ApiServer
from numazones_client import Client, ClusterConfig
from numazones_client.errors import NotFound
from numazones_client.resources import CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, EVENTS
from tests import real_apiserver
from tests.manifests.helm import helm, program
from tests.manifests.kustomizations import COMPONENTS, composition, facts, rendered
from tests.places import ROOT
from tools import package_chart

CHART = ROOT / "manifests" / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

SWITCHES = {
    "components/exporter-cgroups": "exporter.cgroups",
    "components/exporter-noderesourcetopologies": "exporter.nodeResourceTopologies",
    "components/exporter-podmonitor": "exporter.podMonitor",
    "components/exporter-recordings": "exporter.recordings",
    "components/operator-admission-gate": "operator.admissionGate",
    "components/operator-eviction": "operator.eviction",
    "components/operator-page": "operator.page",
    "components/operator-podmonitor": "operator.podMonitor",
}
"""Component of kustomize → value of the chart."""
CHOICES = list(chain.from_iterable(combinations(SWITCHES, size) for size in (0, 1, len(SWITCHES))))

Object = dict[str, Any]
Key = tuple[str, str, str]


def template(home: Path, *options: str, hooks: bool = False) -> dict[Key, Object]:
    """The objects of a release, or of its tests, by kind, namespace and name."""
    done = helm("template", "release", str(CHART), *options, home=home)
    assert done.returncode == 0, done.stderr
    objects = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return by_key(item for item in objects if is_hook(item) == hooks)


def is_hook(item: Object) -> bool:
    """Return whether Helm makes an object only for something, such as helm test."""
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})


def by_key(objects: Any) -> dict[Key, Object]:
    found: dict[Key, Object] = {}
    for item in objects:
        metadata = item["metadata"]
        key = (item["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in found
        found[key] = item
    return found


def without_helms_own(item: Object) -> Object:
    """An object without the labels and annotations that releases of Helm carry."""
    metadata = dict(item["metadata"])
    labels = {"managed-by", "instance", "version"}
    metadata["labels"] = {
        name: value
        for name, value in metadata["labels"].items()
        if name != "helm.sh/chart" and name.removeprefix("app.kubernetes.io/") not in labels
    }
    if metadata.get("annotations", {}).pop("helm.sh/resource-policy", None) and not metadata["annotations"]:
        del metadata["annotations"]
    return {**item, "metadata": metadata}


RUNBOOKS = "https://docs.my.org/runbooks"


def read_here(objects: list[Object]) -> list[Object]:
    """Dashboards of kustomize, with links to runbooks as the guide has them made."""
    text = json.dumps(objects).replace("https://numazones.example/runbooks", RUNBOOKS)
    found: list[Object] = json.loads(text)
    return found


def test_helm_finds_nothing_to_object_to(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), home=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: ",".join(map(str, choice)))
def test_the_objects_are_those_of_kustomize(choice: tuple[str, ...], tmp_path: Path) -> None:
    options = [f"--set={SWITCHES[component]}=true" for component in choice]
    ours = [without_helms_own(item) for item in template(tmp_path, *options).values()]
    theirs = rendered(composition(tmp_path, choice))
    for item in theirs:
        item["metadata"].setdefault("labels", {})["app.kubernetes.io/part-of"] = "numazones"
    assert facts(ours) == facts(theirs)


FOLDERS = {
    "scheduler": ["--set=scheduler.enabled=true", "--set=scheduler.image.tag=v1.36.2"],
    "extender": ["--set=extender.enabled=true"],
    "gate-injection": [
        "--set=operator.gateInjection=true",
        "--set=operator.admissionGate=true",
        "--kube-version=1.36.2",
    ],
}
"""Kustomizations that are no components → the chart's options."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_objects_of_further_kustomizations_are_those_of_the_chart(folder: str, tmp_path: Path) -> None:
    components = ["components/operator-admission-gate"] if folder == "gate-injection" else []
    ours = [without_helms_own(item) for item in template(tmp_path, *FOLDERS[folder]).values()]
    theirs = rendered(composition(tmp_path, components, of=[".", folder]))
    for item in theirs:
        item["metadata"].setdefault("labels", {})["app.kubernetes.io/part-of"] = "numazones"
    assert facts(ours) == facts(theirs)


def test_the_dashboards_are_those_of_kustomize(tmp_path: Path) -> None:
    release = template(tmp_path, "--set=operator.dashboards=true", f"--set=operator.runbookURL={RUNBOOKS}")
    always = {key for key in template(tmp_path) if key[0] == "ConfigMap"}
    assert [key[-1] for key in always] == ["numazones-operator-misses"]
    ours = [
        without_helms_own(item)
        for key, item in release.items()
        if key[0] == "ConfigMap" and key not in always
    ]
    assert facts(ours) == facts(read_here(rendered(ROOT / "manifests" / "grafana")))


def test_helm_test_pod_may_read_everything_for_doctor(tmp_path: Path) -> None:
    made = template(tmp_path, hooks=True)
    assert {(kind, space) for kind, space, _ in made} == {
        ("ServiceAccount", "numazones-operator"),
        ("ClusterRole", ""),
        ("ClusterRoleBinding", ""),
        ("Pod", "numazones-operator"),
    }
    assert {name for _, _, name in made} == {"numazones-doctor"}
    for item in made.values():
        assert item["metadata"]["annotations"]["helm.sh/hook"] == "test"
    pod = made["Pod", "numazones-operator", "numazones-doctor"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == f"numazones-operator:{VERSION}"
    shipped = rendered(ROOT / "manifests" / "operator")
    (operator,) = [item["spec"]["template"]["spec"] for item in shipped if item["kind"] == "Deployment"]
    assert pod["securityContext"] == operator["securityContext"]
    assert container["securityContext"] == operator["containers"][0]["securityContext"]
    granted = {
        (verb, resource, group)
        for rule in made["ClusterRole", "", "numazones-doctor"]["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }
    read = {("list", kind.resource.plural, kind.resource.group) for kind in DOCTORS}
    assert granted == {
        *read,
        ("list", EVENTS.plural, EVENTS.group),
        ("get", DEFINITIONS.plural, DEFINITIONS.group),
        ("get", CONFIG_MAPS.plural, CONFIG_MAPS.group),
    }
    assert template(tmp_path, "--set=operator.enabled=false", hooks=True) == {}


def test_helm_test_runs_where_and_as_the_operator_does(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(SET))
    made = template(tmp_path, f"--values={tmp_path / 'values.yaml'}", hooks=True)
    pod, asked = made["Pod", "control", "numazones-doctor"]["spec"], SET["operator"]
    assert pod["containers"][0]["image"] == f"registry.example/operator@sha256:{'0' * 64}"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "role": "control"}
    assert pod["tolerations"] == asked["tolerations"]
    assert pod["imagePullSecrets"] == SET["imagePullSecrets"]


def test_every_component_has_a_value() -> None:
    assert sorted(SWITCHES) == COMPONENTS


def test_chart_and_kustomize_name_the_projects_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    for name in ("exporter", "operator", "extender", "scheduler"):
        image, *_ = yaml.safe_load((ROOT / f"manifests/{name}/kustomization.yaml").read_text())["images"]
        assert image["newTag"] == VERSION


SET: Object = {
    "crds": {"install": False},
    "namespaces": {"create": False},
    "networkPolicies": {"apiServerPorts": [8443]},
    "monitoring": {
        "labels": {"release": "kube-prometheus-stack"},
        "interval": "15s",
        "scrapeAnnotations": True,
    },
    "imagePullSecrets": [{"name": "registry"}],
    "exporter": {
        "namespace": "agents",
        "image": {"repository": "registry.example/exporter", "tag": "v7", "pullPolicy": "Always"},
        "kubeletDir": "/data/kubelet",
        "nodeResourceTopologies": True,
        "recordings": True,
        "podMonitor": True,
        "extraArgs": ["--interval=30s"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "50m"}},
        "nodeSelector": {"numa": "yes"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "seLinuxOptions": {"type": "spc_t"},
        "priorityClassName": "agents",
        "serviceAccount": {"name": "agent", "annotations": {"identity": "a"}},
        "podSecurityContext": {"supplementalGroups": [7]},
        "securityContext": {"seLinuxOptions": {"level": "s0"}},
        "annotations": {"owner": "platform"},
        "podAnnotations": {"note": "one"},
        "podLabels": {"team": "numa", "app.kubernetes.io/name": "other"},
    },
    "operator": {
        "namespace": "control",
        "replicas": 3,
        "image": {"repository": "registry.example/operator", "digest": f"sha256:{'0' * 64}"},
        "admissionGate": True,
        "page": True,
        "eviction": True,
        "podMonitor": True,
        "dashboards": True,
        "runbookURL": "https://docs.my.org/numa/runbooks",
        "extraArgs": ["--rebalance-patience=10m"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"memory": "4Gi"}},
        "nodeSelector": {"role": "control"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "control",
        "serviceAccount": {"name": "controller", "annotations": {"identity": "c"}},
        "podSecurityContext": {"supplementalGroups": [7]},
        "securityContext": {"seLinuxOptions": {"level": "s0"}},
        "annotations": {"owner": "platform"},
        "podAnnotations": {"note": "one"},
        "podLabels": {"team": "numa"},
    },
    "scheduler": {
        "enabled": True,
        "replicas": 3,
        "image": {"repository": "registry.example/kube-scheduler", "pullPolicy": "Always"},
        "extraArgs": ["--extender-unknown-nodes=reject"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "podLabels": {"team": "numa"},
    },
    "extender": {
        "enabled": True,
        "secretName": "certificates",
        "nodeName": "control-plane-1",
        "extraArgs": ["--extender-unknown-nodes=reject"],
        "priorityClassName": "control",
    },
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[Key, Object]:
    """The objects with every value changed."""
    folder = tmp_path_factory.mktemp("chart")
    (folder / "values.yaml").write_text(yaml.safe_dump(SET))
    return template(folder, f"--values={folder / 'values.yaml'}")


def test_values_change_the_exporter(changed: dict[Key, Object]) -> None:
    template = changed["DaemonSet", "agents", "numazones-exporter"]["spec"]["template"]
    pod, asked = template["spec"], SET["exporter"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/exporter:v7"
    assert container["imagePullPolicy"] == "Always"
    assert container["args"][-1] == "--interval=30s"
    assert pod["priorityClassName"] == "agents"
    assert pod["serviceAccountName"] == "agent"
    assert pod["securityContext"]["supplementalGroups"] == [7]
    assert pod["securityContext"]["runAsUser"] == 0
    assert container["securityContext"]["seLinuxOptions"] == {"level": "s0"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert changed["DaemonSet", "agents", "numazones-exporter"]["metadata"]["annotations"] == {
        "owner": "platform"
    }
    assert container["env"][-3:] == [
        {"name": "NUMAZONES_EXPORTER_PUBLISH", "value": "numazones,noderesourcetopologies"},
        {"name": "NUMAZONES_EXPORTER_RECORDINGS", "value": "true"},
        {"name": "A", "value": "b"},
    ]
    assert container["resources"] == asked["resources"]
    assert {"name": "kubelet", "hostPath": {"path": "/data/kubelet", "type": "Directory"}} in pod["volumes"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "numa": "yes"}
    assert (pod["tolerations"], pod["affinity"]) == (asked["tolerations"], asked["affinity"])
    assert pod["imagePullSecrets"] == SET["imagePullSecrets"]
    assert pod["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert template["metadata"]["annotations"]["note"] == "one"
    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "numazones-exporter", "team": "numa"}


def test_links_to_runbooks_lead_where_they_are_served(changed: dict[Key, Object], tmp_path: Path) -> None:
    rules = [
        rule
        for group in changed["PrometheusRule", "control", "numazones"]["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert rules
    for rule in rules:
        expected = f"https://docs.my.org/numa/runbooks/#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == expected
    boards = [
        json.loads(text)
        for key, item in changed.items()
        if key[0] == "ConfigMap" and item["metadata"]["labels"].get("grafana_dashboard")
        for text in item["data"].values()
    ]
    assert {
        variable["query"]
        for board in boards
        for variable in board["templating"]["list"]
        if variable["name"] == "runbooks"
    } == {"https://docs.my.org/numa/runbooks"}
    assert "numazones.example" not in json.dumps(list(changed.values()))
    refused = helm("template", "release", str(CHART), "--set=operator.runbookURL=runbooks", home=tmp_path)
    assert "runbookURL" in refused.stderr


def test_without_an_address_nothing_links_to_runbooks(tmp_path: Path) -> None:
    everything = ("--set=operator.podMonitor=true", "--set=operator.dashboards=true")
    for address in ("", "https://numazones.example/runbooks"):  # the latter is 0.2's default
        objects = template(tmp_path, *everything, f"--set=operator.runbookURL={address}")
        text = json.dumps(list(objects.values()))
        assert "runbook_url" not in text
        assert "numazones.example" not in text
        boards = [
            json.loads(board)
            for item in objects.values()
            if item["metadata"]["labels"].get("grafana_dashboard")
            for board in item["data"].values()
        ]
        assert len(boards) == 4
        for board in boards:
            assert [link["title"] for link in board["links"]] == ["numazones"]
            assert "${runbooks}" not in json.dumps(board)
            assert "runbooks" not in {one["name"] for one in board["templating"]["list"]}


def notes(home: Path, *options: str) -> str:
    shown = helm("install", "release", str(CHART), "--dry-run=client", *options, home=home)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.partition("NOTES:")[2]


def test_notes_tell_what_a_choice_lacks(tmp_path: Path) -> None:
    assert "monitoring.labels.release" not in notes(tmp_path)
    assert "monitoring.labels.release" in notes(tmp_path, "--set=operator.podMonitor=true")
    labelled = ("--set=operator.podMonitor=true", "--set=monitoring.labels.release=prometheus")
    assert "monitoring.labels.release" not in notes(tmp_path, *labelled)
    own = [
        f"--set={program}.image.repository=registry.example/{program}" for program in ("exporter", "operator")
    ]
    assert "No registry has these images" in notes(tmp_path)
    assert "No registry has these images" in notes(tmp_path, *own[:1])
    assert "No registry has these images" not in notes(tmp_path, *own)
    assert "No registry has these images" not in notes(tmp_path, own[0], "--set=operator.enabled=false")
    assert "set extender.nodeName" in notes(tmp_path, "--set=extender.enabled=true")
    placed = ("--set=extender.enabled=true", "--set=extender.nodeName=a")
    assert "set extender.nodeName" not in notes(tmp_path, *placed)


def test_a_stock_kube_prometheus_stack_selects_monitors_and_rules(changed: dict[Key, Object]) -> None:
    """Its Prometheus takes those whose label release is the name of its own release."""
    found = [item for (kind, _, _), item in changed.items() if kind in {"PodMonitor", "PrometheusRule"}]
    assert len(found) == 3
    for item in found:
        assert item["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        for endpoint in item["spec"].get("podMetricsEndpoints", ()):
            assert endpoint["interval"] == "15s"


def test_annotations_name_the_port_that_is_scraped(changed: dict[Key, Object]) -> None:
    workloads = [item for (kind, _, _), item in changed.items() if kind in {"Deployment", "DaemonSet"}]
    assert len(workloads) == 4
    for item in workloads:
        template = item["spec"]["template"]
        containers = (*template["spec"].get("initContainers", ()), *template["spec"]["containers"])
        (port,) = [
            port["containerPort"]
            for container in containers
            for port in container["ports"]
            if port["name"] == "metrics"
        ]
        annotations = template["metadata"]["annotations"]
        assert annotations["prometheus.io/scrape"] == "true"
        assert annotations["prometheus.io/port"] == str(port)


def test_network_policies_open_the_api_servers_ports(changed: dict[Key, Object], tmp_path: Path) -> None:
    policies = {name: item for (kind, _, name), item in changed.items() if kind == "NetworkPolicy"}
    recordings = policies.pop("numazones-exporter-recordings")
    assert recordings["spec"]["policyTypes"] == ["Ingress"]
    assert len(policies) == 4
    for name, item in policies.items():
        ports = {port["port"] for rule in item["spec"]["egress"] for port in rule["ports"]}
        assert ports == {53, 8443} | ({10250} if name == "numazones-exporter" else set())
    options = [
        f"--set={part}=true" for part in ("scheduler.enabled", "extender.enabled", "exporter.recordings")
    ]
    without = template(tmp_path, "--set=networkPolicies.create=false", *options)
    assert "NetworkPolicy" not in {kind for kind, _, _ in without}


def test_service_accounts_have_another_name_wherever_they_are_named(
    changed: dict[Key, Object], tmp_path: Path
) -> None:
    accounts = {(space, name) for kind, space, name in changed if kind == "ServiceAccount"}
    assert accounts >= {("agents", "agent"), ("control", "controller")}
    assert changed["ServiceAccount", "agents", "agent"]["metadata"]["annotations"] == {"identity": "a"}
    for item in changed.values():
        for subject in item.get("subjects", ()):
            assert (subject["namespace"], subject["name"]) in accounts
        if item["kind"] in {"Deployment", "DaemonSet"}:
            pod = item["spec"]["template"]["spec"]
            assert (item["metadata"]["namespace"], pod["serviceAccountName"]) in accounts
    text = json.dumps(list(changed.values()))
    assert ":serviceaccount:agents:agent" in text
    assert "serviceaccount:agents:numazones-exporter" not in text
    without = template(tmp_path, "--set=exporter.serviceAccount.create=false")
    assert ("ServiceAccount", "numazones-system", "numazones-exporter") not in without


def test_empty_namespaces_are_the_releases(tmp_path: Path) -> None:
    options = ("--namespace=numa", "--set=exporter.namespace=", "--set=operator.namespace=")
    extras = ("--set=scheduler.enabled=true", "--set=extender.enabled=true", "--set=operator.dashboards=true")
    objects = template(tmp_path, *options, *extras)
    assert {space for _, space, _ in objects} == {"", "numa", "kube-system"}
    assert "Namespace" not in {kind for kind, _, _ in objects}
    text = yaml.safe_dump_all(objects.values())
    assert "numazones-system" not in text
    assert "namespace: numazones-operator" not in text
    assert "resourceNamespace: numa" in text


def test_values_change_scheduler_and_extender(changed: dict[Key, Object]) -> None:
    scheduler = changed["Deployment", "control", "numazones-scheduler"]["spec"]
    pod = scheduler["template"]["spec"]
    (sidecar,), (container,) = pod["initContainers"], pod["containers"]
    assert scheduler["replicas"] == 3
    assert re.fullmatch(r"registry\.example/kube-scheduler:v\d+\.\d+\.\d+", container["image"])
    assert container["imagePullPolicy"] == "Always"
    digest = f"registry.example/operator@sha256:{'0' * 64}"
    assert sidecar["image"] == digest
    assert sidecar["args"][-1] == "--extender-unknown-nodes=reject"
    assert sidecar["env"] == [{"name": "A", "value": "b"}]
    assert "--exporter-namespace=agents" in sidecar["args"]
    text = changed["ConfigMap", "control", "numazones-scheduler"]["data"]["scheduler.yaml"]
    assert yaml.safe_load(text)["leaderElection"]["resourceNamespace"] == "control"
    pod = changed["Deployment", "control", "numazones-extender"]["spec"]["template"]["spec"]
    assert (pod["nodeName"], pod["priorityClassName"]) == ("control-plane-1", "control")
    assert pod["volumes"][0]["secret"]["secretName"] == "certificates"
    assert pod["containers"][0]["image"] == digest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--set=operator.gateInjection=true", "--kube-version=1.36.2"], "set operator.admissionGate"),
        (
            [
                "--set=operator.gateInjection=true",
                "--set=operator.admissionGate=true",
                "--kube-version=1.35.1",
            ],
            "Kubernetes 1.36, but this is v1.35.1",
        ),
        (["--set=monitoring=null"], "upgrade with --reset-then-reuse-values"),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_cure(
    options: list[str], complaint: str, tmp_path: Path
) -> None:
    done = helm("template", "release", str(CHART), *options, home=tmp_path)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_values_of_chart_0_2_0_still_work(tmp_path: Path) -> None:
    """Laid over those of today: nothing changes that a user of then would have to say anew."""
    old = ROOT / "tests" / "data" / "chart" / "values-0.2.0.yaml"
    assert template(tmp_path, f"--values={old}") == template(tmp_path)


def test_values_change_the_operator(changed: dict[Key, Object]) -> None:
    deployment = changed["Deployment", "control", "numazones-operator"]["spec"]
    template, asked = deployment["template"], SET["operator"]
    (container,) = template["spec"]["containers"]
    assert deployment["replicas"] == 3
    assert container["image"] == f"registry.example/operator@sha256:{'0' * 64}"
    assert "--exporter-namespace=agents" in container["args"]
    assert container["args"][-1] == "--rebalance-patience=10m"
    assert {"name": "NUMAZONES_OPERATOR_ADMISSION_GATE", "value": "true"} in container["env"]
    assert container["env"][-1] == {"name": "A", "value": "b"}
    assert container["resources"] == asked["resources"]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", "role": "control"}
    for name in ("tolerations", "affinity"):
        assert template["spec"][name] == asked[name]
    assert template["metadata"]["annotations"]["note"] == "one"
    assert template["metadata"]["labels"]["team"] == "numa"


def test_other_namespaces_are_used_throughout(changed: dict[Key, Object]) -> None:
    # The second scheduler reads there how API servers authenticate.
    assert {namespace for _, namespace, _ in changed} == {"", "agents", "control", "kube-system"}
    text = yaml.safe_dump_all(changed.values())
    assert "numazones-system" not in text
    assert "namespace: numazones-operator" not in text
    condition = changed["ValidatingAdmissionPolicy", "", "numazones-exporter"]["spec"]["matchConditions"][0]
    assert '"system:serviceaccount:agents:agent"' in condition["expression"]
    condition = changed["ValidatingAdmissionPolicy", "", "numazones-operator"]["spec"]["matchConditions"][0]
    assert '"system:serviceaccount:control:controller"' in condition["expression"]
    assert not {"Namespace", "CustomResourceDefinition"} & {kind for kind, _, _ in changed}


def test_injection_requires_the_rights_of_the_named_operator(tmp_path: Path) -> None:
    options = ("--set=operator.namespace=control", "--set=operator.serviceAccount.name=controller")
    made = template(tmp_path, *FOLDERS["gate-injection"], *options)
    policy = made["MutatingAdmissionPolicy", "", "numazones-admission-gate"]["spec"]
    asked = [
        one["expression"] for one in policy["matchConditions"] if one["name"].startswith("operator-may-")
    ]
    assert len(asked) == 2
    assert all(text.startswith("authorizer.serviceAccount('control', 'controller') ") for text in asked)
    assert ".namespace('control').check('update')" in asked[1]


def test_namespaces_are_named_as_asked(tmp_path: Path) -> None:
    options = ("--set=exporter.namespace=agents", "--set=operator.namespace=control")
    objects = template(tmp_path, *options)
    assert {name for kind, _, name in objects if kind == "Namespace"} == {"agents", "control"}


@pytest.mark.parametrize(("absent", "present"), [("exporter", "operator"), ("operator", "exporter")])
def test_one_program_alone(absent: str, present: str, tmp_path: Path) -> None:
    objects = template(tmp_path, f"--set={absent}.enabled=false", "--set=crds.install=false")
    assert {name for _, _, name in objects if absent in name} == set()
    assert any(present in name for _, _, name in objects)


def test_changed_objects_are_valid_for_kubernetes(changed: dict[Key, Object]) -> None:
    for item in changed.values():
        if "coreos" not in item["apiVersion"]:
            kubernetes_validate.validate(item, "1.36", strict=True)


def leaves(values: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def described(schema: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, part in schema["properties"].items():
        assert part["description"], (*path, name)
        if "properties" in part:
            assert part["additionalProperties"] is False, (*path, name)
            yield from described(part, (*path, name))
        else:
            yield (*path, name)


def test_the_schema_describes_every_value_and_no_other() -> None:
    assert set(described(SCHEMA)) - {("global",)} == set(leaves(VALUES))


def test_every_value_is_explained() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    obvious = {"enabled", "podAnnotations", "podLabels"}
    for before, line in pairwise(lines):
        name, _, value = line.strip().partition(":")
        if value and not name.startswith("#") and name not in obvious:
            assert before.strip().startswith("#"), f"{name} has no comment"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("operator.admissionGat=true", "additional properties 'admissionGat' not allowed"),
        ("operator.replicas=0", "minimum"),
        ("exporter.kubeletDir=var/lib", "does not match pattern"),
        ("exporter.image.digest=latest", "does not match pattern"),
        ("operator.eviction=maybe", "want boolean"),
    ],
)
def test_a_wrong_value_is_rejected_with_its_name(value: str, complaint: str, tmp_path: Path) -> None:
    done = helm("template", "release", str(CHART), "--set", value, home=tmp_path)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert value.partition("=")[0].rpartition(".")[0].replace(".", "/") in done.stderr


async def test_a_release_is_installed_upgraded_with_its_definitions_and_uninstalled(tmp_path: Path) -> None:
    old = tmp_path / "old" / "chart"
    shutil.copytree(CHART, old)  # follows the links, so that the copy can be changed
    zones = old / "files" / "crds" / "numazones.yaml"
    definition = yaml.safe_load(zones.read_text())
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    dropped = columns.pop()
    zones.write_text(yaml.safe_dump(definition))

    async def run(*arguments: str) -> str:
        done = await asyncio.to_thread(helm, *arguments, f"--kubeconfig={kubeconfig}", home=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def published_columns() -> list[Any]:
        found = await client.get(DEFINITIONS, "numazones.numazones.io")
        shown: list[Any] = found["spec"]["versions"][0]["additionalPrinterColumns"]
        return shown

    async with ApiServer() as server, Client(ClusterConfig(server=server.url), user_agent="test") as client:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        said = await run("install", "numazones", str(old))
        assert "kubectl get numazones" in said
        assert await published_columns() == columns
        operator = await client.get(DEPLOYMENTS, "numazones-operator", namespace="numazones-operator")
        assert operator["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"

        await run("upgrade", "numazones", str(CHART), "--set=operator.replicas=3")
        assert await published_columns() == [*columns, dropped]
        operator = await client.get(DEPLOYMENTS, "numazones-operator", namespace="numazones-operator")
        assert operator["spec"]["replicas"] == 3

        await run("uninstall", "numazones")
        with pytest.raises(NotFound):
            await client.get(DEPLOYMENTS, "numazones-operator", namespace="numazones-operator")
        assert await published_columns() == [*columns, dropped]


@pytest.mark.real_apiserver
def test_a_real_api_server_takes_the_release_and_its_upgrade(tmp_path: Path) -> None:
    if not real_apiserver.ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    program()
    with real_apiserver.run(tmp_path) as server:  # of its own: a release adopts nobody else's definitions
        access = f"--kubeconfig={server.kubeconfig}"
        for command in ("install", "upgrade"):
            options = [f"--set={value}=true" for value in SWITCHES.values() if "podMonitor" not in value]
            done = helm(command, "numazones", str(CHART), access, *options, home=tmp_path)
            assert done.returncode == 0, done.stderr
            assert "warning" not in done.stderr.lower(), done.stderr
        server.kubectl("wait", "--for=condition=Established", "crd/numazones.numazones.io")
        assert helm("uninstall", "numazones", access, home=tmp_path).returncode == 0
        assert "numazones.numazones.io" in server.kubectl("get", "crds", "-o", "name")


def test_chart_catalogue_lists_the_defined_kinds() -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    told = {
        (item["name"], item["kind"], item["version"])
        for item in yaml.safe_load(annotations["artifacthub.io/crds"])
    }
    assert told == {(kind.RESOURCE.crd_name, kind.RESOURCE.kind, VERSION_OF_KINDS) for kind in crd.KINDS}


def unpacked(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as content:
        return {member.name: content.extractfile(member).read() for member in content}  # type: ignore[union-attr]


def test_the_archive_holds_what_helms_own_would(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path / "theirs"), home=tmp_path)
    assert done.returncode == 0, done.stderr
    ours = unpacked(package_chart.write(tmp_path))
    theirs = unpacked(tmp_path / "theirs" / f"numazones-{VERSION}.tgz")
    # Helm writes Chart.yaml anew.
    described = "numazones/Chart.yaml"
    assert yaml.safe_load(ours.pop(described)) == yaml.safe_load(theirs.pop(described))
    assert ours == theirs


def test_release_archive_uses_the_releases_images(tmp_path: Path) -> None:
    archive = package_chart.write(tmp_path, "ghcr.io/Some-Body/")
    done = helm("template", "release", str(archive), "--set=extender.enabled=true", home=tmp_path)
    assert done.returncode == 0, done.stderr
    images = set(re.findall(r"image: (\S+)", done.stdout))
    assert images == {
        f"ghcr.io/some-body/numazones-{program}:{VERSION}" for program in ("exporter", "operator")
    }
