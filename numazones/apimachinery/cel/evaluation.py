"""Evaluates checked expressions, and counts what this costs.

A tree becomes nested functions once; an evaluation calls the outermost. Errors are values on their way up
(``Failure``), as in cel-go, which also evaluates the other arguments of a call whose first one failed, and
counts their cost. A path such as ``device.attributes["a"].b`` is one attribute with qualifiers: each costs
a unit. Lists of literals, conversions of literals and ``in`` with such a list cost nothing: they are made
when the expression is compiled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from numazones.apimachinery.cel import costs
from numazones.apimachinery.cel.kubernetes_functions import KUBERNETES
from numazones.apimachinery.cel.standard_functions import (
    ABSENT,
    STANDARD,
    Function,
    contains_value,
    find,
    index,
    shown,
)
from numazones.apimachinery.cel.syntax_tree import (
    Comprehension,
    Constant,
    Expression,
    FunctionCall,
    ListLiteral,
    MapLiteral,
    Name,
    Select,
)
from numazones.apimachinery.cel.values import (
    NO_OVERLOAD,
    NONE,
    Failure,
    Lazy,
    Optional,
    TypeValue,
    Uint,
    Unsupported,
    Value,
    type_name,
)

_EXCEEDED = "operation cancelled: actual cost limit exceeded"
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_TYPES = frozenset(
    {
        "bool", "bytes", "double", "int", "list", "map", "null_type", "optional_type", "string", "type",
        "uint", "google.protobuf.Duration", "google.protobuf.Timestamp",
    }
)  # fmt: skip
_GO_TYPES = {
    bool: "Bool",
    int: "Int",
    Uint: "Uint",
    float: "Double",
    str: "String",
    bytes: "Bytes",
    type(None): "Null",
}
_NOT_OPTIONAL = "from non-optional value"
_MANY = 3
"""From so many arguments on, cel-go stops at the first that failed, and counts no cost."""
_PRIMITIVES = (bool, bytes, float, int, str, Uint)


class InvalidLiteral(Exception):
    """A literal cannot be converted as the expression wants; the message says why."""


class _CostExceeded(Exception):
    """The evaluation costs more than it may."""


class _State:
    """The variables of an evaluation, and what it has cost."""

    __slots__ = ("cost", "limit", "values")

    def __init__(self, values: dict[str, Value], limit: int) -> None:
        self.values, self.limit, self.cost = values, limit, 0


_Run = Callable[[_State], Value]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression, ready to be evaluated."""

    run: _Run
    constant: bool = False
    attribute: bool = False
    """Whether it is a variable with qualifiers, to which more can be added."""
    optional: bool = False
    """Whether it is an attribute one of whose qualifiers is optional."""


@dataclass(frozen=True, slots=True)
class Program:
    """An expression that can be evaluated."""

    run: _Run

    def evaluate(self, values: Mapping[str, Value], limit: int = costs.LIMIT) -> tuple[Value, int]:
        """Return the value, or the failure, and what the evaluation cost.

        Raises:
            numazones.apimachinery.cel.values.Unsupported: it came to something that this
            evaluation does not know.
        """
        state = _State(dict(values), limit)
        try:
            result = self.run(state)
        except _CostExceeded:
            return Failure(_EXCEEDED), limit + 1
        except RecursionError as error:
            raise Unsupported("an expression that is nested this deeply") from error
        if state.cost > limit:
            return Failure(_EXCEEDED), limit + 1
        return result, state.cost


def program(root: Expression, functions: Mapping[str, Function]) -> Program:
    """Make a program of a checked expression.

    ``functions``: those that are not in every environment, by name.

    Raises:
        InvalidLiteral: a literal cannot be converted.
        numazones.apimachinery.cel.values.Unsupported: it uses what is not known here.
    """
    return Program(_Compiler({**STANDARD, **KUBERNETES, **functions}).part(root).run)


def _constant(value: Value) -> _Part:
    return _Part(lambda _: value, constant=True)


def _value_of(part: _Part) -> Value:
    return part.run(_State({}, costs.LIMIT))


class _Compiler:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self.locals: set[str] = set()

    def part(self, node: Expression) -> _Part:  # noqa: PLR0911 - a line per kind
        """Make a part of an expression ready."""
        match node:
            case Constant(kind, value):
                return _constant(Uint(value) if kind == "uint" else value)  # type: ignore[call-overload]
            case Name(name):
                return self._name(name)
            case Select(operand, field, test_only):
                return (
                    _presence(self.part(operand), field) if test_only else _field(self.part(operand), field)
                )
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case _:
                return self._call(node)

    def _name(self, name: str) -> _Part:
        if name in _TYPES and name not in self.locals:
            return _constant(TypeValue(name))
        cost = 1 + name.count(".")

        def run(state: _State) -> Value:
            state.cost += cost
            value = state.values[name]
            return value.value() if type(value) is Lazy else value

        return _Part(run, attribute=True)

    # --- literals -----------------------------------------------------------------------------

    def _list(self, node: ListLiteral) -> _Part:
        parts = [self.part(one) for one in node.elements]
        runs, optional = [part.run for part in parts], node.optional
        if all(part.constant for part in parts) and not optional:
            return _constant(tuple(map(_value_of, parts)))

        def run(state: _State) -> Value:
            found: list[Value] = []
            for at, element in enumerate(runs):
                value = element(state)
                if isinstance(value, Failure):
                    return value
                if at in optional:
                    if type(value) is not Optional:
                        return Failure(
                            f"cannot initialize optional list element {_NOT_OPTIONAL} {shown(value)}"
                        )
                    if value.present:
                        found.append(value.value)
                else:
                    found.append(value)
            state.cost += costs.LIST
            return tuple(found)

        return _Part(run)

    def _map(self, node: MapLiteral) -> _Part:
        entries = [
            (_constant(key) if isinstance(key, str) else self.part(key), self.part(value), optional)
            for key, value, optional in node.entries
        ]
        if node.type_name:
            raise Unsupported(f"an object of the type {node.type_name}")
        literal = all(key.constant and value.constant and not optional for key, value, optional in entries)

        def run(state: _State) -> Value:
            found: dict[Value, Value] = {}
            for key_part, value_part, optional in entries:
                key = key_part.run(state)
                if isinstance(key, Failure):
                    return key
                value = value_part.run(state)
                if isinstance(value, Failure):
                    return value
                if type(key) not in (str, int, Uint):
                    raise Unsupported(f"a map with keys of the type {type_name(key)}")
                if not optional:
                    found[key] = value
                elif type(value) is not Optional:
                    entry = f"optional entry '{shown(key)}'"
                    return Failure(f"cannot initialize {entry} {_NOT_OPTIONAL} {shown(value)}")
                elif value.present:
                    found[key] = value.value
                else:
                    found.pop(key, None)
            state.cost += costs.MAP
            return found

        return _constant(_value_of(_Part(run))) if literal else _Part(run)

    # --- loops --------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> _Part:
        elements, start = self.part(node.range).run, self.part(node.start).run
        outer = set(self.locals)
        self.locals |= {node.variable, node.accumulator}
        condition, step, result = (self.part(one).run for one in (node.condition, node.step, node.result))
        self.locals = outer
        variable, accumulator = node.variable, node.accumulator

        def run(state: _State) -> Value:
            values, loop_range = state.values, elements(state)
            if isinstance(loop_range, Failure):
                return loop_range
            if not isinstance(loop_range, (tuple, dict)):
                kind = _GO_TYPES.get(type(loop_range), type(loop_range).__name__)
                return Failure(f"got 'types.{kind}', expected iterable type")
            kept = values.get(variable, ABSENT), values.get(accumulator, ABSENT)
            values[accumulator] = start(state)
            for value in loop_range:
                values[variable] = value
                if condition(state) is False:
                    break
                values[accumulator] = step(state)
                if state.cost > state.limit:
                    raise _CostExceeded
            made = result(state)
            for name, before in zip((variable, accumulator), kept, strict=True):
                if before is ABSENT:
                    values.pop(name, None)
                else:
                    values[name] = before
            return made

        return _Part(run)

    # --- calls --------------------------------------------------------------------------------

    def _call(self, node: FunctionCall) -> _Part:
        name = node.function
        if (special := _SPECIAL.get(name)) is not None:
            return special(*map(self.part, node.values))
        function = self.functions.get(name)
        if function is None:
            raise Unsupported(f"the function {name}")
        parts = list(map(self.part, node.values))
        if name in _CONVERSIONS and all(part.constant for part in parts):
            value = function(*map(_value_of, parts))
            if isinstance(value, Failure):
                raise InvalidLiteral(value.message)
            return _constant(value)
        if name == "@in" and parts[1].constant and (found := _membership(parts[0].run, _value_of(parts[1]))):
            return found
        return _Part(_applied(function, [part.run for part in parts], costs.COSTS.get(name)))


def _applied(function: Function, runs: list[_Run], cost: costs.Cost | None) -> _Run:
    many = len(runs) >= _MANY

    def run(state: _State) -> Value:
        if many:
            found = []
            for one in runs:
                value = one(state)
                if type(value) is Failure:
                    return value
                found.append(value)
            values = tuple(found)
        else:
            values = tuple([one(state) for one in runs])
        failed = None
        for value in values:
            if type(value) is Failure:
                failed = value
                break
        result = function(*values) if failed is None else failed
        state.cost += 1 if cost is None else cost(values, result)
        if state.cost > state.limit:
            raise _CostExceeded
        return result

    return run


def _membership(run: _Run, literal: Value) -> _Part | None:
    """``x in [...]`` where the list is written out, of one primitive type; None: it is something else."""
    if type(literal) is not tuple or len({type(one) for one in literal}) > 1:
        return None
    if not all(type(one) in _PRIMITIVES for one in literal):
        return None

    def member(state: _State) -> Value:
        value = run(state)
        return value if isinstance(value, Failure) else contains_value(value, literal)

    return _Part(member) if literal else _constant(False)


# --- attributes ------------------------------------------------------------------------------


def _qualified(operand: _Part, key: _Run, *, costs_key: bool, optional: bool) -> _Part:
    """``operand[key]``, a qualifier of the attribute that the operand is."""
    tolerant = optional or operand.optional
    before = 0 if operand.attribute else costs.SELECT
    if tolerant:
        return _Part(_tolerant_qualifier(operand.run, key, before), attribute=True, optional=True)
    base, cost = operand.run, costs.SELECT * (1 + costs_key)

    def run(state: _State) -> Value:
        value = base(state)
        state.cost += before
        if type(value) is Failure:
            return value
        wanted = key(state)
        if type(wanted) is Failure:
            return wanted
        state.cost += cost
        return index(value, wanted)

    return _Part(run, attribute=True)


def _tolerant_qualifier(base: _Run, key: _Run, before: int) -> _Run:
    """A qualifier whose result is optional; one that finds nothing costs nothing."""

    def run(state: _State) -> Value:
        value = base(state)
        state.cost += before
        if type(value) is Failure or (type(value) is Optional and not value.present):
            return value
        inner = value.value if type(value) is Optional else value
        wanted = key(state)
        if type(wanted) is Failure:
            return wanted
        found = find(inner, wanted)
        if found is ABSENT:
            return NONE
        state.cost += costs.SELECT
        return found if isinstance(found, Failure) else Optional(found)

    return run


def _field(operand: _Part, field: str) -> _Part:
    return _qualified(operand, lambda _: field, costs_key=False, optional=False)


def _presence(operand: _Part, field: str) -> _Part:
    """``has(operand.field)``."""
    base, before = operand.run, 0 if operand.attribute else costs.SELECT

    def run(state: _State) -> Value:
        value = base(state)
        state.cost += before
        if type(value) is Failure:
            return value
        if type(value) is Optional:
            if not value.present:
                return False
            value = value.value
        found = find(value, field)
        return found if isinstance(found, Failure) else found is not ABSENT

    return _Part(run)


def _index(operand: _Part, key: _Part) -> _Part:
    return _qualified(operand, key.run, costs_key=not key.constant, optional=False)


def _optional_index(operand: _Part, key: _Part) -> _Part:
    return _qualified(operand, key.run, costs_key=False, optional=True)


# --- logic -----------------------------------------------------------------------------------


def _logic(decides: bool) -> Callable[[_Part, _Part], _Part]:  # noqa: FBT001 - true for ``||``, false for ``&&``
    """``&&`` or ``||``: one side may decide, whatever error the other one is."""

    def made(left: _Part, right: _Part) -> _Part:
        one, other = left.run, right.run

        def run(state: _State) -> Value:
            first = one(state)
            if first is decides:
                return decides
            second = other(state)
            if second is decides:
                return decides
            for value in (first, second):
                if type(value) is Failure:
                    return value
            return not decides if type(first) is type(second) is bool else NO_OVERLOAD

        return _Part(run)

    return made


def _conditional(condition: _Part, then: _Part, otherwise: _Part) -> _Part:
    decide, one, other = condition.run, then.run, otherwise.run

    def run(state: _State) -> Value:
        value = decide(state)
        if value is True:
            return one(state)
        if value is False:
            return other(state)
        return value if isinstance(value, Failure) else NO_OVERLOAD

    return _Part(run)


def _not_strictly_false(value: _Part) -> _Part:
    inner = value.run

    def run(state: _State) -> Value:
        found = inner(state)
        state.cost += 1
        return found is not False

    return _Part(run)


def _or_value(value: _Part, otherwise: _Part) -> _Part:
    return _alternative(value.run, otherwise.run, unwrapped=True)


def _or(value: _Part, otherwise: _Part) -> _Part:
    return _alternative(value.run, otherwise.run, unwrapped=False)


def _alternative(one: _Run, other: _Run, *, unwrapped: bool) -> _Part:
    def run(state: _State) -> Value:
        value = one(state)
        if type(value) is Optional:
            if not value.present:
                return other(state)
            return value.value if unwrapped else value
        return value

    return _Part(run)


_SPECIAL: Mapping[str, Callable[..., _Part]] = {
    "_&&_": _logic(decides=False),
    "_||_": _logic(decides=True),
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "_[_]": _index,
    "_?._": _optional_index,
    "_[?_]": _optional_index,
    "orValue": _or_value,
    "or": _or,
}
