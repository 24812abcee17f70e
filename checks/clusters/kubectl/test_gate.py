"""``gate``: who waits and why, and opening everything: the program, on an API server, without operator."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from numazones.apimachinery import timestamp
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client import Client, Resource
from numazones_client.resources import LEASES, NAMESPACES, PODS
from numazones_simulator.control_plane import ControlPlane, control_plane
from tests import plugin
from tests.kubectl.live_doctor import serving
from tests.kubectl.small_cluster import cluster as small_cluster
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.yaml_files import documents

FOLDER = ROOT / "manifests" / "gate-injection"
GROUP = "admissionregistration.k8s.io"
INJECTED = {
    "MutatingAdmissionPolicy": Resource(GROUP, "v1", "mutatingadmissionpolicies", namespaced=False),
    "MutatingAdmissionPolicyBinding": Resource(
        GROUP, "v1", "mutatingadmissionpolicybindings", namespaced=False
    ),
}
OURS, OTHER = {"name": "numazones.io/admission"}, {"name": "example.com/wait"}


class Cluster:
    """A cluster in which pods wait, and ``kubectl numazones gate``."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client: Client = plane.client
        self.kubeconfig = plane.kubeconfig
        self.server = plane.server

    def deny(self, verb: str, resource: str, namespace: str) -> None:
        refused = StatusError(403, "Forbidden", "no")
        fault = Fault(verb=verb, resource=resource, namespace=namespace, count=None, error=refused)
        self.server.faults.add(fault)

    async def gate(self, *arguments: str) -> tuple[int, str]:
        return await plugin.run("gate", *arguments, "--kubeconfig", self.kubeconfig)

    async def status(self, *arguments: str) -> dict[str, Any]:
        code, output = await self.gate(*(arguments or ("-A",)), "-o", "json")
        assert code == 0, output
        found: dict[str, Any] = json.loads(output)
        return found

    async def pod(self, name: str, *, namespace: str = "team", **spec: Any) -> dict[str, Any]:
        return await self.client.create(
            PODS, pod_body(name, namespace=namespace, **spec), namespace=namespace
        )

    async def gated(self) -> list[str]:
        pods = await self.client.list(PODS)
        return sorted(
            pod["metadata"]["name"] for pod in pods if OURS in (pod["spec"].get("schedulingGates") or ())
        )

    async def namespace(self, name: str, **labels: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await self.client.create(NAMESPACES, body)

    async def inject(self) -> None:
        for body in documents(FOLDER / "policy.yaml"):
            await self.client.create(INJECTED[body["kind"]], body)

    async def operator(self, *arguments: str, seconds_ago: float | None = 0) -> None:
        """A pod of an operator that is ready, and its Lease, renewed a while ago; None: no Lease."""
        body = pod_body("operator", namespace="numazones-operator", nodeName="n")
        body["metadata"]["labels"] = {"app.kubernetes.io/name": "numazones-operator"}
        body["spec"]["containers"][0]["args"] = list(arguments)
        await self.client.create(PODS, body, namespace="numazones-operator")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.patch(PODS, "operator", ready, namespace="numazones-operator", subresource="status")
        if seconds_ago is None:
            return
        renewed = timestamp.format(datetime.now(UTC) - timedelta(seconds=seconds_ago))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "numazones-operator", "namespace": "numazones-operator"},
            "spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 600, "renewTime": renewed},
        }
        await self.client.create(LEASES, lease, namespace="numazones-operator")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with control_plane(tmp_path) as plane:
        found = Cluster(plane)
        await found.namespace("team", **{"numazones.io/admission-gate": "enabled"})
        await found.namespace("numazones-operator")
        await found.namespace("plain")
        yield found


async def why(cluster: Cluster) -> str:
    return str((await cluster.status())["waiting"][0]["why"])


async def test_it_says_who_waits_since_when_and_why(cluster: Cluster) -> None:
    made = await cluster.pod("a", schedulingGates=[OURS])
    await cluster.pod("free")
    found = await cluster.status()
    assert [(it["name"], it["since"]) for it in found["waiting"]] == [
        ("a", made["metadata"]["creationTimestamp"])
    ]
    assert found["waiting"][0]["why"] == "no operator is running; kubectl apply -k manifests/operator"
    assert found["injection"] == {"on": False, "message": "off: no policy adds the gate to new pods"}
    code, output = await cluster.gate("-n", "team")
    assert code == 0
    assert "team/a" in output
    assert await cluster.gate("-A", "-o", "name") == (0, "pod/a\n")
    assert (await cluster.gate())[1].splitlines()[-1] == (
        "No pods are waiting at the gate in namespace default (1 in other namespaces: use -A)"
    )


async def test_it_says_what_the_operator_lacks(cluster: Cluster) -> None:
    await cluster.pod("a", schedulingGates=[OURS])
    await cluster.operator()
    assert "does not release gated pods" in await why(cluster)


async def test_it_says_that_no_operator_leads(cluster: Cluster) -> None:
    await cluster.pod("a", schedulingGates=[OURS])
    await cluster.operator("--admission-gate", seconds_ago=700)
    found = await cluster.status()
    assert found["waiting"][0]["why"] == "no operator is running"
    said = re.sub("since [^,]*", "since TIME", found["operator"])
    assert said == "no operator is running since TIME, so gated pods are not released. Check its pods and log"


async def test_an_operator_without_leader_election_leads(cluster: Cluster) -> None:
    await cluster.pod("a", schedulingGates=[OURS])
    await cluster.operator("--admission-gate", "--no-leader-elect", seconds_ago=None)
    found = await cluster.status()
    assert found["operator"] == "operator is running without leader election; it releases gated pods"
    assert found["waiting"][0]["why"] == "no prediction yet"


async def test_with_an_operator_what_its_prediction_says_is_shown(cluster: Cluster) -> None:
    await cluster.operator("--admission-gate")
    await cluster.pod("a", schedulingGates=[OURS])
    await cluster.pod("b", schedulingGates=[OTHER, OURS])
    await cluster.pod("c", namespace="plain", schedulingGates=[OURS])
    found = await cluster.status()
    assert found["operator"] == "operator-1 is the leader; it releases gated pods"
    reasons = {it["name"]: it["why"] for it in found["waiting"]}
    assert reasons["a"] == "no prediction yet"
    assert reasons["b"] == "other gates must be removed first: example.com/wait"
    assert reasons["c"].startswith("its namespace does not opt in; kubectl label namespace plain")
    assert [it["name"] for it in (await cluster.status("-n", "plain"))["waiting"]] == ["c"]


async def test_hundreds_of_pods_are_released_at_once(cluster: Cluster) -> None:
    for number in range(300):
        await cluster.pod(f"p{number}", schedulingGates=[OURS])
    code, output = await cluster.gate("release", "--all", "--dry-run")
    assert (code, "would release 300 pods" in output) == (0, True)
    assert len(await cluster.gated()) == 300
    code, output = await cluster.gate("release", "--all")
    assert (code, "released 300 pods" in output) == (0, True)
    assert await cluster.gated() == []
    assert "affinity" not in (await cluster.client.get(PODS, "p0", namespace="team"))["spec"]


async def test_pods_are_released_by_name_or_namespace(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await cluster.pod(name, schedulingGates=[OTHER, OURS])
    await cluster.pod("d", namespace="plain", schedulingGates=[OURS])
    assert (await cluster.gate("release", "team/a", "b", "-n", "team"))[0] == 0
    assert await cluster.gated() == ["c", "d"]
    assert (await cluster.gate("release", "-n", "team"))[0] == 0
    assert await cluster.gated() == ["d"]
    assert (await cluster.client.get(PODS, "a", namespace="team"))["spec"]["schedulingGates"] == [OTHER]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("release",), "name PODs, or use"),
        (("release", "--all", "a"), "-A cannot be combined with names"),
        (("release", "--all", "-n", "team"), "name PODs, or use"),
        (("release", "absent"), "there is no pod absent in namespace default"),
        (("release", "team/free"), "pod team/free does not have the gate"),
        (("off", "-n", "team"), "affects the whole cluster"),
    ],
)
async def test_what_cannot_be_done_is_said(cluster: Cluster, arguments: tuple[str, ...], said: str) -> None:
    await cluster.pod("free")
    code, output = await cluster.gate(*arguments)
    assert (code, said in output) == (2, True), output


async def test_off_stops_the_injection_and_opens_everything(cluster: Cluster) -> None:
    await cluster.inject()
    for number in range(3):
        await cluster.pod(f"p{number}")
    found = await cluster.status()
    assert found["injection"]["on"] is True
    assert len(found["waiting"]) == 3
    code, output = await cluster.gate("off", "--dry-run")
    assert code == 0
    assert "would delete MutatingAdmissionPolicyBinding numazones-admission-gate" in output
    assert len(await cluster.gated()) == 3
    code, output = await cluster.gate("off")
    assert (code, "released 3 pods" in output) == (0, True), output
    await cluster.pod("later")
    assert await cluster.gated() == []
    assert (await cluster.status())["injection"]["on"] is False
    code, output = await cluster.gate("off")
    assert (code, "No pods are waiting at the gate" in output) == (0, True)


async def test_who_may_not_list_pods_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, {"pods"}, small_cluster()) as kubeconfig:
        code, output = await plugin.run("gate", "--kubeconfig", kubeconfig)
    assert code == 2
    assert output.startswith("error: list pods")


async def test_missing_right_is_reported_and_other_namespaces_are_released(cluster: Cluster) -> None:
    await cluster.pod("kept", schedulingGates=[OURS])
    await cluster.pod("goes", namespace="plain", schedulingGates=[OURS])
    cluster.deny("patch", "pods", "team")
    code, output = await cluster.gate("release", "--all")
    assert (code, await cluster.gated()) == (1, ["kept"])
    assert "released 1 pod\n" in output
    assert (
        "error: team/kept is still waiting: you may not patch pods in namespace team "
        "(kubectl auth can-i patch pods -n team)\n"
    ) in output


async def test_missing_right_to_stop_injection_is_reported_and_nothing_released(cluster: Cluster) -> None:
    await cluster.inject()
    await cluster.pod("waits")
    cluster.deny("delete", "mutatingadmissionpolicybindings", "")
    code, output = await cluster.gate("off")
    assert (code, await cluster.gated()) == (2, ["waits"])
    assert output == (
        "error: you may not delete MutatingAdmissionPolicyBinding numazones-admission-gate, so new pods "
        "still get the gate (kubectl auth can-i delete mutatingadmissionpolicybindings); "
        "ask someone with this permission to run the command\n"
    )
