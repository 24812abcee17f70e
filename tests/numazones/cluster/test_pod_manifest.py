"""Pods as people write them: checked and completed as the API server would."""

import json
from typing import Any

import pytest

from numazones.cluster import pod_manifest
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_manifest import InvalidManifest
from tests.places import ROOT

LIMITS = {"limits": {"cpu": "5", "memory": "2Gi"}}


def manifest(**container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "x", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}


def test_requests_default_to_limits() -> None:
    pod = ClusterPod.from_manifest(manifest(resources=LIMITS))
    assert pod.requests == {"cpu": 5000, "memory": 2 << 30}
    assert (pod.full_name, pod.uid, pod.priority) == ("default/web", "default/web", 0)
    assert pod.admission is not None
    assert pod.admission.qos.value == "Guaranteed"


def test_pod_template_is_a_pod_without_a_name() -> None:
    assert ClusterPod.from_manifest({"spec": manifest()["spec"]}).full_name == "default/pod"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "expected a Pod, a mapping with metadata and spec, not NoneType"),
        ({**manifest(), "kind": "Deployment"}, "expected a Pod, not a Deployment; pass its pod template"),
        ({**manifest(), "kind": "Ingress"}, "expected a Pod, not an Ingress; pass its pod template"),
        (
            manifest(resources={"request": {"cpu": "5"}}),
            "spec.containers[0].resources.request is not a field of a pod; use limits or requests",
        ),
        (
            manifest(resource=LIMITS),
            "spec.containers[0].resource is not a field of a pod in Kubernetes 1.37; did you mean resources?",
        ),
        (
            {**manifest(), "spec": {**manifest()["spec"], "nodeSelectr": {}}},
            "spec.nodeSelectr is not a field of a pod in Kubernetes 1.37; did you mean nodeSelector?",
        ),
        (
            {**manifest(), "x": 1},
            (
                "x is not a field of a pod in Kubernetes 1.37; check its spelling and indentation, or remove "
                "it to get an answer without it"
            ),
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {"cpu": -1}}}, {"imag": "x"}]}},
            "spec.containers[0].resources.limits.cpu is -1; it must not be below 0",
        ),
        (
            {**manifest(), "metadata": {"anotations": {}}},
            "metadata.anotations is not a field of a pod in Kubernetes 1.37; did you mean annotations?",
        ),
        (
            {**manifest(), "spec": {**manifest()["spec"], "schedulerName": [1]}},
            "this is not a valid manifest (unhashable type: 'list')",
        ),
        (
            {**manifest(), "spec": {**manifest()["spec"], "priority": "high"}},
            "the pod's priority must be an integer, not 'high'",
        ),
    ],
)
def test_mistake_is_named_with_its_field(body: Any, said: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        ClusterPod.from_manifest(body)
    assert str(caught.value) == said


def test_pods_of_other_projects_may_have_fields_of_their_own() -> None:
    body = {"spec": {**manifest()["spec"], "containerConcurrency": 1}}
    assert ClusterPod.from_manifest(body, exact=False).name == "pod"


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (pod_manifest._OF_METADATA, "apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        (pod_manifest._OF_SPECS, "api.core.v1.PodSpec"),
        (pod_manifest._OF_CONTAINERS, "api.core.v1.Container"),
        (pod_manifest._OF_RESOURCES, "api.core.v1.ResourceRequirements"),
    ],
)
def test_known_fields_are_those_of_the_api_server(known: frozenset[str], message: str) -> None:
    fields = json.loads((ROOT / "lab/numazones_apiserver/protobuf_fields.json").read_text())[message]
    assert known == {field[0] for field in fields.values()}
