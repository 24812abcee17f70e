"""``doctor`` and ``live`` against a real kube-apiserver: its access reviews, its watches, its definitions."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_numazones.live.app import Live
from kubectl_numazones.reading.source import Source
from tests import real_apiserver
from tests.kubectl.live_doctor import doctor, of
from tests.kubectl.live_screen import until
from tests.kubectl.small_cluster import cluster
from tests.places import ROOT
from tests.real_apiserver import RealAPIServer

NAMESPACE, USER = "team", "reader"
READS = {"": ["nodes", "pods", "namespaces"], "numazones.io": ["numazones"]}

pytestmark = pytest.mark.real_apiserver


def make(server: RealAPIServer, body: dict[str, Any]) -> None:
    """Create an object and write its status."""
    server.kubectl("create", "-f", "-", stdin=json.dumps({key: body[key] for key in body if key != "status"}))
    if "status" in body:
        namespace = body["metadata"].get("namespace")
        where = [f"--namespace={namespace}"] if namespace else []
        patch = json.dumps({"status": body["status"]})
        name = f"{body['kind'].lower()}/{body['metadata']['name']}"
        server.kubectl(*where, "patch", name, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealAPIServer]:
    """A server of its own: others expect none of these objects."""
    if not real_apiserver.ASSETS:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-apiserver, etcd and kubectl")
    (tmp_path / "server").mkdir()
    with real_apiserver.run(tmp_path / "server") as running:
        yield running


@pytest.fixture
def filled(server: RealAPIServer, tmp_path: Path) -> tuple[RealAPIServer, Path]:
    """The small cluster on a real server, and a kubeconfig of somebody who may read only some of it."""
    server.kubectl("apply", "-k", str(ROOT / "crds"))
    crds = ["numazones", "admissionpredictions", "rebalancepolicies", "rebalancerecommendations"]
    server.kubectl("wait", "--for=condition=Established", *(f"crd/{name}.numazones.io" for name in crds))
    make(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for body in cluster():
        if body["kind"] != "Pod" or body["metadata"]["name"] != "waiting":
            make(server, without_uid(body))
    server.kubectl("-n", NAMESPACE, "create", "serviceaccount", USER)
    rules = [
        {"apiGroups": [group], "resources": names, "verbs": ["list", "watch"]}
        for group, names in READS.items()
    ]
    rbac = "rbac.authorization.k8s.io"
    make(
        server,
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": USER}, "rules": rules},
    )
    account = f"--serviceaccount={NAMESPACE}:{USER}"
    server.kubectl("create", "clusterrolebinding", USER, f"--clusterrole={USER}", account)
    token = server.kubectl("-n", NAMESPACE, "create", "token", USER).strip()
    return server, server.kubeconfig_for(token, tmp_path / "reader.kubeconfig")


def without_uid(body: dict[str, Any]) -> dict[str, Any]:
    """Without what only the server gives; images, which a real server asks for."""
    metadata = {
        key: value for key, value in body["metadata"].items() if key not in {"uid", "creationTimestamp"}
    }
    body = {**body, "metadata": metadata}
    if body["kind"] == "Pod":
        containers = [{**item, "image": "registry.example/app"} for item in body["spec"]["containers"]]
        body["spec"] = {**body["spec"], "containers": containers}
    return body


async def test_doctor_and_live_on_a_real_api_server(filled: tuple[RealAPIServer, Path]) -> None:
    server, reader = filled
    report, _ = await doctor(server.kubeconfig)
    assert of(report, "access") == of(report, "definitions") == []
    assert "access" not in report["notChecked"]

    report, code = await doctor(reader)
    denied = {subjects[0] for _, subjects, _ in of(report, "access")}
    assert {"list leases.coordination.k8s.io", "list replicasets.apps"} <= denied
    assert not {"list nodes", "list pods", "list namespaces", "list numazones.numazones.io"} & denied
    assert code == 1
    assert "leases" in report["notChecked"]

    # Whoever may read what is needed follows the cluster, whatever else is denied.
    app = Live(Source(kubeconfig=reader), None)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, r"worker-1 +0 ")
        await pilot.press("2")
        body = next(it for it in cluster() if it["metadata"]["name"] == "waiting")
        await asyncio.to_thread(make, server, without_uid(body))
        await until(pilot, r"team/waiting +1 +0 ")
        await asyncio.to_thread(server.kubectl, "-n", NAMESPACE, "delete", "pod", "waiting")
        await until(pilot, r"2 Stuck pods 1 ")
        await pilot.press("q")
