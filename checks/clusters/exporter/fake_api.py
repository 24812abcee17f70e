"""The embedded API server without sockets, whose requests a test looks at, counts and makes fail."""

import asyncio
from collections import deque
from typing import Any

from checks.clusters.exporter.topologies import TOPOLOGIES as TOPOLOGY_DEFINITION
from numazones.api import crd
from numazones_apiserver import ApiServer, WriteOptions, patches
from numazones_apiserver.errors import Object
from numazones_apiserver.requests import HTTPRequest
from numazones_apiserver.responses import HTTPResponse, json_answer
from numazones_apiserver.store import Collection, Version

ZONES = "/apis/numazones.io/v1alpha1/numazones"
_OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class FakeAPI(ApiServer):
    """Answers with failures first where a test put some; no controllers run."""

    def __init__(self) -> None:
        super().__init__(host=None)
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.failures: deque[HTTPResponse | None] = deque()
        self.together = asyncio.Barrier(1)
        """Writes of a status are answered once so many are waiting for an answer."""

    async def define(self) -> "FakeAPI":
        """Install the definitions that an exporter writes objects of, and its namespace."""
        definitions = self.kind("customresourcedefinitions", "apiextensions.k8s.io")
        for body in (*map(crd.crd, crd.KINDS), TOPOLOGY_DEFINITION):
            self.writes.create(definitions, "", body, WriteOptions("test"))
        await self.settle()
        self._create_namespace("numazones-system")
        return self

    @property
    def writes_asked(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]

    async def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Fail, or answer as ever."""
        self.requests.append((request.method, request.path))
        self.tokens.append(request.headers.get("Authorization", ""))
        failure = self.failures.popleft() if self.failures else None
        if failure is not None:
            return failure
        if request.path.startswith(ZONES) and request.path.endswith("/status"):
            await self.together.wait()
        return await super().answer(request)

    def fail(self, code: int, message: str, *, after: int = 0, **extra: Any) -> None:
        """Answer the next request (or the one after some that succeed) with a Kubernetes Status."""
        headers = {"Retry-After": str(extra.pop("retry_after"))} if "retry_after" in extra else {}
        body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, **extra}
        self.failures.extend([None] * after)
        self.failures.append(json_answer(body, code, headers))

    @property
    def zones(self) -> dict[str, Object]:
        """The zones by name, without what the server adds to them."""
        return {version.object["metadata"]["name"]: _own(version) for version in self._zones.versions()}

    @property
    def _zones(self) -> Collection:
        return self.store.collection("numazones.io", "numazones")

    @property
    def lease(self) -> Object:
        """The exporter's Lease; empty while there is none."""
        return _only(self.store.collection("coordination.k8s.io", "leases"))

    @property
    def topologies(self) -> Collection:
        """The NodeResourceTopologies."""
        return self.store.collection("topology.node.k8s.io", "noderesourcetopologies")

    @property
    def topology(self) -> Object:
        """The NodeResourceTopology; empty while there is none."""
        return _only(self.topologies)

    def change(self, name: str, patch: Object) -> None:
        """Store a zone with a merge patch applied, as somebody else would write it."""
        found = self._zones.objects.get(("", name))
        zone = found.object if found is not None else {"metadata": {"uid": name}}
        self.store.put(self._zones, patches.merge(zone, patch))

    def remove(self, *names: str) -> None:
        """Delete zones as somebody else would."""
        for name in names:
            self.store.delete(self._zones, ("", name))


def _own(version: Version) -> Object:
    """An object without what the server adds to it."""
    metadata = {key: value for key, value in version.object["metadata"].items() if key not in _OF_THE_SERVER}
    return {**version.object, "metadata": metadata}


def _only(collection: Collection) -> Object:
    return next((version.object for version in collection.versions()), {})
