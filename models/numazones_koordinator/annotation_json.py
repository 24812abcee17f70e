"""JSON in annotations, as leniently as koord-scheduler reads it.

Rules: Go's ``encoding/json``. Keys match without regard to case, the last of repeated keys wins, ``null``
leaves a field as it is, unknown keys are ignored, and numbers must fit the field's type. Of Go's error texts
the two are kept that a broken annotation has in practice: it is cut off, or is no JSON at all. They are what
the scheduler's events say; everything else is said in a sentence of our own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.documents import JSON_ANNOTATION, UnreadableDocument, read_json
from numazones_koordinator.amounts import Amounts, parse_amounts

_CUT_OFF = "unexpected end of JSON input"
_MAX_INT32 = 2**31 - 1


class UnreadableAnnotation(Exception):
    """The scheduler cannot read an annotation."""

    def __init__(self, key: str, why: str, message: str = "") -> None:
        super().__init__(message or f"annotation {key} is not what koord-scheduler expects: {why}")
        self.key = key
        self.why = why


def decode(key: str, text: str) -> Any:
    """Return the JSON value in the annotation ``key``.

    Raises:
        UnreadableAnnotation: the text is not JSON.
    """
    try:
        return read_json(text, JSON_ANNOTATION)
    except UnreadableDocument as error:
        cause = error.__cause__
        if not isinstance(cause, json.JSONDecodeError):
            raise UnreadableAnnotation(key, str(error)) from None
        go = _message_of_go(text, cause)
        raise UnreadableAnnotation(key, go or f"{cause.msg} at character {cause.pos}", go) from None


def _message_of_go(text: str, error: json.JSONDecodeError) -> str:
    """Return the scheduler's message on a text that is cut off, or on a character that begins no value."""
    if error.pos >= len(text.rstrip(" \t\r\n")) or error.msg.startswith("Unterminated string"):
        return _CUT_OFF
    first = text[error.pos]
    if error.msg == "Expecting value" and first.isascii() and first.isalpha() and first not in "tfn":
        return f"invalid character '{first}' looking for beginning of value"
    return ""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object in an annotation."""

    key: str
    """Of the annotation."""
    values: Mapping[str, Any]
    """By lower-case name; those that are null are left out."""

    @classmethod
    def of(cls, key: str, value: Any) -> "Fields":
        """The fields of an object; ``null`` has none.

        Raises:
            UnreadableAnnotation: the value is not an object.
        """
        if value is None:
            return cls(key, {})
        if not isinstance(value, Mapping):
            raise UnreadableAnnotation(key, f"{_short_text(value)} is not an object")
        return cls(key, {name.lower(): member for name, member in value.items() if member is not None})

    @classmethod
    def read(cls, annotations: Mapping[str, str], key: str) -> "Fields":
        """The fields of the object in an annotation; an absent annotation has none.

        Raises:
            UnreadableAnnotation: the annotation is not an object in JSON.
        """
        return cls.of(key, decode(key, annotations[key])) if key in annotations else cls(key, {})

    def text(self, name: str) -> str:
        """A string; empty if it is not there.

        Raises:
            UnreadableAnnotation: the value is not a string.
        """
        value = self.values.get(name.lower(), "")
        if not isinstance(value, str):
            raise self.mismatch(name, value, "a string")
        return value

    def integer(self, name: str) -> int:
        """An integer of 32 bits; 0 if it is not there.

        Raises:
            UnreadableAnnotation: the value is not one.
        """
        value = self.values.get(name.lower(), 0)
        if isinstance(value, bool) or not isinstance(value, int) or not ~_MAX_INT32 <= value <= _MAX_INT32:
            raise self.mismatch(name, value, "an integer of 32 bits")
        return value

    def boolean(self, name: str) -> bool | None:
        """A boolean; None if it is not there.

        Raises:
            UnreadableAnnotation: the value is neither true nor false.
        """
        value = self.values.get(name.lower())
        if value is not None and not isinstance(value, bool):
            raise self.mismatch(name, value, "true or false")
        return value

    def objects(self, name: str) -> "list[Fields]":
        """A list of objects; empty if it is not there.

        Raises:
            UnreadableAnnotation: the value is not one.
        """
        return objects(self.key, name, self.values.get(name.lower(), []))

    def quantities(self, name: str) -> Amounts:
        """A map from resources to quantities; empty if it is not there.

        Raises:
            UnreadableAnnotation: the value is not one.
        """
        listed = self.values.get(name.lower(), {})
        if not isinstance(listed, Mapping):
            raise self.mismatch(name, listed, "a map from resources to quantities")
        try:
            return parse_amounts({key: "0" if amount is None else amount for key, amount in listed.items()})
        except (quantity.InvalidQuantity, AttributeError, TypeError) as error:
            raise UnreadableAnnotation(self.key, f"{name} holds a value that is not a quantity") from error

    def mismatch(self, name: str, value: Any, type_: str) -> UnreadableAnnotation:
        """Return the error for a value of the wrong type in a field."""
        return UnreadableAnnotation(self.key, f"{name} is {_short_text(value)}, not {type_}")


def objects(key: str, name: str, items: Any) -> list[Fields]:
    """The fields of each object in a list.

    Raises:
        UnreadableAnnotation: it is not a list of objects.
    """
    if not isinstance(items, list):
        raise UnreadableAnnotation(key, f"{name} is {_short_text(items)}, not a list")
    return [Fields.of(key, item) for item in items]


def _short_text(value: Any) -> str:
    """Return a value for a message; lists and objects by kind alone, because they may be long."""
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, Mapping) else f"{json.dumps(value):.50}"
