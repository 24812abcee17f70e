"""The published schemas of the built-in kinds, from the ``kubernetes-validate`` package.

Its files are the project's own OpenAPI definitions of each Kubernetes release, with list types,
merge keys and descriptions: what validation, strategic merge, server-side apply and
``kubectl explain`` need. The release is 1.37; rules that schemas do not tell are those of 1.36, which the
server was compared with.
"""

import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from numazones_apiserver.errors import Object
from numazones_apiserver.schema import Schema, compile_schema

RELEASE = (1, 37)
VERSION = "v{}.{}.0".format(*RELEASE)
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


def file() -> Any:
    """The one file that is read: of the reference release, else of the newest the installed package has."""
    root = files("kubernetes_validate") / "kubernetes-json-schema"
    found: dict[tuple[int, int], Any] = {}
    for folder in root.iterdir():
        match = re.fullmatch(r"v(\d+)\.(\d+)\.\d+-local", folder.name)
        if match:
            found[int(match[1]), int(match[2])] = folder
    return (found.get(RELEASE) or found[max(found)]) / "_definitions.json"


@cache
def by_name() -> dict[str, Object]:
    """Every definition by its name, as published (JSON schema; null is allowed everywhere)."""
    document = orjson.loads(file().read_bytes())
    definitions: dict[str, Object] = document["$defs"]
    return definitions


@cache
def names() -> dict[tuple[str, str, str], str]:
    """The definition's name by (group, version, kind)."""
    found: dict[tuple[str, str, str], str] = {}
    for name, definition in by_name().items():
        for one in definition.get("x-kubernetes-group-version-kind") or ():
            found.setdefault((one["group"], one["version"], one["kind"]), name)
    return found


# Fields that are keys of list maps and may be left out; the published schemas do not tell their defaults.
_KEY_DEFAULTS = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
}
_compiled: dict[str, Schema] = {}


def schema(name: str) -> Schema:
    """The compiled schema of a definition; definitions may refer to themselves."""
    known = _compiled.get(name)
    if known is not None:
        return known
    compiled = _compiled[name] = Schema()
    if name == _QUANTITY:
        compiled.preserve, compiled.format = True, "quantity"
    elif name == _INT_OR_STRING:
        compiled.int_or_string = True
    else:
        source = by_name()[name]
        compile_schema(source, _schema_at, into=compiled)
        for field, value in _KEY_DEFAULTS.get(name, {}).items():
            compiled.properties[field] = replace(compiled.properties[field], default=value)
        # Raw JSON: an object, or a value of any type, of which nothing more is said.
        if compiled.type in ("", "object") and not compiled.properties and compiled.values is None:
            compiled.preserve = True
    return compiled


def _schema_at(reference: str) -> Schema:
    return schema(reference.rsplit("/", 1)[-1])


def schema_of(group: str, version: str, kind: str) -> Schema:
    """The compiled schema of a built-in kind."""
    return schema(names()[group, version, kind])


def openapi(definition: Any) -> Any:
    """A published definition in OpenAPI v3's dialect: one type, references to components."""
    if isinstance(definition, list):
        return [openapi(item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    converted: Object = {}
    for key, value in definition.items():
        if key == "$ref":
            reference = {"$ref": f"#/components/schemas/{value.rsplit('/', 1)[-1]}"}
            if "description" in definition:  # OpenAPI 3.0 ignores what stands beside a reference
                converted["allOf"] = [reference]
            else:
                converted.update(reference)
        elif key == "type" and isinstance(value, list):
            converted["type"] = next(one for one in value if one != "null")
        elif key == "properties":
            converted[key] = {name: openapi(one) for name, one in value.items()}
        elif key == "enum" and definition.get("type") == ["string", "null"]:
            continue  # the generator's pinning of apiVersion and kind
        else:
            converted[key] = openapi(value)
    return converted


def references(definition: Any) -> set[str]:
    """The names of all definitions that one refers to directly."""
    if isinstance(definition, list):
        return set().union(*(references(item) for item in definition), set())
    if not isinstance(definition, dict):
        return set()
    found = {definition["$ref"].rsplit("/", 1)[-1]} if isinstance(definition.get("$ref"), str) else set()
    return found.union(*(references(value) for value in definition.values()), set())
