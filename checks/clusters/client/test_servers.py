"""The client against API servers: the embedded one always, a real one where there is one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from numazones_apiserver import ApiServer
from numazones_client import (
    AlreadyExists,
    Client,
    ClusterConfig,
    Conflict,
    Invalid,
    NotFound,
    Resource,
    Unauthorized,
    UnknownResource,
    from_kubeconfig,
)
from numazones_client.config import StaticToken
from numazones_client.resources import LEASES, NODES


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
async def config(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
    if request.param == "real":
        yield await from_kubeconfig(request.getfixturevalue("real_apiserver").kubeconfig)
        return
    async with ApiServer(token="secret") as server:
        yield ClusterConfig(server.url, credentials=StaticToken("secret"))


@pytest.fixture
async def client(config: ClusterConfig) -> AsyncIterator[Client]:
    async with Client(config) as opened:
        yield opened


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def lease(name: str, holder: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder},
    }


async def test_objects_are_created_changed_and_deleted(client: Client) -> None:
    created = await client.create(LEASES, lease("client-life", "a"), namespace="default")
    with pytest.raises(AlreadyExists):
        await client.create(LEASES, lease("client-life", "a"), namespace="default")
    created["spec"]["holderIdentity"] = "b"
    await client.replace(LEASES, created, namespace="default")
    with pytest.raises(Conflict, match="read it again"):
        await client.replace(LEASES, created, namespace="default")
    patch = {"spec": {"leaseDurationSeconds": 7}}
    await client.patch(LEASES, "client-life", patch, namespace="default")
    found = await client.get(LEASES, "client-life", namespace="default")
    assert found["spec"] == {"holderIdentity": "b", "leaseDurationSeconds": 7}
    uid = found["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.delete(LEASES, "client-life", namespace="default", uid="another")
    await client.delete(LEASES, "client-life", namespace="default", uid=uid)
    with pytest.raises(NotFound):
        await client.get(LEASES, "client-life", namespace="default")


async def test_applied_fields_have_owners(client: Client) -> None:
    await client.apply(NODES, node("client-owned", color="red"), field_manager="first")
    with pytest.raises(Conflict, match="apply with force"):
        await client.apply(NODES, node("client-owned", color="blue"), field_manager="second", force=False)
    applied = await client.apply(NODES, node("client-owned", color="blue"), field_manager="second")
    assert applied["metadata"]["labels"]["color"] == "blue"
    await client.delete(NODES, "client-owned")


async def test_lists_come_in_pages_and_watches_go_on_from_there(client: Client) -> None:
    for number in range(5):
        await client.apply(NODES, node(f"client-{number}", kind="paged"), field_manager="test")
    pages = [page async for page in client.pages(NODES, label_selector="kind=paged", limit=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert pages[0].items[0]["kind"] == "Node"

    async def change() -> None:
        await client.delete(NODES, "client-3")
        await client.apply(NODES, node("client-4", kind="paged", new="yes"), field_manager="test")

    watch = client.watch(
        NODES, resource_version=pages[-1].resource_version, label_selector="kind=paged", duration=300
    )
    changing = asyncio.create_task(change())
    seen = []
    async for event in watch:
        if event.object is not None:
            seen.append((event.type, event.object["metadata"]["name"]))
        if len(seen) == 2:
            break
    await changing
    assert seen == [("DELETED", "client-3"), ("MODIFIED", "client-4")]
    for number in (0, 1, 2, 4):
        await client.delete(NODES, f"client-{number}")


async def test_different_errors_raise_different_exceptions(client: Client) -> None:
    with pytest.raises(NotFound) as missing:
        await client.get(NODES, "client-nobody")
    assert type(missing.value) is NotFound
    with pytest.raises(UnknownResource, match=r"install the definition of things\.nowhere\.example"):
        await client.list(Resource("nowhere.example", "v1", "things", namespaced=False))
    with pytest.raises(Invalid, match="create nodes NO_NAME"):
        await client.create(NODES, node("NO_NAME"))
    with pytest.raises(NotFound):
        await client.evict("client-nobody", namespace="default")


async def test_a_wrong_token_is_unauthorized(config: ClusterConfig) -> None:
    stranger = ClusterConfig(config.server, config.ssl_context, StaticToken("wrong"))
    async with Client(stranger) as client:
        with pytest.raises(Unauthorized, match="renew it"):
            await client.list(NODES)


async def test_the_version_is_a_raw_path(client: Client) -> None:
    assert b'"major"' in await client.get_raw("/version")
