"""The servers that the contract is run against, and a client that adds nothing to HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from numazones_simulator.apiserver import ApiServer

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
    """What came back."""

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
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watching]:
        query = {"watch": "true", "timeoutSeconds": 20, **query}
        headers = {"Accept": query.pop("accept", "application/json")}
        async with self.session.get(self.url + path, params=query, headers=headers) as response:
            yield Watching(response)


@dataclass
class Watching:
    """An open watch."""

    response: Any
    seen: list[Any] = field(default_factory=list)

    async def next(self, *, bookmarks: bool = False) -> tuple[str, Any]:
        async with asyncio.timeout(15):
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


# --- a real one ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RealServer:
    url: str
    token: str
    context: ssl.SSLContext


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _keys(folder: Path) -> tuple[Path, Path]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "sa.key", folder / "sa.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


def _await_ready(server: RealServer, process: subprocess.Popen[bytes], log: Path) -> None:
    request = urllib.request.Request(
        f"{server.url}/readyz", headers={"Authorization": f"Bearer {server.token}"}
    )
    for _ in range(240):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(request, timeout=2, context=server.context) as answer:  # noqa: S310
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.5)
    pytest.fail(f"kube-apiserver did not become ready; it said:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """etcd and kube-apiserver from KUBEBUILDER_ASSETS, on loopback, for the whole session."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    folder = tmp_path_factory.mktemp("real")
    private, public = _keys(folder)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    client, peer, port = _free_port(), _free_port(), _free_port()
    etcd = [
        str(assets / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync=true",
    ]
    apiserver = [
        str(assets / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{client}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={public}",
        f"--service-account-signing-key-file={private}",
    ]
    log = folder / "log"
    with log.open("wb") as output:
        processes = [subprocess.Popen(command, stdout=output, stderr=output) for command in (etcd, apiserver)]
        try:
            certificate = folder / "certs" / "apiserver.crt"
            for _ in range(120):
                if certificate.exists() and certificate.stat().st_size:
                    break
                time.sleep(0.25)
            context = ssl.create_default_context(cafile=str(certificate))
            server = RealServer(f"https://127.0.0.1:{port}", token, context)
            _await_ready(server, processes[1], log)
            yield server
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(timeout=60)
            shutil.rmtree(folder / "etcd", ignore_errors=True)


def _has_assets() -> bool:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    return bool(assets) and all((Path(assets) / name).exists() for name in ("etcd", "kube-apiserver"))


_needs_assets = pytest.mark.skipif(
    not _has_assets(), reason="KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd"
)


async def _prepared(client: Client) -> Client:
    await client.post("/api/v1/namespaces", {"metadata": {"name": client.namespace}})
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    created = await client.post(path, definition())
    assert created.code in (201, 409), created.body
    for _ in range(100):
        listed = await client.get(client.widgets)
        document = await client.get(f"/openapi/v3/apis/{GROUP}/v1")
        if listed.code == 200 and document.code == 200:
            return client
        await asyncio.sleep(0.1)
    raise AssertionError("the custom resource is not served")


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


@pytest.fixture(params=["embedded", pytest.param("real", marks=[pytest.mark.real_apiserver, _needs_assets])])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of each server that must keep the contract."""
    namespace = f"ns-{secrets.token_hex(4)}"
    if request.param == "real":
        real: RealServer = request.getfixturevalue("real_server")
        connector = aiohttp.TCPConnector(ssl=real.context)
        headers = {"Authorization": f"Bearer {real.token}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**20) as session:
            yield await _prepared(Client(real.url, session, namespace, real=True, server=None))
        return
    async with ApiServer() as running, aiohttp.ClientSession(read_bufsize=2**20) as session:
        yield await _prepared(Client(running.url, session, namespace, real=False, server=running))
