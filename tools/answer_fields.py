"""Writes docs/reference/answers.md: the fields of what ``kubectl numazones … -o json`` answers."""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from kubectl_numazones.documents import DOCUMENTS
from numazones.apimachinery.answer import parts_of, title_of

_NAMES = {str: "string", int: "integer", bool: "boolean", float: "number", type(None): "null", Any: "any"}
_INTRODUCTION = """# Answers of kubectl numazones

The documents that `-o json` and `-o yaml` print. `-o jsonpath=TEMPLATE` reads the same fields
(`{.items[*].node}`,
`{range .items[*]}…{end}`, `{"\\n"}`, as in kubectl). Amounts of memory are Kubernetes quantities, and sets of
CPUs are lists such as `0-3,8`; null means unknown or absent. New fields may be added; existing fields keep
their meaning.
"""


def page() -> str:
    """Return the page, without its header."""
    parts = [_INTRODUCTION]
    told: set[Any] = set()
    for command, document in DOCUMENTS.items():
        parts.append(f"\n## {command}\n\n{_capitalized(_about(document).partition(': ')[2])}\n")
        parts += _tables(document, told)
    return "".join(parts)


def _tables(document: Any, told: set[Any]) -> Iterator[str]:
    """Yield the table of a document's fields, then those of objects in it that have none yet."""
    parts = parts_of(document)
    rows = "".join(f"| `{one.name}` | {_shown(one.kind)} | {_escaped(one.sentence)} |\n" for one in parts)
    yield f"\n| field | type | |\n|---|---|---|\n{rows}"
    for one in parts:
        for inner in _objects(one.kind):
            if inner not in told:
                told.add(inner)
                yield f"\n### {title_of(inner)}\n\n{_about(inner)}\n"
                yield from _tables(inner, told)


def _about(document: Any) -> str:
    return " ".join((document.__doc__ or "").split())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _shown(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_shown, get_args(kind)))
    if get_origin(kind) in {list, tuple, Sequence}:
        return f"list of {_shown(get_args(kind)[0])}"
    if get_origin(kind) in {dict, Mapping}:
        return f"object of {_shown(get_args(kind)[1])} by name"
    if isinstance(kind, type) and issubclass(kind, str):
        return "string"
    return _NAMES.get(kind) or f"[{title_of(kind)}](#{title_of(kind).lower()})"


def _objects(kind: Any) -> Iterator[Any]:
    if isinstance(kind, type) and parts_of(kind):
        yield kind
    for part in get_args(kind):
        yield from _objects(part)
