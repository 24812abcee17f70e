"""Writes docs/reference/answers.md: the fields of what ``kubectl numazones … -o json`` answers."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from kubectl_numazones.printing.documents import DOCUMENTS

_NAMES = {str: "string", int: "integer", bool: "boolean", float: "number", type(None): "null", Any: "any"}
_INTRODUCTION = """# Answers of kubectl numazones

What `-o json` and `-o yaml` answer, and what `-o jsonpath=TEMPLATE` looks into (`{.items[*].node}`,
`{range .items[*]}…{end}`, `{"\\n"}`, as kubectl's). Amounts of memory are Kubernetes quantities, sets of CPUs
lists such as `0-3,8`; null is what is not known or not there. Fields may be added; those that are there keep
their meaning.
"""


def page() -> str:
    """Return the page, without its header."""
    parts = [_INTRODUCTION]
    told: set[str] = set()
    for command, document in DOCUMENTS.items():
        parts.append(f"\n## {command}\n\n{_capitalized(_about(document).partition(': ')[2])}\n")
        parts += _tables(document, told)
    return "".join(parts)


def _tables(document: Any, told: set[str]) -> Iterator[str]:
    """Yield the table of a document's fields, then those of objects in it that have none yet."""
    fields = get_type_hints(document, include_extras=True)
    rows = "".join(f"| `{name}` | {_shown(kind)} | {_doc(kind)} |\n" for name, kind in fields.items())
    yield f"\n| field | type | |\n|---|---|---|\n{rows}"
    for kind in fields.values():
        for inner in _objects(kind):
            if inner.__name__ not in told:
                told.add(inner.__name__)
                yield f"\n### {inner.__name__}\n\n{_about(inner)}\n"
                yield from _tables(inner, told)


def _about(document: Any) -> str:
    return " ".join((document.__doc__ or "").split())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _doc(kind: Any) -> str:
    return str(kind.__metadata__[0]).replace("|", "\\|") if get_origin(kind) is Annotated else ""


def _shown(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _shown(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_shown, get_args(kind)))
    if get_origin(kind) is list:
        return f"list of {_shown(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"object of {_shown(get_args(kind)[1])} by name"
    return _NAMES.get(kind) or f"[{kind.__name__}](#{kind.__name__.lower()})"


def _objects(kind: Any) -> Iterator[Any]:
    if is_typeddict(kind):
        yield kind
    for part in get_args(kind):
        yield from _objects(part)
