"""Checks that a scenario has the form of its model's vectors, and names the first field that has not.

A form is ``str``, ``int`` or ``bool``; ``[form]`` for lists of it; ``{"*": form}`` for objects with any
names; and ``{"name": form, "other?": form}`` for objects whose other fields are free: those with a question
mark may be absent or null.
"""

from collections.abc import Mapping
from typing import Any

from numazones.errors import NumazonesError

Form = Any

_NAMES = {str: "a string", int: "an integer", bool: "true or false"}
_SHOWN = 60


class Malformed(NumazonesError):
    """A field that is missing or has another form; the message names it by its path."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"no scenario in the vectors' schema: {problem}")


def require(value: object, form: Form, path: str = "") -> None:
    """Check a value.

    Raises:
        Malformed: it has another form.
    """
    if isinstance(form, list):
        if not isinstance(value, list):
            raise _expected("a list", value, path)
        for index, item in enumerate(value):
            require(item, form[0], f"{path}[{index}]")
    elif isinstance(form, Mapping):
        if not isinstance(value, Mapping):
            raise _expected("an object", value, path)
        _require_fields(value, form, path)
    elif type(value) is not form:  # not isinstance: true is no integer here
        raise _expected(_NAMES[form], value, path)


def require_fields_of_steps(scenario: Mapping[str, Any], needed: Mapping[str, tuple[str, ...]]) -> None:
    """Check that each step has what its operation needs: ``op`` → names of fields.

    Raises:
        Malformed: one has not.
    """
    for index, step in enumerate(scenario.get("steps") or ()):
        for name in needed.get(step.get("op") or "", ()):
            if step.get(name) is None:
                raise Malformed(f"steps[{index}].{name} is missing")


def _require_fields(value: Mapping[str, object], form: Mapping[str, Form], path: str) -> None:
    if "*" in form:
        for name, item in value.items():
            require(item, form["*"], f"{path}.{name}")
        return
    for key, wanted in form.items():
        name = key.removesuffix("?")
        item, at = value.get(name), f"{path}.{name}".removeprefix(".")
        if item is None and key == name:
            raise Malformed(f"{at} is missing")
        if item is not None:
            require(item, wanted, at)


def _expected(what: str, value: object, path: str) -> Malformed:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return Malformed(f"{path or 'the scenario'}: {what} is expected, not {shown}")
