"""Functions that Kubernetes adds to CEL, and the limits of what an evaluation makes.

``quantity`` with its methods and ``jsonpatch.escapeKey`` follow kubernetes.io, "Common Expression Language in
Kubernetes". The CEL library takes no types of others, so a quantity is bytes that no object can hold; two are
equal when their amounts are. ``find`` and ``findAll`` are left out: Python's regular expressions may take for
ever. The server refuses nobody anything, so that every check of ``authorizer`` is allowed.

Every parameter here is a text, bytes or a number: the library (0.1.3) crashes the process when it hands a
function of Python's a list or map with an optional value in it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cel_expr_python import cel

from numazones.apimachinery import quantity
from numazones_apiserver.admission_policies.syntax import LIMIT, REPLACE

QUANTITY_MARK = b"\1quantity:"
"""What quantities begin with; the amount in units of 10**-9 follows."""
AUTHORIZER = b"\1authorizer"
"""The value of the variable of that name."""
_CHECK, _DECISION = b"\1check", b"\1decision"
_NANO = 10**9
_INT64 = range(-(2**63), 2**63)
_MAX_TEXT = 128 * 1024
_MAX_TOTAL = 64 * _MAX_TEXT

_TEXT, _WHOLE, _BOOL, _DOUBLE = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL, cel.Type.DOUBLE
_QUANTITY = cel.Type.BYTES


@dataclass(slots=True)
class EvaluationLimits:
    """Limit on the characters that an evaluation may create, and how many it has created."""

    made: int = field(default=0)

    def count(self, amount: int) -> None:
        """Count what is made; raises ValueError beyond the limit."""
        self.made += amount
        if amount > _MAX_TEXT or self.made > _MAX_TOTAL:
            raise ValueError("the expression makes too much: its evaluation was given up")

    def limited(self, text: str) -> str:
        """The text, once it is counted."""
        self.count(len(text))
        return text

    def replaced(self, text: str, old: str, new: str, count: int = -1) -> str:
        """``text.replace(old, new)``, where a negative count means all."""
        found = text.count(old) if count < 0 else min(count, text.count(old))
        self.count(len(text) + found * max(len(new) - len(old), 0))
        return text.replace(old, new, count)


def _function(name: str, result: cel.Type, *parameters: cel.Type, impl: Callable[..., Any]) -> cel.Overload:
    return cel.Overload(name, result, list(parameters), impl=impl)


def _method(name: str, result: cel.Type, *parameters: cel.Type, impl: Callable[..., Any]) -> cel.Overload:
    return cel.Overload(name, result, list(parameters), is_member=True, impl=impl)


def declarations(limits: EvaluationLimits) -> list[cel.FunctionDecl]:
    """All functions for one environment, whose evaluations count together in ``limits``."""
    escape = _function("escape_key", _TEXT, _TEXT, impl=_escaped_key)
    found: dict[str, list[cel.Overload]] = {"jsonpatch.escapeKey": [escape]}
    for name, overload in (*_quantity_functions(), *_limited_functions(limits), *_authorizer_functions()):
        found.setdefault(name, []).append(overload)
    return [cel.FunctionDecl(name, overloads) for name, overloads in found.items()]


def _limited_functions(limits: EvaluationLimits) -> Iterator[tuple[str, cel.Overload]]:
    yield LIMIT, _method("limited_text", _TEXT, _TEXT, impl=limits.limited)
    replaced = limits.replaced
    yield REPLACE, _method("limited_replace", _TEXT, _TEXT, _TEXT, _TEXT, impl=replaced)
    yield REPLACE, _method("limited_replace_count", _TEXT, _TEXT, _TEXT, _TEXT, _WHOLE, impl=replaced)


def _escaped_key(key: str) -> str:
    """A key as JSON pointers write it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


# --- the authorizer --------------------------------------------------------------------------


def _authorizer_functions() -> Iterator[tuple[str, cel.Overload]]:
    """The steps from ``authorizer`` to a check, and from there to the decision."""
    opaque, text = cel.Type.BYTES, _TEXT
    yield (
        "serviceAccount",
        _method("authorizer_account", opaque, opaque, text, text, impl=_step(AUTHORIZER, AUTHORIZER)),
    )
    for name, before, after in (
        ("path", AUTHORIZER, _CHECK),
        ("group", AUTHORIZER, _CHECK),
        ("resource", _CHECK, _CHECK),
        ("subresource", _CHECK, _CHECK),
        ("namespace", _CHECK, _CHECK),
        ("name", _CHECK, _CHECK),
        ("check", _CHECK, _DECISION),
    ):
        yield name, _method(f"authorizer_{name}", opaque, opaque, text, impl=_step(before, after))
    results = (
        ("allowed", _BOOL, True),
        ("errored", _BOOL, False),
        ("reason", _TEXT, ""),
        ("error", _TEXT, ""),
    )
    for name, kind, result in results:
        yield name, _method(f"decision_{name}", kind, opaque, impl=_step(_DECISION, result))


def _step(before: bytes, after: object) -> Callable[..., Any]:
    """A method that only one kind of value has."""

    def take(value: bytes, *_: str) -> object:
        if value != before:
            raise ValueError("no such overload: the value has no such method")
        return after

    return take


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
    for name, sign in (("isLessThan", -1), ("isGreaterThan", 1)):
        yield name, _method(f"quantity_{name}", _BOOL, one, one, impl=_comparison(sign))
    yield (
        "compareTo",
        _method("quantity_compare", _WHOLE, one, one, impl=lambda a, b: _sign(_nanos(a) - _nanos(b))),
    )


def _value(nanos: int) -> bytes:
    return QUANTITY_MARK + str(nanos).encode()


def _nanos(value: bytes) -> int:
    mark, amount = value[: len(QUANTITY_MARK)], value[len(QUANTITY_MARK) :]
    if mark != QUANTITY_MARK:
        raise ValueError("no such overload: bytes are no quantity")
    return int(amount)


def _parsed(text: str) -> bytes:
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


def _is_integer(value: bytes) -> bool:
    whole, rest = divmod(_nanos(value), _NANO)
    return not rest and whole in _INT64


def _as_integer(value: bytes) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nanos(value) // _NANO


def _sign(amount: int) -> int:
    return (amount > 0) - (amount < 0)


def _sum(sign: int) -> Callable[[bytes, bytes | int], bytes]:
    def add(value: bytes, other: bytes | int) -> bytes:
        amount = other * _NANO if isinstance(other, int) else _nanos(other)
        return _value(_nanos(value) + sign * amount)

    return add


def _comparison(sign: int) -> Callable[[bytes, bytes], bool]:
    return lambda value, other: _sign(_nanos(value) - _nanos(other)) == sign
