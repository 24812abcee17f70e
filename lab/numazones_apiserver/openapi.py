"""``/openapi/v3``: an index, and one document of schemas and paths per group and version.

``kubectl explain`` reads the schemas; ``kubectl apply`` reads from the paths whether a PATCH knows
dryRun and fieldValidation, and from the schemas how lists merge.
"""

import hashlib
from typing import Any

import orjson

from numazones_apiserver import definitions
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind, Registry

OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
OPENAPI_V2_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""What that is called in an answer: an at sign would be no media type."""
_QUERY = ("pretty", "dryRun", "fieldManager", "fieldValidation")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def _path(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{root}{scope}/{kind.plural}"


def _parameter(name: str, where: str = "query", kind: str = "string") -> Object:
    return {
        "name": name,
        "in": where,
        "schema": {"type": kind, "uniqueItems": True},
        "required": where == "path",
    }


def _operation(
    kind: Kind, action: str, verb: str, parameters: list[Object], *, body: list[str] | None = None
) -> Object:
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    reference = {"$ref": f"#/components/schemas/{_component(kind)}"}
    operation: Object = {
        "operationId": f"{verb}{kind.kind}{action}",
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity,
    }
    if body is not None:
        schema = reference if action != "patch" else {"type": "object"}
        operation["requestBody"] = {"content": {media: {"schema": schema} for media in body}}
    return operation


def _component(kind: Kind) -> str:
    if not kind.custom:
        return definitions.names()[kind.group, kind.version, kind.kind]
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def _paths(kind: Kind) -> Object:
    media = [one for one in _PATCHES if not (kind.custom and "strategic" in one)]
    query = [_parameter(name) for name in _QUERY]
    lists = [
        *(_parameter(name) for name in ("labelSelector", "fieldSelector", "resourceVersion", "continue")),
        _parameter("limit", kind="integer"),
        _parameter("watch", kind="boolean"),
    ]
    where = [_parameter("namespace", "path")] if kind.namespaced else []
    named = [*where, _parameter("name", "path")]
    collection: Object = {
        "get": _operation(kind, "list", "list", lists),
        "post": _operation(kind, "post", "create", query, body=["application/json", "application/yaml"]),
        "delete": _operation(kind, "deletecollection", "deleteCollection", lists),
    }
    single: Object = {
        "get": _operation(kind, "get", "read", []),
        "put": _operation(kind, "put", "replace", query, body=["application/json", "application/yaml"]),
        "patch": _operation(
            kind, "patch", "patch", [*query, _parameter("force", kind="boolean")], body=media
        ),
        "delete": _operation(
            kind, "delete", "delete", [_parameter("dryRun"), _parameter("propagationPolicy")]
        ),
    }
    if where:
        collection["parameters"] = where
    single["parameters"] = named
    paths: Object = {_path(kind): collection, f"{_path(kind)}/{{name}}": single}
    if "status" in kind.subresources:
        status = {name: single[name] for name in ("get", "put", "patch", "parameters")}
        paths[f"{_path(kind)}/{{name}}/status"] = status
    return paths


def _schemas(kinds: list[Kind]) -> Object:
    schemas: Object = {}
    needed: set[str] = set()
    for kind in kinds:
        if kind.openapi is not None:
            schemas[_component(kind)] = kind.openapi()
            needed.add(definitions.OBJECT_META)
        else:
            needed.add(_component(kind))
    while needed:
        name = needed.pop()
        if name not in schemas:
            definition = definitions.by_name()[name]
            schemas[name] = definitions.openapi(definition)
            needed |= definitions.references(definition)
    return schemas


def _field(number: int, value: bytes) -> bytes:
    """Write a field of protobuf whose value is bytes, fewer than 128."""
    return bytes((number << 3 | 2, len(value))) + value


class OpenAPI:
    """The documents, made when asked for and kept until the served kinds change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made_for = -1
        self._documents: dict[str, bytes] = {}

    def document(self, path: str) -> bytes | None:
        """The document of ``api/v1`` or ``apis/GROUP/VERSION``."""
        self._refresh()
        if path not in self._documents:
            group, _, version = path.partition("/")[2].rpartition("/")
            kinds = self._registry.of(group, version)
            if not kinds or path != self._name(kinds[0]):
                return None
            self._documents[path] = orjson.dumps(self._build(kinds))
        return self._documents[path]

    def index(self) -> Object:
        """``/openapi/v3``: where each document is, with a hash so that clients may keep it."""
        self._refresh()
        paths: dict[str, Any] = {}
        for path in sorted({self._name(kind) for kind in self._registry}):
            kinds = self._registry.of(*path.partition("/")[2].rpartition("/")[::2])
            seed = "".join(
                f"{kind.plural}{orjson.dumps(kind.openapi()).hex() if kind.openapi else ''}" for kind in kinds
            )
            digest = hashlib.sha256(seed.encode()).hexdigest()[:32].upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    @staticmethod
    def without_schemas() -> bytes:
        """``/openapi/v2`` as kubectl asks for it, in protobuf, with no schema in it.

        kubectl looks there for the schema of a ``kind: List``, which is no resource, and of its items; where
        it finds none, the server validates. Fields of openapi.v2.Document: swagger (1), info (2), in it
        title (1) and version (2).
        """
        info = _field(1, b"Kubernetes") + _field(2, definitions.VERSION.encode())
        return _field(1, b"2.0") + _field(2, info)

    def _refresh(self) -> None:
        if self._made_for != self._registry.changes:
            self._documents.clear()
            self._made_for = self._registry.changes

    @staticmethod
    def _name(kind: Kind) -> str:
        return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"

    @staticmethod
    def _build(kinds: list[Kind]) -> Object:
        paths: Object = {}
        for kind in kinds:
            paths |= _paths(kind)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": definitions.VERSION},
            "paths": paths,
            "components": {"schemas": _schemas(kinds)},
        }
