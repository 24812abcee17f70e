"""Reads fields of resource.k8s.io objects; whoever calls turns what is raised into ``InvalidObject``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numazones.apimachinery.quantity import Quantity, parse

Part = Mapping[str, Any]


def text(parent: Part, name: str) -> str:
    """Return a text, empty where it is absent; raises TypeError where it is something else."""
    value = parent.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    return value


def number(parent: Part, name: str) -> int:
    """Return an integer, 0 where it is absent; raises TypeError where it is something else."""
    value = parent.get(name)
    if value is None:
        return 0
    if not is_number(value):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return int(value)


def is_number(value: object) -> bool:
    """Return whether a JSON value is an integer; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def part(parent: Part, name: str) -> Part:
    """Return a mapping, an empty one where it is absent; raises TypeError where it is something else."""
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def parts(parent: Part, name: str) -> Iterator[Part]:
    """Yield the mappings of a list; raises TypeError where it is something else."""
    for item in items(parent, name):
        if not isinstance(item, Mapping):
            raise TypeError(f"items of {name} must be mappings, not {type(item).__name__}")
        yield item


def amounts(parent: Part, name: str, *, within: str = "") -> dict[str, Quantity]:
    """Return name → amount of a mapping; ``within``: the field of its values that holds the amount."""
    return {
        key: parse(part({key: value}, key).get(within) if within else value)
        for key, value in part(parent, name).items()
    }


def amount(parent: Part, name: str) -> Quantity | None:
    """Return an amount, None where it is absent."""
    value = parent.get(name)
    return None if value is None else parse(value)


def items(parent: Part, name: str) -> Sequence[Any]:
    """Return a list, an empty one where it is absent; raises TypeError where it is something else."""
    value = parent.get(name)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list, not {type(value).__name__}")
    return value


def texts(parent: Part, name: str) -> tuple[str, ...]:
    """Return a list of texts, an empty one where it is absent; raises TypeError for anything else."""
    found = items(parent, name)
    if not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} is not a list of strings")
    return tuple(found)
