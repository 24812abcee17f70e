"""The public ``ApiServer``: reading requests and choosing what answers them.

What is decided about objects is decided in ``writes``, ``lists``, ``watches`` and ``budgets``; here are
authentication, content types and verbs. Requests come over HTTP (``listener``) or from a client in the same
process (``in_process``).
"""

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import orjson
from multidict import CIMultiDict

from numazones.apimachinery.defaulting import Defaults
from numazones.errors import NumazonesError
from numazones_apiserver import (
    custom_kinds,
    definitions,
    discovery,
    errors,
    kubeconfig,
    lists,
    patches,
    pods,
    requests,
    scales,
    selectors,
    tables,
    watches,
)
from numazones_apiserver.bodies import (
    PATCHES,
    delete_options,
    invalid_patch_option,
    read_body,
    write_options,
)
from numazones_apiserver.budgets import Budgets
from numazones_apiserver.builtin_kinds import builtin_kinds
from numazones_apiserver.controllers import Controllers
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.faults import ConnectionBroken, Faults, OpenWatch
from numazones_apiserver.kinds import Kind, Registry
from numazones_apiserver.listener import Listener
from numazones_apiserver.objects import now
from numazones_apiserver.openapi import OPENAPI_V2, OPENAPI_V2_ANSWER, OpenAPI
from numazones_apiserver.requests import HTTPRequest, RequestInfo, number
from numazones_apiserver.responses import JSON, HTTPResponse, form_of, json_answer, rendering, respond, text
from numazones_apiserver.selectors import Selection
from numazones_apiserver.store import Store
from numazones_apiserver.watches import Watch
from numazones_apiserver.writes import DeleteOptions, WriteOptions, Writes

NodeProxy = Callable[[str, str], Awaitable[Object]]
"""Answers GET nodes/NAME/proxy/PATH, as the node's kubelet would: takes the node's name and the path."""

PodProxy = Callable[[str, str, str, str], Awaitable[tuple[int, bytes]]]
"""Answers GET pods/NAME:PORT/proxy/PATH as the pod would: takes namespace, name, port and path."""

_log = logging.getLogger(__name__)
VERSION = {
    "major": "1",
    "minor": str(definitions.RELEASE[1]),
    "gitVersion": f"{definitions.VERSION}+numazones-apiserver",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "python",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_DEFAULT_WATCH_SECONDS = 1800.0


class NotLoopback(NumazonesError):
    """The server was asked to listen where others could reach it."""


class ApiServer:
    """A Kubernetes API server in this process, for tests, demos and simulations.

    An async context manager; stopping and starting again keeps the objects and the port.
    """

    def __init__(
        self,
        *,
        host: str | None = "127.0.0.1",
        port: int = 0,
        token: str = "",
        history: int = 10_000,
        bookmark_seconds: float = 10.0,
        node_proxy: NodeProxy | None = None,
        pod_proxy: PodProxy | None = None,
    ) -> None:
        """Prepare a server.

        Args:
            host: a loopback address; nothing else is listened on. None: nothing is, for ``InProcess``.
            port: 0 takes a free one.
            token: when given, requests must bear it, else they get 401.
            history: how many changes of each resource are remembered for watches and pages.
            bookmark_seconds: how often a watch that asked for bookmarks gets one.
            node_proxy: answers what is asked of kubelets through the API server (nodes/NAME/proxy/configz).
            pod_proxy: answers what is asked of pods through the API server.

        Raises:
            NotLoopback: the host is not a loopback address.
        """
        if host not in (None, "localhost") and not ipaddress.ip_address(host or "").is_loopback:
            raise NotLoopback(
                f"the embedded API server listens on loopback only, not on {host}; use 127.0.0.1 or ::1"
            )
        self._token = token
        self._bookmark_seconds = bookmark_seconds
        self.node_proxy = node_proxy
        self.pod_proxy = pod_proxy
        self.store = Store(history=history)
        self.registry = Registry(
            builtin_kinds(self._priority_of, self._defaults_of, custom_kinds.DefinitionStrategy())
        )
        self.writes = Writes(self.store, self.registry)
        self.budgets = Budgets(self.writes)
        self.faults = Faults()
        self.requests_served = 0
        self.stopped = False
        """Whether it answers nobody until it is started again."""
        self._controllers = Controllers(self.writes, self.budgets)
        self._openapi = OpenAPI(self.registry)
        self._listener = Listener(host, port, self.answer) if host is not None else None
        self._controllers_task: asyncio.Task[None] | None = None
        for name in _INITIAL_NAMESPACES:
            self._create_namespace(name)

    # --- life ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Return the server's URL, ``http://127.0.0.1:PORT``; known once it has been started."""
        return self._listener.url if self._listener is not None else "http://in-process.invalid"

    async def start(self) -> None:
        """Listen; started again, on the same port."""
        self.stopped = False
        if self._listener is not None:
            await self._listener.start()
        self._controllers_task = asyncio.create_task(self._controllers.run(), name="apiserver-controllers")

    async def stop(self) -> None:
        """Cut all connections and stop listening; objects stay."""
        self.stopped = True
        self.faults.drop_watches()
        if self._controllers_task is not None:
            self._controllers_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._controllers_task
            self._controllers_task = None
        if self._listener is not None:
            await self._listener.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig for this server; returns its path."""
        return kubeconfig.write(Path(path), self.url, self._token)

    def compact(self) -> int:
        """Forget the history: watches and pages that need it get 410. Returns the current revision."""
        return self.store.compact()

    async def settle(self) -> None:
        """Wait until the cluster's own controllers have nothing left to do."""
        await self._controllers.settle()

    # --- objects without HTTP -----------------------------------------------------------------

    def kind(self, plural: str, group: str = "", version: str = "v1") -> Kind:
        """A served kind by the names of its path; raises StatusError 404."""
        found = self.registry.find(group, version, plural)
        if found is None:
            raise errors.no_such_resource()
        return found

    def _create_namespace(self, name: str) -> None:
        kind = self.kind("namespaces")
        self.writes.create(kind, "", {"metadata": {"name": name}}, WriteOptions("kube-apiserver"))

    def _priority_of(self, name: str) -> tuple[int, str] | None:
        """The value and preemption policy of a priority class; None for an unknown name."""
        system = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
        if name in system:
            return system[name], "PreemptLowerPriority"
        collection = self.store.collection("scheduling.k8s.io", "priorityclasses")
        for version in collection.versions():
            one = version.object
            if one["metadata"]["name"] == name or (not name and one.get("globalDefault")):
                return int(one.get("value", 0)), one.get("preemptionPolicy", "PreemptLowerPriority")
        return None if name else (0, "PreemptLowerPriority")

    def _defaults_of(self, namespace: str) -> Defaults:
        """The namespace's LimitRanges, and all RuntimeClasses."""
        ranges = [version.object for version in self.store.collection("", "limitranges").versions()]
        classes = [
            version.object for version in self.store.collection("node.k8s.io", "runtimeclasses").versions()
        ]
        return Defaults(
            tuple(one for one in ranges if one["metadata"]["namespace"] == namespace),
            {one["metadata"]["name"]: one for one in classes},
        )

    # --- requests -----------------------------------------------------------------------------

    async def answer(self, request: HTTPRequest) -> HTTPResponse:
        """Answer a request.

        Raises:
            ConnectionBroken: the connection is to be cut; the stream of a watch may raise it later.
        """
        self.requests_served += 1
        try:
            self._authenticate(request)
            info = requests.read(request.method, request.path, request.query)
            if info is None:
                return self._answer_path(request)
            await self.faults.strike(info)
            return await self._answer(request, info)
        except StatusError as error:
            return json_answer(error.status(), error.code, error.headers)
        except (ConnectionBroken, ConnectionResetError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a request does, the server answers and goes on
            _log.exception("%s %s failed", request.method, request.path)
            message = f"Internal error occurred: {type(error).__name__}: {error}"
            return json_answer(StatusError(500, "InternalError", message).status(), 500)

    def _authenticate(self, request: HTTPRequest) -> None:
        if not self._token:
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _answer_path(self, request: HTTPRequest) -> HTTPResponse:
        """Answer a path that is no resource's: discovery, OpenAPI, health, version."""
        path = request.path.strip("/")
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        if path in ("healthz", "livez", "readyz"):
            return text("ok")
        if path == "version":
            return json_answer(VERSION)
        if path in ("api", "apis") and "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            document = discovery.aggregated_document(self.registry, core=path == "api")
            headers = CIMultiDict({"Content-Type": discovery.AGGREGATED, "Vary": "Accept"})
            return HTTPResponse(orjson.dumps(document), headers=headers)
        if path == "openapi/v2" and OPENAPI_V2 in request.headers.get("Accept", ""):
            headers = CIMultiDict({"Content-Type": OPENAPI_V2_ANSWER})
            return HTTPResponse(self._openapi.without_schemas(), headers=headers)
        document_or_none = self._document(path)
        if document_or_none is None:
            return text("404 page not found\n", 404)
        return json_answer(document_or_none)

    def _document(self, path: str) -> Object | bytes | None:
        match path.split("/"):
            case [""]:
                return {"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}
            case ["openapi", "v3"]:
                return self._openapi.index()
            case ["openapi", "v3", *rest]:
                return self._openapi.document("/".join(rest))
            case parts:
                return discovery.document(self.registry, parts, self.url.removeprefix("http://"))

    async def _answer(self, request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        kind = self.registry.find(info.group, info.version, info.resource)
        if kind is None:
            if self._is_group(info):
                raise errors.no_such_resource()
            return text("404 page not found\n", 404)
        if not kind.namespaced and info.namespace:
            raise errors.no_such_resource()
        if kind.namespaced and info.name and not info.namespace:
            raise errors.no_such_resource()
        if info.subresource and info.subresource not in kind.subresources:
            raise errors.no_such_resource()
        if info.verb == "watch":
            return self._watch(request, info, kind)
        if info.verb == "list":
            return self._list(request, info, kind)
        if info.subresource in ("binding", "eviction", "proxy", "scale", "finalize"):
            return await self._subresource(request, info, kind)
        return self._object(request, info, kind)

    def _is_group(self, info: RequestInfo) -> bool:
        return bool(self.registry.of(info.group, info.version))

    def _object(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> HTTPResponse:
        warnings: list[str] = []
        code = 200
        if info.verb == "get":
            obj = self.writes.get(kind, info.namespace, info.name)
        elif info.verb == "delete":
            obj = self.writes.delete(
                kind, info.namespace, info.name, delete_options(request, read_body(request))
            )
        elif info.verb == "deletecollection":
            obj = self._delete_collection(info, kind, request, delete_options(request, read_body(request)))
        else:
            obj, code, warnings = self._write(request, info, kind)
        return respond(request, kind, obj, code, warnings)

    def _write(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> tuple[Object, int, list[str]]:
        options = write_options(request, info)
        body = read_body(request, patch=info.verb == "patch")
        code = 200
        if info.verb == "create":
            if info.name or (kind.namespaced and not info.namespace):
                raise errors.method_not_allowed()
            obj, code = self.writes.create(kind, info.namespace, body, options), 201
        elif not info.name:
            raise errors.method_not_allowed()
        elif info.verb == "update":
            obj = self.writes.replace(kind, info.namespace, info.name, body, options)
        else:
            obj, code = self._patch(request, info, kind, body, options)
        warnings = list(options.validation.warnings)
        if kind.plural == "customresourcedefinitions":
            warnings += custom_kinds.warnings(obj)
        return obj, code, warnings

    def _patch(
        self, request: HTTPRequest, info: RequestInfo, kind: Kind, body: Any, options: WriteOptions
    ) -> tuple[Object, int]:
        media = request.content_type
        accepted = [one for one in PATCHES if not (kind.custom and one == patches.STRATEGIC)]
        if media not in accepted:
            if kind.custom:
                raise errors.unsupported_media_type(accepted)
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        if media != patches.APPLY:
            if "force" in request.query:
                raise invalid_patch_option(
                    "force", "Forbidden: may not be specified for non-apply patch", forbidden=True
                )
            return self.writes.patch(kind, info.namespace, info.name, media, body, options), 200
        if "fieldManager" not in request.query:
            raise invalid_patch_option("fieldManager", "Required value: is required for apply patch")
        if body is None:
            raise errors.bad_request("the apply configuration is empty")
        obj, created = self.writes.apply(kind, info.namespace, info.name, body, options)
        return obj, 201 if created else 200

    def _delete_collection(
        self, info: RequestInfo, kind: Kind, request: HTTPRequest, options: DeleteOptions
    ) -> Object:
        selection = self._selection(request.query, kind)
        deleted = []
        for version in list(self.writes.collection(kind).versions(info.namespace)):
            obj = version.object
            if selection.matches(kind.from_storage(obj) if kind.from_storage is not None else obj):
                metadata = obj["metadata"]
                self.writes.delete(
                    kind,
                    metadata.get("namespace", ""),
                    metadata["name"],
                    replace(options, uid="", resource_version=""),
                )
                deleted.append(obj)
        metadata = {"resourceVersion": str(self.store.revision)}
        return {
            "kind": kind.list_name,
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": deleted,
        }

    # --- subresources -------------------------------------------------------------------------

    async def _subresource(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> HTTPResponse:
        if info.subresource == "proxy":
            return await self._proxy(info)
        if info.subresource == "scale":
            return self._scale(request, info, kind)
        body = read_body(request)
        if info.subresource == "finalize":
            if info.verb != "update":
                raise errors.method_not_allowed()
            return json_answer(self.writes.replace(kind, "", info.name, body, write_options(request, info)))
        if info.verb != "create":
            raise errors.method_not_allowed()
        if not isinstance(body, dict):
            raise errors.bad_request("the body of the request is not an object")
        if info.subresource == "binding":
            self._bind(request, info, body)
        else:
            self._evict(request, info, body)
        return json_answer(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    def _bind(self, request: HTTPRequest, info: RequestInfo, body: Object) -> None:
        target = body.get("target") or {}
        if not target.get("name"):
            raise errors.internal(str(errors.required("target.name")))
        if target.get("kind") not in (None, "", "Node"):
            error = errors.unsupported("target.kind", target["kind"], ("Node", "<empty>"))
            raise errors.invalid("", "Binding", info.name, [error])
        annotations = (body.get("metadata") or {}).get("annotations")
        node = str(target["name"])
        self.writes.bind(
            info.namespace,
            info.name,
            lambda pod: pods.assign_node(pod, node, annotations, now()),
            write_options(request, info),
        )

    def _evict(self, request: HTTPRequest, info: RequestInfo, body: Object) -> None:
        name = (body.get("metadata") or {}).get("name")
        if name not in (None, "", info.name):
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options = delete_options(request, body.get("deleteOptions"))
        self.budgets.evict(info.namespace, info.name, options)

    async def _proxy(self, info: RequestInfo) -> HTTPResponse:
        """The answer of a node's kubelet."""
        if info.verb != "get":
            raise errors.method_not_allowed()
        if info.resource == "pods":
            return await self._pod_proxy(info)
        self.writes.get(self.kind("nodes"), "", info.name)
        if self.node_proxy is None:
            raise StatusError(
                503,
                "ServiceUnavailable",
                f"error trying to reach service: no kubelet serves {info.name}",
            )
        return json_answer(await self.node_proxy(info.name, info.rest))

    async def _pod_proxy(self, info: RequestInfo) -> HTTPResponse:
        """The answer of a pod on a port; the name may be ``NAME``, ``NAME:PORT`` or ``http:NAME:PORT``."""
        parts = info.name.split(":")
        name, port = (parts[-2], parts[-1]) if len(parts) > 1 else (info.name, "")
        self.writes.get(self.kind("pods"), info.namespace, name)
        if self.pod_proxy is None:
            raise StatusError(
                503,
                "ServiceUnavailable",
                f"error trying to reach service: nothing is listening in pod {name}",
            )
        status, body = await self.pod_proxy(info.namespace, name, port, info.rest)
        return HTTPResponse(body, status)

    def _scale(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> HTTPResponse:
        live = self.writes.get(kind, info.namespace, info.name)
        current = scales.scale_of(kind, live)
        if info.verb == "get":
            return json_answer(current)
        body = read_body(request, patch=info.verb == "patch")
        if info.verb == "patch":
            if request.content_type not in (patches.JSON, patches.MERGE, patches.STRATEGIC):
                raise errors.unsupported_media_type((patches.JSON, patches.MERGE, patches.STRATEGIC))
            body = (
                patches.json_patch(current, body)
                if request.content_type == patches.JSON
                else patches.merge(current, body)
            )
        options = write_options(request, replace(info, subresource="scale"))
        changed = scales.with_replicas(kind, live, body)
        obj = self.writes.replace(kind, info.namespace, info.name, changed, options)
        return json_answer(scales.scale_of(kind, obj))

    # --- lists and watches --------------------------------------------------------------------

    def _selection(self, query: Mapping[str, str], kind: Kind) -> Selection:
        return Selection(
            selectors.parse_labels(query.get("labelSelector", "")),
            selectors.parse_fields(query.get("fieldSelector", ""), kind.selectable, custom=kind.custom),
        )

    def _list(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> HTTPResponse:
        selection = self._selection(request.query, kind)
        collection = self.writes.collection(kind)
        page = lists.page(self.store, collection, info.namespace, selection, request.query, kind)
        form = form_of(request)
        if form == "":
            return json_answer(lists.body(page, kind))
        objects = [
            kind.from_storage(version.object) if kind.from_storage is not None else version.object
            for version in page.versions
        ]
        if form == "Table":
            include = request.query.get("includeObject", "Metadata")
            return json_answer(tables.table(kind.columns, objects, page.metadata, include=include))
        items = [tables.partial_metadata(obj) for obj in objects]
        document = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": page.metadata,
            "items": items,
        }
        return json_answer(document)

    def _watch(self, request: HTTPRequest, info: RequestInfo, kind: Kind) -> HTTPResponse:
        selection = self._selection(request.query, kind)
        fields = dict(request.query)
        if info.name:
            name = info.name
            selection = replace(
                selection,
                fields=(*selection.fields, *selectors.parse_fields(f"metadata.name={name}", kind.selectable)),
            )
        watch = Watch(
            self.store,
            self.writes.collection(kind),
            kind,
            info.namespace,
            selection,
            rendering(request, kind),
        )
        seconds = number(fields, "timeoutSeconds")
        deadline = time.monotonic() + (float(seconds) if seconds else _DEFAULT_WATCH_SECONDS)
        first: list[bytes] = []
        with _expiry_as_event(first):
            first.extend(watch.start(fields))
        headers = CIMultiDict({"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        if first and first[-1].startswith(b'{"type":"ERROR"'):
            return HTTPResponse(b"".join(first), headers=headers)
        open_watch = OpenWatch(info, request)
        frames = self._frames(watch, open_watch, deadline, b"".join(first))
        return HTTPResponse(headers=headers, stream=frames)

    async def _frames(
        self, watch: Watch, open_watch: OpenWatch, deadline: float, first: bytes
    ) -> AsyncGenerator[bytes]:
        """The stream of a watch until its deadline, in as few pieces as the pace of changes allows."""
        wake = open_watch.wake
        watch.collection.waiters.add(wake)
        self.faults.watches.add(open_watch)
        bookmark_at = time.monotonic() + self._bookmark_seconds
        try:
            if first:
                yield first
            while True:
                wake.clear()
                while open_watch.silent and open_watch.ending is None:
                    await wake.wait()
                    wake.clear()
                frames: list[bytes] = []
                with _expiry_as_event(frames):
                    if isinstance(open_watch.ending, StatusError):
                        raise open_watch.ending
                    frames.extend(watch.pending())
                if isinstance(open_watch.ending, ConnectionBroken):
                    raise open_watch.ending
                clock = time.monotonic()
                ended = (
                    clock >= deadline
                    or self.registry.find(watch.kind.group, watch.kind.version, watch.kind.plural) is None
                )
                failed = bool(frames) and frames[-1].startswith(b'{"type":"ERROR"')
                if watch.bookmarks and not failed and (ended or clock >= bookmark_at):
                    frames.append(watch.bookmark())
                    bookmark_at = clock + self._bookmark_seconds
                if frames:
                    yield b"".join(frames)
                if ended or failed:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(min(deadline, bookmark_at) - clock, 0.0)):
                        await wake.wait()
                if clock >= bookmark_at and not watch.bookmarks:
                    bookmark_at = clock + self._bookmark_seconds
        finally:
            watch.collection.waiters.discard(wake)
            self.faults.watches.discard(open_watch)


@contextlib.contextmanager
def _expiry_as_event(frames: list[bytes]) -> Any:
    """Make an event of 410, as a stream sends it; other errors are raised on."""
    try:
        yield
    except StatusError as error:
        if error.code != 410:  # noqa: PLR2004 - Gone
            raise
        frames.append(watches.error_frame(error))
