import re
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from numazones_exporter.main import main
from tests.manifests.kustomizations import MANIFESTS, documents, the, variables

BASE = MANIFESTS / "exporter"
PARTS = MANIFESTS / "components"
PODMONITOR = PARTS / "exporter-podmonitor"
TOPOLOGIES = PARTS / "exporter-noderesourcetopologies"
NAMESPACE = "numazones-system"


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("DaemonSet", BASE)["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


def test_nothing_is_privileged(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()


def test_exporter_runs_as_root_without_capabilities_for_a_stated_reason(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsUser"] == 0
    assert "belong to root" in (BASE / "daemonset.yaml").read_text()


def test_directories_and_kernel_files_are_mounted_read_only(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    volumes = {volume["name"]: volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume}
    types = {volume["path"]: volume["type"] for volume in volumes.values()}
    assert {path for path, kind in types.items() if kind == "Directory"} == {
        *("/sys/devices/system", "/var/lib/kubelet", "/proc/irq")
    }
    assert {path for path, kind in types.items() if kind == "File"} == {
        *("/proc/meminfo", "/proc/stat", "/proc/interrupts")
    }
    mounts = {mount["name"]: mount for mount in container["volumeMounts"] if mount["name"] != "nothing"}
    assert mounts.keys() == volumes.keys()
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    # Where a pod's volume stays mounted in another mount namespace, the kubelet cannot unmount it.
    assert mounts["kubelet"]["mountPropagation"] == "HostToContainer"


def test_empty_directories_hide_the_pods_volumes_and_the_plugins_sockets(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert {"name": "nothing", "emptyDir": {}} in pod["volumes"]
    hidden = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "nothing"]
    # What each kubelet makes when it starts: on a read-only mount no mount point could be made.
    assert hidden == [f"/host/kubelet/{name}" for name in ("pods", "plugins", "plugins_registry")]


def test_exporter_runs_on_every_linux_node_and_is_evicted_last(pod: dict[str, Any]) -> None:
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_it_does_not_take_exclusive_cpus_itself(container: dict[str, Any]) -> None:
    resources = container["resources"]
    assert resources["requests"] != resources["limits"]
    assert "cpu" not in resources["limits"]


def test_probes_and_scrapers_have_separate_ports(container: dict[str, Any]) -> None:
    metrics, probes = container["ports"]
    assert (metrics["name"], probes["name"]) == ("metrics", "probes")
    assert f"--metrics-address=:{metrics['containerPort']}" in container["args"]
    assert f"--probe-address=:{probes['containerPort']}" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "probes"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probes"}
    (ingress,) = the("NetworkPolicy", BASE)["spec"]["ingress"]
    assert [entry["port"] for entry in ingress["ports"]] == ["metrics"]
    assert ingress["from"] == [{"namespaceSelector": {"matchLabels": {"numazones.io/metrics": "allowed"}}}]
    (endpoint,) = the("PodMonitor", PODMONITOR)["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"


def test_the_program_takes_the_flags_it_is_given(container: dict[str, Any]) -> None:
    values = {"NODE_NAME": "worker-3", "NODE_ADDRESS": "192.0.2.3", "KUBERNETES_NAMESPACE": NAMESPACE}
    assert values.keys() == {entry["name"] for entry in container["env"] if "valueFrom" in entry}
    flags = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], flag) for flag in container["args"]]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert "--landlock=best-effort" in flags
    done = CliRunner().invoke(main, [*flags, "--dump-config"])
    assert done.exit_code == 0, done.output
    settings = yaml.safe_load(done.output)
    assert settings["nodeName"] == "worker-3"
    assert settings["leaseNamespace"] == NAMESPACE
    assert settings["kubeletAddress"] == "192.0.2.3"
    assert settings["kubeletDir"] == mounts["kubelet"]
    assert f"{settings['sysfs']}/devices/system" == mounts["sys"]
    for name in ("meminfo", "stat", "interrupts", "irq"):
        assert f"{settings['procfs']}/{name}" == mounts[name]


def test_the_component_publishes_noderesourcetopologies_too(container: dict[str, Any]) -> None:
    done = CliRunner().invoke(main, ["--dump-config"], env=variables(TOPOLOGIES / "publish.yaml"))
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.output)["publish"] == ["numazones", "noderesourcetopologies"]
    assert not [flag for flag in container["args"] if "publish" in flag], "a flag would win over the variable"


def test_selectors_find_the_pods() -> None:
    daemonset = the("DaemonSet", BASE)["spec"]
    labels = daemonset["template"]["metadata"]["labels"]
    for selector in (
        daemonset["selector"]["matchLabels"],
        the("NetworkPolicy", BASE)["spec"]["podSelector"]["matchLabels"],
        the("PodMonitor", PODMONITOR)["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_one_namespace_and_one_service_account_throughout() -> None:
    account = the("ServiceAccount", BASE)["metadata"]["name"]
    assert the("Namespace", BASE)["metadata"]["name"] == NAMESPACE
    for document in [*documents(BASE), *documents(TOPOLOGIES)]:
        assert document["metadata"].get("namespace", NAMESPACE) == NAMESPACE
        for subject in document.get("subjects", []):
            assert subject == {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    assert the("DaemonSet", BASE)["spec"]["template"]["spec"]["serviceAccountName"] == account
    (condition,) = the("ValidatingAdmissionPolicy", BASE)["spec"]["matchConditions"]
    assert f'"system:serviceaccount:{NAMESPACE}:{account}"' in condition["expression"]


def test_every_binding_binds_a_role_that_exists() -> None:
    objects = [*documents(BASE), *documents(TOPOLOGIES)]
    roles = {
        (item["kind"], item["metadata"]["name"])
        for item in objects
        if item["kind"] in {"Role", "ClusterRole"}
    }
    bound = {
        (item["roleRef"]["kind"], item["roleRef"]["name"])
        for item in objects
        if item["kind"].endswith("RoleBinding")
    }
    assert roles == bound


def test_policy_guards_every_resource_that_a_role_can_write() -> None:
    writing = {"create", "update", "patch", "delete", "deletecollection"}
    writable = {
        (group, resource)
        for item in [*documents(BASE), *documents(TOPOLOGIES)]
        for rule in item.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if writing & set(rule["verbs"])
    }
    rules = the("ValidatingAdmissionPolicy", BASE)["spec"]["matchConstraints"]["resourceRules"]
    guarded = {
        (group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
    }
    assert writable == guarded
    assert all(rule["operations"] == ["CREATE", "UPDATE", "DELETE"] for rule in rules)


def test_the_policy_is_bound_and_rejects() -> None:
    binding = the("ValidatingAdmissionPolicyBinding", BASE)["spec"]
    assert binding == {
        "policyName": the("ValidatingAdmissionPolicy", BASE)["metadata"]["name"],
        "validationActions": ["Deny"],
    }
    assert the("ValidatingAdmissionPolicy", BASE)["spec"]["failurePolicy"] == "Fail"
