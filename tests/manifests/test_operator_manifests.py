"""The operator's manifests: valid, restricted, consistent, and with no right that it does not use."""

from typing import Any

import pytest
from click.testing import CliRunner

from numazones_operator.main import main
from tests.manifests.kustomizations import MANIFESTS, documents, the, variables

BASE = MANIFESTS / "operator"
PARTS = MANIFESTS / "components"
GATE = PARTS / "operator-admission-gate"
PODMONITOR = PARTS / "operator-podmonitor"
PAGE = PARTS / "operator-page"
EVICTION = PARTS / "operator-eviction"
NAMESPACE = "numazones-operator"


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment", BASE)["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


def test_the_pod_satisfies_the_restricted_pod_security_standard(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & pod.keys()
    assert the("Namespace", BASE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_replicas_keep_apart_and_not_all_go_at_once(pod: dict[str, Any]) -> None:
    deployment = the("Deployment", BASE)["spec"]
    assert deployment["replicas"] >= 2
    budget = the("PodDisruptionBudget", BASE)["spec"]
    assert budget["maxUnavailable"] < deployment["replicas"]
    labels = deployment["template"]["metadata"]["labels"]
    terms = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    keys = [term["podAffinityTerm"]["topologyKey"] for term in terms]
    assert keys[0] == "kubernetes.io/hostname"
    for selector in (
        deployment["selector"]["matchLabels"],
        budget["selector"]["matchLabels"],
        the("NetworkPolicy", BASE)["spec"]["podSelector"]["matchLabels"],
        *(term["podAffinityTerm"]["labelSelector"]["matchLabels"] for term in terms),
    ):
        assert selector.items() <= labels.items()


def test_the_monitor_selects_every_deployment_with_the_operators_metrics() -> None:
    (expression,) = the("PodMonitor", PODMONITOR)["spec"]["selector"]["matchExpressions"]
    deployments = [the("Deployment", MANIFESTS / name) for name in ("operator", "scheduler", "extender")]
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in deployments]
    assert expression["operator"] == "In"
    assert expression["values"] == [label[expression["key"]] for label in labels]


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


def test_the_command_understands_its_arguments(container: dict[str, Any]) -> None:
    names = {entry["name"] for entry in container["env"]}
    arguments = container["args"]
    for name in names:
        arguments = [argument.replace(f"$({name})", "some-name") for argument in arguments]
    result = CliRunner().invoke(main, [*arguments, "--dump-config"])
    assert result.exit_code == 0, result.output
    assert 'namespace: "some-name"  # flag' in result.output
    assert "admissionGate: false  # default" in result.output


def test_the_component_switches_the_gate_on(container: dict[str, Any]) -> None:
    result = CliRunner().invoke(main, ["--dump-config"], env=variables(GATE / "gate.yaml"))
    assert result.exit_code == 0, result.output
    assert "admissionGate: true  # environment" in result.output
    assert not [flag for flag in container["args"] if "gate" in flag], "a flag would win over the variable"


def test_page_is_on_loopback_with_a_name_to_forward_to(container: dict[str, Any]) -> None:
    result = CliRunner().invoke(main, ["--dump-config"], env=variables(PAGE / "page.yaml"))
    assert result.exit_code == 0, result.output
    assert 'pageAddress: "127.0.0.1:9408"  # environment' in result.output
    assert not [flag for flag in container["args"] if "page" in flag], "a flag would win over the variable"
    service = the("Service", PAGE)["spec"]
    assert service["ports"] == [{"name": "page", "port": 9408, "targetPort": 9408}]
    labels = the("Deployment", BASE)["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def test_every_binding_binds_a_role_that_exists_to_the_operator() -> None:
    objects = [*documents(BASE), *documents(GATE), *documents(EVICTION)]
    roles = {
        (item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))
        for item in objects
        if item["kind"] in {"Role", "ClusterRole"}
    }
    bound = {
        (item["roleRef"]["kind"], item["roleRef"]["name"], item["metadata"].get("namespace"))
        for item in objects
        if item["kind"].endswith("RoleBinding")
    }
    assert roles == bound
    account = the("ServiceAccount", BASE)["metadata"]["name"]
    for item in objects:
        for subject in item.get("subjects", []):
            assert subject == {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
