"""Answers for people: ``Table`` and ``PartialObjectMetadata`` instead of whole objects.

``kubectl get`` asks for ``application/json;as=Table`` and prints what it is given; which columns a
built-in kind has is in ``builtin_columns``, those of custom ones are the CRD's printer columns.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from numazones.apimachinery import jsonpath
from numazones.apimachinery.duration import human_duration
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import TableColumn

UNKNOWN = "<unknown>"
NONE = "<none>"

_OBJECT_NAME = "Name must be unique within a namespace."
_AGE = "CreationTimestamp is the server's time when the object was created."


def instant(timestamp: Any) -> datetime | None:
    """The time that a field holds, None when it holds none."""
    if not isinstance(timestamp, str):
        return None
    try:
        return datetime.fromisoformat(timestamp)
    except ValueError:
        return None


def age(timestamp: Any) -> str:
    """Return the age of a timestamp."""
    then = instant(timestamp)
    if then is None:
        return UNKNOWN
    return human_duration((datetime.now(UTC) - then).total_seconds())


def name_column() -> TableColumn:
    """The first column of almost every table."""
    return TableColumn("Name", lambda obj: obj["metadata"]["name"], format="name", description=_OBJECT_NAME)


def age_column() -> TableColumn:
    """The last column of almost every table."""
    return TableColumn("Age", lambda obj: age(obj["metadata"].get("creationTimestamp")), description=_AGE)


def custom_columns(printer_columns: Iterable[Mapping[str, Any]] | None) -> tuple[TableColumn, ...]:
    """The columns of a custom resource: its name, then the CRD's, or its age when there are none."""
    declared = list(printer_columns or ())
    if not declared:
        declared = [
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": _AGE}
        ]
    return (
        name_column(),
        *(
            TableColumn(
                one["name"],
                _custom_cell(one["jsonPath"], one["type"]),
                type=one["type"],
                format=one.get("format", ""),
                description=one.get("description")
                or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}",
                priority=one.get("priority", 0),
            )
            for one in declared
        ),
    )


def _custom_cell(path: str, kind: str) -> Callable[[Object], Any]:
    def cell(obj: Object) -> Any:
        found = jsonpath.find(obj, path)
        return _cell_value(found[0], kind) if found and found[0] is not None else None

    return cell


def _cell_value(value: Any, kind: str) -> Any:
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return orjson.dumps(value).decode() if isinstance(value, dict | list) else str(value)
    if kind == "date":
        return age(value) if isinstance(value, str) else UNKNOWN
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if kind == "integer" else float(value)


def column_definitions(columns: Iterable[TableColumn]) -> list[Object]:
    """The column definitions of a table."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]


def partial_metadata(obj: Object) -> Object:
    """Only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(
    columns: tuple[TableColumn, ...],
    objects: Iterable[Object],
    metadata: Object,
    *,
    include: str = "Metadata",
    heads: bool = True,
) -> Object:
    """A table of objects; ``include`` is what each row carries: None, Metadata or Object."""
    rows = []
    for obj in objects:
        row: Object = {"cells": [column.cell(obj) for column in columns]}
        if include != "None":
            row["object"] = obj if include == "Object" else partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": column_definitions(columns) if heads else [],
        "rows": rows,
    }
