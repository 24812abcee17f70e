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

    async def send(
        self, method: str, path: str, body: Any, user: dict[str, str], **query: str
    ) -> tuple[int, str]:
        if method == "POST":
            # What is owned by nobody who exists would be collected.
            owners = [{**one, "uid": self.owner} for one in body["metadata"]["ownerReferences"]]
            body = {**body, "metadata": {**body["metadata"], "ownerReferences": owners}}
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = CIMultiDict({"Content-Type": media, **user})
        sent = HTTPRequest(
            method, path, MultiDict(query), headers, json.dumps(body).encode() if body else b""
        )
        answer = await self.server.answer(sent)
        return answer.status, json.loads(answer.body).get("message", "")


def shipped() -> list[Any]:
    """The definitions and the admission policies of the project."""
    files = [
        *sorted((ROOT / "crds").glob("*[!n].yaml")),
        *sorted(ROOT.glob("manifests/**/admissionpolicy.yaml")),
        ROOT / "manifests/operator/podpolicies.yaml",
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
    assert (code, "the token is not bound to a node" in message) == (403, True)


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
        ({"dynamicResources": {"drivers": []}}, 200),
        ({"snapshot": "forged"}, 403),
        ({"podsFingerprint": "new"}, 403),
    ],
)
async def test_the_operator_writes_its_own_parts_of_zones_alone(
    requests: Requests, status: Any, code: int
) -> None:
    await requests.send("POST", ZONES, zone(), EXPORTER)
    path = f"{ZONES}/node-a-numa-0"
    await requests.send("PATCH", f"{path}/status", {"status": {"snapshot": "s"}}, EXPORTER)
    found, message = await requests.send("PATCH", f"{path}/status", {"status": status}, OPERATOR)
    assert found == code, message
    assert (await requests.send("DELETE", path, None, OPERATOR))[0] == 403


PODS = "/api/v1/namespaces/default/pods"
RELEASED, SINCE = "numazones.io/admission-released", "numazones.io/admissible-since"
TIME = "2026-01-31T08:00:00Z"
NARROWED: Any = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
            ]
        }
    }
}
METADATA, ANNOTATION, SPEC, GATE = (
    "may change only its own annotations in the metadata of pod victim",
    "may change only its own annotations of pod victim",
    " the spec of pod victim",
    "may remove only the scheduling gate numazones.io/admission from pod victim",
)


async def make_victim(requests: Requests, **metadata: Any) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "victim", "labels": {"app": "web"}, "ownerReferences": [], **metadata},
        "spec": {
            "initContainers": [{"name": "first", "image": "a"}],
            "containers": [{"name": "main", "image": "b"}],
            "schedulingGates": [{"name": "example.com/quota"}, {"name": "numazones.io/admission"}],
        },
    }
    code, message = await requests.send("POST", PODS, pod, {})
    assert code == 201, message


def account_of(name: str) -> dict[str, str]:
    return {"Impersonate-User": f"system:serviceaccount:numazones-operator:{name}"}


ALL = dict.fromkeys
CHANGES: tuple[tuple[Any, dict[str, str]], ...] = (
    ({"metadata": {"annotations": {SINCE: TIME}}}, {}),
    ({"metadata": {"annotations": {RELEASED: TIME}}}, ALL(ACCOUNTS[1:], ANNOTATION)),
    ({"metadata": {"annotations": {"example.com/owner": "eve"}}}, ALL(ACCOUNTS, ANNOTATION)),
    ({"metadata": {"annotations": None}}, ALL(ACCOUNTS, ANNOTATION)),
    ({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}}, ALL(ACCOUNTS[1:], SPEC)),
    ({"spec": {"schedulingGates": []}}, {**ALL(ACCOUNTS[1:], SPEC), ACCOUNTS[0]: GATE}),
    ({"spec": {"affinity": NARROWED}}, ALL(ACCOUNTS[1:], SPEC)),
    ({"spec": {"activeDeadlineSeconds": 1}}, ALL(ACCOUNTS, SPEC)),
    ({"spec": {"nodeSelector": {"a": "b"}}}, ALL(ACCOUNTS, SPEC)),
    ({"spec": {"containers": [{"name": "main", "image": "miner"}]}}, ALL(ACCOUNTS, SPEC)),
    ({"spec": {"initContainers": [{"name": "first", "image": "miner"}]}}, ALL(ACCOUNTS, SPEC)),
    ({"metadata": {"labels": {"app": "payments"}}}, ALL(ACCOUNTS, METADATA)),
    ({"metadata": {"labels": None}}, ALL(ACCOUNTS, METADATA)),
    ({"metadata": {"finalizers": ["example.com/never"]}}, ALL(ACCOUNTS, METADATA)),
)
"""A patch of a pod, and why it is denied to which of the accounts."""
STATUS_CHANGES: tuple[tuple[Any, bool], ...] = (
    ({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Full"}]}}, True),
    ({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}, True),
    ({"status": {"nominatedNodeName": "node-a"}}, True),
    ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
    ({"status": {"phase": "Failed"}}, False),
    ({"status": {"podIP": "192.0.2.1"}}, False),
    ({"metadata": {"labels": {"app": "payments"}}}, False),
    ({"metadata": {"finalizers": ["example.com/never"]}}, False),
    ({"metadata": {"annotations": {"example.com/owner": "eve"}}}, False),
)  # fmt: skip
"""A patch of a pod's status, and whether the scheduler may make it; the other accounts may make none."""


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_programs_change_gate_node_affinity_and_own_annotations_alone(
    requests: Requests, account: str
) -> None:
    await make_victim(requests, annotations={"example.com/owner": "alice"})
    for patch, denied in CHANGES:
        path, user = f"{PODS}/victim", account_of(account)
        code, message = await requests.send("PATCH", path, patch, user, dryRun="All")
        found = (code, denied.get(account, "") in message)
        assert found == (403 if account in denied else 200, True), (patch, message)


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_scheduler_writes_only_two_conditions_and_nomination(requests: Requests, account: str) -> None:
    await make_victim(requests)
    for patch, schedulers in STATUS_CHANGES:
        path, user = f"{PODS}/victim/status", account_of(account)
        code, message = await requests.send("PATCH", path, patch, user, dryRun="All")
        allowed = schedulers and account == ACCOUNTS[2]
        denied = "numazones may not change" in message or "numazones may change only" in message
        found = (code, denied)
        assert found == (200 if allowed else 403, not allowed), (patch, message)


@pytest.mark.parametrize(
    ("key", "subresource", "user"),
    [(RELEASED, "", {"Impersonate-User": "eve"}), (RELEASED, "/status", {}), (SINCE, "", {})],
)
async def test_annotations_of_our_programs_are_denied_to_everybody_else(
    requests: Requests, key: str, subresource: str, user: dict[str, str]
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "squat", "annotations": {key: TIME}, "ownerReferences": []},
        "spec": {"containers": [{"name": "main", "image": "b"}]},
    }
    code, message = await requests.send("POST", PODS, pod, user)
    assert (code, "only numazones may write the annotations" in message) == (403, True), message
    await make_victim(requests)
    path = f"{PODS}/victim"

    async def annotate(key: str, value: str | None, user: dict[str, str], subresource: str = "") -> int:
        patch = {"metadata": {"annotations": {key: value}}}
        return (await requests.send("PATCH", path + subresource, patch, user))[0]

    assert await annotate(key, TIME, user, subresource) == 403
    assert await annotate("descheduler.alpha.kubernetes.io/prefer-no-eviction", "true", user) == 200
    assert await annotate(key, TIME, account_of(ACCOUNTS[0])) == 200
    assert await annotate(key, "2026-01-31T09:00:00Z", user, subresource) == 403
    assert await annotate(key, None, user, subresource) == 403
    assert await annotate("example.com/team", "blue", user, subresource) == 200
