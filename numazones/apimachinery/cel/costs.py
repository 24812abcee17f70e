"""Units of cost that the call of a function takes; an evaluation beyond its limit is given up.

The rules are those of cel-go's ``interpreter/runtimecost.go`` and of Kubernetes'
``k8s.io/apiserver/pkg/cel/library/cost.go`` (1.36). Whatever is not named here costs one unit.
"""

from collections.abc import Callable, Mapping
from math import ceil

from numazones.apimachinery.cel.values import Failure, Network, Value

LIMIT = 1_000_000
"""What one evaluation may cost, by default."""
SELECT = 1
LIST = 10
MAP = 30
_TRAVERSAL = 0.1
_PATTERN = 0.25

Cost = Callable[[tuple[Value, ...], Value], int]


def size(value: Value) -> int:
    """Return the length of a value that has one, else 1."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (bytes, tuple, dict)):
        return len(value)
    if isinstance(value, Network):
        return ceil(value.interface.network.prefixlen / 8)
    return 1


def _traversal(value: Value) -> int:
    """The cost of walking through a value once, rounded down."""
    if isinstance(value, (str, bytes)):
        return int(len(value) * _TRAVERSAL)
    if isinstance(value, tuple):
        return sum(map(_traversal, value))
    return 1


def _walk(times: float = 1) -> Cost:
    return lambda values, _: ceil(size(values[0]) * times * _TRAVERSAL)


def _smaller(values: tuple[Value, ...], _: Value) -> int:
    return ceil(min(size(values[0]), size(values[1])) * _TRAVERSAL)


def _ordering(values: tuple[Value, ...], _: Value) -> int:
    texts = type(values[0]) is type(values[1]) and isinstance(values[0], (str, bytes))
    return _smaller(values, None) if texts else 1


def _joined(values: tuple[Value, ...], _: Value) -> int:
    one, other = values
    if isinstance(one, (str, bytes)) and isinstance(other, (str, bytes)):
        return ceil((len(one) + len(other)) * _TRAVERSAL)
    return 1


def _contained(values: tuple[Value, ...], _: Value) -> int:
    return ceil(size(values[0]) * _TRAVERSAL) * ceil(size(values[1]) * _TRAVERSAL)


def _matched(values: tuple[Value, ...], _: Value) -> int:
    if isinstance(values[0], Failure):
        return 0
    return ceil((1 + size(values[0])) * _TRAVERSAL) * ceil(size(values[1]) * _PATTERN)


def _in(values: tuple[Value, ...], _: Value) -> int:
    return size(values[1]) if isinstance(values[1], tuple) else 1


def _pairs(factor: int) -> Cost:
    return lambda values, _: size(values[0]) * size(values[1]) * factor + 1


def _made(_: tuple[Value, ...], result: Value) -> int:
    return LIST + size(result) + 1


def _compared(values: tuple[Value, ...], _: Value) -> int:
    return LIST + 2 * size(values[0]) ** 2 + 1


def _contains_ip(values: tuple[Value, ...], _: Value) -> int:
    network, other = values
    parsed = ceil(len(other) * _TRAVERSAL) if isinstance(other, str) else 0
    return ceil(2 * size(network) * _TRAVERSAL) + parsed


def _contains_cidr(values: tuple[Value, ...], _: Value) -> int:
    network, other = values
    parsed = ceil(len(other) * _TRAVERSAL) if isinstance(other, str) else 0
    return ceil(2 * size(network) * _TRAVERSAL) + ceil(size(other) * _TRAVERSAL) + parsed


def _sum(values: tuple[Value, ...], _: Value) -> int:
    return _traversal(values[0])


def _nothing(_: tuple[Value, ...], __: Value) -> int:
    return 0


COSTS: Mapping[str, Cost] = {
    "_==_": _smaller,
    "_!=_": _smaller,
    "_<_": _ordering,
    "_<=_": _ordering,
    "_>_": _ordering,
    "_>=_": _ordering,
    "_+_": _joined,
    "@in": _in,
    "quantity": _walk(),
    "semver": _walk(),
    "startsWith": _walk(),
    "endsWith": _walk(),
    "format": _walk(),
    "strings.quote": _walk(),
    "contains": _contained,
    "matches": _matched,
    "find": _matched,
    "findAll": _matched,
    "isSorted": _sum,
    "sum": _sum,
    "min": _sum,
    "max": _sum,
    "indexOf": _sum,
    "lastIndexOf": _sum,
    "url": _walk(),
    "lowerAscii": _walk(),
    "upperAscii": _walk(),
    "substring": _walk(),
    "trim": _walk(),
    "replace": _walk(2),
    "split": _walk(2),
    "join": lambda _, result: ceil(size(result) * 2 * _TRAVERSAL),
    "cidr": _walk(),
    "isIP": _walk(),
    "isCIDR": _walk(),
    "ip": lambda values, _: 1 if isinstance(values[0], Network) else ceil(size(values[0]) * _TRAVERSAL),
    "ip.isCanonical": _walk(2),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "sets.contains": _pairs(1),
    "sets.intersects": _pairs(1),
    "sets.equivalent": _pairs(2),
    "reverse": _made,
    "slice": _made,
    "flatten": _made,
    "lists.range": _made,
    "sort": _compared,
    "distinct": _compared,
    "orValue": _nothing,
}
"""Function → the cost of a call, from its arguments and its result."""
