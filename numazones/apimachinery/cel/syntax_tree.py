"""The checked syntax tree of an expression, read from the protobuf form that the CEL library writes.

Messages and field numbers are those of ``cel/expr/checked.proto`` and ``syntax.proto`` of cel-spec. Only what
evaluation needs is read. Macros are expanded already: ``all``, ``map`` and the like are ``Comprehension``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Type = tuple[object, ...]
"""A type: a name, and the types that it is made of, such as ``("list", ("int",))``."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    kind: str
    """null, bool, int, uint, double, string or bytes."""
    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """The use of a variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A field of a value, or ``has`` of one."""

    operand: "Expression"
    field: str
    test_only: bool


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The call of a function, a method or an operator."""

    function: str
    target: "Expression | None"
    arguments: "tuple[Expression, ...]"

    @property
    def values(self) -> "tuple[Expression, ...]":
        """Target and arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """A list that is written out."""

    elements: "tuple[Expression, ...]"
    optional: frozenset[int]
    """Positions of elements that are left out where they have no value."""


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """A map, or an object of a named type, that is written out."""

    type_name: str
    entries: "tuple[tuple[Expression | str, Expression, bool], ...]"
    """(key or name of the field, value, whether it is left out where it has no value)."""


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A loop over a list or the keys of a map."""

    variable: str
    range: "Expression"
    accumulator: str
    start: "Expression"
    condition: "Expression"
    step: "Expression"
    result: "Expression"


Expression = Constant | Name | Select | FunctionCall | ListLiteral | MapLiteral | Comprehension


@dataclass(frozen=True, slots=True)
class CheckedExpression:
    """An expression with the types that the checker found."""

    root: Expression
    ids: dict[int, Expression]
    """Id → part of the expression."""
    types: dict[int, Type]
    """Id of a part → its type; empty where it was not checked."""
    positions: dict[int, int]
    """Id of a part → where it is in the text."""
    root_id: int = 0

    @property
    def type_of_root(self) -> Type:
        """The type of the whole."""
        return self.types.get(self.root_id, ("dyn",))

    def type_of(self, part: Expression, *, unwrapped: bool = False) -> Type:
        """Return the type of a part; ``unwrapped``: of the value in an optional one."""
        kind = self.types.get(self._id(part), ("dyn",))
        if unwrapped and len(kind) > 1 and isinstance(kind[1], tuple):
            return kind[1]
        return kind

    def note_type(self, part: Expression, kind: Type) -> None:
        """Say what the type of a part is."""
        self.types[self._id(part)] = kind

    def position(self, part: Expression) -> int:
        """Return where a part is in the text."""
        return self.positions.get(self._id(part), 0)

    def _id(self, part: Expression) -> int:
        return next(identity for identity, one in self.ids.items() if one is part)


def parts_of(node: Expression) -> Iterator[Expression]:
    """Yield the parts that a part is made of."""
    match node:
        case Select(operand):
            yield operand
        case FunctionCall():
            yield from node.values
        case ListLiteral(elements):
            yield from elements
        case MapLiteral(_, entries):
            for key, value, _ in entries:
                if not isinstance(key, str):
                    yield key
                yield value
        case Comprehension():
            yield from (node.range, node.start, node.condition, node.step, node.result)


class _Unreadable(Exception):
    """The bytes are of another form."""


def decode(serialized: bytes) -> CheckedExpression:
    """Read what the library's ``serialize`` returns; raises ValueError for anything else."""
    try:
        envelope = _fields(serialized)
        name = envelope[1][-1].decode()
        body = _fields(envelope[2][-1])
        reader = _Reader()
        source = _fields(body.get(5, [b""])[-1])
        positions = {_int(one, 1): _int(one, 2) for one in map(_fields, source.get(4, ()))}
        if name.endswith("/cel.expr.ParsedExpr"):
            return CheckedExpression(reader.expression(body[2][-1]), reader.ids, {}, positions)
        types = {}
        for entry in body.get(3, ()):
            parts = _fields(entry)
            types[parts[1][-1]] = _type(parts[2][-1])
        identity = _int(_fields(body[4][-1]), 2)
        return CheckedExpression(reader.expression(body[4][-1]), reader.ids, types, positions, identity)
    except (KeyError, IndexError, UnicodeDecodeError, struct.error, _Unreadable) as error:
        raise ValueError(f"the CEL library wrote an expression in an unknown form: {error}") from error


_MAP_KEY, _SECOND_VARIABLE = 3, 8


class _Reader:
    def __init__(self) -> None:
        self.ids: dict[int, Expression] = {}

    def expression(self, data: bytes) -> Expression:
        fields = _fields(data)
        found = self._of(fields)
        self.ids[_int(fields, 2)] = found
        return found

    def _of(self, fields: "_Fields") -> Expression:
        for number, read in (
            (3, _constant), (4, self._name), (5, self._select), (6, self._call),
            (7, self._list), (8, self._map), (9, self._comprehension),
        ):  # fmt: skip
            if number in fields:
                return read(_fields(fields[number][-1]))
        raise _Unreadable("a part is of no known kind")

    def _name(self, fields: "_Fields") -> Name:
        return Name(_text(fields, 1))

    def _select(self, fields: "_Fields") -> Select:
        return Select(self.expression(fields[1][-1]), _text(fields, 2), bool(_int(fields, 3)))

    def _call(self, fields: "_Fields") -> FunctionCall:
        target = self.expression(fields[1][-1]) if 1 in fields else None
        return FunctionCall(_text(fields, 2), target, tuple(map(self.expression, fields.get(3, ()))))

    def _list(self, fields: "_Fields") -> ListLiteral:
        optional = set()
        for packed in fields.get(2, ()):
            optional |= {packed} if isinstance(packed, int) else set(_packed(packed))
        return ListLiteral(tuple(map(self.expression, fields.get(1, ()))), frozenset(optional))

    def _map(self, fields: "_Fields") -> MapLiteral:
        entries = []
        for entry in map(_fields, fields.get(2, ())):
            key = self.expression(entry[3][-1]) if _MAP_KEY in entry else _text(entry, 2)
            entries.append((key, self.expression(entry[4][-1]), bool(_int(entry, 5))))
        return MapLiteral(_text(fields, 1), tuple(entries))

    def _comprehension(self, fields: "_Fields") -> Comprehension:
        if _SECOND_VARIABLE in fields:
            raise _Unreadable("a comprehension has two variables")
        read = [self.expression(fields[number][-1]) for number in (2, 4, 5, 6, 7)]
        return Comprehension(_text(fields, 1), read[0], _text(fields, 3), *read[1:])


def _constant(fields: "_Fields") -> Constant:
    for number, kind in ((2, "bool"), (3, "int"), (4, "uint"), (5, "double"), (6, "string"), (7, "bytes")):
        if number in fields:
            raw = fields[number][-1]
            match kind:
                case "bool":
                    return Constant(kind, bool(raw))
                case "int":
                    return Constant(kind, raw - (1 << 64) if raw >= 1 << 63 else raw)
                case "double":
                    return Constant(kind, struct.unpack("<d", raw)[0])
                case "string":
                    return Constant(kind, raw.decode())
                case _:
                    return Constant(kind, raw)
    if 1 in fields:
        return Constant("null", None)
    raise _Unreadable("a literal is of no known kind")


_PRIMITIVES = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
_SIMPLE: dict[int, str | dict[int, str]] = {
    1: "dyn", 2: "null", 3: _PRIMITIVES, 5: {1: "any", 2: "timestamp", 3: "duration"},
}  # fmt: skip


def _type(data: bytes) -> Type:  # noqa: PLR0911 - a line per kind
    fields = _fields(data)
    number = next(iter(fields), 0)
    value: Any = fields[number][-1] if number else b""
    if number in _SIMPLE:
        names = _SIMPLE[number]
        return (names if isinstance(names, str) else names.get(value, "?"),)
    match number:
        case 4:
            return ("wrapper", _PRIMITIVES.get(value, "?"))
        case 6:
            return ("list", *_types(value, 1))
        case 7:
            return ("map", *_types(value, 1), *_types(value, 2))
        case 11:
            return ("type", _type(value))
        case 14:
            return (_text(_fields(value), 1), *_types(value, 2))
    return ("?",)


def _types(data: bytes, number: int) -> list[Type]:
    return [_type(one) for one in _fields(data).get(number, ())]


# --- the wire format -------------------------------------------------------------------------

_Fields = dict[int, list]  # type: ignore[type-arg]  # bytes, or an integer for numbers


def _fields(data: bytes) -> _Fields:
    """Number of a field → its values: integers for varints, bytes for the rest."""
    found: _Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:  # noqa: PLR2004 - length-delimited
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise _Unreadable(f"wire type {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the last byte
            return value, at
        shift += 7


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _text(fields: _Fields, number: int) -> str:
    return fields[number][-1].decode() if number in fields else ""


def _int(fields: _Fields, number: int) -> int:
    return fields[number][-1] if number in fields else 0
