"""Parse a request's method, path and query.

Paths are those of the Kubernetes API: ``/api/v1/...`` for the core group, ``/apis/GROUP/VERSION/...``
for the others, ``namespaces/NAMESPACE/`` before namespaced resources.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from numazones_apiserver import errors

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request as it came, over HTTP or from a client in the same process."""

    method: str
    path: str
    """Without percent encoding."""
    query: MultiMapping[str]
    headers: CIMultiDict[str] | CIMultiDictProxy[str]
    body: bytes = b""

    @property
    def content_type(self) -> str:
        """The media type of the body, without parameters."""
        given = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return given or "application/octet-stream"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request for a resource."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


def read(method: str, path: str, query: Mapping[str, str]) -> RequestInfo | None:
    """The request for a resource; None when the path is not that of a resource."""
    match [part for part in path.split("/") if part]:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    match rest:
        case ["namespaces", _, "status" | "finalize", *_]:
            pass  # of the namespace itself
        case ["namespaces", namespace, _, *_]:
            rest = rest[2:]
    resource, name, subresource, *deeper = [*rest, "", ""]
    where = [part for part in deeper if part]
    return RequestInfo(
        _verb(method, name, query), group, version, resource, namespace, name, subresource, "/".join(where)
    )


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in _VERBS:
        return _VERBS[method]
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if method not in ("GET", "HEAD"):
        raise errors.method_not_allowed()
    if not name and flag(query, "watch"):
        return "watch"
    return "get" if name else "list"


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter, true for ``1``, ``true`` and ``t``."""
    return query.get(name, "").lower() in ("1", "true", "t")


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number; raises StatusError 400."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def resource_version(query: Mapping[str, str]) -> int | None:
    """The resourceVersion parameter, None when it is absent; raises StatusError 400."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isdigit():
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)
