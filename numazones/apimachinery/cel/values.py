"""Values of expressions, and how they are compared.

Python's own values stand for those of CEL where they are the same: bool, int (int64), float (double), str,
bytes, None, lists as tuples and maps as dictionaries. Errors are values too (``Failure``): ``&&`` and ``||``
absorb the error of one side when the other side decides.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery.quantity import Quantity
from numazones.errors import NumazonesError

Value = Any
"""A value of CEL."""


class Unsupported(NumazonesError):
    """An expression uses what Kubernetes has and this evaluation has not; the message names it."""


class Failure:
    """Why an expression, or a part of it, has no value."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


NO_OVERLOAD = Failure("no such overload")


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Duration(int):
    """A span of time, in nanoseconds."""

    __slots__ = ()


class Timestamp(int):
    """A moment, in nanoseconds since 1970 (UTC)."""

    __slots__ = ()


class Optional:
    """A value that may be missing."""

    __slots__ = ("present", "value")

    def __init__(self, value: Value = None, *, present: bool = True) -> None:
        self.value, self.present = value, present


NONE = Optional(present=False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type, as ``type(x)`` returns it."""

    name: str


class DefaultingMap(dict[str, Value]):
    """A map that gives an empty map for a key that it lacks, without containing it.

    Device selectors read ``device.attributes["domain"]`` this way.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; what it was built from (``+...``) does not count in comparisons."""

    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[Any, ...]:
        """A key to compare versions by: a release comes after its prereleases."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease)
        return (self.numbers, not self.prerelease, parts)


@dataclass(frozen=True, slots=True)
class Network:
    """An IP network, with the address that it was written with."""

    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class URL:
    """An absolute URL, in the parts that expressions ask for."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that only functions of its place of the API understand."""

    name: str
    """The name of its type."""


class Lazy:
    """A variable that is evaluated when it is first used."""

    __slots__ = ("_evaluate", "_value")

    def __init__(self, evaluate: Callable[[], Value]) -> None:
        self._evaluate: Callable[[], Value] | None = evaluate
        self._value: Value = None

    def value(self) -> Value:
        """Return the value, or its failure."""
        if self._evaluate is not None:
            evaluate, self._evaluate = self._evaluate, None
            self._value = evaluate()
        return self._value


IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAMES: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    DefaultingMap: "map",
    Optional: "optional_type",
    TypeValue: "type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
    Network: "net.CIDR",
    URL: "kubernetes.URL",
}
_NUMBERS = frozenset({int, Uint, float})
_STRICT = frozenset({Quantity, Semver, ipaddress.IPv4Address, ipaddress.IPv6Address, Network, URL})
"""Types of Kubernetes, whose comparison with another type is an error rather than false."""
COMPARABLE = _NUMBERS | {bool, str, bytes, Duration, Timestamp}
"""Types whose values have an order."""
_MOST_COMPARISONS = 100_000
_INT64 = range(-(2**63), 2**63)


def type_name(value: Value) -> str:
    """Return the name of a value's type."""
    if isinstance(value, Opaque):
        return value.name
    return _NAMES[type(value)]


def equal(left: Value, right: Value) -> bool | Failure:
    """Return ``left == right``."""
    return _equal(left, right, [_MOST_COMPARISONS])


def _equal(left: Value, right: Value, budget: list[int]) -> bool | Failure:  # noqa: PLR0911 - a line per type
    kind, other = type(left), type(right)
    budget[0] -= 1
    if not budget[0]:
        raise Unsupported("the comparison of values as large as these")
    if kind in _NUMBERS and other in _NUMBERS:
        return bool(left == right)
    if kind in _STRICT:
        same = other is kind or type_name(left) == type_name(right)
        return _equal_strict(left, right) if same else NO_OVERLOAD
    if kind is tuple:
        if other is not tuple or len(left) != len(right):
            return False
        return all(_equal(one, two, budget) is True for one, two in zip(left, right, strict=True))
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        return all(key in right and _equal(value, right[key], budget) is True for key, value in left.items())
    if kind is Optional:
        if other is not Optional or left.present != right.present:
            return False
        return not left.present or _equal(left.value, right.value, budget) is True
    return kind is other and bool(left == right)


def _equal_strict(left: Value, right: Value) -> bool:
    if isinstance(left, Semver):
        return bool(left.order == right.order)
    return bool(left == right)


def compare(left: Value, right: Value) -> int | Failure:
    """Return a number below, equal to or above 0, as ``left`` is below, equal to or above ``right``."""
    kind, other = type(left), type(right)
    if (kind in _NUMBERS and other in _NUMBERS) or (kind is other and kind in COMPARABLE):
        if left != left or right != right:  # noqa: PLR0124 - NaN
            return Failure("NaN values cannot be ordered")
        return int(left > right) - int(left < right)
    return NO_OVERLOAD


def whole_number(value: int) -> int | Failure:
    """Return an int64, or the error of an overflow."""
    return value if value in _INT64 else Failure("integer overflow")


# --- what texts stand for --------------------------------------------------------------------

_SEMVER_NUMBERS = ("major", "minor", "patch")
_DIGITS = re.compile(r"[0-9]+")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_MAX_UINT64 = 2**64
_SEMVER_PARTS = 3


def semver(text: str) -> Semver | Failure:
    """Read a semantic version, strictly: MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]."""
    if not text:
        return Failure("Version string empty")
    parts = text.split(".", _SEMVER_PARTS - 1)
    if len(parts) != _SEMVER_PARTS:
        return Failure("No Major.Minor.Patch elements found")
    parts[2], plus, build = parts[2].partition("+")
    parts[2], dash, prerelease = parts[2].partition("-")
    before = tuple(prerelease.split(".")) if dash else ()
    problems = [
        *(_number_problem(*pair) for pair in zip(_SEMVER_NUMBERS, parts, strict=True)),
        *(_identifier_problem("Prerelease is", "prerelease", part) or _zero_problem(part) for part in before),
        *(
            _identifier_problem("Build meta data is", "build meta data", part)
            for part in build.split(".")
            if plus
        ),
    ]
    if problem := next(filter(None, problems), None):
        return Failure(problem)
    return Semver((int(parts[0]), int(parts[1]), int(parts[2])), before)


def _number_problem(name: str, part: str) -> str:
    if not _DIGITS.fullmatch(part):
        return f'Invalid character(s) found in {name} number "{part}"'
    if len(part) > 1 and part[0] == "0":
        return f'{name.capitalize()} number must not contain leading zeroes "{part}"'
    return f'strconv.ParseUint: parsing "{part}": value out of range' if int(part) >= _MAX_UINT64 else ""


def _identifier_problem(subject: str, name: str, part: str) -> str:
    if not part:
        return f"{subject} empty"
    return "" if _IDENTIFIER.fullmatch(part) else f'Invalid character(s) found in {name} "{part}"'


def _zero_problem(part: str) -> str:
    zero = part.isdigit() and len(part) > 1 and part[0] == "0"
    return f'Numeric PreRelease version must not contain leading zeroes "{part}"' if zero else ""


def normalised_semver(text: str) -> Semver | Failure:
    """Read a version leniently: a leading v, missing numbers and leading zeros are allowed."""
    parts = text.removeprefix("v").split(".", _SEMVER_PARTS - 1)
    for at, part in enumerate(parts):
        if len(part) > 1:
            rest = part.lstrip("0")
            parts[at] = rest if rest[:1].isdigit() else f"0{rest}"
    if len(parts) < _SEMVER_PARTS and re.search(r"[-+]", parts[-1]):
        return Failure("short version cannot contain PreRelease/Build meta data")
    return semver(".".join([*parts, *["0"] * (_SEMVER_PARTS - len(parts))]))
