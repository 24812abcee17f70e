"""The gate's injection, as the embedded API server evaluates the policy that is shipped."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, MultiDict

from checks.programs.manifests.test_chart import CHART
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.forecast import relevant
from numazones_apiserver import ApiServer
from numazones_apiserver.requests import HTTPRequest
from tests.manifests.helm import helm
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.yaml_files import documents

FOLDER = ROOT / "manifests" / "gate-injection"
PATHS = {
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}
OURS = {"name": GATE}


class Cluster:
    """An API server with the policy, and a namespace that opts in."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def send(self, method: str, path: str, body: object = None, *, code: int = 200) -> Any:
        headers = CIMultiDict({"Content-Type": "application/json"})
        sent = HTTPRequest(method, path, MultiDict(), headers, json.dumps(body).encode() if body else b"")
        answer = await self.server.answer(sent)
        assert answer.status == code, answer.body
        return json.loads(answer.body)

    async def post(self, path: str, body: object) -> Any:
        return await self.send("POST", path, body, code=201)

    async def gates(self, body: dict[str, Any], *, namespace: str = "gated") -> list[dict[str, Any]]:
        """Create a pod, and return the gates that it got."""
        made = await self.post(f"/api/v1/namespaces/{namespace}/pods", body)
        return list(made["spec"].get("schedulingGates") or ())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with ApiServer(host=None) as server:
        found = Cluster(server)
        for name, labels in (("numazones-operator", {}), ("gated", dict([OPT_IN])), ("plain", {})):
            metadata = {"name": name, "labels": labels}
            await found.post(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            )
        for document in documents(FOLDER / "policy.yaml"):
            await found.post(PATHS[document["kind"]], document)
        yield found


def pod(name: str = "p", *, resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    body = pod_body(name, namespace="gated", **spec)
    if resources is not None:
        body["spec"]["containers"][0]["resources"] = resources
    return body


GUARANTEED = {"limits": {"cpu": "2", "memory": "1Gi"}}
CASES: dict[str, dict[str, Any]] = {
    "guaranteed": pod(),
    "guaranteed by its limits": pod(resources=GUARANTEED),
    "equal amounts written otherwise": pod(
        resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2000m", "memory": "1024Mi"}}
    ),
    "fractional CPUs": pod(cpu="1500m"),
    "burstable": pod(resources={"requests": {"cpu": "2", "memory": "1Gi"}}),
    "burstable with lower requests": pod(
        resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    ),
    "best effort": pod(resources={}),
    "a device": pod(resources={"limits": {"vendor.example/nic": "1"}}),
    "hugepages": pod(
        resources={"limits": {"hugepages-2Mi": "64Mi", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    ),
    "local storage alone": pod(resources={"requests": {"ephemeral-storage": "1Gi"}}),
    "an init container that is not guaranteed": pod(
        initContainers=[{"name": "init", "image": "registry.example/app", "resources": {}}]
    ),
    "pod-level resources": pod(resources={}),
    "a mark of Koordinator": pod(resources={}, labels={"koordinator.sh/qosClass": "LSR"}),
    "a mark of the topology-aware policy": pod(resources={}),
}
CASES["pod-level resources"]["spec"]["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
CASES["a mark of the topology-aware policy"]["metadata"]["annotations"] = {
    "prefer-isolated-cpus.resource-policy.nri.io/pod": "true"
}

CONCERNED = CASES.keys() - {
    "burstable",
    "burstable with lower requests",
    "best effort",
    "local storage alone",
    "an init container that is not guaranteed",
}


@pytest.mark.parametrize("name", CASES)
async def test_policy_and_operator_agree_on_the_pods_concerned(name: str, cluster: Cluster) -> None:
    """As the pod is stored: what it leaves out has its defaults then."""
    made = await cluster.post("/api/v1/namespaces/gated/pods", CASES[name])
    assert (OURS in (made["spec"].get("schedulingGates") or ())) is relevant(ClusterPod.from_api(made))
    assert relevant(ClusterPod.from_api(made)) is (name in CONCERNED)


async def test_gates_of_others_stay_and_ours_comes_once(cluster: Cluster) -> None:
    other = {"name": "example.com/wait"}
    assert await cluster.gates(pod("a", schedulingGates=[other])) == [other, OURS]
    assert await cluster.gates(pod("b", schedulingGates=[OURS])) == [OURS]


async def test_namespaces_that_do_not_opt_in_are_left_alone(cluster: Cluster) -> None:
    body = pod()
    body["metadata"]["namespace"] = "plain"
    assert await cluster.gates(body, namespace="plain") == []


@pytest.mark.parametrize(
    "body",
    [
        pod(nodeName="worker-1"),
        pod(schedulerName="numazones"),
        pod()
        | {
            "metadata": {
                "name": "p",
                "namespace": "gated",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": "d",
                        "uid": "u",
                        "controller": True,
                    }
                ],
            }
        },
    ],
    ids=["has a node", "of the scheduler that asks first", "of a DaemonSet"],
)
async def test_pods_that_cannot_wait_for_a_node_are_left_alone(
    body: dict[str, Any], cluster: Cluster
) -> None:
    assert await cluster.gates(body) == []


async def test_static_pods_are_shown_as_they_are(cluster: Cluster) -> None:
    """A mirror pod has its node from the start."""
    body = pod(nodeName="worker-1")
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    assert await cluster.gates(body) == []


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job"])
async def test_pods_of_other_controllers_wait(kind: str, cluster: Cluster) -> None:
    body = pod()
    owner = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    assert await cluster.gates(body) == [OURS]


async def test_without_its_binding_nothing_is_injected(cluster: Cluster) -> None:
    await cluster.send("DELETE", f"{PATHS['MutatingAdmissionPolicyBinding']}/numazones-admission-gate")
    assert await cluster.gates(pod()) == []


async def test_whoever_uninstalls_the_chart_leaves_no_injection_behind(tmp_path: Path) -> None:
    """Helm deletes the operator's rights, without which nothing is injected, before other things."""

    async def run(*arguments: str) -> str:
        options = (f"--kubeconfig={kubeconfig}", "--debug")
        done = await asyncio.to_thread(helm, *arguments, *options, home=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stderr

    async with ApiServer() as server:
        cluster = Cluster(server)
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        switches = ("--set=operator.admissionGate=true", "--set=operator.gateInjection=true")
        await run("install", "numazones", str(CHART), *switches)
        metadata = {"name": "gated", "labels": dict([OPT_IN])}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await cluster.post("/api/v1/namespaces", namespace)
        assert await cluster.gates(pod("before")) == [OURS]
        said = await run("uninstall", "numazones")
        assert await cluster.gates(pod("after")) == []
        for path in (PATHS["MutatingAdmissionPolicy"], PATHS["MutatingAdmissionPolicyBinding"]):
            assert (await cluster.send("GET", path))["items"] == []
    deleted = [
        said.index(f'starting delete resource" {of} name={name} kind={kind}')
        for of, name, kind in (
            ("namespace=numazones-operator", "numazones-operator", "Deployment"),
            ("namespace=numazones-operator", "numazones-operator", "RoleBinding"),
            ('namespace=""', "numazones-operator-admission-gate", "ClusterRoleBinding"),
            ('namespace=""', "numazones-admission-gate", "MutatingAdmissionPolicy"),
        )
    ]
    assert deleted == sorted(deleted)
