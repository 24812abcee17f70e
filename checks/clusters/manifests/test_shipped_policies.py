"""The admission policies that are shipped, as the embedded API server evaluates them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from multidict import CIMultiDict, MultiDict

from numazones_apiserver import ApiServer, WriteOptions
from numazones_apiserver.requests import HTTPRequest
from tests.places import ROOT
from tests.yaml_files import documents

ZONES = "/apis/numazones.io/v1alpha1/numazones"
EXPORTER = {
    "Impersonate-User": "system:serviceaccount:numazones-system:numazones-exporter",
    "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "node-a",
}
OPERATOR = {"Impersonate-User": "system:serviceaccount:numazones-operator:numazones-operator"}
ACCOUNTS = ("numazones-operator", "numazones-extender", "numazones-scheduler")
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": ""}


def zone(name: str = "node-a-numa-0", *, node: str = "node-a", numa_id: int = 0, **metadata: Any) -> Any:
    labels = {"numazones.io/node": "node-a"}
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "NUMAZone",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [OWNER], **metadata},
        "spec": {"nodeName": node, "numaID": numa_id},
    }


class Requests:
    """Requests to a server that has the definitions and policies of the project."""

    def __init__(self, server: ApiServer, owner: str) -> None:
        self.server, self.owner = server, owner

    async def send(self, method: str, path: str, body: Any, user: dict[str, str]) -> tuple[int, str]:
        if method == "POST":
            # What is owned by nobody who exists would be collected.
            owners = [{**one, "uid": self.owner} for one in body["metadata"]["ownerReferences"]]
            body = {**body, "metadata": {**body["metadata"], "ownerReferences": owners}}
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = CIMultiDict({"Content-Type": media, **user})
        sent = HTTPRequest(method, path, MultiDict(), headers, json.dumps(body).encode() if body else b"")
        answer = await self.server.answer(sent)
        return answer.status, json.loads(answer.body).get("message", "")


def shipped() -> list[Any]:
    """The definitions and the admission policies of the project."""
    files = [
        *sorted((ROOT / "crds").glob("*[!n].yaml")),
        *sorted(ROOT.glob("manifests/**/admissionpolicy.yaml")),
    ]
    return [body for path in files for body in documents(path)]


@pytest.fixture
async def requests() -> AsyncIterator[Requests]:
    async with ApiServer(host=None) as server:
        for body in shipped():
            kind = server.registry.by_kind(body["apiVersion"], body["kind"])
            assert kind is not None, body["kind"]
            server.writes.create(kind, "", body, WriteOptions("test"))
        await server.settle()
        node = server.writes.create(
            server.kind("nodes"), "", {"metadata": {"name": "node-a"}}, WriteOptions("test")
        )
        yield Requests(server, node["metadata"]["uid"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (zone(), ""),
        (zone("node-b-numa-0"), "its name and spec must be those of this node"),
        (zone(node="node-b"), "its name and spec must be those of this node"),
        (zone(numa_id=1), "its name and spec must be those of this node"),
        (
            zone(labels={"numazones.io/node": "node-b"}),
            "the label numazones.io/node of numazones node-a-numa-0",
        ),
        (zone(labels={}), "the label numazones.io/node of numazones node-a-numa-0"),
        (zone(ownerReferences=[]), "must be the Node node-a"),
        (zone(ownerReferences=[{**OWNER, "name": "node-b"}]), "must be the Node node-a"),
    ],
)
async def test_an_exporter_writes_the_zones_of_its_own_node(requests: Requests, body: Any, why: str) -> None:
    code, message = await requests.send("POST", ZONES, body, EXPORTER)
    assert (code, why in message) == (403 if why else 201, True), message
    assert (await requests.send("POST", ZONES, zone("node-c-numa-0", node="node-c"), {}))[0] == 201


async def test_an_exporter_needs_a_token_that_names_its_node(requests: Requests) -> None:
    unbound = {"Impersonate-User": EXPORTER["Impersonate-User"]}
    code, message = await requests.send("POST", ZONES, zone(), unbound)
    assert (code, "the token is bound to no node" in message) == (403, True)


async def test_an_exporter_deletes_the_zones_of_its_own_node(requests: Requests) -> None:
    other = {**EXPORTER, "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "node-b"}
    await requests.send("POST", ZONES, zone(), EXPORTER)
    code, message = await requests.send("DELETE", f"{ZONES}/node-a-numa-0", None, other)
    assert (code, "the exporter of node node-b may not write" in message) == (403, True)
    assert (await requests.send("DELETE", f"{ZONES}/node-a-numa-0", None, EXPORTER))[0] == 200


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"silence": {"state": "Silent", "since": "2026-01-31T08:00:00Z", "message": "it is silent"}}, 200),
        ({"snapshot": "forged"}, 403),
        ({"podsFingerprint": "new"}, 403),
    ],
)
async def test_the_operator_writes_silence_and_placement_alone(
    requests: Requests, status: Any, code: int
) -> None:
    await requests.send("POST", ZONES, zone(), EXPORTER)
    path = f"{ZONES}/node-a-numa-0"
    await requests.send("PATCH", f"{path}/status", {"status": {"snapshot": "s"}}, EXPORTER)
    found, message = await requests.send("PATCH", f"{path}/status", {"status": status}, OPERATOR)
    assert found == code, message
    assert (await requests.send("DELETE", path, None, OPERATOR))[0] == 403


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"metadata": {"annotations": {"numazones.io/released": "2026-01-31T08:00:00Z"}}}, ""),
        ({"spec": {"schedulingGates": []}}, ""),
        ({"spec": {"containers": [{"name": "main", "image": "miner"}]}}, "the images of pod victim"),
        ({"spec": {"initContainers": [{"name": "first", "image": "miner"}]}}, "the images of pod victim"),
        ({"metadata": {"labels": {"app": "payments"}}}, "labels, owners or finalizers of pod victim"),
        ({"metadata": {"labels": None}}, "labels, owners or finalizers of pod victim"),
        ({"metadata": {"finalizers": ["example.com/never"]}}, "labels, owners or finalizers of pod victim"),
    ],
)
async def test_who_may_patch_pods_cannot_take_them_over(
    requests: Requests, account: str, patch: Any, why: str
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "victim", "labels": {"app": "web"}, "ownerReferences": []},
        "spec": {
            "initContainers": [{"name": "first", "image": "a"}],
            "containers": [{"name": "main", "image": "b"}],
            "schedulingGates": [{"name": "numazones.io/admission"}],
        },
    }
    code, message = await requests.send("POST", pods, pod, {})
    assert code == 201, message
    user = {"Impersonate-User": f"system:serviceaccount:numazones-operator:{account}"}
    code, message = await requests.send("PATCH", f"{pods}/victim", patch, user)
    assert (code, why in message) == (403 if why else 200, True), message
