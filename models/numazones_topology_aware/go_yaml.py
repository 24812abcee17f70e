"""YAML in annotations as the plugin's library (sigs.k8s.io/yaml) reads it: YAML 1.1, then JSON rules.

Where the program wants text, numbers and booleans become text; field names match whatever their case;
strict reading rejects unknown fields and keys that appear twice.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from numazones.apimachinery.documents import ANNOTATION, UnreadableDocument, read_yaml


class InvalidDocument(ValueError):
    """A text is not YAML, or not of the shape that is needed."""


def load(text: str, *, strict: bool = False) -> Any:
    """Return the document as plain values.

    Raises:
        InvalidDocument: the text is not YAML or too much of it, or strictly read has a key twice.
    """
    document = _read(text, strict=strict)
    if isinstance(document, InvalidDocument):
        raise InvalidDocument(*document.args)
    return document


@lru_cache(maxsize=128)
def _read(text: str, *, strict: bool) -> Any:
    """Return the document or the error: every node asks for a pod's annotations again."""
    try:
        return read_yaml(text, ANNOTATION, unique_keys=strict)
    except UnreadableDocument as error:
        return InvalidDocument(f"not YAML: {error}")


def short_text(value: Any) -> str:
    """Return a value for a message; lists and mappings by kind alone, as aliases can make them enormous."""
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else f"{value!r:.80}"


def text(value: Any) -> str:
    """Return a scalar as the text that the program expects.

    Raises:
        InvalidDocument: it is a list or a mapping.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value!r}"
    raise InvalidDocument(f"{short_text(value)} is not a string")


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts; nothing is the empty list.

    Raises:
        InvalidDocument: it is something else.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidDocument(f"{short_text(value)} is not a list")
    return tuple(text(item) for item in value)


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping with keys as text; nothing is the empty mapping.

    Raises:
        InvalidDocument: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidDocument(f"{short_text(value)} is not a mapping")
    return {text(key): item for key, item in value.items()}


def fields(value: Any, *names: str, strict: bool = False) -> dict[str, Any]:
    """Return a mapping's values by field, whatever the case of its keys.

    Raises:
        InvalidDocument: it is not a mapping, or strictly read has another key.
    """
    found = {}
    for key, item in mapping(value).items():
        name = next((name for name in names if name.lower() == key.lower()), None)
        if name is not None:
            found[name] = item
        elif strict:
            raise InvalidDocument(f"unknown field {key!r}")
    return found
