"""Answers for people: `Table` and `PartialObjectMetadata` instead of whole objects.

`kubectl get` asks for `application/json;as=Table` and prints what it is given; which columns a
built-in kind has is in `builtin_columns`, those of custom ones are the CRD's printer columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from numazones import jsonpath
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Column

UNKNOWN = "<unknown>"
NONE = "<none>"

_OBJECT_NAME = "Name must be unique within a namespace."
_AGE = "CreationTimestamp is the server's time when the object was created."

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
# Up to which age, in which unit, and with which smaller unit after it.
_STEPS: Final = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def human_duration(seconds: float) -> str:
    """A duration as kubectl prints ages: two units while the first is small (`90s`, `5m30s`, `3h2m`)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    for limit, (unit, name), smaller in _STEPS:
        if whole < limit:
            text = f"{max(whole, 0) // unit}{name}"
            rest = whole % unit // smaller[0] if smaller is not None else 0
            return f"{text}{rest}{smaller[1]}" if smaller is not None and rest else text
    return f"{whole // _YEAR}y"


def instant(timestamp: Any) -> datetime | None:
    """The time that a field holds, None when it holds none."""
    if not isinstance(timestamp, str):
        return None
    try:
        return datetime.fromisoformat(timestamp)
    except ValueError:
        return None


def age(timestamp: Any) -> str:
    """How long ago a timestamp is."""
    then = instant(timestamp)
    if then is None:
        return UNKNOWN
    return human_duration((datetime.now(UTC) - then).total_seconds())


def name_column() -> Column:
    """The first column of almost every table."""
    return Column("Name", lambda obj: obj["metadata"]["name"], format="name", description=_OBJECT_NAME)


def age_column() -> Column:
    """The last column of almost every table."""
    return Column("Age", lambda obj: age(obj["metadata"].get("creationTimestamp")), description=_AGE)


def custom_columns(printer_columns: Iterable[Mapping[str, Any]] | None) -> tuple[Column, ...]:
    """The columns of a custom resource: its name, then the CRD's, or its age when there are none."""
    declared = list(printer_columns or ())
    if not declared:
        declared = [
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": _AGE}
        ]
    return (
        name_column(),
        *(
            Column(
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


def column_definitions(columns: Iterable[Column]) -> list[Object]:
    """The heads of a table."""
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
    columns: tuple[Column, ...],
    objects: Iterable[Object],
    metadata: Object,
    *,
    include: str = "Metadata",
    heads: bool = True,
) -> Object:
    """A table of objects; `include` is what each row carries: None, Metadata or Object."""
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
