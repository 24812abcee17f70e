"""Compiles expressions: the CEL library checks them, ``evaluation`` runs them.

The library is imported when an environment is made, not before: it adds 24 MB to a process, and many never
meet an expression. Where it cannot be imported, expressions are ``Unsupported`` and the message says so.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from numazones.apimachinery.cel import declarations
from numazones.apimachinery.cel.evaluation import InvalidLiteral, Program, program
from numazones.apimachinery.cel.standard_functions import Function, no_overload
from numazones.apimachinery.cel.syntax_tree import (
    CheckedExpression,
    Constant,
    Expression,
    FunctionCall,
    ListLiteral,
    MapLiteral,
    Name,
    Type,
    decode,
    parts_of,
)
from numazones.apimachinery.cel.values import Failure, Unsupported, Value
from numazones.errors import NumazonesError

_PREFIX, _SUFFIX = re.compile(r"^[A-Z_]+: "), re.compile(r" \[[A-Z_]+\]\s*$")
_DOUBLING, _MOST_DOUBLINGS = re.compile(r"\bopt(?:Flat)?Map\b"), 8
"""Macros that double what they are called on, so that a nest of them grows without end."""
_ON_VALUES = re.compile(
    r"(\d+):(\d+)(: found no matching overload for )'(\w+)' applied to "
    r"'\(([^,()]*(?:\((?:[^()]|\([^()]*\))*\))?)(?:, )?([^']*)\)'"
)
_WORDINGS = (
    ("cannot be the range of a comprehension", "cannot be range of a comprehension"),
    ("invalid_argument", "invalid argument"),
)


class InvalidExpression(NumazonesError):
    """An expression is no CEL, or not of the type that is needed; the message is that of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression."""

    text: str
    program: Program
    type: Type


@dataclass(slots=True)
class Environment:
    """The variables and functions that expressions of one place of the API may use."""

    variables: Mapping[str, str | Type]
    """Name → type, in the words of ``declarations`` or as found by ``compile``; a name may have dots."""
    signatures: tuple[str, ...] = ()
    """Functions of this place alone, in the form of ``declarations``."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    object_key: str = ""
    """The first key of maps that stand for objects, whose values may be of several types; empty: none do."""
    _exact: dict[str, list[declarations.Signature]] = field(init=False, default_factory=dict)
    """Functions that are declared here; the library knows the types of most only roughly."""
    _checker: Any = field(init=False, default=None)
    _matcher: Any = field(init=False, default=None)

    def compile(self, text: str) -> Compiled:
        """Compile an expression.

        Raises:
            InvalidExpression: it is not CEL, or uses an unknown name.
            Unsupported: Kubernetes knows what it uses, but it cannot be evaluated here.
        """
        if len(_DOUBLING.findall(text)) > _MOST_DOUBLINGS:
            raise Unsupported(f"optMap and optFlatMap more than {_MOST_DOUBLINGS} times")
        library = _library()
        if self._checker is None:
            self._checker = self._new_checker(library)
        try:
            expression = self._checker.compile(text)
        except (RuntimeError, ValueError, TypeError) as error:
            if self._has_two_variables(text):
                raise Unsupported("a comprehension with two variables") from error
            raise InvalidExpression(f"compilation failed: {_wording(str(error), text)}") from error
        checked = decode(expression.serialize())
        self._refine(checked, checked.root)
        if problems := [_placed(text, *problem) for problem in self._problems(checked)]:
            raise InvalidExpression("compilation failed: " + "\n".join(problems))
        try:
            made = program(checked.root, {"matches": self._matches, **self.functions})
        except InvalidLiteral as error:
            raise InvalidExpression(f"program instantiation failed: {error}") from error
        return Compiled(text, made, checked.type_of_root)

    def _new_checker(self, library: ModuleType) -> Any:
        from cel_expr_python.ext import ext_bindings, ext_optional  # noqa: PLC0415 - see the module's docstring

        types = _Types(library)
        overloads: dict[str, list[Any]] = {}
        for one, exact in declarations.overloads(*self.signatures):
            self._exact.setdefault(one.name, []).extend(exact)
            parameters = ([one.target] if one.target else []) + list(one.parameters)
            name = "_".join([one.name, *parameters]).translate(_IDENTIFIER)
            overload = library.Overload(
                name, types.of(one.result), list(map(types.of, parameters)), is_member=bool(one.target)
            )
            overloads.setdefault(one.name, []).append(overload)
        functions = [library.FunctionDecl(name, found) for name, found in overloads.items()]
        extensions = [
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            library.CelExtension("kubernetes", functions),
        ]
        variables = {name: types.of(kind) for name, kind in self.variables.items()}
        return library.NewEnv(variables=variables, extensions=extensions)

    def _unlike(
        self, checked: CheckedExpression, parts: list[tuple[Expression, bool]]
    ) -> Iterable[tuple[int, str]]:
        """Yield the parts of a literal whose type is not that of the first; ``dyn`` is none of the others.

        Where maps stand for objects, the types of variables are not known as Kubernetes knows them: ``dyn``
        may be any type there.
        """
        kinds = [(one, checked.type_of(one, unwrapped=optional)) for one, optional in parts]
        if self.object_key:
            kinds = [(one, kind) for one, kind in kinds if kind != ("dyn",)]
        for one, kind in kinds[1:]:
            if not _same_type(first := kinds[0][1], kind):
                yield (
                    checked.position(one),
                    f"expected type '{type_text(first)}' but found '{type_text(kind)}'",
                )

    def _has_two_variables(self, text: str) -> bool:
        try:
            parsed = decode(self._checker.compile(text, disable_check=True).serialize())
        except (RuntimeError, ValueError):
            return False
        calls = (node for node in parsed.ids.values() if isinstance(node, FunctionCall))
        return any(
            node.function in _MACROS and len(node.arguments) > 2 and isinstance(node.arguments[1], Name)  # noqa: PLR2004
            for node in calls
        )

    def _matches(self, text: Value, pattern: Value) -> Value:
        """``text.matches(pattern)``, by the library's RE2, which takes linear time."""
        if type(text) is not str or type(pattern) is not str:
            return no_overload("matches")
        if self._matcher is None:
            library = _library()
            kinds = {"text": library.Type.STRING, "pattern": library.Type.STRING}
            self._matcher = library.NewEnv(variables=kinds).compile("text.matches(pattern)")
        try:
            found = self._matcher.eval(data={"text": text, "pattern": pattern}).value()
        except RuntimeError as error:
            return Failure(_wording(str(error)))
        return found if type(found) is bool else Failure(f"error parsing regexp: {pattern}")

    def _refine(self, checked: CheckedExpression, node: Expression) -> None:
        """Note types of Kubernetes, which the library forgets of what functions return."""
        for part in parts_of(node):
            self._refine(checked, part)
        if self._is_object(node):
            checked.note_type(node, ("map", ("string",), ("dyn",)))
        if not isinstance(node, FunctionCall) or "dyn" not in str(checked.type_of(node)):
            return
        kinds = [checked.type_of(one) for one in node.values]
        if node.function == "_?_:_":
            checked.note_type(node, kinds[1])
        elif found := self._matching(node.function, kinds):
            element = next((kind[1] for kind in kinds if kind[0] == "list" and len(kind) > 1), ("dyn",))
            checked.note_type(node, _declared(found.result, element))

    def _is_object(self, node: Expression) -> bool:
        if not self.object_key or not isinstance(node, MapLiteral) or not node.entries:
            return False
        return node.entries[0][0] == Constant("string", self.object_key)

    def _matching(self, name: str, kinds: list[Type]) -> declarations.Signature | None:
        return next((one for one in self._exact.get(name, ()) if _fits(kinds, one)), None)

    def _problems(self, checked: CheckedExpression) -> Iterable[tuple[int, str]]:
        """Yield (position, problem) of what Kubernetes refuses beyond the checker."""
        free = _format_arguments(checked)
        for identity, node in sorted(checked.ids.items(), key=lambda item: checked.positions.get(item[0], 0)):
            match node:
                case FunctionCall("matches", _, arguments) if isinstance(arguments[-1], Constant):
                    if isinstance(self._matches("", arguments[-1].value), Failure):
                        yield checked.position(arguments[-1]), "invalid matches argument"
                case FunctionCall(name, target, _) if name in self._exact and name not in _OF_LIBRARY:
                    kinds = [checked.type_of(one) for one in node.values]
                    if not self._matching(name, kinds):
                        yield (
                            checked.positions.get(identity, 0),
                            _no_overload(name, kinds, member=bool(target)),
                        )
                case FunctionCall(name, _, _) if name in _OPERANDS:
                    kinds = [checked.type_of(one) for one in node.values]
                    if any(kind[0] not in (*_OPERANDS[name], *_ANYTHING) for kind in kinds):
                        yield checked.positions.get(identity, 0), _no_overload(name, kinds, member=False)
                case ListLiteral(elements, optional) if identity not in free:
                    pairs = [(one, at in optional) for at, one in enumerate(elements)]
                    yield from self._unlike(checked, pairs)
                case MapLiteral("", entries) if not self._is_object(node):
                    keys = [(key, False) for key, _, _ in entries if not isinstance(key, str)]
                    yield from self._unlike(checked, keys)
                    yield from self._unlike(checked, [(value, optional) for _, value, optional in entries])


_NUMBERS = ("int", "uint", "double")
_ORDERED = (*_NUMBERS, "bool", "string", "bytes", "duration", "timestamp")
_OPERANDS = {
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ORDERED),
    "_+_": (*_NUMBERS, "string", "bytes", "list", "duration", "timestamp"),
    "_-_": (*_NUMBERS, "duration", "timestamp"),
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": ("int", "uint"),
}
"""Operator → types that it takes: the library also lets pass others next to one that is not known."""
_OF_LIBRARY = (*_OPERANDS, "contains", "size", "string")
"""Names that the library also has in other forms."""
_MACROS = ("all", "exists", "existsOne", "exists_one", "transformList", "transformMap", "transformMapEntry")
_IDENTIFIER = str.maketrans(dict.fromkeys(" .[]{}<>-@!", "_"))


class _Types:
    """Types of the library by their names in ``declarations``."""

    def __init__(self, library: ModuleType) -> None:
        self.library = library
        kinds = library.Type
        self.known = {
            "bool": kinds.BOOL, "int": kinds.INT, "uint": kinds.UINT, "double": kinds.DOUBLE,
            "string": kinds.STRING, "bytes": kinds.BYTES, "dyn": kinds.DYN, "any": kinds("any"),
            "duration": kinds.DURATION, "timestamp": kinds.TIMESTAMP, "T": kinds("~T"),
            **{short: kinds.AbstractType(name) for short, name in declarations.TYPES.items()},
        }  # fmt: skip

    def of(self, name: str | Type) -> Any:
        """Return a type: ``[x]`` is a list of x, ``{x}`` a map from strings to x."""
        if not isinstance(name, str):
            return self._of_checked(name)
        if name[0] in "[{":
            inner = self.of(name[1:-1])
            kinds = self.library.Type
            return kinds.List(inner) if name[0] == "[" else kinds.Map(kinds.STRING, inner)
        return self.known[name]

    def _of_checked(self, kind: Type) -> Any:
        """The type that an expression was found to have."""
        name, *parts = kind
        inner = [self.of(part) for part in parts if isinstance(part, tuple)]
        if name == "list":
            return self.library.Type.List(*inner)
        if name == "map":
            return self.library.Type.Map(*inner)
        short = next((it for it, full in declarations.TYPES.items() if full == name), str(name))
        return self.known.get(short, self.known["dyn"])


def _library() -> ModuleType:
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - see the module's docstring
    except ImportError as error:
        raise Unsupported(
            f"CEL, but the package cel-expr-python cannot be imported: {error}; if it is "
            "not installed, run pip install cel-expr-python"
        ) from error
    return cel  # type: ignore[no-any-return]


def _format_arguments(checked: CheckedExpression) -> set[int]:
    """Ids of the lists that ``format`` takes, whose elements may be of several types."""
    calls = (
        node for node in checked.ids.values() if isinstance(node, FunctionCall) and node.function == "format"
    )
    lists = [one for node in calls for one in node.arguments]
    return {identity for identity, node in checked.ids.items() if any(node is one for one in lists)}


def _fits(kinds: list[Type], signature: declarations.Signature) -> bool:
    """Return whether a call with values of these types meets a signature."""
    wanted = [*([signature.target] if signature.target else []), *signature.parameters]
    return len(wanted) == len(kinds) and all(map(_assignable, kinds, wanted))


def _assignable(kind: Type, wanted: str) -> bool:
    if kind[0] in _ANYTHING or wanted in ("T", "dyn"):
        return True
    if wanted.startswith("["):
        element = kind[1] if len(kind) > 1 else ("dyn",)
        return kind[0] == "list" and isinstance(element, tuple) and _assignable(element, wanted[1:-1])
    return kind[0] == declarations.TYPES.get(wanted, wanted)


def _declared(name: str, element: object) -> Type:
    """The type that a declaration names; ``element``: what T stands for."""
    if name.startswith("["):
        return ("list", _declared(name[1:-1], element))
    if name == "T":
        return element if isinstance(element, tuple) else ("dyn",)
    return (declarations.TYPES.get(name, name),)


_ANYTHING = ("dyn", "any", "error", "?")


def _no_overload(name: str, kinds: list[Type], *, member: bool) -> str:
    texts = ["any" if kind == ("any",) else type_text(kind) for kind in kinds]
    target = f"{texts.pop(0)}." if member else ""
    return f"found no matching overload for '{name}' applied to '{target}({', '.join(texts)})'"


def _same_type(one: Type, other: Type) -> bool:
    """Return whether two types are equal; the element of an empty list is of any type."""
    if one == other:
        return True
    if len(one) != len(other) or one[0] != other[0]:
        return one == ("dyn",) == other
    return all(
        isinstance(first, tuple) and isinstance(second, tuple) and _same_element(first, second)
        for first, second in zip(one[1:], other[1:], strict=True)
    )


def _same_element(one: Type, other: Type) -> bool:
    return ("dyn",) in (one, other) or _same_type(one, other)


def type_text(kind: Type) -> str:
    """Write a type as error messages do."""
    name = {"any": "google.protobuf.Any", "null": "null_type"}.get(str(kind[0]), str(kind[0]))
    inner = ", ".join(type_text(one) for one in kind[1:] if isinstance(one, tuple))
    return f"{name}({inner})" if inner else name


def _wording(message: str, text: str = "") -> str:
    """Put an error of the library in the words of cel-go, which writes a method's target before a dot."""
    message = _SUFFIX.sub("", _PREFIX.sub("", message))

    def as_method(found: re.Match[str]) -> str:
        line, column, before, name, target, rest = found.groups()
        lines = text.split("\n")
        source = lines[int(line) - 1] if int(line) <= len(lines) else ""
        if not source[: int(column) - 1].rstrip().endswith(f".{name}"):
            return found[0]
        return f"{line}:{column}{before}'{name}' applied to '{target}.({rest or ''})'"

    message = _ON_VALUES.sub(as_method, message)
    for theirs, ours in _WORDINGS:
        message = message.replace(theirs, ours)
    return message


def _placed(text: str, position: int, problem: str) -> str:
    before = text[:position]
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1)
    source = text.split("\n")[line - 1]
    return f"ERROR: <input>:{line}:{column + 1}: {problem}\n | {source}\n | {'.' * column}^"
