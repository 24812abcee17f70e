"""Zones as a table, with the columns that ``kubectl get numazones`` shows.

Columns and their JSON paths are those of the custom resource, so that both look alike; objects that were
never published have no age.
"""

import re
from collections.abc import Sequence
from typing import Any

from numazones.api.numazone import NUMAZONE, NUMAZone

_UNKNOWN = "<none>"
_GAP = "   "
_SELECTED = re.compile(r'\[\?\(@\.(\w+)=="([^"]*)"\)\]')


def render(zones: Sequence[NUMAZone]) -> str:
    """Write one line per zone below the columns' names; cells are aligned to the left as kubectl does."""
    columns = [column for column in NUMAZONE.columns if column.priority == 0 and column.type != "date"]
    documents = [zone.to_api() for zone in zones]
    rows = [[column.name.upper() for column in columns]]
    rows += [[_cell(document, column.json_path) for column in columns] for document in documents]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    lines = (_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(document: Any, path: str) -> str:
    """Follow a printer column's path: fields, and ``[?(@.key=="value")]`` to choose from a list."""
    value = document
    for step in _steps(path):
        if isinstance(step, tuple):
            key, wanted = step
            value = next((item for item in value or () if item.get(key) == wanted), None)
        else:
            value = None if value is None else value.get(step)
    return _UNKNOWN if value is None or value == "" else str(value)


def _steps(path: str) -> list[str | tuple[str, str]]:
    steps: list[str | tuple[str, str]] = []
    for part in re.split(r"\.(?![^\[]*\])", path.removeprefix(".")):
        field, bracket, _ = part.partition("[")
        steps.append(field)
        if bracket:
            match = _SELECTED.fullmatch(part[len(field) :])
            if match is None:
                raise ValueError(f"the column path {path!r} uses more of JSONPath than columns here do")
            steps.append((match[1], match[2]))
    return steps
