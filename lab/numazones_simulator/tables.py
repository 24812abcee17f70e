"""Asks the API server for a table, and writes it the way ``kubectl get`` does.

So the demo shows the very columns that users see, without needing kubectl. Columns come from the server
(meta/v1 Table); their layout is that of kubectl's printer: upper-case titles, columns three spaces apart.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp

from numazones.errors import NumazonesError
from numazones_program.columns import Column, cells, shown

_ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io"
_GAP = 3
_NARROW_GAP = 2
_MINIMUM = 6
_BAD = 400


class NoTable(NumazonesError):
    """The server did not answer with a table; the message names the path."""


async def fetch(server: str, path: str) -> Mapping[str, Any]:
    """Return the Table of a collection.

    Raises:
        NoTable: the server rejects, or answers otherwise.
    """
    headers = {"Accept": _ACCEPT}
    async with aiohttp.ClientSession() as session, session.get(server + path, headers=headers) as answer:
        body = await answer.json()
        if answer.status >= _BAD or body.get("kind") != "Table":
            raise NoTable(f"{path}: {body.get('message') or 'the server did not return a table'}")
        table: Mapping[str, Any] = body
        return table


def render(table: Mapping[str, Any], *, wide: bool = False, columns: int | None = None) -> str:
    """Lay out a Table as text; the empty text for a table without rows.

    ``wide``: also show the columns that ``-o wide`` shows; ``columns``: how wide it may be: what is the
    same in all rows goes first, then the last columns.
    """
    definitions = [
        Column(one["name"].upper(), partial(_cell, index), wide=bool(one.get("priority")))
        for index, one in enumerate(table["columnDefinitions"])
    ]
    listed = shown(definitions, wide=wide)
    rows = [[*map(str, cells(listed, row["cells"]))] for row in table.get("rows") or ()]
    if not rows:
        return ""
    lines = [[column.title for column in listed], *rows]
    return _lay_out(lines) if columns is None else _lay_out(_narrowed(lines, columns), gap=_NARROW_GAP)


def _narrowed(lines: list[list[str]], columns: int) -> list[list[str]]:
    """Leave out what says least, until the rest fits; the first column stays."""
    while len(lines[0]) > 1 and max(map(len, _lay_out(lines, gap=_NARROW_GAP).splitlines())) > columns:
        same = [
            column for column in range(1, len(lines[0])) if len({line[column] for line in lines[1:]}) == 1
        ]
        out = same[-1] if same else len(lines[0]) - 1
        lines = [line[:out] + line[out + 1 :] for line in lines]
    return lines


def _lay_out(lines: Sequence[Sequence[str]], *, gap: int = _GAP) -> str:
    widths = [
        max(_MINIMUM if gap == _GAP else 0, max(map(len, column)) + gap)
        for column in zip(*lines, strict=True)
    ]
    padded = (
        [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)] + [line[-1]]
        for line in lines
    )
    return "".join("".join(cells) + "\n" for cells in padded)


def _cell(index: int, row: Sequence[Any]) -> str:
    value = row[index]
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).split("\n", 1)[0]
