"""Operators and functions of CEL itself, and of its extensions for strings, lists and sets.

Each takes values and returns one; ``evaluation`` has dealt with errors of arguments. Texts of errors are
those of cel-go. What an evaluation costs is in ``costs``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any

from numazones.apimachinery import duration, timestamp
from numazones.apimachinery.cel.values import (
    COMPARABLE,
    NO_OVERLOAD,
    NONE,
    DefaultingMap,
    Duration,
    Failure,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Unsupported,
    Value,
    compare,
    equal,
    type_name,
    whole_number,
)
from numazones.errors import NumazonesError

Function = Callable[..., Value]
_NANO = 10**9
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_MAX_UINT64 = 2**64
_MOST_MADE = 2**20
_INT64_EDGE = 2.0**63
_MOMENTS = range(-62135596800 * _NANO, 253402300800 * _NANO)
"""Nanoseconds since 1970 of the years 1 to 9999."""


def no_overload(name: str) -> Failure:
    """Return the error of a function that does not take such values."""
    return Failure(f"no such overload: {name}")


def taking(name: str, *kinds: type) -> Callable[[Function], Function]:
    """Make a function that has an error for values of other types than these; the last may be missing."""

    def decorate(function: Function) -> Function:
        def checked(*values: Value) -> Value:
            if any(type(value) is not kind for value, kind in zip(values, kinds, strict=False)):
                return no_overload(name) if name else NO_OVERLOAD
            return function(*values)

        return checked

    return decorate


def _bounded(size: int) -> None:
    """Refuse to make a text or list that no use of the language needs; Kubernetes has no such bound."""
    if size > _MOST_MADE:
        raise Unsupported("a text or list of more than a million elements")


# --- operators -------------------------------------------------------------------------------


def _relation(name: str, holds: Callable[[int], bool]) -> Function:
    def function(left: Value, right: Value) -> Value:
        order = compare(left, right)
        if isinstance(order, Failure):
            return order if type(left) is not tuple else no_overload(name)
        return holds(order)

    return function


def _not_equal(left: Value, right: Value) -> Value:
    same = equal(left, right)
    return same if isinstance(same, Failure) else not same


def _add(left: Value, right: Value) -> Value:  # noqa: PLR0911 - a line per type
    kind, other = type(left), type(right)
    if kind is not other:
        pair = {kind, other}
        if pair == {Timestamp, Duration}:
            return _moment(int(left) + int(right))
        return NO_OVERLOAD
    if kind is int:
        return whole_number(left + right)
    if kind is Uint:
        return _uint(int(left) + int(right), "unsigned integer overflow")
    if kind is Duration:
        return _span(int(left) + int(right))
    if kind is float:
        return left + right
    if kind in (str, bytes, tuple):
        _bounded(len(left) + len(right))
        return left + right
    return NO_OVERLOAD if kind is bool else no_overload("_+_")


def _subtract(left: Value, right: Value) -> Value:
    kind, other = type(left), type(right)
    if kind is Timestamp and other in (Timestamp, Duration):
        return (_span if other is Timestamp else _moment)(int(left) - int(right))
    if kind is not other:
        return NO_OVERLOAD
    if kind is int:
        return whole_number(left - right)
    if kind is Uint:
        return _uint(int(left) - int(right), "unsigned integer overflow")
    if kind is Duration:
        return _span(int(left) - int(right))
    return left - right if kind is float else no_overload("_-_")


def _multiply(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is int:
        return whole_number(left * right)
    if kind is Uint:
        return _uint(int(left) * int(right), "unsigned integer overflow")
    return left * right if kind is float else no_overload("_*_")


def _divide(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind is float:
        if right:
            return left / right
        return float("nan") if left != left or not left else float("inf") * left  # noqa: PLR0124 - NaN
    if kind not in (int, Uint):
        return no_overload("_/_")
    if not right:
        return Failure("division by zero")
    return Uint(int(left) // int(right)) if kind is Uint else whole_number(_truncated(left, right))


def _modulo(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        return NO_OVERLOAD
    if kind not in (int, Uint):
        return no_overload("_%_")
    if not right:
        return Failure("modulus by zero")
    if kind is Uint:
        return Uint(int(left) % int(right))
    quotient = whole_number(_truncated(left, right))
    return quotient if isinstance(quotient, Failure) else left - right * quotient


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return whole_number(-value)
    if kind is Duration:
        return _span(-int(value))
    return -value if kind is float else no_overload("-_")


def _negation(value: Value) -> Value:
    return not value if type(value) is bool else NO_OVERLOAD


def _uint(value: int, problem: str) -> Value:
    return Uint(value) if 0 <= value < _MAX_UINT64 else Failure(problem)


def _span(nanoseconds: int) -> Value:
    found = whole_number(nanoseconds)
    return found if isinstance(found, Failure) else Duration(found)


def _moment(nanoseconds: int) -> Value:
    return Timestamp(nanoseconds) if nanoseconds in _MOMENTS else Failure("timestamp overflow")


def contains_value(value: Value, container: Value) -> Value:
    """Return ``value in container``."""
    if isinstance(container, dict):
        return key_of(value) in container
    if type(container) is tuple:
        return any(equal(one, value) is True for one in container)
    return NO_OVERLOAD


def key_of(value: Value) -> Value:
    """Return what a map has as the key for a value; doubles that are whole are keys of integers."""
    return int(value) if type(value) is float and value.is_integer() else value


def index(container: Value, key: Value) -> Value:  # noqa: PLR0911 - a line per type
    """Return ``container[key]``."""
    kind = type(container)
    if isinstance(container, dict):
        found = container.get(key_of(key), ABSENT) if _is_key(key) else ABSENT
        if found is not ABSENT:
            return found
        if kind is DefaultingMap and type(key) is str:
            return {}
        return Failure(f"no such key: {shown(key)}")
    if kind is tuple:
        position = key_of(key)
        if type(position) not in (int, Uint):
            return Failure(f"unsupported index type '{type_name(key)}' in list")
        if 0 <= position < len(container):
            return container[position]
        return Failure(f"index out of bounds: {position}")
    return Failure(f"no such key: {shown(key)}")


def find(container: Value, key: Value) -> Value:
    """Return ``container[key]``, or ``ABSENT`` where there is no such entry."""
    if isinstance(container, dict):
        found = container.get(key_of(key), ABSENT) if _is_key(key) else ABSENT
        return {} if found is ABSENT and type(container) is DefaultingMap and type(key) is str else found
    if type(container) is tuple:
        found = index(container, key)
        beyond = isinstance(found, Failure) and type(key_of(key)) in (int, Uint)
        return ABSENT if beyond else found
    return ABSENT


ABSENT = object()
"""What ``find`` returns for an entry that is not there."""


def _is_key(value: Value) -> bool:
    return type(value) in (str, int, Uint, float)


def shown(value: Value) -> str:
    """Write a value for an error message."""
    return str(int(value)) if isinstance(value, int) else str(value)


# --- conversions -----------------------------------------------------------------------------


_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,20})")


def _whole(text: str) -> int | None:
    """Read a whole number; None: it is none, or beyond 64 bits by far."""
    found = _WHOLE.fullmatch(text)
    return int(found[1] + found[2]) if found else None


def _not_converted(name: str, source: str = "string") -> Failure:
    return Failure(f"type conversion error from '{source}' to '{name}'")


def _to_int(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return value
    if kind is Uint:
        return whole_number(int(value))
    if kind is float:
        inside = -_INT64_EDGE < value < _INT64_EDGE
        return int(value) if inside else Failure("integer overflow")
    if kind is str:
        number = _whole(value)
        outside = number is None or isinstance(whole_number(number), Failure)
        return _not_converted("int") if outside else number
    if kind in (Timestamp, Duration):
        return int(value) // _NANO if kind is Timestamp else int(value)
    return no_overload("int")


def _to_uint(value: Value) -> Value:
    kind = type(value)
    if kind in (int, Uint):
        return _uint(int(value), "unsigned integer overflow")
    if kind is float:
        inside = 0 <= value < 2 * _INT64_EDGE
        return Uint(value) if inside else Failure("unsigned integer overflow")
    if kind is str:
        number = None if value[:1] in ("+", "-") else _whole(value)
        return _not_converted("uint") if number is None or number >= _MAX_UINT64 else Uint(number)
    return no_overload("uint")


_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan", re.IGNORECASE
)
_INFINITE = (float("inf"), float("-inf"))


def _to_double(value: Value) -> Value:
    kind = type(value)
    if kind in (int, Uint, float):
        return float(value)
    if kind is str:
        number = float(value) if _FLOAT.fullmatch(value) else None
        too_large = number in _INFINITE and value[-1].isdigit()
        return _not_converted("double") if number is None or too_large else number
    return no_overload("double")


def _to_string(value: Value) -> Value:  # noqa: PLR0911 - a line per type
    kind = type(value)
    if kind is str:
        return value
    if kind is bool:
        return "true" if value else "false"
    if kind in (int, Uint):
        return str(int(value))
    if kind is float:
        return _double_text(value)
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Failure("invalid UTF-8 in bytes, cannot convert to string")
    if kind is Duration:
        return f"{_decimal(value, _NANO)}s"
    if kind is Timestamp:
        seconds, rest = divmod(int(value), _NANO)
        date = (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
        return f"{date}{_decimal(rest, _NANO).removeprefix('0')}Z"
    return no_overload("string")


def _decimal(value: int, unit: int) -> str:
    """A quotient, with as many digits as it needs."""
    return f"{Decimal(value) / unit:f}"


def _double_text(value: float) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if value in _INFINITE:
        return "+Inf" if value > 0 else "-Inf"
    shortest = Decimal(repr(value)).normalize()
    if _PLAIN_FROM <= shortest.adjusted() < _PLAIN_BELOW:
        return f"{shortest:f}"
    digits, _, exponent = f"{shortest:e}".partition("e")
    return f"{digits}e{exponent[0]}{exponent[1:]:0>2}"


_PLAIN_FROM, _PLAIN_BELOW = -4, 6
"""Powers of ten between which Go writes a number without an exponent."""


def _to_bytes(value: Value) -> Value:
    if type(value) is bytes:
        return value
    return value.encode() if type(value) is str else no_overload("bytes")


_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def _to_bool(value: Value) -> Value:
    if type(value) is bool:
        return value
    if type(value) is not str:
        return no_overload("bool")
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    return _not_converted("bool")


def _to_duration(value: Value) -> Value:
    if type(value) is Duration:
        return value
    if type(value) is int:
        return _not_converted("google.protobuf.Duration", "int")
    if type(value) is not str:
        return no_overload("duration")
    sign = -1 if value.startswith("-") else 1
    try:
        found = _span(sign * (duration.parse(value.removeprefix("-")) // _MICROSECOND * 1000))
    except NumazonesError:
        found = NO_OVERLOAD
    return _not_converted("google.protobuf.Duration") if isinstance(found, Failure) else found


def _to_timestamp(value: Value) -> Value:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return _moment(value * _NANO)
    if type(value) is not str:
        return no_overload("timestamp")
    try:
        return _moment((timestamp.parse(value) - _EPOCH) // _MICROSECOND * 1000)
    except NumazonesError:
        return _not_converted("google.protobuf.Timestamp")


# --- strings ---------------------------------------------------------------------------------


def _char_at(text: str, position: int) -> Value:
    if position == len(text):
        return ""
    return text[position] if 0 <= position < len(text) else Failure(f"index out of range: {position}")


def _index_of(text: Value, part: Value, start: Value = 0) -> Value:
    if type(text) is tuple:
        return next((at for at, one in enumerate(text) if equal(one, part) is True), -1)
    return _text_index(text, part, start)


@taking("indexOf", str, str, int)
def _text_index(text: str, part: str, start: int) -> Value:
    if not part:
        return start
    return text.find(part, start) if start >= 0 else Failure(f"index out of range: {start}")


def _last_index_of(text: Value, part: Value, last: Value = None) -> Value:
    if type(text) is tuple:
        return next((at for at in range(len(text) - 1, -1, -1) if equal(text[at], part) is True), -1)
    return _last_text_index(text, part, *(() if last is None else (last,)))


@taking("lastIndexOf", str, str, int)
def _last_text_index(text: str, part: str, last: int | None = None) -> Value:
    if last is None:
        return text.rfind(part)
    if not part:
        return last
    if last < 0:
        return Failure(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


def _join(parts: tuple[Value, ...], separator: str = "") -> Value:
    wrong = next((part for part in parts if type(part) is not str), ABSENT)
    if wrong is not ABSENT:
        return Failure(f"join: invalid input: {shown(wrong)}")
    total = sum(map(len, parts)) + len(separator) * len(parts)
    _bounded(total)
    return separator.join(parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> Value:
    found = text.count(old) if count < 0 else min(count, text.count(old))
    _bounded(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> Value:
    if not count:
        return ()
    if not separator:
        parts = list(text)
        if 0 < count < len(parts):
            parts = [*parts[: count - 1], "".join(parts[count - 1 :])]
        return tuple(parts)
    return tuple(text.split(separator, -1 if count < 0 else count - 1))


def _substring(text: str, start: int, end: int | None = None) -> Value:
    stop = len(text) if end is None else end
    if end is not None and start > stop:
        return Failure(f"invalid substring range. start: {start}, end: {stop}")
    for position in (start, stop):
        if not 0 <= position <= len(text):
            return Failure(f"index out of range: {position}")
    return text[start:stop]


_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
_ESCAPES = dict(zip('\a\b\f\n\r\t\v\\"', (f"\\{letter}" for letter in 'abfnrtv\\"'), strict=True))


def _quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


_LITERALS: Mapping[type, Callable[[Value, str], str]] = {
    str: lambda _, text: _quote(text),
    bytes: lambda _, text: f"b{_quote(text)}",
    float: lambda value, text: f"{value:.6f}" if isfinite(value) else _quote(text),
    Duration: lambda _, text: f"duration({_quote(text)})",
    Timestamp: lambda _, text: f"timestamp({_quote(text)})",
}
"""Type → a value as a literal, from its text."""


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if letter.isascii() else letter for letter in text)


def _size(value: Value) -> Value:
    if isinstance(value, (str, bytes, tuple, dict)):
        return len(value)
    return no_overload("size")


_SPECIFIER = re.compile(r"%(?:%|(?:\.([0-9]+))?(.?))", re.DOTALL)


def _format(text: str, values: tuple[Value, ...]) -> Value:
    made, at, left = [], 0, iter(enumerate(values))
    for match in _SPECIFIER.finditer(text):
        made.append(text[at : match.start()])
        at = match.end()
        if match[0] == "%%":
            made.append("%")
            continue
        number, value = next(left, (len(values), ABSENT))
        if value is ABSENT:
            return Failure(f"index {number} out of range")
        one = _formatted(value, match[2], match[1] or "6")
        if isinstance(one, Failure):
            return one
        made.append(one)
    return "".join([*made, text[at:]])


def _formatted(value: Value, clause: str, precision: str) -> str | Failure:
    if not clause:
        return Failure("unexpected end of string")
    if clause == "s":
        return _format_text(value)
    if clause not in _CLAUSES:
        return Failure(f'could not parse formatting clause: unrecognized formatting clause "{clause}"')
    write, kinds, taken = _CLAUSES[clause]
    if type(value) not in kinds:
        return Failure(f"error during formatting: {taken}, was given {type_name(value)}")
    _bounded(int(precision[:9]))
    return write(value, int(precision))


def _fixed(value: float, precision: int) -> str:
    text = f"{value:,.{precision}f}"
    return _NOT_FINITE.get(text, text)


def _scientific(value: float, precision: int) -> str:
    digits, e, exponent = f"{value:.{precision}e}".partition("e")
    power = exponent.removeprefix("+").translate(_SUPERSCRIPTS)
    return f"{digits}\u202f\u00d7\u202f10{power}" if e else _NOT_FINITE[digits]


def _hexadecimal(value: int | str | bytes, _: int = 0) -> str:
    if isinstance(value, int):
        return f"{value:x}"
    return (value.encode() if isinstance(value, str) else value).hex()


_NOT_FINITE = {"nan": "NaN", "inf": "\u221e", "-inf": "-\u221e"}
_SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
_HEX = "only integers, byte buffers, and strings can be formatted as hex"
_CLAUSES: Mapping[str, tuple[Callable[[Any, int], str], tuple[type, ...], str]] = {
    "d": (lambda value, _: f"{value:d}", (int, Uint), "decimal clause can only be used on integers"),
    "f": (_fixed, (float,), "fixed-point clause can only be used on doubles"),
    "e": (_scientific, (float,), "scientific clause can only be used on doubles"),
    "b": (
        lambda value, _: f"{value:b}",
        (int, Uint, bool),
        "only integers and bools can be formatted as binary",
    ),
    "o": (lambda value, _: f"{value:o}", (int, Uint), "octal clause can only be used on integers"),
    "x": (_hexadecimal, (int, Uint, str, bytes), _HEX),
    "X": (lambda value, _: _hexadecimal(value).upper(), (int, Uint, str, bytes), _HEX),
}
"""Letter → how it writes a value to so many digits, the types that it takes, the error for others."""


def _format_text(value: Value) -> str | Failure:
    if type(value) is tuple:
        return _format_list(value)
    if isinstance(value, dict):
        raise Unsupported("a map in format")
    if value is None:
        return "null"
    if isinstance(value, TypeValue):
        return value.name
    made = _to_string(value)
    return made if isinstance(made, (str, Failure)) else no_overload("format")


def _format_list(values: tuple[Value, ...]) -> str | Failure:
    """A list as a literal of the language."""
    parts = []
    for value in values:
        text = _format_text(value)
        if isinstance(text, Failure):
            return text
        write = _LITERALS.get(type(value))
        parts.append(text if write is None else write(value, text))
    return f"[{', '.join(parts)}]"


# --- lists and sets --------------------------------------------------------------------------


def _sum(values: tuple[Value, ...]) -> Value:
    total: Value = None
    for one in values:
        total = one if total is None else _add(total, one)
        if isinstance(total, Failure):
            return total
    return 0 if total is None else total


def _extreme(name: str, sign: int) -> Function:
    def function(values: Value) -> Value:
        if not values:
            return Failure(f"{name} called on empty list")
        best = values[0]
        for one in values[1:]:
            order = compare(one, best)
            if isinstance(order, Failure):
                return order
            if order * sign > 0:
                best = one
        return best

    return taking(name, tuple)(function)


def _is_sorted(values: tuple[Value, ...]) -> Value:
    for one, following in pairwise(values):
        order = compare(one, following)
        if isinstance(order, Failure):
            return order
        if order > 0:
            return False
    return True


def _sort(values: tuple[Value, ...]) -> Value:
    kinds = {type(one) for one in values}
    if not kinds <= COMPARABLE:
        return Failure("list elements must be comparable")
    return tuple(sorted(values)) if len(kinds) <= 1 else Failure("list elements must have the same type")


def _distinct(values: tuple[Value, ...]) -> Value:
    found: list[Value] = []
    for one in values:
        if not any(equal(one, other) is True for other in found):
            found.append(one)
    return tuple(found)


def _flatten(values: tuple[Value, ...], depth: int = 1) -> Value:
    if depth < 0:
        return Failure("level must be non-negative")
    found: list[Value] = []
    for one in values:
        if type(one) is tuple and depth:
            found += _flatten(one, depth - 1)
        else:
            found.append(one)
    return tuple(found)


def _slice(values: tuple[Value, ...], start: int, end: int) -> Value:
    if start < 0 or end < 0:
        return Failure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Failure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(values):
        return Failure(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _range(length: Value) -> Value:
    _bounded(length)
    return tuple(range(length))


def _sets(name: str, holds: Callable[[tuple[Value, ...], tuple[Value, ...]], bool]) -> Function:
    def function(one: Value, other: Value) -> Value:
        if type(one) is not tuple or type(other) is not tuple:
            return no_overload(f"{name}({type_name(one)}, {type_name(other)})")
        return holds(one, other)

    return function


def _contains_all(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return all(contains_value(value, one) is True for value in other)


# --- optional values -------------------------------------------------------------------------


def _optional(name: str, act: Callable[[Optional], Value]) -> Function:
    def function(value: Value) -> Value:
        return act(value) if type(value) is Optional else NO_OVERLOAD

    function.__name__ = name
    return function


def _unwrapped(value: Optional) -> Value:
    return value.value if value.present else Failure("optional.none() dereference")


def _of_non_zero(value: Value) -> Value:
    return Optional(value) if value not in (None, False, 0, "", b"", (), {}) else NONE


# --- time ------------------------------------------------------------------------------------


_OFFSET = re.compile(r"([+-]?)([0-9]{2}):([0-9]{2})")


def _offset(zone: str) -> timedelta:
    """How far a time zone is ahead of UTC."""
    if zone in ("", "UTC"):
        return timedelta()
    found = _OFFSET.fullmatch(zone)
    if found is None:
        raise Unsupported(f"the time zone {zone!r:.40}")
    ahead = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return -ahead if found[1] == "-" else ahead


def _time_of(name: str, of_moment: Callable[[Any], int], of_span: int) -> Function:
    @taking(name, Timestamp, str)
    def of_time(value: Value, zone: str = "") -> Value:
        try:
            return of_moment(_EPOCH + int(value) // 1000 * _MICROSECOND + _offset(zone))
        except OverflowError as error:
            raise Unsupported("a time before the year 1 or after 9999") from error

    def function(value: Value, *zone: Value) -> Value:
        if type(value) is Duration and of_span and not zone:
            return _truncated(int(value), of_span)
        return of_time(value, *zone)

    return function


STANDARD: Mapping[str, Function] = {
    "_==_": equal,
    "_!=_": _not_equal,
    "_<_": _relation("_<_", lambda order: order < 0),
    "_<=_": _relation("_<=_", lambda order: order <= 0),
    "_>_": _relation("_>_", lambda order: order > 0),
    "_>=_": _relation("_>=_", lambda order: order >= 0),
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _multiply,
    "_/_": _divide,
    "_%_": _modulo,
    "-_": _negate,
    "!_": _negation,
    "@in": contains_value,
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "string": _to_string,
    "bytes": _to_bytes,
    "bool": _to_bool,
    "duration": _to_duration,
    "timestamp": _to_timestamp,
    "dyn": lambda value: value,
    "type": lambda value: TypeValue(type_name(value)),
    "size": _size,
    "startsWith": taking("", str, str)(str.startswith),
    "endsWith": taking("", str, str)(str.endswith),
    "contains": taking("", str, str)(lambda text, part: part in text),
    "charAt": taking("charAt", str, int)(_char_at),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": taking("join", tuple, str)(_join),
    "lowerAscii": taking("lowerAscii", str)(lambda text: _ascii(text, str.lower)),
    "upperAscii": taking("upperAscii", str)(lambda text: _ascii(text, str.upper)),
    "replace": taking("replace", str, str, str, int)(_replace),
    "split": taking("split", str, str, int)(_split),
    "substring": taking("substring", str, int, int)(_substring),
    "trim": taking("trim", str)(lambda text: text.strip(_SPACE)),
    "format": taking("format", str, tuple)(_format),
    "strings.quote": taking("strings.quote", str)(_quote),
    "sum": taking("sum", tuple)(_sum),
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "isSorted": taking("isSorted", tuple)(_is_sorted),
    "sort": taking("sort", tuple)(_sort),
    "distinct": taking("distinct", tuple)(_distinct),
    "flatten": taking("flatten", tuple, int)(_flatten),
    "slice": taking("slice", tuple, int, int)(_slice),
    "reverse": taking("reverse", tuple)(lambda values: values[::-1]),
    "lists.range": taking("lists.range", int)(_range),
    "sets.contains": _sets("sets.contains", _contains_all),
    "sets.intersects": _sets(
        "sets.intersects", lambda one, other: any(contains_value(it, one) is True for it in other)
    ),
    "sets.equivalent": _sets(
        "sets.equivalent", lambda one, other: _contains_all(one, other) and _contains_all(other, one)
    ),
    "optional.of": Optional,
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": _of_non_zero,
    "hasValue": _optional("hasValue", lambda value: value.present),
    "value": _optional("value", _unwrapped),
    "getFullYear": _time_of("getFullYear", lambda moment: moment.year, 0),
    "getMonth": _time_of("getMonth", lambda moment: moment.month - 1, 0),
    "getDate": _time_of("getDate", lambda moment: moment.day, 0),
    "getDayOfMonth": _time_of("getDayOfMonth", lambda moment: moment.day - 1, 0),
    "getDayOfWeek": _time_of("getDayOfWeek", lambda moment: moment.isoweekday() % 7, 0),
    "getDayOfYear": _time_of("getDayOfYear", lambda moment: moment.timetuple().tm_yday - 1, 0),
    "getHours": _time_of("getHours", lambda moment: moment.hour, 3600 * _NANO),
    "getMinutes": _time_of("getMinutes", lambda moment: moment.minute, 60 * _NANO),
    "getSeconds": _time_of("getSeconds", lambda moment: moment.second, _NANO),
    "getMilliseconds": _time_of("getMilliseconds", lambda moment: moment.microsecond // 1000, 10**6),
}
"""Name of a function → the function; a method's first argument is its target."""
