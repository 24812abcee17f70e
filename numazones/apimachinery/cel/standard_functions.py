"""Operators and functions of CEL itself, and of its extensions for strings, lists and sets.

Each takes values and returns one; ``evaluation`` has dealt with errors of arguments. Texts of errors are
those of cel-go. What an evaluation costs is in ``costs``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from numazones.apimachinery import duration, timestamp
from numazones.apimachinery.cel.values import (
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


def no_overload(name: str) -> Failure:
    """Return the error of a function that does not take such values."""
    return Failure(f"no such overload: {name}")


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
            return Timestamp(int(left) + int(right))
        return NO_OVERLOAD
    if kind is int:
        return whole_number(left + right)
    if kind is Uint:
        return _uint(int(left) + int(right), "unsigned integer overflow")
    if kind is Duration:
        return Duration(int(left) + int(right))
    if kind is float:
        return left + right
    if kind in (str, bytes, tuple):
        _bounded(len(left) + len(right))
        return left + right
    return NO_OVERLOAD if kind is bool else no_overload("_+_")


def _subtract(left: Value, right: Value) -> Value:
    kind, other = type(left), type(right)
    if kind is Timestamp and other in (Timestamp, Duration):
        return (Duration if other is Timestamp else Timestamp)(int(left) - int(right))
    if kind is not other:
        return NO_OVERLOAD
    if kind is int:
        return whole_number(left - right)
    if kind is Uint:
        return _uint(int(left) - int(right), "unsigned integer overflow")
    if kind is Duration:
        return Duration(int(left) - int(right))
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
    return Uint(int(left) % int(right)) if kind is Uint else left - right * _truncated(left, right)


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _negate(value: Value) -> Value:
    kind = type(value)
    if kind is int:
        return whole_number(-value)
    if kind is Duration:
        return Duration(-int(value))
    return -value if kind is float else no_overload("-_")


def _negation(value: Value) -> Value:
    return not value if type(value) is bool else NO_OVERLOAD


def _uint(value: int, problem: str) -> Value:
    return Uint(value) if 0 <= value < _MAX_UINT64 else Failure(problem)


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
        return Failure(f"no such key: {_shown(key)}")
    if kind is tuple:
        position = key_of(key)
        if type(position) not in (int, Uint):
            return Failure(f"unsupported index type '{type_name(key)}' in list")
        if 0 <= position < len(container):
            return container[position]
        return Failure(f"index out of bounds: {position}")
    return Failure(f"no such key: {_shown(key)}")


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


def _shown(value: Value) -> str:
    return str(int(value)) if isinstance(value, int) else str(value)


# --- conversions -----------------------------------------------------------------------------


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
        whole = re.fullmatch(r"[+-]?[0-9]+", value)
        return whole_number(int(value)) if whole else Failure("type conversion error from 'string' to 'int'")
    if kind in (Timestamp, Duration):
        return int(value) // _NANO if kind is Timestamp else int(value)
    return no_overload("int")


def _to_uint(value: Value) -> Value:
    kind = type(value)
    if kind in (int, Uint):
        return _uint(int(value), "unsigned integer overflow")
    if kind is float:
        return (
            _uint(int(value), "unsigned integer overflow")
            if value >= 0
            else Failure("unsigned integer overflow")
        )
    if kind is str:
        if re.fullmatch(r"[0-9]+", value):
            return _uint(int(value), "type conversion error from 'string' to 'uint'")
        return Failure("type conversion error from 'string' to 'uint'")
    return no_overload("uint")


_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:[Ii]nf(?:inity)?|NaN|nan)"
)


def _to_double(value: Value) -> Value:
    kind = type(value)
    if kind in (int, Uint, float):
        return float(value)
    if kind is str:
        return (
            float(value)
            if _FLOAT.fullmatch(value)
            else Failure("type conversion error from 'string' to 'double'")
        )
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
    return no_overload("string")


def _double_text(value: float) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value).removesuffix(".0")
    if "e" in text:
        digits, _, exponent = text.partition("e")
        return f"{digits.removesuffix('.0')}e{'-' if exponent[0] == '-' else '+'}{exponent.lstrip('+-'):0>2}"
    if len(text.lstrip("-").partition(".")[0]) > 21:  # noqa: PLR2004 - from where Go writes exponents
        return f"{value:e}"
    return text


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
    return Failure("type conversion error from 'string' to 'bool'")


def _to_duration(value: Value) -> Value:
    if type(value) is Duration:
        return value
    if type(value) is int:
        return Duration(value)
    if type(value) is not str:
        return no_overload("duration")
    try:
        return Duration(duration.parse(value) // _MICROSECOND * 1000)
    except (NumazonesError, OverflowError):
        return Failure(f'time: invalid duration "{value}"')


def _to_timestamp(value: Value) -> Value:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return Timestamp(value * _NANO)
    if type(value) is not str:
        return no_overload("timestamp")
    try:
        return Timestamp((timestamp.parse(value) - _EPOCH) // _MICROSECOND * 1000)
    except NumazonesError:
        return Failure(f'parsing time "{value}"')


# --- strings ---------------------------------------------------------------------------------


def _method(name: str, *kinds: type) -> Callable[[Function], Function]:
    """Make a function that has an error for values of other types than these."""

    def decorate(function: Function) -> Function:
        def checked(*values: Value) -> Value:
            for value, kind in zip(values, kinds, strict=False):
                if type(value) is not kind:
                    return no_overload(name) if name else NO_OVERLOAD
            return function(*values)

        return checked

    return decorate


def _char_at(text: str, position: int) -> Value:
    if position == len(text):
        return ""
    return text[position] if 0 <= position < len(text) else Failure(f"index out of range: {position}")


def _index_of(text: Value, part: Value, start: Value = 0) -> Value:
    if type(text) is tuple:
        return next((at for at, one in enumerate(text) if equal(one, part) is True), -1)
    if type(text) is not str or type(part) is not str:
        return no_overload("indexOf")
    if not 0 <= start <= len(text):
        return start if not part and start == 0 else Failure(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: Value, part: Value, last: Value = None) -> Value:
    if type(text) is tuple:
        return next((at for at in range(len(text) - 1, -1, -1) if equal(text[at], part) is True), -1)
    if type(text) is not str or type(part) is not str:
        return no_overload("lastIndexOf")
    if last is None:
        return text.rfind(part)
    if not 0 <= last <= len(text):
        return Failure(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part))


def _join(parts: Value, separator: str = "") -> Value:
    if type(parts) is not tuple or not all(type(part) is str for part in parts):
        return no_overload("join")
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


def _quote(text: str) -> Value:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if letter.isascii() else letter for letter in text)


def _size(value: Value) -> Value:
    if isinstance(value, (str, bytes, tuple, dict)):
        return len(value)
    return no_overload("size")


_SPECIFIER = re.compile(r"%(%|(?:\.([0-9]+))?([a-zA-Z]))")


def _format(text: str, values: tuple[Value, ...]) -> Value:
    left = list(values)
    problem: list[Failure] = []

    def one(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        if not left:
            problem.append(Failure("index " + str(len(values)) + " out of range"))
            return ""
        made = _formatted(left.pop(0), match[3], match[2])
        if isinstance(made, Failure):
            problem.append(made)
            return ""
        return made

    made = _SPECIFIER.sub(one, text)
    return problem[0] if problem else made


def _formatted(  # noqa: PLR0911 - a line per clause
    value: Value, clause: str, precision: str | None
) -> str | Failure:
    kind = type(value)
    match clause:
        case "s":
            return _format_text(value)
        case "d" if kind in (int, Uint):
            return str(int(value))
        case "f" if kind in (float, int, Uint):
            return f"{float(value):.{int(precision or 6)}f}"
        case "e" if kind in (float, int, Uint):
            return f"{float(value):.{int(precision or 6)}e}"
        case "b" if kind in (int, Uint, bool):
            return f"{int(value):b}"
        case "o" if kind in (int, Uint):
            return f"{int(value):o}"
        case "x" | "X" if kind in (int, Uint):
            return f"{int(value):{clause}}"
        case "x" | "X" if kind in (str, bytes):
            text = (value.encode() if kind is str else value).hex()
            return text.upper() if clause == "X" else str(text)
    return Failure(f"error during formatting: unsupported %{clause} of {type_name(value)}")


def _format_text(value: Value) -> str | Failure:
    if type(value) is tuple:
        parts = [_format_text(one) for one in value]
        wrong = next((part for part in parts if isinstance(part, Failure)), None)
        return wrong or "[" + ", ".join(part for part in parts if isinstance(part, str)) + "]"
    if value is None:
        return "null"
    if isinstance(value, TypeValue):
        return value.name
    made = _to_string(value)
    return made if isinstance(made, (str, Failure)) else no_overload("format")


# --- lists and sets --------------------------------------------------------------------------


def _sum(values: Value) -> Value:
    if type(values) is not tuple:
        return no_overload("sum")
    total: Value = None
    for one in values:
        total = one if total is None else _add(total, one)
        if isinstance(total, Failure):
            return total
    return 0 if total is None else total


def _extreme(name: str, sign: int) -> Function:
    def function(values: Value) -> Value:
        if type(values) is not tuple:
            return no_overload(name)
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

    return function


def _is_sorted(values: Value) -> Value:
    if type(values) is not tuple:
        return no_overload("isSorted")
    for one, following in pairwise(values):
        order = compare(one, following)
        if isinstance(order, Failure):
            return order
        if order > 0:
            return False
    return True


def _sort(values: Value) -> Value:
    if type(values) is not tuple:
        return no_overload("sort")
    if values and any(isinstance(compare(values[0], one), Failure) for one in values):
        return Failure("list elements must have the same type")
    return tuple(sorted(values))


def _distinct(values: Value) -> Value:
    if type(values) is not tuple:
        return no_overload("distinct")
    found: list[Value] = []
    for one in values:
        if not any(equal(one, other) is True for other in found):
            found.append(one)
    return tuple(found)


def _flatten(values: Value, depth: Value = 1) -> Value:
    if type(values) is not tuple:
        return no_overload("flatten")
    if depth < 0:
        return Failure("level must be non-negative")
    found: list[Value] = []
    for one in values:
        if type(one) is tuple and depth:
            found += _flatten(one, depth - 1)
        else:
            found.append(one)
    return tuple(found)


def _slice(values: Value, start: Value, end: Value) -> Value:
    if type(values) is not tuple:
        return no_overload("slice")
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


def _time_of(name: str, of_moment: Callable[[Any], int] | None, of_span: int) -> Function:
    def function(value: Value) -> Value:
        if type(value) is Timestamp and of_moment is not None:
            return of_moment(_EPOCH + int(value) // 1000 * _MICROSECOND)
        if type(value) is Duration and of_span:
            return _truncated(int(value), of_span)
        return no_overload(name)

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
    "startsWith": _method("", str, str)(str.startswith),
    "endsWith": _method("", str, str)(str.endswith),
    "contains": _method("", str, str)(lambda text, part: part in text),
    "charAt": _method("charAt", str, int)(_char_at),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "join": _join,
    "lowerAscii": _method("lowerAscii", str)(lambda text: _ascii(text, str.lower)),
    "upperAscii": _method("upperAscii", str)(lambda text: _ascii(text, str.upper)),
    "replace": _method("replace", str, str, str)(_replace),
    "split": _method("split", str, str)(_split),
    "substring": _method("substring", str, int)(_substring),
    "trim": _method("trim", str)(lambda text: text.strip(_SPACE)),
    "format": _method("format", str, tuple)(_format),
    "strings.quote": _method("strings.quote", str)(_quote),
    "sum": _sum,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "isSorted": _is_sorted,
    "sort": _sort,
    "distinct": _distinct,
    "flatten": _flatten,
    "slice": _slice,
    "reverse": _method("reverse", tuple)(lambda values: values[::-1]),
    "lists.range": _method("lists.range", int)(_range),
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
