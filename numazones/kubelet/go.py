"""Read and quote option values as Go does, so that rejections read like the kubelet's own.

Rules of the Go standard library: ``strconv.ParseBool``, ``strconv.Atoi``, ``strconv.Quote`` and the
printing of maps by ``fmt``.
"""

from collections.abc import Iterable

from numazones import cpuset
from numazones.cpuset import CPUSet

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INT64_MAX = 2**63 - 1
# More digits than a 64-bit number has, leading zeros allowed for.
_MAX_DIGITS = 1000
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    """Return the text in double quotes, special characters escaped."""
    return '"' + "".join(_escape(character) for character in text) + '"'


def parse_bool(text: str) -> bool:
    """Read a boolean.

    Raises:
        ValueError: with Go's message, for any other spelling.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def parse_int(text: str) -> int:
    """Read a decimal 64-bit integer.

    Raises:
        ValueError: with Go's message, for other texts and for numbers beyond 64 bits.
    """
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    value = int(text) if len(digits) < _MAX_DIGITS else _INT64_MAX + 1
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ValueError(f"strconv.Atoi: parsing {quote(text)}: value out of range")
    return value


def parse_cpu_list(text: str) -> CPUSet:
    """Read a CPU list as ``k8s.io/utils/cpuset`` does: no spaces, any number that Atoi takes.

    Raises:
        ValueError: with Go's message.
    """
    cpus = 0
    for part in text.split(",") if text else ():
        first, dash, second = part.partition("-")
        start = parse_int(first)
        end = parse_int(second) if dash else start
        if start > end:
            raise ValueError(f"invalid range {quote(part)} ({start} > {end})")
        if end > cpuset.MAX_ID:
            raise ValueError(f"CPU {end} is beyond the largest supported CPU {cpuset.MAX_ID}")
        cpus |= (1 << end + 1) - (1 << start)
    return cpus


def format_map(pairs: Iterable[tuple[str, str]]) -> str:
    """Write a map as ``%v`` prints it, sorted by key."""
    return "map[" + " ".join(f"{key}:{value}" for key, value in sorted(pairs)) + "]"


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:  # noqa: PLR2004 - ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - basic plane
