"""Functions that Kubernetes adds to CEL: quantities, versions, IP addresses, URLs and the like.

Sources: ``k8s.io/apiserver/pkg/cel/library`` of Kubernetes 1.36; texts of errors are its own. Regular
expressions (``find``, ``findAll``) are RE2 there. Python's engine backtracks, so only patterns without groups
and alternatives are taken, on which the two agree and no text takes long; others are ``Unsupported``.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from numazones.apimachinery import quantity
from numazones.apimachinery.cel.standard_functions import STANDARD, Function, no_overload, taking
from numazones.apimachinery.cel.values import (
    NO_OVERLOAD,
    URL,
    Failure,
    Network,
    Semver,
    Unsupported,
    Value,
    equal,
    normalised_semver,
    semver,
)
from numazones.apimachinery.quantity import Quantity
from numazones.errors import NumazonesError

_NANO = 10**9
_INT64 = range(-(2**63), 2**63)
_MAX_INCLUDED = 48


def _of(kind: type, name: str, function: Callable[..., Value]) -> Function:
    """Make a method of a type's values that has an error for others."""

    def method(value: Value, *others: Value) -> Value:
        return function(value, *others) if isinstance(value, kind) else no_overload(name)

    return method


def _readable(read: Function) -> Function:
    """Make a function that returns whether another one reads its arguments."""
    return lambda *values: not isinstance(read(*values), Failure)


# --- quantities ------------------------------------------------------------------------------


def _quantity(text: str) -> Value:
    try:
        if text != text.strip():
            raise quantity.InvalidQuantity("spaces")
        return quantity.parse(text)
    except NumazonesError:
        return Failure(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )


def _is_integer(value: Quantity) -> bool:
    whole, rest = divmod(value.nanos, _NANO)
    return not rest and whole in _INT64


def _as_integer(value: Quantity) -> Value:
    return value.nanos // _NANO if _is_integer(value) else Failure("cannot convert value to integer")


def _sum(sign: int) -> Callable[[Quantity, Value], Value]:
    def add(value: Quantity, other: Value) -> Value:
        if type(other) is int:
            other = Quantity(other * _NANO, other)
        if not isinstance(other, Quantity):
            return NO_OVERLOAD
        return value + (other if sign > 0 else Quantity(-other.nanos, None, other.binary, other.exponent))

    return add


def _order(left: Value, right: Value) -> int | Failure:
    """Compare quantities, or versions."""
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return (left.nanos > right.nanos) - (left.nanos < right.nanos)
    if isinstance(left, Semver) and isinstance(right, Semver):
        return int(left.order > right.order) - int(left.order < right.order)
    return NO_OVERLOAD


def _ordered(sign: int) -> Function:
    def function(left: Value, right: Value) -> Value:
        order = _order(left, right)
        return order if isinstance(order, Failure) else order == sign

    return function


# --- versions --------------------------------------------------------------------------------


def _semver(text: str, normalise: Value = False) -> Value:  # noqa: FBT002 - an argument of the language
    return normalised_semver(text) if normalise else semver(text)


# --- IP addresses ----------------------------------------------------------------------------


def _address(text: Value) -> Value:
    problem = f'IP Address "{text}" parse error during conversion from string: '
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        why = "unable to parse IP"
        parts = text.split(".")
        if all(part.isdigit() for part in parts) and any(int(part) > 255 for part in parts):  # noqa: PLR2004
            why = "IPv4 field has value >255"
        return Failure(f'{problem}ParseAddr("{text}"): {why}')
    if isinstance(found, ipaddress.IPv6Address) and (found.ipv4_mapped or found.scope_id):
        kind = "IPv4-mapped IPv6 address" if found.ipv4_mapped else "IP address with zone"
        return Failure(f'{kind} "{text}" is not allowed')
    return found


def _network(text: Value) -> Value:
    problem = f'network address parse error during conversion from string: netip.ParsePrefix("{text}")'
    address, slash, length = text.partition("/")
    if not slash or not re.fullmatch(r"0|[1-9][0-9]{0,2}", length) or isinstance(_address(address), Failure):
        return Failure(problem)
    try:
        return Network(ipaddress.ip_interface(text))
    except ValueError:
        return Failure(f"{problem}: prefix length out of range")


def _ip(value: Value) -> Value:
    if isinstance(value, Network):
        return value.interface.ip
    return _address(value) if type(value) is str else no_overload("ip")


def _is_canonical(text: Value) -> Value:
    found = _address(text)
    return found if isinstance(found, Failure) else str(found) == text


def _family(value: Value) -> Value:
    return value.version if isinstance(value, _ADDRESSES) else no_overload("family")


_ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address)


def _address_is(name: str, holds: Callable[[Any], bool]) -> Function:
    return lambda value: holds(value) if isinstance(value, _ADDRESSES) else no_overload(name)


def _is_global_unicast(value: Any) -> bool:
    limited = isinstance(value, ipaddress.IPv4Address) and int(value) == 2**32 - 1
    special = value.is_unspecified or value.is_loopback or value.is_multicast or value.is_link_local
    return not (limited or special)


def _is_link_local_multicast(value: Any) -> bool:
    if isinstance(value, ipaddress.IPv4Address):
        return value in ipaddress.ip_network("224.0.0.0/24")
    return bool(value.packed[0] == 0xFF and value.packed[1] & 0x0F == 2)  # noqa: PLR2004 - ff02::/16 and the like


def _contains_ip(network: Network, value: Value) -> Value:
    address = _address(value) if type(value) is str else value
    if isinstance(address, Failure):
        return address
    return address in network.interface.network if isinstance(address, _ADDRESSES) else NO_OVERLOAD


def _contains_network(network: Network, value: Value) -> Value:
    other = _network(value) if type(value) is str else value
    if isinstance(other, Failure):
        return other
    if not isinstance(other, Network):
        return NO_OVERLOAD
    outer, inner = network.interface.network, other.interface.network
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _masked(network: Network) -> Network:
    inner = network.interface.network
    return Network(ipaddress.ip_interface(f"{inner.network_address}/{inner.prefixlen}"))


# --- URLs ------------------------------------------------------------------------------------

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_HOST = re.compile(r"(?:[^@]*@)?(\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s\"<>\\^`{|}]*)(?::([0-9]*))?")
_CONTROL = re.compile(r"[\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})")


def _url(text: Value) -> Value:
    problem = Failure(
        f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
    )
    if text.startswith("/"):
        return URL(text, "", "", "", "", text.partition("?")[0], _query(text.partition("?")[2]))
    parts = _URL.fullmatch(text)
    if parts is None or _CONTROL.search(text):
        return problem
    host = _HOST.fullmatch(parts[2] or "")
    if host is None:
        return problem
    name = (parts[2] or "").rpartition("@")[2]
    return URL(
        text, parts[1].lower(), name, host[1].strip("[]"), host[2] or "", parts[3], _query(parts[4] or "")
    )


def _query(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split("&") if text else ():
        key, _, value = part.partition("=")
        name = _unescaped(key)
        found[name] = (*found.get(name, ()), _unescaped(value))
    return tuple(found.items())


def _unescaped(text: str) -> str:
    plain = re.sub(
        rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.replace("+", " ").encode()
    )
    return plain.decode(errors="replace")


# --- regular expressions ---------------------------------------------------------------------

_SIMPLE = re.compile(r"\^?(?:(?:\[\^?(?:\\[dws]|[A-Za-z0-9_ .:/-])+\]|\\[dws.]|[A-Za-z0-9_ .:/-])(?:[*+?]|\{[0-9]{1,2}(?:,[0-9]{0,2})?\})?){1,12}\$?")  # fmt: skip # noqa: E501
_MAX_REPEATS = 3


def _simple(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of single characters that are repeated at few places; raises Unsupported."""
    repeats = len(re.findall(r"[*+}]", pattern))
    if not _SIMPLE.fullmatch(pattern) or repeats > _MAX_REPEATS:
        raise Unsupported(f"a regular expression as complex as {pattern!r:.80} in find or findAll")
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


def _find(text: str, pattern: str) -> Value:
    found = _simple(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> Value:
    found = [match[0] for match in _simple(pattern).finditer(text)]
    return tuple(found if limit < 0 else found[:limit])


# --- lists -----------------------------------------------------------------------------------


def _includes(value: Value, wanted: Value) -> Value:
    """Return whether a value is another one, or a list contains it."""
    if type(value) is not tuple:
        return equal(value, wanted) is True
    if len(value) > _MAX_INCLUDED:
        return Failure(f"includes: list has {len(value)} elements, more than {_MAX_INCLUDED}")
    return any(equal(one, wanted) is True for one in value)


def _escape_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _sign(value: Quantity) -> int:
    return (value.nanos > 0) - (value.nanos < 0)


def _text(value: Value) -> Value:
    if isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address):
        return str(value)
    return str(value.interface) if isinstance(value, Network) else STANDARD["string"](value)


KUBERNETES: Mapping[str, Function] = {
    "string": _text,
    "quantity": taking("quantity", str)(_quantity),
    "isQuantity": taking("isQuantity", str)(_readable(_quantity)),
    "isInteger": _of(Quantity, "isInteger", _is_integer),
    "asInteger": _of(Quantity, "asInteger", _as_integer),
    "asApproximateFloat": _of(Quantity, "asApproximateFloat", lambda value: value.nanos / _NANO),
    "sign": _of(Quantity, "sign", _sign),
    "add": _of(Quantity, "add", _sum(1)),
    "sub": _of(Quantity, "sub", _sum(-1)),
    "compareTo": _order,
    "isLessThan": _ordered(-1),
    "isGreaterThan": _ordered(1),
    "semver": taking("semver", str, bool)(_semver),
    "isSemver": taking("isSemver", str, bool)(_readable(_semver)),
    "major": _of(Semver, "major", lambda value: value.numbers[0]),
    "minor": _of(Semver, "minor", lambda value: value.numbers[1]),
    "patch": _of(Semver, "patch", lambda value: value.numbers[2]),
    "ip": _ip,
    "isIP": taking("isIP", str)(_readable(_address)),
    "ip.isCanonical": taking("ip.isCanonical", str)(_is_canonical),
    "family": _family,
    "isUnspecified": _address_is("isUnspecified", lambda value: value.is_unspecified),
    "isLoopback": _address_is("isLoopback", lambda value: value.is_loopback),
    "isLinkLocalMulticast": _address_is("isLinkLocalMulticast", _is_link_local_multicast),
    "isLinkLocalUnicast": _address_is("isLinkLocalUnicast", lambda value: value.is_link_local),
    "isGlobalUnicast": _address_is("isGlobalUnicast", _is_global_unicast),
    "cidr": taking("cidr", str)(_network),
    "isCIDR": taking("isCIDR", str)(_readable(_network)),
    "containsIP": _of(Network, "containsIP", _contains_ip),
    "containsCIDR": _of(Network, "containsCIDR", _contains_network),
    "masked": _of(Network, "masked", _masked),
    "prefixLength": _of(Network, "prefixLength", lambda value: value.interface.network.prefixlen),
    "url": taking("url", str)(_url),
    "isURL": taking("isURL", str)(_readable(_url)),
    "getScheme": _of(URL, "getScheme", lambda value: value.scheme),
    "getHost": _of(URL, "getHost", lambda value: value.host),
    "getHostname": _of(URL, "getHostname", lambda value: value.hostname),
    "getPort": _of(URL, "getPort", lambda value: value.port),
    "getEscapedPath": _of(URL, "getEscapedPath", lambda value: value.path),
    "getQuery": _of(URL, "getQuery", lambda value: dict(value.query)),
    "find": taking("find", str, str)(_find),
    "findAll": taking("findAll", str, str, int)(_find_all),
    "includes": _includes,
    "jsonpatch.escapeKey": taking("jsonpatch.escapeKey", str)(_escape_key),
}
"""Name of a function → the function; a method's first argument is its target."""
