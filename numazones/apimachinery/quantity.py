"""Kubernetes quantities, exactly: ``500m``, ``16Gi``, ``1.5``, ``2e3``.

The one quantity parser of the project. Rules are those of
``k8s.io/apimachinery/pkg/api/resource``: amounts are kept to the nano unit and rounded away from
zero beyond it, and binary ones are capped at 2**63 - 1. The kubelet's Memory Manager rejects
quantities that its library does not hold as a plain 64-bit integer, even where the amount itself is
whole (``1.5Gi``, ``1Pi``), so a ``Quantity`` remembers which representation the library would have chosen.

>>> parse("1.5Gi").value(), parse("250m").milli()
(1610612736, 250)
"""

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from numazones.errors import NumazonesError

_NANO = 10**9
_MICRO = 10**6
_SMALLEST_SCALE = -9
_MAX = 2**63 - 1

# Numbers are far shorter; the bounds keep nonsense from being worked on.
_MAX_DIGITS = 60
_SURELY_STORED = _MAX_DIGITS - 2
"""So few digits are no more than ``_MAX_DIGITS`` in the form that is stored."""
_TEXT = re.compile(r"([+-]?)([0-9]{0,60})(?:\.([0-9]{0,60}))?([A-Za-z]*|[eE][+-]?[0-9]{1,9})")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BYTES = re.compile(r"([0-9.]{1,40}) ?([kKMGTPE])(i?)[bB]")
_DECIMAL_UNITS = {exponent: unit for unit, exponent in _DECIMAL.items()}
_MAX_DECIMAL_EXPONENT = 18
_UNIT = 1024
_BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
# No resource is counted in such amounts; the bound keeps a mistyped exponent from eating the memory.
_MAX_EXPONENT = 1000
# Number of decimal digits that the fast representation of the Kubernetes library takes.
_DECIMAL_DIGITS = 18
_BINARY_DIGITS = 15


class InvalidQuantity(NumazonesError):
    """A value is not a Kubernetes quantity; the message quotes it."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount; compared, hashed and added by amount alone.

    >>> parse("1Gi") == parse("1024Mi"), parse("500m").milli()
    (True, 500)
    """

    nanos: int
    """The amount in units of 10**-9."""
    integer: int | None = field(default=None, compare=False)
    """The amount as the Kubernetes library's plain 64-bit integer; None where it holds it otherwise."""
    binary: bool = field(default=False, compare=False)
    """Written with a binary suffix (Ki, Mi, …)."""
    exponent: bool = field(default=False, compare=False)
    """Written with a decimal exponent (1e3)."""

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero.

        >>> parse("1500m").value(), parse("8Gi").value()
        (2, 8589934592)
        """
        return self.integer if self.integer is not None else whole(self.nanos)

    def milli(self) -> int:
        """Return the amount in thousandths, rounded away from zero.

        >>> parse("1.5").milli()
        1500
        """
        return _divide_away_from_zero(self.nanos, _MICRO)

    def as_int(self) -> int | None:
        """Return the amount where the kubelet's conversion to int64 succeeds, else None.

        >>> parse("2Gi").as_int(), parse("1.5Gi").as_int()
        (2147483648, None)
        """
        return self.integer

    def __add__(self, other: "Quantity") -> "Quantity":
        nanos = self.nanos + other.nanos
        plain = self.integer is not None and other.integer is not None
        form = self if self.nanos else other
        return Quantity(nanos, nanos // _NANO if plain else None, form.binary, form.exponent)

    def canonical(self) -> str:
        """Return the text that the Kubernetes API stores: no fraction, the largest unit that divides it.

        Binary units are for whole amounts from 1024 on; others are stored in decimal ones, not rounded.

        >>> parse("0.5").canonical(), parse("2048Mi").canonical(), parse("9e99").canonical()
        ('500m', '2Gi', '9e99')
        """
        if self.binary and abs(self.nanos) >= _UNIT * _NANO and self.nanos % _NANO == 0:
            return format_bytes(self.value())
        amount, exponent = _stored_form(self.nanos, with_exponent=self.exponent)
        if self.exponent and exponent:
            return f"{amount}e{exponent}" if amount else "0"
        return f"{amount}{_DECIMAL_UNITS[exponent]}" if amount else "0"

    def __bool__(self) -> bool:
        return self.nanos != 0


ZERO = Quantity(0, 0)


def whole(nanos: int) -> int:
    """Return nano units in whole units, rounded away from zero.

    Args:
        nanos: the amount in units of 10**-9.

    >>> whole(1_500_000_000)
    2
    """
    return _divide_away_from_zero(nanos, _NANO)


def parse(text: object) -> Quantity:
    """Read a quantity as the Kubernetes API takes it.

    Args:
        text: such as ``500m`` or ``16Gi``; of anything else that is no text, such as 4, its text counts.

    Raises:
        InvalidQuantity: the text is not a number with an optional known suffix.

    >>> parse("16Gi").value(), parse(4).milli()
    (17179869184, 4000)
    """
    return _parse_text(text if isinstance(text, str) else str(text))


@lru_cache(maxsize=4096)  # the same few amounts come again and again, with every pod of a template
def _parse_text(text: str) -> Quantity:
    match = _TEXT.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        raise InvalidQuantity(
            f"{text!r:.100} is not a Kubernetes quantity; write a number and a unit such as 500m or 16Gi"
        )
    sign = -1 if match[1] == "-" else 1
    whole, fraction, suffix = match[2].lstrip("0") or "0", match[3] or "", match[4]
    if suffix in _BINARY:
        return _binary(sign, whole, fraction, _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(sign, whole, fraction, _DECIMAL[suffix])
    if suffix[0] in "eE" and len(suffix) > 1 and suffix[1] in "+-0123456789":
        exponent = int(suffix[1:])
        if -_MAX_EXPONENT <= exponent <= _MAX_EXPONENT + 1 - len(whole):
            return replace(_decimal(sign, whole, fraction, exponent, with_exponent=True), exponent=True)
    raise InvalidQuantity(
        f"{text!r:.100} is not a Kubernetes quantity: unknown unit {suffix!r:.20}{unit_meant(text)}"
    )


def unit_meant(text: str) -> str:
    """Return what to write instead of an amount with a unit that Kubernetes lacks, for the end of a sentence.

    Args:
        text: the amount, such as 1GB; the answer is empty for any other text.

    >>> unit_meant("1GB")
    '; write 1Gi or 1G'
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        return ""
    number, unit, binary = match.groups()
    unit = unit.upper()
    return f"; write {number}{unit}i" + ("" if binary else f" or {number}{'k' if unit == 'K' else unit}")


def format_rounded(amount: int) -> str:
    """Write bytes for people, in a binary unit and rounded down to a tenth.

    Args:
        amount: bytes.

    >>> format_rounded(27_600_000_000)
    '25.7Gi'
    """
    unit = min(max(amount.bit_length() - 1, 0) // 10, len(_BINARY_UNITS) - 1)
    whole, rest = divmod(amount, 1 << 10 * unit)
    tenths = rest * 10 >> 10 * unit
    return f"{whole}.{tenths}{_BINARY_UNITS[unit]}" if tenths else f"{whole}{_BINARY_UNITS[unit]}"


def format_bytes(amount: int) -> str:
    """Write bytes with the largest binary unit that divides them.

    Args:
        amount: bytes.

    >>> format_bytes(17179869184), format_bytes(1000)
    ('16Gi', '1000')
    """
    unit = 0
    while amount and amount % _UNIT == 0 and unit < len(_BINARY_UNITS) - 1:
        amount //= _UNIT
        unit += 1
    return f"{amount}{_BINARY_UNITS[unit]}"


def format_milli(amount: int) -> str:
    """Write thousandths as Kubernetes does.

    Args:
        amount: thousandths, such as milli-CPUs.

    >>> format_milli(1500), format_milli(2000)
    ('1500m', '2')
    """
    whole, rest = divmod(amount, 1000)
    return f"{amount}m" if rest else str(whole)


def format_decimal(milli: int) -> str:
    """Write thousandths for people.

    Args:
        milli: thousandths, such as milli-CPUs.

    >>> format_decimal(1900), format_decimal(2000)
    ('1.9', '2')
    """
    whole, rest = divmod(milli, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def _divide_away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _binary(sign: int, whole: str, fraction: str, exponent: int) -> Quantity:
    numerator = int(whole + fraction) << exponent
    nanos = min(_ceil_div(numerator * _NANO, 10 ** len(fraction)), _MAX * _NANO)
    plain = not fraction and len(whole) + exponent * 3 // 10 < _BINARY_DIGITS
    return Quantity(sign * nanos, sign * numerator if plain else None, binary=True)


def _decimal(sign: int, whole: str, fraction: str, exponent: int, *, with_exponent: bool = False) -> Quantity:
    digits = int(whole + fraction)
    scale = exponent - len(fraction)
    if scale >= _SMALLEST_SCALE:
        nanos = digits * 10 ** (scale + 9)
    else:  # the divisor need not be larger than what leaves nothing but the rounding up
        nanos = _ceil_div(digits, 10 ** min(-scale - 9, len(whole) + len(fraction)))
    if len(whole) + len(fraction) > _SURELY_STORED:
        stored, _ = _stored_form(nanos, with_exponent=with_exponent)
        if stored >= 10**_MAX_DIGITS:
            raise InvalidQuantity(f"a quantity has at most {_MAX_DIGITS} digits, not {whole!r:.30}…")
    plain = len(whole) + len(fraction) <= _DECIMAL_DIGITS and scale >= 0 and nanos <= _MAX * _NANO
    return Quantity(sign * nanos, sign * digits * 10**scale if plain else None)


def _stored_form(nanos: int, *, with_exponent: bool) -> tuple[int, int]:
    """Return digits and exponent, a multiple of 3, as the API stores them; units end at 10**18."""
    exponent = _SMALLEST_SCALE
    while nanos and nanos % 1000 == 0 and (with_exponent or exponent < _MAX_DECIMAL_EXPONENT):
        nanos //= 1000
        exponent += 3
    return nanos, exponent


def _ceil_div(amount: int, unit: int) -> int:
    return -(-amount // unit)
