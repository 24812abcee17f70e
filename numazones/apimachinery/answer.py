"""Serialise a value as a JSON document with documented fields: one rule for every surface.

A field or property belongs to the document if its type is annotated with a sentence, which the reference
page shows. A function after the sentence writes the value: ``Annotated[int, "In use.", format_bytes]``.
Names are camelCase with Kubernetes' initialisms unless ``Named`` gives another. ``ANSWER`` in a class lists
the parts in their order, where some of them are properties or not in the order of the fields; ``TITLE`` is
what the reference page calls the class, where that is not its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import isfunction
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

_INITIALISMS = {"cpu": "CPU", "cpus": "CPUs", "id": "ID", "ids": "IDs", "numa": "NUMA", "uid": "UID"}


class Named(str):
    """The name of a field in documents, where it is not that of the attribute."""

    __slots__ = ()


class DocumentField(NamedTuple):
    """One field of a document."""

    attribute: str
    name: str
    """As JSON has it."""
    kind: Any
    """Its type there."""
    sentence: str
    write: Callable[[Any], Any] | None


def json_name(name: str) -> str:
    """Return the JSON name of a field, camelCase with Kubernetes' initialisms: ``numa_ids`` → ``numaIDs``."""
    first, *rest = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


def or_null(value: T) -> T | None:
    """Write null for what is empty or 0."""
    return value or None


def or_left_out(value: T) -> T | None:
    """Leave out what is empty or 0."""
    return value or None


@cache
def parts_of(kind: type) -> tuple[DocumentField, ...]:
    """Return the fields that values of a class have as documents; none for other classes."""
    if not (is_dataclass(kind) or hasattr(kind, "_fields")):
        return ()
    hints = get_type_hints(kind, include_extras=True)
    fields_of = kind._fields if hasattr(kind, "_fields") else [field.name for field in fields(kind)]
    names = getattr(kind, "ANSWER", fields_of)
    found = ((name, hints.get(name) or _returned(getattr(kind, name))) for name in names)
    return tuple(part for name, hint in found for part in _part(name, hint))


def _returned(part: property) -> Any:
    return get_type_hints(part.fget, include_extras=True)["return"]


def _part(attribute: str, hint: Any) -> tuple[DocumentField, ...]:
    if get_origin(hint) is not Annotated:
        return ()
    kind, *notes = get_args(hint)
    sentence = next((str(note) for note in notes if type(note) is str), None)
    if sentence is None:
        return ()
    name = next((str(note) for note in notes if isinstance(note, Named)), json_name(attribute))
    write = next((note for note in notes if note is str or isfunction(note)), None)
    if write is or_null or write is or_left_out:
        kind = kind | None
    elif write is not None:
        kind = str if write is str else get_type_hints(write)["return"]
    return (DocumentField(attribute, name, kind, sentence, write),)


def title_of(kind: type) -> str:
    """Return what the reference page calls a class."""
    return str(getattr(kind, "TITLE", kind.__name__))


def document(value: Any) -> Any:
    """Return a value as JSON has it, down to its last part."""
    if parts := parts_of(value.__class__):
        return {
            part.name: _written(part, found)
            for part in parts
            if (found := getattr(value, part.attribute)) or part.write is not or_left_out
        }
    if isinstance(value, Mapping):
        return {str(name): document(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(document, value))
    return str(value) if isinstance(value, str) else value


def _written(part: DocumentField, value: Any) -> Any:
    return document(value if part.write is None else part.write(value))
