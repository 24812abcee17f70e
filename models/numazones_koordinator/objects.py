"""Reading objects of the API as mappings, with their shape checked.

Raises:
    InvalidNode: a value has not the shape that its field has; the message names it.
"""

from collections.abc import Mapping
from typing import Any

from numazones.errors import NumazonesError
from numazones_koordinator.amounts import parse_amounts
from numazones_koordinator.status import InvalidNode


def mapping(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that is an object; empty if it is not there."""
    value = parent.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidNode(f"{name} must be a mapping, not {type(value).__name__}")
    return value


def texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a member that maps words to words, such as labels."""
    return {str(key): str(value) for key, value in mapping(parent, name).items()}


def items(
    parent: Mapping[str, Any], name: str, invalid: type[NumazonesError] = InvalidNode
) -> list[Mapping[str, Any]]:
    """A member that is a list of objects, empty if it is not there; ``invalid`` is raised otherwise."""
    listed = parent.get(name) or []
    if not isinstance(listed, list | tuple) or not all(isinstance(item, Mapping) for item in listed):
        raise invalid(f"{name} is not a list of mappings")
    return list(listed)


def words(parent: Mapping[str, Any], name: str) -> list[str]:
    """Return a member that is a list of words."""
    listed = parent.get(name) or []
    if not isinstance(listed, list | tuple):
        raise InvalidNode(f"{name} must be a list, not {type(listed).__name__}")
    return [str(word) for word in listed]


def integer(
    parent: Mapping[str, Any], name: str, *, least: int, most: int, default: int | None = None
) -> int:
    """Return a member that is a number within bounds."""
    value = parent.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidNode(f"{name} must be a number from {least} to {most}, not {value!r:.50}")
    return value


def quantities(parent: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return a member that maps resources to quantities.

    Raises:
        InvalidQuantity: a value is no quantity.
    """
    return parse_amounts({str(key): value for key, value in mapping(parent, name).items()})
