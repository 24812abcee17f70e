"""The client: what can be asked of an API server.

Verbs and media types follow https://kubernetes.io/docs/reference/using-api/api-concepts/ and
https://kubernetes.io/docs/reference/using-api/server-side-apply/. Every failure is an ``APIError``.
"""

import json
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from numazones_client import errors
from numazones_client.calls import Call, Caller, decode_answer
from numazones_client.config import ClusterConfig
from numazones_client.decoding import ERROR, JSON, Decoder, Event, Page
from numazones_client.errors import Request
from numazones_client.reachability import Reachability
from numazones_client.resources import PODS, Resource
from numazones_client.retry import NO_RETRY, RetryPolicy
from numazones_client.transport import HTTP, Transport

T = TypeVar("T")

_NOWHERE = ClusterConfig("http://in-process.invalid")

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class Client:
    """Speaks to one API server; use as an async context manager.

    Args:
        config: where the server is, and the credentials; a transport of one's own needs none.
        transport: what carries requests; None: HTTP to the server that the configuration names.
        user_agent: how the server's logs and audit name this program.
        retry: when failed requests are repeated.
        timeout: seconds for one attempt at a request; watches have their own.
    """

    def __init__(
        self,
        config: ClusterConfig = _NOWHERE,
        *,
        transport: Transport | None = None,
        user_agent: str = "numazones",
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - an immutable value
        timeout: float = 30.0,
    ) -> None:
        self.config = config
        self.reachability = Reachability()
        """Says once, for all who use the client, that the server does not answer."""
        self._calls = Caller(
            transport=transport or HTTP(config),
            config=config,
            user_agent=user_agent,
            retry=retry,
            timeout=timeout,
            answered=self.reachability.found,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()

    # Reading

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]:
        """Return one object.

        Raises:
            NotFound: there is no such object.
        """
        request = _object_request("get", resource, name, namespace)
        return await self._object(Call(request, "GET", resource.path(name, namespace=namespace)))

    async def get_raw(
        self, path: str, *, params: Mapping[str, str] | None = None, limit: int | None = None
    ) -> bytes:
        """Return what a path gives, such as ``/api/v1/nodes/<node>/proxy/configz``.

        Args:
            path: absolute.
            params: of the query.
            limit: bytes; a longer answer is an error.
        """
        return await self._calls.send(Call(Request("get", path), "GET", path, params or {}), limit=limit)

    @overload
    def pages(
        self,
        resource: Resource,
        *,
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
        limit: int = ...,
    ) -> AsyncIterator[Page[dict[str, Any]]]: ...
    @overload
    def pages(
        self,
        resource: Resource,
        *,
        decoder: Decoder[T],
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
        limit: int = ...,
    ) -> AsyncIterator[Page[T]]: ...
    async def pages(
        self,
        resource: Resource,
        *,
        decoder: Decoder[Any] = JSON,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
    ) -> AsyncIterator[Page[Any]]:
        """Yield a consistent list page by page; the last page's resource version starts a watch.

        Raises:
            Gone: the server forgot the continue token between two pages; start again.
        """
        request = _collection_request("list", resource, namespace)
        path = resource.path(namespace=namespace)
        params = _selectors(label_selector, field_selector) | {"limit": str(limit)}
        while True:
            body = await self._calls.send(Call(request, "GET", path, params))
            page = decode_answer(decoder.page, body, request)
            yield page
            if not page.continue_token:
                return
            params = params | {"continue": page.continue_token}

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[dict[str, Any]]:
        """Return all objects at once; for lists that are known to be short."""
        pages = self.pages(
            resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        return [item async for page in pages for item in page.items]

    @overload
    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
        duration: float = ...,
        silence: float = ...,
    ) -> AsyncIterator[Event[dict[str, Any]]]: ...
    @overload
    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        decoder: Decoder[T],
        namespace: str = ...,
        label_selector: str = ...,
        field_selector: str = ...,
        duration: float = ...,
        silence: float = ...,
    ) -> AsyncIterator[Event[T]]: ...
    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        decoder: Decoder[Any] = JSON,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        duration: float = 300.0,
        silence: float = 120.0,
    ) -> AsyncIterator[Event[Any]]:
        """Yield events after a resource version until the server ends the watch.

        One connection, never repeated: the caller watches again from the last event's version.
        Bookmarks are asked for; most servers send one about every minute.

        Args:
            resource: what to watch.
            resource_version: where to start, from a list or an earlier event.
            decoder: what to keep of each object.
            namespace: one namespace, empty for all.
            label_selector: as in ``kubectl get -l``.
            field_selector: as in ``kubectl get --field-selector``.
            duration: seconds after which the server ends the watch.
            silence: seconds without a byte after which the watch ends here as if the server had ended it:
                the connection may be dead, or there may be nothing to say.

        Raises:
            Gone: the version is too old; list again.
            Unreachable: the connection broke; watch again.
        """
        request = _collection_request("watch", resource, namespace)
        params = _selectors(label_selector, field_selector) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(duration)),
        }
        call = Call(request, "GET", resource.path(namespace=namespace), params)
        async for line in self._calls.lines(call, silence=silence):
            event = decode_answer(decoder.event, line, request)
            if event.type == ERROR:
                raise errors.from_status(request, event.status)
            yield event

    # Writing

    async def create(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Create an object; for a subresource such as ``binding`` the body names the parent.

        Raises:
            AlreadyExists: there is one of this name.
        """
        name = str((body.get("metadata") or {}).get("name") or "")
        request = _object_request("create", resource, name, namespace, subresource=subresource)
        path = resource.path(name if subresource else "", namespace=namespace, subresource=subresource)
        return await self._object(Call(request, "POST", path, body=body, repeatable=False))

    async def replace(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object; with ``metadata.resourceVersion`` only if nobody changed it since.

        Raises:
            Conflict: somebody changed it.
        """
        name = str(body["metadata"]["name"])
        request = _object_request("update", resource, name, namespace, subresource=subresource)
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return await self._object(Call(request, "PUT", path, body=body))

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        namespace: str = "",
        subresource: str = "",
        force: bool = True,
    ) -> dict[str, Any]:
        """Apply an object on the server's side; the manager owns exactly the fields of the body.

        The status of kinds with a status subresource is applied with ``subresource="status"``.

        Raises:
            Conflict: another manager owns a field and ``force`` is off.
        """
        return await self.patch(
            resource,
            str(body["metadata"]["name"]),
            body,
            namespace=namespace,
            subresource=subresource,
            media_type=APPLY_PATCH,
            params={"fieldManager": field_manager, "force": "true" if force else "false"},
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        media_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
    ) -> dict[str, Any]:
        """Change part of an object, by a merge patch unless another media type is given.

        ``retry``: when it is repeated; left out, as other requests.
        """
        request = _object_request("patch", resource, name, namespace, subresource=subresource)
        path = resource.path(name, namespace=namespace, subresource=subresource)
        repeatable = media_type != JSON_PATCH
        call = Call(request, "PATCH", path, params or {}, body, media_type, repeatable)
        return await self._object(call, retry=retry)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; with uid or resource version only that very one.

        With ``grace_seconds=0`` a pod is gone at once, which only its kubelet should ask for.

        Raises:
            NotFound: there is no such object.
            Conflict: the object is not the one that was meant.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {
            key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value
        }
        if preconditions:
            options["preconditions"] = preconditions
        if propagation:
            options["propagationPolicy"] = propagation
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        request = _object_request("delete", resource, name, namespace)
        path = resource.path(name, namespace=namespace)
        await self._calls.send(Call(request, "DELETE", path, body=options))

    async def evict(self, name: str, *, namespace: str, uid: str = "", resource_version: str = "") -> None:
        """Evict a pod through the Eviction API, which heeds disruption budgets; never repeated.

        Raises:
            Conflict: the pod is not the one that was meant, or no longer as it was.
            TooManyRequests: a budget forbids it now; waiting for it is the caller's decision.
            ServerError: several budgets cover the pod, which the server does not support.
        """
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if meant := {key: value for key, value in preconditions.items() if value}:
            body["deleteOptions"] = {"preconditions": meant}
        request = _object_request("create", PODS, name, namespace, subresource="eviction")
        path = PODS.path(name, namespace=namespace, subresource="eviction")
        await self._calls.send(Call(request, "POST", path, body=body), retry=NO_RETRY)

    async def _object(self, call: Call, *, retry: RetryPolicy | None = None) -> dict[str, Any]:
        body = await self._calls.send(call, retry=retry)
        value: dict[str, Any] = decode_answer(json.loads, body, call.request)
        return value


def _object_request(
    verb: str, resource: Resource, name: str, namespace: str, *, subresource: str = ""
) -> Request:
    full = f"{resource.full_name}/{subresource}" if subresource else resource.full_name
    where = f"{namespace}/{name}" if namespace else name
    return Request(verb, f"{full} {where}".rstrip(), full)


def _collection_request(verb: str, resource: Resource, namespace: str) -> Request:
    where = f" in {namespace}" if namespace else ""
    return Request(verb, resource.full_name + where, resource.full_name)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}
