"""The servers that the contract is run against, and a client that adds nothing to HTTP."""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import yaml

from numazones_apiserver import ApiServer

GROUP = "contract.example.com"

WIDGET_SPEC: dict[str, Any] = {
    "type": "object",
    "description": "What is wanted.",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How big."},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "short": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
        "port": {"x-kubernetes-int-or-string": True},
        "ratio": {"type": "number"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
        "when": {"type": "string", "format": "date-time"},
        "tags": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "string", "maxLength": 9},
            "x-kubernetes-list-type": "set",
        },
        "plain": {"type": "array", "items": {"type": "string"}},
        "identity": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "identity is immutable"}],
        },
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "value": {"type": "string"},
                    "weight": {"type": "integer", "default": 1},
                },
            },
        },
    },
}
WIDGET_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}


def definition(plural: str = "widgets", kind: str = "Widget", group: str = GROUP) -> dict[str, Any]:
    """A definition that uses what structural schemas offer."""
    schema = {
        "type": "object",
        "description": "A thing of the contract.",
        "required": ["spec"],
        "properties": {"spec": WIDGET_SPEC, "status": WIDGET_STATUS},
    }
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": ["wdg"], "categories": ["contract"]},
            "versions": [version],
        },
    }


@dataclass(frozen=True)
class Answer:
    """Body, status and headers of one answer."""

    code: int
    body: Any
    headers: Any

    @property
    def version(self) -> str:
        version: str = self.body["metadata"]["resourceVersion"]
        return version

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [
            (one.get("field", ""), one["reason"]) for one in self.body.get("details", {}).get("causes", [])
        ]


class Client:
    """HTTP and JSON; paths are spelled out so that tests read as the protocol."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, namespace: str, *, real: bool, server: Any
    ) -> None:
        self.url, self.session, self.namespace, self.real, self.server = url, session, namespace, real, server

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept, "User-Agent": "contract/1.0"}
        if data is not None:
            headers["Content-Type"] = media
        async with self.session.request(
            method, self.url + path, data=data, headers=headers, params=query
        ) as response:
            text = await response.text()
            parsed = json.loads(text) if text[:1] in ("{", "[") else text
            return Answer(response.status, parsed, response.headers)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.send("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.send("DELETE", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.send("PATCH", path, body, media="application/merge-patch+json", **query)

    async def apply(self, path: str, body: Any, manager: str = "applier", **query: Any) -> Answer:
        return await self.send(
            "PATCH", path, body, media="application/apply-patch+yaml", fieldManager=manager, **query
        )

    @property
    def widgets(self) -> str:
        return f"/apis/{GROUP}/v1/namespaces/{self.namespace}/widgets"

    def core(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}"

    def apps(self, plural: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> "AsyncIterator[Watching]":
        query = {"watch": "true", "timeoutSeconds": 300, **query}
        headers = {"Accept": query.pop("accept", "application/json")}
        async with self.session.get(self.url + path, params=query, headers=headers) as response:
            yield Watching(response)


@dataclass
class Watching:
    """An open watch."""

    response: Any
    seen: list[Any] = field(default_factory=list)

    async def next(self, *, bookmarks: bool = False) -> tuple[str, Any]:
        async with asyncio.timeout(120):
            while True:
                line = await self.response.content.readline()
                if not line:
                    return "END", None
                event = json.loads(line)
                if event["type"] != "BOOKMARK" or bookmarks:
                    return event["type"], event["object"]


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


@pytest.fixture(name="widget")
def widget_fixture() -> Any:
    return widget


@pytest.fixture(name="pod")
def pod_fixture() -> Any:
    return pod


@pytest.fixture(name="definition")
def definition_fixture() -> Any:
    return definition


# --- the servers -----------------------------------------------------------------------------


async def _prepared(client: Client) -> Client:
    await client.post("/api/v1/namespaces", {"metadata": {"name": client.namespace}})
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    created = await client.post(path, definition())
    assert created.code in (201, 409), created.body
    async with asyncio.timeout(120):
        while True:
            listed = await client.get(client.widgets)
            document = await client.get(f"/openapi/v3/apis/{GROUP}/v1")
            if listed.code == 200 and document.code == 200:
                return client
            await asyncio.sleep(0.1)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """The embedded server."""
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def embedded(server: ApiServer) -> AsyncIterator[Client]:
    """A client of the embedded server, for what a lone kube-apiserver does not do."""
    async with aiohttp.ClientSession(read_bufsize=2**20) as session:
        yield await _prepared(
            Client(server.url, session, f"ns-{secrets.token_hex(4)}", real=False, server=server)
        )


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_apiserver)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of each server that must keep the contract."""
    namespace = f"ns-{secrets.token_hex(4)}"
    if request.param == "real":
        real = request.getfixturevalue("real_apiserver")
        [user] = yaml.safe_load(real.kubeconfig.read_text())["users"]
        context = ssl.create_default_context(cafile=str(real.certificate_authority))
        connector = aiohttp.TCPConnector(ssl=context)
        headers = {"Authorization": f"Bearer {user['user']['token']}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**20) as session:
            yield await _prepared(Client(real.url, session, namespace, real=True, server=None))
            # Saying goodbye in TLS would outlast the test's event loop.
            await connector.close(abort_ssl=True)
            await asyncio.sleep(0.01)
        return
    async with ApiServer() as running, aiohttp.ClientSession(read_bufsize=2**20) as session:
        yield await _prepared(Client(running.url, session, namespace, real=False, server=running))
