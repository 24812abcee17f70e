"""The expressions of one policy: compiled once, evaluated for every request it is for.

The evaluator is Google's CEL runtime, whose checker gives the errors that kube-apiserver gives when a policy
is written. What Kubernetes adds to the language is put in by ``syntax`` and ``functions``. An evaluation that
goes on for long is given up: the runtime stops after 10,000 steps of comprehensions in all and refuses
expressions nested deeper than 32 levels; here those are refused that could make very much of little.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_math, ext_optional, ext_strings

from numazones.errors import NumazonesError
from numazones_apiserver.admission_policies.functions import AUTHORIZER, EvaluationLimits, declarations
from numazones_apiserver.admission_policies.syntax import (
    LIMIT,
    REPLACE,
    Translation,
    Variable,
    original_place,
    translation,
)

BOOL = "bool"
STRING = "string"
OBJECT = "Object"
PATCHES = "list(JSONPatch)"
_ROOT_TYPES = {OBJECT: ("MAP", "Object"), PATCHES: ("LIST", "JSONPatch")}
_OPTIONAL = "optional_type"
_MAX_LENGTH = 32 * 1024
_MAX_WEIGHT = 2**16
_MAX_VALUES = 100_000
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STATUS = re.compile(r"^[A-Z_]+: ")


class InvalidExpression(NumazonesError):
    """An expression is not CEL, or not of the type that is needed; the message says what and where."""


class FailedExpression(NumazonesError):
    """An expression came to no result for a request; the message names the expression."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    text: str
    """As the policy has it."""
    compiled: Any


class Evaluation:
    """The values of one request; variables are evaluated once, when they are needed."""

    __slots__ = ("results", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.results: dict[str, Any] = {}


class Expressions:
    """Compiles and evaluates what one policy says."""

    def __init__(self, *, params: bool) -> None:
        """Prepare for a policy.

        Args:
            params: whether the policy has a ``paramKind``, and expressions may name ``params``.
        """
        names = ["object", "oldObject", "request", "namespaceObject"] + ["params"] * params
        self._names = {**dict.fromkeys(names, cel.Type.DYN), "authorizer": cel.Type.BYTES}
        self._limits = EvaluationLimits()
        self._functions: list[Any] = declarations(self._limits)
        self._variables: dict[str, Program] = {}
        self._calls: dict[str, Variable] = {}
        self._current: Evaluation | None = None
        self._environment = self._new_environment()

    def _new_environment(self) -> Any:
        extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings(), ext_math.ExtMath()]
        return cel.NewEnv(variables=self._names, extensions=extensions, functions=self._functions)

    # --- compiling ----------------------------------------------------------------------------

    def compile(self, text: str, *results: str) -> Program:
        """Compile an expression whose result is of one of the given types; of any type when none is given.

        Raises:
            InvalidExpression: it is no CEL, names what there is not, or has another type.
        """
        text = text.strip()
        made, compiled, found = self._compiled(text, objects=any(one in _ROOT_TYPES for one in results))
        if results and not any(_is_type(found, one, made) for one in results):
            wanted = results[0] if len(results) == 1 else f"one of [{' '.join(results)}]"
            raise InvalidExpression(f"must evaluate to {wanted} but got {_cel_type(found)}")
        return Program(text, compiled)

    def declare(self, name: str, text: str) -> None:
        """Make a variable known to what is compiled from now on; raises InvalidExpression."""
        text = text.strip()
        translated, compiled, found = self._compiled(text)
        call = "()"
        if found.startswith(_OPTIONAL):
            # Functions of ours cannot return optional values: a list of none or one goes through them.
            _, compiled, _ = self._compiled(f"[?{text}\n]")
            call = "()[?0]"
        self._calls[name] = Variable(call, translated.weight)
        self._variables[name] = Program(text, compiled)

        def value() -> Any:
            return self._variable(name)

        overload = cel.Overload(f"variable_{name}", compiled.return_type(), [], impl=value)
        self._functions.append(cel.FunctionDecl(f"variables.{name}", [overload]))
        self._environment = self._new_environment()

    def _compiled(self, text: str, *, objects: bool = False) -> tuple[Translation, Any, str]:
        """Return the translated text, the compiled program, and the library's name of its type."""
        if len(text) > _MAX_LENGTH:
            raise InvalidExpression(f"compilation failed: expression is longer than {_MAX_LENGTH} characters")
        translated = translation(text, variables=self._calls, objects=objects)
        if translated.weight > _MAX_WEIGHT:
            raise InvalidExpression("compilation failed: the expression could make too much of a value")
        try:
            compiled = self._environment.compile(translated.text)
            return translated, compiled, compiled.return_type().name()
        except (RuntimeError, ValueError, TypeError) as error:
            why = _without_status(str(error))
            raise InvalidExpression(f"compilation failed: {_with_place(why, text, translated)}") from error

    # --- evaluating ---------------------------------------------------------------------------

    def evaluate(self, program: Program, evaluation: Evaluation) -> Any:
        """The result as plain values; raises FailedExpression."""
        self._limits.made = 0
        self._current = evaluation
        try:
            return _result(program, evaluation.values)
        except _NoResult as error:
            raise FailedExpression(f"expression '{program.text}' resulted in error: {error}") from error
        finally:
            self._current = None

    def _variable(self, name: str) -> Any:
        """The value of a variable, for the expression that is being evaluated; raises ValueError."""
        evaluation = self._current
        assert evaluation is not None  # noqa: S101 - only the library calls this, within evaluate
        if name not in evaluation.results:
            try:
                evaluation.results[name] = _carried(_result(self._variables[name], evaluation.values))
            except _NoResult as error:
                evaluation.results[name] = error
        result = evaluation.results[name]
        if not isinstance(result, _NoResult):
            return result
        raise ValueError(f'composited variable "{name}" fails to evaluate: {result}')


class _NoResult(Exception):
    """Reason why an evaluation has no result."""


def _result(program: Program, values: Mapping[str, Any]) -> Any:
    try:
        value = program.compiled.eval(data={**values, "authorizer": AUTHORIZER})
        if value.type() == cel.Type.ERROR:
            raise _NoResult(_reason(str(value.value())))
        return _plain(value, [_MAX_VALUES])
    except MemoryError as error:
        raise _NoResult("the evaluation needs more memory than there is") from error
    except RuntimeError as error:
        raise _NoResult(_reason(str(error))) from error
    except (TypeError, ValueError) as error:
        raise _NoResult("the result is no plain value; orValue takes one out of an optional") from error


def _plain(value: Any, left: list[int]) -> Any:
    """A value of the library as one of Python's; raises TypeError for an optional one.

    The library has a function for this, which crashes the process when an optional value is in a map.
    """
    left[0] -= 1
    if not left[0]:
        raise _NoResult("the result holds too many values")
    content = value.value()
    match content:
        case list():
            return [_plain(one, left) for one in content]
        case dict():
            return {key: _plain(one, left) for key, one in content.items()}
        case bytearray():
            return bytes(content)
        case _:
            return content


def _carried(value: Any) -> Any:
    """A value that a function may return; raises _NoResult for a type."""
    if isinstance(value, cel.Type):
        raise _NoResult("a variable cannot hold a type")
    return value


def _reason(message: str) -> str:
    """Return the library's error in kube-apiserver's words where those are known."""
    message = _without_status(message)
    missing = re.match(r'Key not found in map : "?(.*?)"?$', message)
    if missing is not None:
        return f"no such key: {missing[1]}"
    if message.startswith("Applying SELECT to non-message type"):
        return "no such key: the value has no fields"
    if message.startswith("Iteration budget exceeded"):
        return "operation cancelled: actual cost limit exceeded"
    return message.replace("No matching overloads found", "no such overload")


def _without_status(message: str) -> str:
    """A message of the library without its status codes, and with methods under their own names."""
    message = re.sub(r" \[[A-Z_]+\]$", "", _STATUS.sub("", message))
    return message.replace(REPLACE, "replace").replace(f".{LIMIT}()", "")


def _with_place(message: str, text: str, translated: Translation) -> str:
    """The first error of the checker, at its place in the text that the policy has."""
    found = _PLACE.search(message)
    if found is None or int(found[1]) < 1:
        return message
    line, column = original_place(text, translated, int(found[1]), int(found[2]))
    source = text.split("\n")[line - 1] if text else ""
    return f"ERROR: <input>:{line}:{column}: {found[3]}\n | {source}\n | {'.' * (column - 1)}^"


def _cel_type(name: str) -> str:
    """A type of the library by the name that the language has for it."""
    return name.lower().replace("<", "(").replace(">", ")")


def _is_type(found: str, wanted: str, made: Translation) -> bool:
    if wanted in _ROOT_TYPES:
        form, root = _ROOT_TYPES[wanted]
        return found.partition("<")[0] == form and root in made.types
    return _cel_type(found) == wanted
