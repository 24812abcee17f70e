"""CustomResourceDefinitions from the pydantic models: structural schemas, columns, rules.

Rules: structural schemas of apiextensions/v1
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/).
References are inlined, ``None`` becomes ``nullable``, integers are int64. Defaults are written only
under ``spec``, where people leave things out; in ``status`` an absent field means what its
description says. ``make crds`` writes the generated files.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from numazones.api.meta import GROUP, UNPUBLISHED, VERSION, APIObject, PrinterColumn
from numazones.api.numazone import NUMAZone
from numazones.api.prediction import AdmissionPrediction
from numazones.api.rebalance import RebalancePolicy, RebalanceRecommendation
from numazones.errors import NumazonesError

KINDS: tuple[type[APIObject], ...] = (
    NUMAZone,
    AdmissionPrediction,
    RebalancePolicy,
    RebalanceRecommendation,
)
"""Every kind of the group."""

CATEGORY = "numa"
"""``kubectl get numa`` lists objects of all kinds of the group."""

# Keywords that mean the same in JSON Schema and in a structural schema.
_KEPT = frozenset(
    {
        "type",
        "format",
        "description",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "pattern",
    }
)
_DROPPED = frozenset({"title", "$defs", "properties", "required", "items", "additionalProperties", "default"})


class UnsupportedSchema(NumazonesError):
    """A model uses something that a structural schema cannot express; the message names field and keyword."""


def crd(kind: type[APIObject]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind.

    Raises:
        UnsupportedSchema: the model cannot be expressed in a structural schema.
    """
    resource = kind.RESOURCE
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in resource.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.crd_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.singular,
                "shortNames": list(resource.short_names),
                "categories": [CATEGORY],
            },
            "scope": resource.scope,
            "versions": [version],
        },
    }


def _column(column: PrinterColumn) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    if column.priority:
        entry["priority"] = column.priority
    return entry


def _root(kind: type[APIObject]) -> dict[str, Any]:
    schema = json.loads(_json_schema(kind))
    definitions = schema.get("$defs", {})
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string", "description": f"Version of the schema, {GROUP}/{VERSION}."},
        "kind": {"type": "string", "description": f"{kind.RESOURCE.kind}."},
        "metadata": {"type": "object"},
    }
    for part in ("spec", "status"):
        properties[part] = _structural(
            schema["properties"][part], definitions, path=part, defaults=part == "spec"
        )
        properties[part].pop("nullable", None)
    return {
        "type": "object",
        "description": kind.RESOURCE.description,
        "required": ["spec"],
        "properties": properties,
    }


@cache
def _json_schema(kind: type[APIObject]) -> str:
    """Return pydantic's JSON schema of a kind, cached as it is slow; as text, as callers may change it."""
    return json.dumps(kind.model_json_schema(by_alias=True))


def _structural(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], *, path: str, defaults: bool
) -> dict[str, Any]:
    """Turn one JSON Schema into a structural one."""
    schema = _resolve(schema, definitions)
    unknown = [key for key in schema if key not in _KEPT | _DROPPED and not key.startswith("x-kubernetes-")]
    if unknown and set(unknown) != {"nullable"}:
        raise UnsupportedSchema(f"{path}: {', '.join(unknown)} cannot be expressed in a structural schema")
    result = {key: value for key, value in schema.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    if schema.get("nullable"):
        result["nullable"] = True
    if schema.get("type") == "integer":
        result["format"] = "int64"
    if schema.get("x-kubernetes-int-or-string"):
        del result["type"]
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if defaults and schema.get("default") not in (None, "", []):
        result["default"] = schema["default"]
    _add_children(result, schema, definitions, path=path, defaults=defaults)
    return result


def _add_children(
    result: dict[str, Any],
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    *,
    path: str,
    defaults: bool,
) -> None:
    if "required" in schema:
        result["required"] = schema["required"]
    if "properties" in schema:
        result["properties"] = {
            name: _structural(value, definitions, path=f"{path}.{name}", defaults=defaults)
            for name, value in schema["properties"].items()
            if UNPUBLISHED not in value
        }
    if "items" in schema:
        result["items"] = _structural(schema["items"], definitions, path=f"{path}[]", defaults=defaults)
    if isinstance(schema.get("additionalProperties"), Mapping):
        result["additionalProperties"] = _structural(
            schema["additionalProperties"], definitions, path=f"{path}{{}}", defaults=defaults
        )


def _resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Inline a reference and fold ``X or null`` into X; what stands beside them wins."""
    resolved = dict(schema)
    if reference := resolved.pop("$ref", None):
        return _resolve({**definitions[reference.rpartition("/")[2]], **resolved}, definitions)
    if alternatives := resolved.pop("anyOf", None):
        present = [option for option in alternatives if option != {"type": "null"}]
        if len(present) != 1 or len(present) == len(alternatives):
            raise UnsupportedSchema(
                f"a choice between {alternatives} cannot be expressed in a structural schema"
            )
        return {**_resolve(present[0], definitions), **resolved, "nullable": True}
    return resolved
