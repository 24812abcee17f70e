"""The expressions of one policy: compiled once, evaluated for every request it is for.

Language, functions and the limit on what an evaluation costs are those of ``numazones.apimachinery.cel``, as
device selectors have them. Policies add variables, which are evaluated when they are first used, objects of
any fields (``syntax``), and the authorizer: the server has no access rules, so every check is allowed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from numazones.apimachinery.cel.environment import Compiled, Environment, InvalidExpression, type_text
from numazones.apimachinery.cel.values import (
    NO_OVERLOAD,
    Duration,
    Failure,
    Lazy,
    Opaque,
    Optional,
    Timestamp,
    Uint,
    Unsupported,
    Value,
)
from numazones.errors import NumazonesError
from numazones_apiserver.admission_policies.syntax import TYPE_KEY, Translation, original_place, translation

BOOL = "bool"
STRING = "string"
OBJECT = "Object"
PATCHES = "list(JSONPatch)"
_ROOT_TYPES = {OBJECT: ("map", "Object"), PATCHES: ("list", "JSONPatch")}
_MAX_LENGTH = 32 * 1024
_MAX_VALUES = 100_000
_INT64 = range(-(2**63), 2**63)
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# --- the authorizer --------------------------------------------------------------------------

_AUTHORIZER, _PATH, _GROUP, _RESOURCE, _DECISION = (
    Opaque(f"kubernetes.authorization.{name}")
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)
_STEPS: Mapping[str, Mapping[Opaque, Value]] = {
    "serviceAccount": {_AUTHORIZER: _AUTHORIZER},
    "path": {_AUTHORIZER: _PATH},
    "group": {_AUTHORIZER: _GROUP},
    "resource": {_GROUP: _RESOURCE},
    "subresource": {_RESOURCE: _RESOURCE},
    "namespace": {_RESOURCE: _RESOURCE},
    "name": {_RESOURCE: _RESOURCE},
    "check": {_PATH: _DECISION, _RESOURCE: _DECISION},
    "allowed": {_DECISION: True},
    "errored": {_DECISION: False},
    "reason": {_DECISION: ""},
    "error": {_DECISION: ""},
}
"""Method → on which value → what it returns."""
_RESULTS = {"allowed": "bool", "errored": "bool", "reason": "string", "error": "string"}
_TEXTS = {**dict.fromkeys(_RESULTS, ""), "serviceAccount": "string, string"}
_SIGNATURES = (
    "jsonpatch.escapeKey(string) string",
    *(f"dyn.{name}({_TEXTS.get(name, 'string')}) {_RESULTS.get(name, 'dyn')}" for name in _STEPS),
)


def _step(name: str) -> Any:
    def take(value: Value, *_: Value) -> Value:
        return _STEPS[name].get(value, NO_OVERLOAD) if isinstance(value, Opaque) else NO_OVERLOAD

    return take


_FUNCTIONS = {name: _step(name) for name in _STEPS}


class InvalidPolicyExpression(NumazonesError):
    """An expression is not CEL, or not of the type that is needed; the message says what and where."""


class FailedExpression(NumazonesError):
    """An expression came to no result for a request; the message names the expression."""


@dataclass(frozen=True, slots=True)
class PolicyExpression:
    """A compiled expression."""

    text: str
    """As the policy has it."""
    compiled: Compiled


class Evaluation:
    """The values of one request; variables are evaluated once, when they are needed."""

    __slots__ = ("of_language", "values", "variables")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.of_language = {name: _from_json(value) for name, value in values.items()}
        self.variables: dict[str, Lazy] = {}


class Expressions:
    """Compiles and evaluates what one policy says."""

    def __init__(self, *, params: bool) -> None:
        """Prepare for a policy.

        Args:
            params: whether the policy has a ``paramKind``, and expressions may name ``params``.
        """
        names = ["object", "oldObject", "request", "namespaceObject", "authorizer"] + ["params"] * params
        self._environment = Environment(dict.fromkeys(names, "dyn"), _SIGNATURES, _FUNCTIONS, TYPE_KEY)
        self._variables: dict[str, PolicyExpression] = {}

    # --- compiling ----------------------------------------------------------------------------

    def compile(self, text: str, *results: str) -> PolicyExpression:
        """Compile an expression whose result is of one of the given types; of any type when none is given.

        Raises:
            InvalidPolicyExpression: it is not CEL, uses an unknown name, or has another type.
        """
        text = text.strip()
        if len(text) > _MAX_LENGTH:
            raise InvalidPolicyExpression(
                f"compilation failed: expression is longer than {_MAX_LENGTH} characters"
            )
        translated = translation(text, objects=any(one in _ROOT_TYPES for one in results))
        try:
            compiled = self._environment.compile(translated.text)
        except InvalidExpression as error:
            raise InvalidPolicyExpression(_with_place(str(error), text, translated)) from error
        except Unsupported as error:
            raise InvalidPolicyExpression(f"compilation failed: it uses {error}") from error
        if results and not any(_is_type(compiled, one, translated) for one in results):
            wanted = results[0] if len(results) == 1 else f"one of [{' '.join(results)}]"
            raise InvalidPolicyExpression(f"must evaluate to {wanted} but got {type_text(compiled.type)}")
        return PolicyExpression(text, compiled)

    def declare(self, name: str, text: str) -> None:
        """Make a variable known to what is compiled from now on; raises InvalidPolicyExpression."""
        program = self.compile(text)
        variables = {**self._environment.variables, f"variables.{name}": program.compiled.type}
        self._environment = Environment(variables, _SIGNATURES, _FUNCTIONS, TYPE_KEY)
        self._variables[name] = program

    # --- evaluating ---------------------------------------------------------------------------

    def evaluate(self, program: PolicyExpression, evaluation: Evaluation) -> Any:
        """The result as plain values; raises FailedExpression."""
        for name in self._variables:
            evaluation.variables.setdefault(name, Lazy(partial(self._variable, name, evaluation)))
        try:
            return _plain(_evaluated(program, evaluation), [_MAX_VALUES])
        except _NoResult as error:
            raise FailedExpression(f"expression '{program.text}' resulted in error: {error}") from error

    def _variable(self, name: str, evaluation: Evaluation) -> Value:
        """The value of a variable, for the expression that uses it."""
        value = _evaluated(self._variables[name], evaluation)
        if isinstance(value, Failure):
            return Failure(f'composited variable "{name}" fails to evaluate: {value.message}')
        return value


class _NoResult(Exception):
    """Why an evaluation has no result."""


def _evaluated(program: PolicyExpression, evaluation: Evaluation) -> Value:
    variables = {f"variables.{name}": value for name, value in evaluation.variables.items()}
    values = {**evaluation.of_language, **variables, "authorizer": _AUTHORIZER}
    try:
        return program.compiled.program.evaluate(values)[0]
    except Unsupported as error:
        return Failure(f"the evaluation uses {error}")


def _from_json(value: Any) -> Value:
    """A value of the API as one of the language; a number beyond int64 is an error where it is used."""
    if isinstance(value, dict):
        return {key: _from_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    if type(value) is int and value not in _INT64:
        return Failure(f"integer overflow: {value}")
    return value


def _plain(value: Value, left: list[int]) -> Any:
    """A value of the language as one of Python's."""
    left[0] -= 1
    if not left[0]:
        raise _NoResult("the result holds too many values")
    match value:
        case tuple():
            return [_plain(one, left) for one in value]
        case dict():
            return {key: _plain(one, left) for key, one in value.items()}
        case Failure():
            raise _NoResult(value.message)
        case Optional():
            raise _NoResult("the result is not a plain value; use orValue to unwrap an optional")
        case Timestamp():
            return _EPOCH + timedelta(microseconds=int(value) // 1000)
        case Duration():
            return timedelta(microseconds=int(value) // 1000)
        case Uint():
            return int(value)
        case _:
            return value


def _with_place(message: str, text: str, translated: Translation) -> str:
    """The first error of the checker, at its place in the text that the policy has."""
    found = _PLACE.search(message)
    if found is None or int(found[1]) < 1:
        return message
    line, column = original_place(text, translated, int(found[1]), int(found[2]))
    source = text.split("\n")[line - 1] if text else ""
    place = f"ERROR: <input>:{line}:{column}: {found[3]}\n | {source}\n | {'.' * (column - 1)}^"
    return f"compilation failed: {place}"


def _is_type(compiled: Compiled, wanted: str, made: Translation) -> bool:
    if wanted in _ROOT_TYPES:
        form, root = _ROOT_TYPES[wanted]
        return compiled.type[0] == form and root in made.types
    return compiled.type == (wanted,)
