"""Holds documents against what their classes say of them, however deep they are."""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from numazones.apimachinery.answer import or_left_out, parts_of


def differences(value: Any, kind: Any, path: str = "") -> Iterator[str]:
    """Yield what of a document is not as described: fields too many or too few, values of another type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from differences(value, arguments[0], path)
    elif origin in (Union, UnionType):
        found = [list(differences(value, one, path)) for one in arguments]
        if all(found):
            yield from min(found, key=len)
    elif not _is_of_type(value, kind):
        yield f"{path} is {value!r}, and no {_type_of(kind).__name__}"
    elif parts_of(kind):
        yield from _of_object(value, kind, path)
    elif isinstance(value, list | dict):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from differences(item, arguments[-1 if isinstance(value, dict) else 0], f"{path}[{name}]")


def _is_of_type(value: Any, kind: Any) -> bool:
    return type(value) is _type_of(kind) or (kind is float and type(value) is int)


def _type_of(kind: Any) -> type:
    """Return the type that JSON has for it."""
    origin = get_origin(kind) or kind
    if origin is None:
        return type(None)
    if parts_of(origin) or origin in {dict, Mapping}:
        return dict
    if origin in {list, tuple, Sequence}:
        return list
    return str if issubclass(origin, str) else origin


def _of_object(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    parts = {
        part.name: part.kind for part in parts_of(kind) if part.write is not or_left_out or part.name in value
    }
    for name in sorted(parts.keys() ^ value.keys()):
        yield f"{path}.{name} is {'missing' if name in parts else 'not described'}"
    for name in parts.keys() & value.keys():
        yield from differences(value[name], parts[name], f"{path}.{name}")


def objects_in(kind: Any) -> Iterator[Any]:
    """Yield the objects that a description is made of."""
    if isinstance(kind, type) and parts_of(kind):
        yield kind
        for part in parts_of(kind):
            yield from objects_in(part.kind)
    else:
        for part in get_args(kind):
            yield from objects_in(part)
