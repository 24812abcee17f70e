"""A few routes of an API server whose every answer a test can choose: for failures, order and counting.

What a whole API server does with such requests is tested end to end, on the embedded one.
"""

import asyncio
from collections import deque
from typing import Any

from aiohttp import web

ZONES = "/apis/numazones.io/v1alpha1/numazones"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{name}"


class FakeAPI:
    """Keeps what is applied; answers with failures first where a test put some."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.zones: dict[str, dict[str, Any]] = {}
        self.others: dict[str, dict[str, Any]] = {}
        self.failures: deque[web.Response | None] = deque()
        self.together = asyncio.Barrier(1)
        """Writes of a status are answered once so many are waiting for an answer."""
        self.application = web.Application(middlewares=[self._script])
        self.application.add_routes(
            [
                web.get(ZONES, self._list),
                web.patch(ZONES + "/{name}", self._apply),
                web.patch(ZONES + "/{name}/status", self._apply_status),
                web.delete(ZONES + "/{name}", self._delete),
                web.patch(LEASES, self._apply_other),
                web.patch(TOPOLOGIES, self._apply_other),
                web.get(TOPOLOGIES, self._get_other),
            ]
        )

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]

    def fail(self, code: int, message: str, *, after: int = 0, **extra: Any) -> None:
        """Answer the next request (or the one after some that succeed) with a Kubernetes Status."""
        headers = {"Retry-After": str(extra.pop("retry_after"))} if "retry_after" in extra else {}
        body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, **extra}
        self.failures.extend([None] * after)
        self.failures.append(web.json_response(body, status=code, headers=headers))

    @web.middleware
    async def _script(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.tokens.append(request.headers.get("Authorization", ""))
        failure = self.failures.popleft() if self.failures else None
        answer: web.StreamResponse = failure if failure is not None else await handler(request)
        return answer

    async def _list(self, request: web.Request) -> web.Response:
        label, _, value = request.query["labelSelector"].partition("=")
        items = [zone for zone in self.zones.values() if zone["metadata"]["labels"].get(label) == value]
        return web.json_response({"kind": "NUMAZoneList", "metadata": {}, "items": items})

    async def _apply(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/apply-patch+yaml"
        assert request.query["fieldManager"] == "numazones-exporter"
        body = await request.json()
        assert "status" not in body
        zone = self.zones.setdefault(request.match_info["name"], {})
        zone.update(body)
        return web.json_response(zone)

    async def _apply_status(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.content_type == "application/merge-patch+json":
            assert body == {"status": {"silence": None}}
            marked = self.zones[request.match_info["name"]]
            marked["status"].pop("silence", None)
            return web.json_response(marked)
        assert body.keys() == {"apiVersion", "kind", "metadata", "status"}
        assert body["metadata"].keys() == {"name"}
        await self.together.wait()
        zone = self.zones.get(request.match_info["name"])
        if zone is None:
            return web.json_response({"kind": "Status", "code": 404, "details": {"name": "x"}}, status=404)
        own = {"silence", "placement", "dynamicResources"}
        operators = {key: value for key, value in zone.get("status", {}).items() if key in own}
        zone["status"] = {**operators, **body["status"]}
        return web.json_response(zone)

    async def _delete(self, request: web.Request) -> web.Response:
        if self.zones.pop(request.match_info["name"], None) is None:
            return web.json_response({"kind": "Status", "code": 404, "details": {"name": "x"}}, status=404)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _apply_other(self, request: web.Request) -> web.Response:
        self.others[request.path] = await request.json()
        return web.json_response(self.others[request.path])

    async def _get_other(self, request: web.Request) -> web.Response:
        if request.path in self.others:
            return web.json_response(self.others[request.path])
        details = {"name": request.match_info["name"]}
        return web.json_response({"kind": "Status", "code": 404, "details": details}, status=404)
