"""The second scheduler's manifests: restricted, consistent, and none of the traps of extenders in them."""

from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from numazones_operator.main import main
from tests.manifests.kustomizations import MANIFESTS, documents, the

BASE = MANIFESTS / "scheduler"
HIGHEST_OF_PLUGINS = 1200
"""Points of all of kube-scheduler's own plugins together (1.36): TaintToleration 3, NodeAffinity,
PodTopologySpread and InterPodAffinity 2, Fit, Balanced and ImageLocality 1, times 100 each."""


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = the("Deployment", BASE)["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def sidecar(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["initContainers"]
    found: dict[str, Any] = only
    return found


@pytest.fixture(scope="module")
def scheduler(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


@pytest.fixture(scope="module")
def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(the("ConfigMap", BASE)["data"]["scheduler.yaml"])
    return found


def test_the_pod_satisfies_the_restricted_pod_security_standard(
    pod: dict[str, Any], sidecar: dict[str, Any], scheduler: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (sidecar, scheduler):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_the_scheduler_begins_once_the_extender_has_read_the_cluster(sidecar: dict[str, Any]) -> None:
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"


def test_only_the_local_scheduler_can_call_the_extender(
    sidecar: dict[str, Any], configuration: dict[str, Any]
) -> None:
    (extender,) = configuration["extenders"]
    address = extender["urlPrefix"].removeprefix("http://")
    assert address.startswith("127.0.0.1:")
    assert f"--extender-address={address}" in sidecar["args"]
    assert int(address.rpartition(":")[2]) not in {port["containerPort"] for port in sidecar["ports"]}


def test_none_of_the_traps_of_extenders_is_in_the_configuration(configuration: dict[str, Any]) -> None:
    """specs/scheduler-extender.md, sections 2, 3 and 5."""
    (extender,) = configuration["extenders"]
    verbs = {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")}
    assert verbs == {"filter", "prioritize", "preempt", "bind"}
    assert configuration["percentageOfNodesToScore"] == 100
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert "managedResources" not in extender
    assert extender["weight"] * 10 > HIGHEST_OF_PLUGINS
    assert [profile["schedulerName"] for profile in configuration["profiles"]] == ["numazones"]


def test_replicas_elect_a_leader_by_a_lease_of_their_own(configuration: dict[str, Any]) -> None:
    election = configuration["leaderElection"]
    rules = [
        rule
        for role in documents(BASE)
        if role["kind"] == "Role" and role["metadata"]["namespace"] == election["resourceNamespace"]
        for rule in role["rules"]
    ]
    assert {"get", "update"} <= {
        verb
        for rule in rules
        for verb in rule["verbs"]
        if rule.get("resourceNames") == [election["resourceName"]]
    }
    assert election["resourceName"] != "kube-scheduler"
    assert the("Deployment", BASE)["spec"]["replicas"] >= 2


def test_selectors_find_the_pods() -> None:
    deployment = the("Deployment", BASE)["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (
        deployment["selector"]["matchLabels"],
        the("PodDisruptionBudget", BASE)["spec"]["selector"]["matchLabels"],
        the("NetworkPolicy", BASE)["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_the_command_understands_its_arguments(sidecar: dict[str, Any]) -> None:
    result = CliRunner().invoke(main, [*sidecar["args"], "--dump-config"])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.output)["lead"] is False


def test_the_configuration_is_mounted_where_the_scheduler_reads_it(
    pod: dict[str, Any], scheduler: dict[str, Any]
) -> None:
    (volume,) = pod["volumes"]
    config_map = the("ConfigMap", BASE)
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    (mount,) = scheduler["volumeMounts"]
    (file,) = config_map["data"]
    assert f"--config={mount['mountPath']}/{file}" in scheduler["command"]
