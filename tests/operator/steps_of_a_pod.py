"""Every function that is called about one object, found by running, and made to raise for that object."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

PACKAGES = ("numazones.", "numazones_operator.", "numazones_koordinator", "numazones_topology_aware")


class Injected(Exception):
    """Raised on purpose."""


def mentions(value: Any, mark: str, depth: int = 2) -> bool:
    """Return whether a value is an object whose name has a mark, or holds one."""
    if isinstance(value, str):
        return mark in value and len(value) < 60
    if isinstance(value, dict):
        metadata = value.get("metadata")
        return isinstance(metadata, dict) and mark in str(metadata.get("name"))
    if isinstance(value, list | tuple) and depth and len(value) < 10:
        return any(mentions(item, mark, depth - 1) for item in value)
    if mark in str(getattr(value, "name", "")):
        return True
    parts = (getattr(value, name, None) for name in ("kind", "admission", "pod", "forecast", "example"))
    return bool(depth) and any(part is not None and mentions(part, mark, depth - 1) for part in parts)


def functions() -> dict[CodeType, FunctionType]:
    """Code → the function of ours that has it; those that close over others are called by these."""
    found: dict[CodeType, FunctionType] = {}
    for name, module in list(sys.modules.items()):
        if not f"{name}.".startswith(PACKAGES):
            continue
        for owner in vars(module).values():
            if isinstance(owner, type) and owner.__module__ == name:
                members = list(vars(owner).values())
            else:
                members = [owner]
            for member in members:
                inner = getattr(member, "fget", None) or getattr(member, "__func__", member)
                inner = getattr(inner, "__wrapped__", inner)
                if isinstance(inner, FunctionType) and not inner.__closure__:
                    found[inner.__code__] = inner
    return {
        code: function
        for code, function in found.items()
        if code.co_filename != "<string>" and function.__module__ != "numazones_operator.faults"
    }


def called_about(mark: str, run: Callable[[], Any]) -> list[FunctionType]:
    """Return the functions that are called about the marked object while something runs."""
    known, seen = functions(), {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code in known and code not in seen:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(mentions(frame.f_locals.get(name), mark) for name in names):
                seen[code] = known[code]

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(seen.values())


@contextmanager
def raising(function: FunctionType, mark: str) -> Iterator[list[str]]:
    """Let a function raise whenever it is called about the marked object; yield how often it did."""
    struck: list[str] = []
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, None
    )
    original.__kwdefaults__ = function.__kwdefaults__

    looking = False

    def instead(*arguments: Any, **named: Any) -> Any:
        nonlocal looking
        if looking:
            return original(*arguments, **named)
        looking = True
        try:
            found = any(mentions(value, mark) for value in (*arguments, *named.values()))
        finally:
            looking = False
        if found:
            struck.append(function.__qualname__)
            raise Injected(function.__qualname__)
        return original(*arguments, **named)

    code, defaults, named_defaults = function.__code__, function.__defaults__, function.__kwdefaults__
    sys.modules[__name__].__dict__["_instead"] = instead

    def stub(*arguments: Any, **named: Any) -> Any:
        return __import__("sys").modules["tests.operator.steps_of_a_pod"]._instead(*arguments, **named)

    function.__code__, function.__defaults__, function.__kwdefaults__ = stub.__code__, None, None
    try:
        yield struck
    finally:
        function.__code__, function.__defaults__ = code, defaults
        function.__kwdefaults__ = named_defaults
