"""Compares documents with their descriptions in ``kubectl_numazones.printing.documents``, at any depth."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict


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
    elif is_typeddict(kind):
        yield from _of_object(value, kind, path)
    elif origin in (list, dict):
        for name, item in value.items() if origin is dict else enumerate(value):
            yield from differences(item, arguments[-1], f"{path}[{name}]")


def _is_of_type(value: Any, kind: Any) -> bool:
    return type(value) is _type_of(kind) or (kind is float and type(value) is int)


def _type_of(kind: Any) -> type:
    if kind is None:
        return type(None)
    return dict if is_typeddict(kind) else get_origin(kind) or kind


def _of_object(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    fields = get_type_hints(kind, include_extras=True)
    for name in sorted(fields.keys() ^ value.keys()):
        yield f"{path}.{name} is {'missing' if name in fields else 'not described'}"
    for name in fields.keys() & value.keys():
        yield from differences(value[name], fields[name], f"{path}.{name}")


def objects_in(kind: Any) -> Iterator[Any]:
    """Yield the objects that a description is made of."""
    if is_typeddict(kind):
        yield kind
        for field in get_type_hints(kind, include_extras=True).values():
            yield from objects_in(field)
    else:
        for part in get_args(kind):
            yield from objects_in(part)
