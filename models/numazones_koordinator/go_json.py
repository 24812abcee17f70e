"""JSON as Go's ``encoding/json`` reads it into structs: its errors to the letter, its leniency in full.

Koordinator keeps its API in annotations, so that what Go accepts, and the text of what it rejects, is
part of the behaviour: keys match without regard to case, the last of repeated keys wins, ``null``
leaves a field as it is, unknown keys are ignored, and numbers must fit the field's type.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_SHOWN = {"'": "\\'", "\\": "\\\\"} | {
    control: f"\\{letter}" for control, letter in zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True)
}


class GoJSONError(Exception):
    """Go rejects the text; the message is Go's."""


def decode(text: str) -> Any:
    """Read a JSON text.

    Raises:
        GoJSONError: a syntax error, as Go words it.
    """
    try:
        _Scanner(text).check()
        return json.loads(text)
    except RecursionError:
        raise GoJSONError("exceeded max depth") from None
    except ValueError:  # Python rejects integers of thousands of digits, which fit no Go type either
        raise GoJSONError("json: cannot unmarshal number into Go value") from None


def members(value: Any, where: str) -> dict[str, Any]:
    """The members of an object by lower-case name; ``null`` has none.

    Raises:
        GoJSONError: the value is no object; ``where`` names the Go type.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise GoJSONError(f"json: cannot unmarshal {kind(value)} into Go value of type {where}")
    return {str(name).lower(): member for name, member in value.items() if member is not None}


def text(found: Mapping[str, Any], name: str, field: str, type_: str = "string") -> str:
    """A field of a string type; empty if it is not there.

    Raises:
        GoJSONError: the value is no string; ``field`` and ``type_`` are the struct's.
    """
    value = found.get(name.lower(), "")
    if not isinstance(value, str):
        raise mismatch(value, field, type_)
    return value


def integer(found: Mapping[str, Any], name: str, field: str) -> int:
    """A field of type int32; 0 if it is not there.

    Raises:
        GoJSONError: the value is no integer of 32 bits.
    """
    value = found.get(name.lower(), 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise mismatch(value, field, "int32")
    if not -(2**31) <= value < 2**31:
        raise mismatch(value, field, "int32")
    return value


def boolean(found: Mapping[str, Any], name: str, field: str) -> bool | None:
    """A field of type bool; None if it is not there.

    Raises:
        GoJSONError: the value is neither true nor false.
    """
    value = found.get(name.lower())
    if value is not None and not isinstance(value, bool):
        raise mismatch(value, field, "bool")
    return value


def mismatch(value: Any, field: str, type_: str) -> GoJSONError:
    """The error for a value of the wrong type in a field."""
    return GoJSONError(f"json: cannot unmarshal {kind(value)} into Go struct field {field} of type {type_}")


def kind(value: Any) -> str:
    """What Go calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, int):
        return f"number {value}" if abs(value) >= 2**31 else "number"
    return f"number {value}"


class _Scanner:
    """Walks over a text until Go's scanner would stop."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def check(self) -> None:
        self._value()
        self._skip()
        if self.at < len(self.text):
            raise self._invalid("after top-level value")

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def _next(self) -> str:
        """The character at hand."""
        if self.at >= len(self.text):
            raise GoJSONError("unexpected end of JSON input")
        return self.text[self.at]

    def _invalid(self, where: str) -> GoJSONError:
        # Go's scanner walks over bytes and shows the first one of a character.
        byte = chr(self._next().encode("utf-8", "surrogatepass")[0])
        shown = _SHOWN.get(byte) or (byte if byte.isprintable() else f"\\x{ord(byte):02x}")
        return GoJSONError(f"invalid character '{shown}' {where}")

    def _value(self) -> None:
        self._skip()
        first = self._next()
        if first == "{":
            self._object()
        elif first == "[":
            self._array()
        elif first == '"':
            self._string()
        elif first == "-" or (first.isascii() and first.isdigit()):
            self._number()
        elif first in _LITERALS:
            self._literal(_LITERALS[first])
        else:
            raise self._invalid("looking for beginning of value")

    def _object(self) -> None:
        self.at += 1
        self._skip()
        if self._next() == "}":
            self.at += 1
            return
        while True:
            self._skip()
            if self._next() != '"':
                raise self._invalid("looking for beginning of object key string")
            self._string()
            self._skip()
            if self._next() != ":":
                raise self._invalid("after object key")
            self.at += 1
            self._value()
            self._skip()
            if self._next() == "}":
                self.at += 1
                return
            if self._next() != ",":
                raise self._invalid("after object key:value pair")
            self.at += 1

    def _array(self) -> None:
        self.at += 1
        self._skip()
        if self._next() == "]":
            self.at += 1
            return
        while True:
            self._value()
            self._skip()
            if self._next() == "]":
                self.at += 1
                return
            if self._next() != ",":
                raise self._invalid("after array element")
            self.at += 1

    def _string(self) -> None:
        self.at += 1
        while (character := self._next()) != '"':
            if character < " ":
                raise self._invalid("in string literal")
            self.at += 1
            if character == "\\":
                self._escape()
        self.at += 1

    def _escape(self) -> None:
        if self._next() in _ESCAPES:
            self.at += 1
            return
        if self._next() != "u":
            raise self._invalid("in string escape code")
        self.at += 1
        for _ in range(4):
            if self._next() not in _HEX:
                raise self._invalid("in \\u hexadecimal character escape")
            self.at += 1

    def _number(self) -> None:
        match = _NUMBER.match(self.text, self.at)
        if match is None:  # a minus sign without a digit
            self.at += 1
            raise self._invalid("in numeric literal")
        self.at = match.end()
        if self.at == len(self.text):
            return
        follows = self.text[self.at]
        if follows == "." and match[2] is None and match[3] is None:
            self.at += 1
            raise self._invalid("after decimal point in numeric literal")
        if follows in "eE" and match[3] is None:
            self.at += 1
            if self._next() in "+-":
                self.at += 1
            raise self._invalid("in exponent of numeric literal")

    def _literal(self, word: str) -> None:
        for expected in word:
            if self._next() != expected:
                raise self._invalid(f"in literal {word} (expecting '{expected}')")
            self.at += 1
