"""Holds programs in tests to the roles and the admission policies of manifests."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from multidict import CIMultiDict

from numazones_apiserver import ApiServer, WriteOptions, errors
from numazones_apiserver.requests import HTTPRequest, RequestInfo
from numazones_apiserver.responses import HTTPResponse

OPERATOR = "system:serviceaccount:numazones-operator:numazones-operator"
EXPORTER = "system:serviceaccount:numazones-system:numazones-exporter"
_NODE_NAME = "authentication.kubernetes.io%2Fnode-name"

Account = tuple[str, str]
"""The user that a request is made by, and the node that its token is bound to."""


def manifests(root: Path, *parts: str) -> list[dict[str, Any]]:
    """Return the objects of some folders of the manifests, patches among them."""
    files = (path for part in parts for path in sorted((root / "manifests" / part).glob("*.yaml")))
    return [
        body for path in files for body in yaml.safe_load_all(path.read_text()) if "metadata" in (body or ())
    ]


def granted(objects: Sequence[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Return (group, resource, verb) of all roles."""
    return {
        (group, resource, verb)
        for body in objects
        for rule in body.get("rules", ())
        if body["kind"] in ("Role", "ClusterRole")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def guard(
    server: ApiServer,
    objects: Sequence[dict[str, Any]],
    account_of: Callable[[HTTPRequest], Account | None],
) -> None:
    """Let the API server hold programs to the roles and admission policies of manifests.

    Args:
        server: the API server.
        objects: what the manifests hold.
        account_of: says who makes a request; None: the administrator.
    """
    # The shipped exporter asks the kubelet itself for its configuration.
    rights = granted(objects) | {("", "nodes/proxy", "get")}
    answer = server._answer

    async def guarded(request: HTTPRequest, info: RequestInfo) -> HTTPResponse:
        account = account_of(request)
        if account is not None:
            user, node = account
            resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
            if (info.group, resource, info.verb) not in rights:
                why = f"{user} may not {info.verb} {resource}"
                raise errors.forbidden(info.group, info.resource, info.name, why)
            named = {"Impersonate-User": user, f"Impersonate-Extra-{_NODE_NAME}": node}
            request = replace(request, headers=CIMultiDict({**request.headers, **named}))
        return await answer(request, info)

    server._answer = guarded  # type: ignore[method-assign]
    for body in objects:
        if body["kind"].startswith("ValidatingAdmissionPolicy"):
            create(server, body)


def create(server: ApiServer, body: dict[str, Any]) -> None:
    """Create an object of the cluster, as its administrator."""
    kind = server.registry.by_kind(body["apiVersion"], body["kind"])
    assert kind is not None
    server.writes.create(kind, "", body, WriteOptions("test"))
