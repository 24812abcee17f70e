"""Our admission policies that count as in force, by the shipped manifests."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones_operator.mirror.admission_policies import (
    SETTLE_SECONDS,
    AdmissionPolicies,
    AdmissionPolicy,
    PolicyBinding,
)
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.yaml_files import documents

MADE = {"creationTimestamp": "2026-01-31T08:00:00Z"}
LATER = "2026-01-31T08:01:00Z"
OPTED_IN = {"numazones.io/admission-gate": "enabled"}
RESERVED = documents(ROOT / "manifests/operator/podpolicies.yaml")[2:]
INJECTION = documents(ROOT / "manifests/gate-injection/policy.yaml")
assert SETTLE_SECONDS == 60.0


def policies(policy: Any, binding: Any, *, known: bool = True) -> AdmissionPolicies:
    found = AdmissionPolicies()
    found.known = lambda: known
    tables = {resource.plural: table for resource, _, table in found.mirrored(injection=True)}
    for body, kind, plural in (
        (policy, AdmissionPolicy, "admissionpolicies"),
        (binding, PolicyBinding, "admissionpolicybindings"),
    ):
        stored = {**body, "metadata": {**body["metadata"], **MADE}}
        prefix = "mutating" if body["kind"].startswith("Mutating") else "validating"
        tables[f"{prefix}{plural}"].put(kind.from_api(stored))
    return found


def pod(created: str = LATER, **spec: Any) -> ClusterPod:
    body = pod_body("p", **spec)
    body["metadata"]["creationTimestamp"] = created
    return ClusterPod.from_api(body)


def changed(kind: int, change: Callable[[Any], Any]) -> tuple[Any, Any]:
    bodies = deepcopy(RESERVED)
    change(bodies[kind]["spec"])
    return bodies[0], bodies[1]


def test_shipped_policy_proves_releases_of_pods_that_came_after_it() -> None:
    found = policies(*RESERVED)
    assert found.proves(pod())
    assert not found.proves(pod("2026-01-31T08:00:59Z"))
    assert not policies(*RESERVED, known=False).proves(pod())
    assert not AdmissionPolicies().proves(pod())


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (0, lambda spec: spec.update(failurePolicy="Ignore")),
        (0, lambda spec: spec.update(paramKind={"kind": "ConfigMap"})),
        (0, lambda spec: spec["matchConstraints"].update(namespaceSelector={"matchLabels": {"a": "b"}})),
        (0, lambda spec: spec["matchConstraints"].update(objectSelector={"matchLabels": {"a": "b"}})),
        (0, lambda spec: spec["matchConstraints"].update(excludeResourceRules=[{"resources": ["pods"]}])),
        (0, lambda spec: spec["matchConstraints"]["resourceRules"][0].update(operations=["CREATE"])),
        (0, lambda spec: spec["matchConstraints"]["resourceRules"][0].update(resources=["pods/status"])),
        (1, lambda spec: spec.update(validationActions=["Audit"])),
        (1, lambda spec: spec.update(policyName="another")),
        (1, lambda spec: spec.update(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}})),
    ],
)
def test_a_weakened_policy_or_binding_proves_nothing(kind: int, change: Callable[[Any], Any]) -> None:
    assert not policies(*changed(kind, change)).proves(pod())


def test_what_an_api_server_fills_in_weakens_nothing() -> None:
    bodies = deepcopy(RESERVED)
    bodies[0]["spec"]["matchConstraints"] |= {
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}
    }  # fmt: skip
    bodies[0]["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = "*"
    bodies[1]["spec"]["matchResources"] = {"matchPolicy": "Equivalent", "namespaceSelector": {}}
    assert policies(*bodies).proves(pod())


def test_shipped_policy_gates_numa_pods_of_opted_in_namespaces() -> None:
    found = policies(*INJECTION)
    assert found.gates(pod(), OPTED_IN)
    assert not found.gates(pod(), {})
    assert not found.gates(pod(schedulerName="numazones"), OPTED_IN)
    assert not policies(INJECTION[0], {**INJECTION[1], "spec": {"policyName": "b"}}).gates(pod(), OPTED_IN)
    assert not AdmissionPolicies().gates(pod(), OPTED_IN)
