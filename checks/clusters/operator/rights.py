"""Rights that the manifests grant, and rights that the operator uses through its own client and kopf."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from numazones_client.calls import Call, Caller
from tests.places import ROOT

MANIFESTS = ROOT / "manifests"

Right = tuple[str, str, str]
"""(group, resource, verb)"""

_DISCOVERY = 2
_VERBS = {"post": "create", "patch": "patch", "delete": "delete"}


def granted_rights(*folders: str, role: str = "", but: str = "") -> set[Right]:
    """Return the rights that the manifests of some folders grant; of one role only, or of all but one."""
    rights = set()
    for folder in folders:
        for document in yaml.safe_load_all((MANIFESTS / folder / "rbac.yaml").read_text()):
            name = document["metadata"]["name"]
            for rule in document.get("rules", ()) if name != but and role in ("", name) else ():
                rights |= {
                    (group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return rights


def note_rights(monkeypatch: pytest.MonkeyPatch) -> set[Right]:
    """Return a set that grows with every right that the operator uses from now on."""
    used: set[Right] = set()
    send, lines = Caller.send, Caller.lines

    def note(caller: Caller, call: Call) -> None:
        if caller.user_agent == "numazones-operator":
            name, _, subresource = call.request.resource.partition("/")
            plural, _, group = name.partition(".")
            used.add((group, f"{plural}/{subresource}" if subresource else plural, call.request.verb))

    async def noted_send(self: Caller, call: Call, **options: Any) -> bytes:
        note(self, call)
        return await send(self, call, **options)

    def noted_lines(self: Caller, call: Call, **options: Any) -> AsyncIterator[bytes]:
        note(self, call)
        return lines(self, call, **options)

    monkeypatch.setattr(Caller, "send", noted_send)
    monkeypatch.setattr(Caller, "lines", noted_lines)
    _note_kopf(monkeypatch, used)
    return used


def _note_kopf(monkeypatch: pytest.MonkeyPatch, used: set[Right]) -> None:
    import kopf._cogs.clients.api as kopf_api  # noqa: PLC0415 - the one place where all its requests pass

    request = kopf_api.request

    async def noted(method: str, url: str, **options: Any) -> Any:
        right = right_of(method, url)
        if right is not None:
            used.add(right)
        return await request(method, url, **options)

    monkeypatch.setattr(kopf_api, "request", noted)


def right_of(method: str, url: str) -> Right | None:
    """Tell which right a request needs; None for discovery, which everybody may."""
    address = urlsplit(url)
    parts = address.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > _DISCOVERY:
        rest = rest[2:]
    if not rest:
        return None
    resource = f"{rest[0]}/{rest[2]}" if len(rest) > _DISCOVERY else rest[0]
    if method.lower() != "get":
        return group, resource, _VERBS[method.lower()]
    watched = parse_qs(address.query).get("watch") == ["true"]
    return group, resource, "watch" if watched else "list" if len(rest) == 1 else "get"
