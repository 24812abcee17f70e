"""Requests of the client, and how it reads the answers."""

import json
from typing import Any

import pytest
from aiohttp import web

from numazones_client import (
    AlreadyExists,
    APIError,
    BadRequest,
    Client,
    ClusterConfig,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NotFound,
    Resource,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UndeclaredField,
    UnknownResource,
)
from numazones_client.resources import LEASES, NODE_RESOURCE_TOPOLOGIES, NODES, NUMAZONES, PODS
from tests.support.client.scripted_server import ScriptedServer, status

TERMINATING = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace x is being terminated"}]}


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (NODES, {}, "/api/v1/nodes"),
        (NODES, {"name": "a"}, "/api/v1/nodes/a"),
        (PODS, {}, "/api/v1/pods"),
        (PODS, {"namespace": "x"}, "/api/v1/namespaces/x/pods"),
        (PODS, {"name": "p", "namespace": "x", "subresource": "log"}, "/api/v1/namespaces/x/pods/p/log"),
        (NUMAZONES, {"name": "z", "subresource": "status"}, "/apis/numazones.io/v1alpha1/numazones/z/status"),
        (LEASES, {"name": "l", "namespace": "n"}, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
        (NODES, {"name": "a/../b"}, "/api/v1/nodes/a%2F..%2Fb"),
    ],
)  # fmt: skip
def test_a_resource_has_the_path_of_the_api(resource: Resource, arguments: dict[str, str], path: str) -> None:
    assert resource.path(**arguments) == path


def test_an_object_cannot_be_addressed_without_its_namespace() -> None:
    with pytest.raises(ValueError, match="pods 'p' needs a namespace"):
        PODS.path("p")
    with pytest.raises(ValueError, match="nodes have no namespace"):
        NODES.path("n", namespace="x")


async def test_apply_names_its_field_manager_and_forces(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.json_response({"kind": "NUMAZone"})]
    body = {"metadata": {"name": "a-numa-0"}, "spec": {}}
    assert await client.apply(NUMAZONES, body, field_manager="exporter", subresource="status") == {
        "kind": "NUMAZone"
    }
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("PATCH", "/apis/numazones.io/v1alpha1/numazones/a-numa-0/status")
    assert asked.query == {"fieldManager": "exporter", "force": "true"}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert asked.json == body


async def test_requests_can_be_made_in_the_name_of_another_user(server: ScriptedServer) -> None:
    server.answers = [web.json_response({"kind": "Node"})]
    config = ClusterConfig(server.url, user="jane", groups=("admins", "night shift"))
    async with Client(config) as client:
        await client.get(NODES, "a")
    assert server.asked[0].headers["Impersonate-User"] == "jane"
    assert server.asked[0].groups == ["admins", "night shift"]


async def test_delete_carries_its_preconditions(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.json_response({})]
    await client.delete(PODS, "p", namespace="x", uid="u", resource_version="7", propagation="Background")
    assert server.asked[0].json["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert server.asked[0].json["propagationPolicy"] == "Background"


async def test_evict_posts_an_eviction_of_that_very_pod(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.json_response({})]
    await client.evict("p", namespace="x", uid="u")
    asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/x/pods/p/eviction")
    assert asked.json == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "x"},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }


async def test_eviction_can_require_the_inspected_pods_version(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [web.json_response({})]
    await client.evict("p", namespace="x", uid="u", resource_version="7")
    assert server.asked[0].json["deleteOptions"] == {"preconditions": {"uid": "u", "resourceVersion": "7"}}


async def test_an_eviction_that_a_budget_forbids_is_reported_at_once(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [
        status(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [{"reason": "DisruptionBudget"}]},
        )
    ]
    with pytest.raises(TooManyRequests) as rejected:
        await client.evict("p", namespace="x")
    assert rejected.value.causes == ("DisruptionBudget",)
    assert len(server.asked) == 1


async def test_field_missing_from_the_definition_differs_from_server_trouble(
    client: Client, server: ScriptedServer
) -> None:
    message = "failed to create typed patch object (/z; numazones.io/v1alpha1, Kind=NUMAZone): .status.new: "
    server.answers = [status(500, "", f"{message}field not declared in schema")] * 9
    with pytest.raises(UndeclaredField, match=r"older than this program: .*kubectl apply -k crds"):
        await client.get(NUMAZONES, "z")


@pytest.mark.parametrize(
    ("code", "reason", "details", "kind", "cure"),
    [
        (400, "BadRequest", {}, BadRequest, "bug in numazones"),
        (403, "Forbidden", {}, Forbidden, "grant get on numazones.numazones.io"),
        (403, "Forbidden", TERMINATING, NamespaceTerminating, "its namespace is being deleted"),
        (404, "NotFound", {"name": "z"}, NotFound, "does not exist, or was deleted"),
        (404, "NotFound", {}, UnknownResource, r"kubectl apply -k crds"),
        (409, "Conflict", {}, Conflict, "read it again"),
        (409, "AlreadyExists", {}, AlreadyExists, "update it instead"),
        (410, "Expired", {}, Gone, "list again"),
        (422, "Invalid", {}, Invalid, "update its definition"),
        (418, "Teapot", {}, APIError, "see the API server's log"),
        (501, "NotImplemented", {}, ServerError, "restarting or overloaded"),
    ],
)
async def test_failures_become_exceptions_that_name_object_and_cure(
    client: Client,
    server: ScriptedServer,
    *,
    code: int,
    reason: str,
    details: dict[str, Any],
    kind: type[APIError],
    cure: str,
) -> None:
    server.answers = [status(code, reason, "because", details=details)]
    with pytest.raises(APIError) as failed:
        await client.get(NUMAZONES, "z")
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert str(failed.value).startswith("get numazones.numazones.io z: because; ")
    assert failed.match(cure)


async def test_a_conflict_over_applied_fields_differs_from_other_conflicts(
    client: Client, server: ScriptedServer
) -> None:
    server.answers = [status(409, "Conflict", details={"causes": [{"reason": "FieldManagerConflict"}]})]
    with pytest.raises(Conflict, match="apply with force, or leave them out"):
        await client.apply(NUMAZONES, {"metadata": {"name": "z"}}, field_manager="me", force=False)


async def test_a_failure_without_a_status_quotes_the_answer(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.Response(status=404, text="404 page not found\n")]
    with pytest.raises(UnknownResource, match=r"z: 404 page not found; install the definition"):
        await client.get(NUMAZONES, "z")
    server.answers = [web.Response(status=404, text="404 page not found\n")]
    with pytest.raises(UnknownResource) as foreign:
        await client.get(NODE_RESOURCE_TOPOLOGIES, "z")
    assert "crds" not in str(foreign.value)


async def test_a_server_that_knows_no_nodes_is_no_api_server(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.Response(status=404, text="404 page not found\n")]
    with pytest.raises(UnknownResource, match="this is not a Kubernetes API server") as raised:
        await client.list(NODES)
    assert "definition" not in str(raised.value)


@pytest.mark.parametrize("text", ["<html>", "[" * 100_000, "9" * 5000], ids=["html", "deep", "long number"])
async def test_an_answer_that_is_no_json_is_the_servers_error(
    client: Client, server: ScriptedServer, text: str
) -> None:
    server.answers = [web.Response(text=text)]
    with pytest.raises(ServerError, match="cannot be read"):
        await client.get(NODES, "n")


async def test_unauthorized_names_the_cure_after_one_renewal(client: Client, server: ScriptedServer) -> None:
    server.answers = [status(401, "Unauthorized", "Unauthorized")]
    with pytest.raises(Unauthorized, match="renew it"):
        await client.get(NODES, "n")
    assert len(server.asked) == 2


async def test_raw_paths_give_bytes(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.Response(text="{}")]
    assert await client.get_raw("/api/v1/nodes/n/proxy/configz", params={"a": "b"}) == b"{}"
    assert server.asked[0].query == {"a": "b"}


async def test_raw_answer_longer_than_the_limit_is_an_error(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.Response(text="x" * 11), web.Response(text="x" * 10)]
    with pytest.raises(APIError, match="more than 10 bytes"):
        await client.get_raw("/api/v1/x", limit=10)
    assert await client.get_raw("/api/v1/x", limit=10) == b"x" * 10


async def test_merge_patch_is_the_default_patch(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.json_response({})]
    await client.patch(NODES, "n", {"metadata": {"labels": {"a": None}}})
    assert server.asked[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_create_and_replace_send_the_object(client: Client, server: ScriptedServer) -> None:
    server.answers = [web.json_response({"metadata": {"name": "l", "resourceVersion": "2"}})]
    lease = {"metadata": {"name": "l"}}
    created = await client.create(LEASES, lease, namespace="n")
    assert created["metadata"]["resourceVersion"] == "2"
    await client.replace(LEASES, created, namespace="n")
    posted, put = server.asked
    assert (posted.method, posted.path) == ("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases")
    assert (put.method, put.path) == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l")
    assert json.loads(put.body) == created
