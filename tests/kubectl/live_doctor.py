"""``doctor`` as a program, and an API server for it that denies reading some kinds."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from aiohttp import web

from tests import plugin
from tests.kubectl.healthy_cluster import healthy


async def doctor(kubeconfig: Path) -> tuple[dict[str, Any], int]:
    code, output, errors = await plugin.streams("doctor", "--kubeconfig", kubeconfig, "-o", "json")
    assert output, errors
    return json.loads(output), code


def of(report: Mapping[str, Any], check: str) -> list[tuple[str, list[str], str]]:
    found = (it for it in report["findings"] if it["check"] == check)
    return [(it["severity"], it["subjects"], it["message"]) for it in found]


def _metrics_of_pods(
    text: str, *, may_be_read: bool
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_request: web.Request) -> web.Response:
        forbidden = {"kind": "Status", "reason": "Forbidden", "message": "Forbidden"}
        return web.Response(text=text) if may_be_read else web.json_response(forbidden, status=403)

    return answer


@asynccontextmanager
async def serving(
    directory: Path,
    denied: set[str],
    items: Iterable[Mapping[str, Any]] = (),
    later: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
    asked: list[tuple[str, list[str]]] | None = None,
    metrics: str = "",
) -> AsyncIterator[Path]:
    """An API server that has the healthy cluster's objects, and denies reading some kinds.

    ``later``: resource → objects from the second list on. ``asked`` receives the user and the groups that
    each request is made as. ``metrics``: what every pod serves.
    """
    plurals = {
        "NUMAZone": "numazones",
        "NodeResourceTopology": "noderesourcetopologies",
        "DeviceClass": "deviceclasses",
    }
    objects: dict[str, list[Mapping[str, Any]]] = {}
    for item in items or healthy():
        kind = item["kind"]
        objects.setdefault(plurals.get(kind, f"{kind.lower()}s"), []).append(item)

    def status(code: int, reason: str) -> web.Response:
        return web.json_response({"kind": "Status", "reason": reason, "message": reason}, status=code)

    async def answer(request: web.Request) -> web.Response:
        if asked is not None:
            user = request.headers.get("Impersonate-User", "")
            asked.append((user, request.headers.getall("Impersonate-Group", [])))
        *_, resource, last = request.path.strip("/").split("/")
        if last == "selfsubjectaccessreviews":
            wanted = (await request.json())["spec"]["resourceAttributes"]
            name = "/".join(filter(None, (wanted["resource"], wanted["subresource"])))
            return web.json_response({"status": {"allowed": name not in denied}}, status=201)
        if "customresourcedefinitions" in request.path:
            (found,) = [it for it in objects["customresourcedefinitions"] if it["metadata"]["name"] == last]
            return web.json_response(found)
        if last in denied:
            return status(403, "Forbidden")
        for item in objects.get(resource, ()):
            if item["metadata"]["name"] == last:
                return web.json_response(item)
        body = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": objects.get(last, [])}
        objects.update({resource: list(found) for resource, found in later.items() if resource == last})
        return web.json_response(body)

    app = web.Application()
    app.router.add_get(
        "/{path:.*}/proxy/metrics", _metrics_of_pods(metrics, may_be_read="metrics" not in denied)
    )
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    try:
        yield kubeconfig
    finally:
        await runner.cleanup()
