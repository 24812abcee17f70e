"""Functions that Kubernetes adds to CEL, and the limits of what an evaluation makes.

``quantity`` with its methods and ``jsonpatch.escapeKey`` follow kubernetes.io, "Common Expression Language in
Kubernetes". The CEL library takes no types of others, so a quantity is a map with one key that no object can
have; two are equal when their amounts are. ``find`` and ``findAll`` are left out: Python's regular
expressions may take for ever.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cel_expr_python import cel

from numazones import quantity
from numazones_apiserver.admission_policies.syntax import LIMIT, LIMITED_METHODS

_QUANTITY_KEY = "\1quantity"
_NANO = 10**9
_INT64 = range(-(2**63), 2**63)
_MAX_VALUE = 1024 * 1024
_MAX_TOTAL = 16 * _MAX_VALUE

_TEXT, _WHOLE, _BOOL, _DOUBLE = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL, cel.Type.DOUBLE
_TEXTS = cel.Type.List(cel.Type.STRING)
_QUANTITY = cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
# Every type that a value may have when a function is called; the library asks for each by name.
_ANY = {
    "bool": cel.Type.BOOL,
    "int": cel.Type.INT,
    "uint": cel.Type.UINT,
    "double": cel.Type.DOUBLE,
    "string": cel.Type.STRING,
    "bytes": cel.Type.BYTES,
    "list": cel.Type.List(cel.Type.DYN),
    "map": cel.Type.Map(cel.Type.DYN, cel.Type.DYN),
    "null": cel.Type.NULL,
    "timestamp": cel.Type.TIMESTAMP,
    "duration": cel.Type.DURATION,
}


@dataclass(slots=True)
class Limits:
    """How much an evaluation may make, in characters and elements, and how much it has made."""

    made: int = field(default=0)

    def count(self, amount: int) -> None:
        """Count what is about to be made; raises ValueError beyond the limit."""
        self.made += amount
        if amount > _MAX_VALUE or self.made > _MAX_TOTAL:
            raise ValueError("the expression makes too much: its evaluation was given up")

    def limited(self, value: Any) -> Any:
        """The value, once it is counted."""
        self.count(_size(value))
        return value

    def replaced(self, text: str, old: str, new: str, count: int = -1) -> str:
        """``text.replace(old, new)``, where a negative count means all."""
        found = text.count(old) if count < 0 else min(count, text.count(old))
        self.count(len(text) + found * max(len(new) - len(old), 0))
        return text.replace(old, new, count)

    def joined(self, texts: list[Any], separator: str = "") -> str:
        """``texts.join(separator)``."""
        parts = [str(text) for text in texts]
        self.count(sum(len(part) + len(separator) for part in parts))
        return separator.join(parts)


def _size(value: Any) -> int:
    """Characters and elements of a value, no more of them than are needed to see that it is too large."""
    size, left = 0, [value]
    while left and size <= _MAX_VALUE:
        one = left.pop()
        size += 1
        if isinstance(one, str | bytes | bytearray):
            size += len(one)
        elif isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.keys()
            left += one.values()
    return size


def _function(name: str, result: cel.Type, *parameters: cel.Type, impl: Callable[..., Any]) -> cel.Overload:
    return cel.Overload(name, result, list(parameters), impl=impl)


def _method(name: str, result: cel.Type, *parameters: cel.Type, impl: Callable[..., Any]) -> cel.Overload:
    return cel.Overload(name, result, list(parameters), is_member=True, impl=impl)


def declarations(limits: Limits) -> list[cel.FunctionDecl]:
    """All functions for one environment, whose evaluations count together in ``limits``."""
    escape = _function("escape_key", _TEXT, _TEXT, impl=_escaped_key)
    found: dict[str, list[cel.Overload]] = {"jsonpatch.escapeKey": [escape]}
    for name, overload in (*_quantity_functions(), *_limited_functions(limits)):
        found.setdefault(name, []).append(overload)
    return [cel.FunctionDecl(name, overloads) for name, overloads in found.items()]


def _limited_functions(limits: Limits) -> Iterator[tuple[str, cel.Overload]]:
    for name, one in _ANY.items():
        yield LIMIT, _function(f"limited_{name}", one, one, impl=limits.limited)
    replace, join = LIMITED_METHODS["replace"], LIMITED_METHODS["join"]
    yield replace, _method("limited_replace", _TEXT, _TEXT, _TEXT, _TEXT, impl=limits.replaced)
    counted = _method("limited_replace_count", _TEXT, _TEXT, _TEXT, _TEXT, _WHOLE, impl=limits.replaced)
    yield replace, counted
    yield join, _method("limited_join", _TEXT, _TEXTS, impl=limits.joined)
    yield join, _method("limited_join_separator", _TEXT, _TEXTS, _TEXT, impl=limits.joined)


def _escaped_key(key: str) -> str:
    """A key as JSON pointers write it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


# --- quantities ------------------------------------------------------------------------------


def _quantity_functions() -> Iterator[tuple[str, cel.Overload]]:
    one, text = _QUANTITY, _TEXT
    yield "quantity", _function("quantity", one, text, impl=_parsed)
    yield "isQuantity", _function("is_quantity", _BOOL, text, impl=_is_quantity)
    yield "isInteger", _method("quantity_is_integer", _BOOL, one, impl=_is_integer)
    yield "asInteger", _method("quantity_as_integer", _WHOLE, one, impl=_as_integer)
    yield "asApproximateFloat", _method("quantity_as_float", _DOUBLE, one, impl=lambda a: _nanos(a) / _NANO)
    yield "sign", _function("quantity_sign", _WHOLE, one, impl=lambda a: _sign(_nanos(a)))
    for name, sign in (("add", 1), ("sub", -1)):
        yield name, _method(f"quantity_{name}", one, one, one, impl=_sum(sign))
        yield name, _method(f"quantity_{name}_int", one, one, _WHOLE, impl=_sum(sign))
    for name, signs in (("isLessThan", (-1,)), ("isGreaterThan", (1,))):
        yield name, _method(f"quantity_{name}", _BOOL, one, one, impl=_comparison(signs))
    yield (
        "compareTo",
        _method("quantity_compare", _WHOLE, one, one, impl=lambda a, b: _sign(_nanos(a) - _nanos(b))),
    )


def _value(nanos: int) -> dict[str, str]:
    return {_QUANTITY_KEY: str(nanos)}


def _nanos(value: dict[str, Any]) -> int:
    amount = value.get(_QUANTITY_KEY)
    if amount is None:
        raise ValueError("no such overload: a map is no quantity")
    return int(amount)


def _parsed(text: str) -> dict[str, str]:
    try:
        return _value(quantity.parse(text).nanos)
    except quantity.InvalidQuantity as error:
        raise ValueError(str(error)) from error


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except quantity.InvalidQuantity:
        return False
    return True


def _is_integer(value: dict[str, Any]) -> bool:
    whole, rest = divmod(_nanos(value), _NANO)
    return not rest and whole in _INT64


def _as_integer(value: dict[str, Any]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nanos(value) // _NANO


def _sign(amount: int) -> int:
    return (amount > 0) - (amount < 0)


def _sum(sign: int) -> Callable[[dict[str, Any], dict[str, Any] | int], dict[str, str]]:
    def add(value: dict[str, Any], other: dict[str, Any] | int) -> dict[str, str]:
        amount = other * _NANO if isinstance(other, int) else _nanos(other)
        return _value(_nanos(value) + sign * amount)

    return add


def _comparison(signs: tuple[int, ...]) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
    return lambda value, other: _sign(_nanos(value) - _nanos(other)) in signs
