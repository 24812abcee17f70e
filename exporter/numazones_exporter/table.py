"""Zones as a table, with the columns that ``kubectl get numazones`` shows.

Columns and their JSON paths are those of the custom resource, so that both look alike; objects that were
never published have no age.
"""

from collections.abc import Sequence
from typing import Any

from numazones.api.numazone import NUMAZONE, NUMAZone
from numazones.apimachinery import jsonpath
from numazones.wording import visible

_GAP = "   "


def render(zones: Sequence[NUMAZone]) -> str:
    """Write one line per zone below the columns' names; cells are aligned to the left as kubectl does."""
    columns = [column for column in NUMAZONE.columns if column.priority == 0 and column.type != "date"]
    documents = [zone.to_api() for zone in zones]
    rows = [["NAME", *(column.name.upper() for column in columns)]]
    rows += [
        [document["metadata"]["name"], *(_cell(document, column.json_path) for column in columns)]
        for document in documents
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = (_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(document: Any, path: str) -> str:
    """Follow a printer column's path; of several results the first counts, and none is an empty cell."""
    found = jsonpath.find(document, path)
    return visible(str(found[0]), lines=False) if found else ""
