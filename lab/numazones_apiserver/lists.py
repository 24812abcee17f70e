"""Lists: consistent pages of what is, or was, in a collection.

The meaning of resourceVersion, resourceVersionMatch, limit and continue is that of the Kubernetes
documentation, "API concepts". A page is cut from the state at the first page's revision, which the
collection's history can reproduce until it is compacted.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from numazones_apiserver import errors
from numazones_apiserver.errors import FieldError, Object
from numazones_apiserver.kinds import Kind
from numazones_apiserver.requests import number, resource_version
from numazones_apiserver.selectors import Selection
from numazones_apiserver.store import Collection, Store, Version


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some versions of objects, and the list's own metadata."""

    versions: list[Version]
    metadata: Object


def _token(revision: int, after: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": revision, "start": list(after)})).decode()


def _read_token(text: str) -> tuple[int, tuple[str, str]]:
    try:
        token: Any = orjson.loads(base64.urlsafe_b64decode(text.encode()))
        namespace, name = token["start"]
        return int(token["rv"]), (str(namespace), str(name))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def check_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Raise StatusError 422 for combinations of parameters that have no meaning."""
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    found: list[FieldError] = []
    if match and not watch:
        if not version:
            found.append(
                errors.forbidden_field(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                )
            )
        if query.get("continue"):
            found.append(
                errors.forbidden_field(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
                )
            )
        if match not in ("Exact", "NotOlderThan"):
            found.append(errors.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            found.append(
                errors.forbidden_field(
                    "resourceVersionMatch",
                    'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                )
            )
    if watch and match and not query.get("sendInitialEvents"):
        found.append(
            errors.forbidden_field(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if watch and query.get("sendInitialEvents") and match != "NotOlderThan":
        found.append(
            errors.forbidden_field(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if not watch and query.get("sendInitialEvents"):
        found.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if found:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", found)


def page(
    store: Store,
    collection: Collection,
    namespace: str,
    selection: Selection,
    query: Mapping[str, str],
    kind: Kind,
) -> ListPage:
    """The page of a collection that the query asks for; raises StatusError 400, 410, 422 or 504."""
    check_options(query, watch=False)
    limit = number(query, "limit") or 0
    asked = resource_version(query)
    token = query.get("continue", "")
    revision, after = _read_token(token) if token else (store.revision, None)
    if token and asked:
        raise errors.bad_request("specifying resource version is not allowed when using continue")
    if asked is not None and asked > store.revision:
        raise errors.too_large_resource_version(asked, store.revision)
    exact = query.get("resourceVersionMatch") == "Exact" or (
        limit and asked and not query.get("resourceVersionMatch")
    )
    if exact and asked:
        revision = asked
        if revision < collection.compact_revision:
            raise errors.resource_expired(
                f"too old resource version: {asked} ({collection.compact_revision})"
            )
    if asked == 0 and not token:
        limit = 0  # served from the watch cache, which knows no pages
    return _cut(collection, namespace, selection, revision, after, limit, kind)


def _cut(
    collection: Collection,
    namespace: str,
    selection: Selection,
    revision: int,
    after: tuple[str, str] | None,
    limit: int,
    kind: Kind,
) -> ListPage:
    snapshot = collection.at(revision, namespace)
    keys = snapshot.keys
    at = bisect_right(keys, after) if after is not None else 0
    found: list[Version] = []
    while at < len(keys) and not (limit and len(found) == limit):
        version = snapshot[keys[at]]
        if selection.everything or selection.matches(_form(version, kind)):
            found.append(version)
        at += 1
    metadata: Object = {"resourceVersion": str(revision)}
    if selection.everything:
        rest = len(keys) - at
        if rest:
            metadata |= {"continue": _token(revision, keys[at - 1]), "remainingItemCount": rest}
    elif any(selection.matches(_form(snapshot[key], kind)) for key in keys[at:]):
        metadata["continue"] = _token(revision, keys[at - 1])
    return ListPage(found, metadata)


def _form(version: Version, kind: Kind) -> Object:
    return kind.from_storage(version.object) if kind.from_storage is not None else version.object


def json_items(versions: list[Version], kind: Kind) -> list[bytes]:
    """The objects as JSON in the form of the kind's version."""
    if kind.from_storage is None:
        return [version.json() for version in versions]
    return [orjson.dumps(kind.from_storage(version.object)) for version in versions]


def body(page_: ListPage, kind: Kind) -> bytes:
    """The list as JSON."""
    head = orjson.dumps({"kind": kind.list_name, "apiVersion": kind.api_version, "metadata": page_.metadata})
    return b"".join((head[:-1], b',"items":[', b",".join(json_items(page_.versions, kind)), b"]}"))
