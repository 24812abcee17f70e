"""Every function that is called about one object, found by running, and made to raise for such objects.

A run has many objects of one sort, each with a mark in its name, so that each run tries as many functions:
each raises about one of them.
"""

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol

PACKAGES = ("numazones.", "numazones_operator.", "numazones_koordinator", "numazones_topology_aware")
_PARTS = ("kind", "admission", "pod", "forecast", "example", "candidate", "node", "owner", "plan")


class Injected(Exception):
    """Raised on purpose."""


class Run(Protocol):
    """A run with marked objects."""

    problems: list[str]
    """Problems of objects that were counted and reported."""

    def observe(self) -> dict[str, Any]:
        """Run; return everything that marked objects must not change."""


def marks(number: int) -> list[str]:
    """Return names for objects that are marked, in the order of the alphabet before most others."""
    return [f"bad-{index:02}" for index in range(number)]


def wrong_steps(
    run: Callable[[list[str]], Run], *, at_once: int, seams: frozenset[str] = frozenset(), least: int
) -> dict[str, str]:
    """Return each function that ends more than the object about which it raises, and what is wrong then.

    Args:
        run: makes a run with objects of these names.
        at_once: how many functions raise in one run, each about another object.
        seams: names of functions that do nothing but take what others raise.
        least: how many functions are called about such an object, at least.
    """
    names = marks(at_once)
    usual = run(names).observe()
    steps = [step for step in called_about(names[0], run(names).observe) if step.__qualname__ not in seams]
    assert len(steps) >= least, sorted(step.__qualname__ for step in steps)
    wrong: dict[str, str] = {}
    remaining = iter(steps)
    while batch := list(islice(remaining, at_once)):
        if problem := _problem(run, names, batch, usual):
            found = {_title(step): _problem(run, names, [step], usual) for step in batch}
            alone = {name: problem for name, problem in found.items() if problem}
            wrong |= alone or {" + ".join(map(_title, batch)): f"together: {problem}"}
    return wrong


def _title(step: FunctionType) -> str:
    return f"{step.__module__}.{step.__qualname__}"


def _problem(
    run: Callable[[list[str]], Run], names: list[str], steps: Sequence[FunctionType], usual: dict[str, Any]
) -> str:
    """Return what is wrong where functions raise, each about another of the objects; empty: nothing."""
    observed = run(names)
    with raising(dict(zip(names, steps, strict=False))) as struck:
        logging.disable()  # to write hundreds of tracebacks takes longer than all the rest
        try:
            seen = observed.observe()
        except Exception as error:  # noqa: BLE001 - all are reported together
            return repr(error)
        finally:
            logging.disable(logging.NOTSET)
    if seen != usual:
        return str({key: (usual[key], seen.get(key)) for key in usual if seen.get(key) != usual[key]})
    told = "\n".join(observed.problems)
    silent = [step.__qualname__ for name, step in zip(names, steps, strict=False) if name in struck]
    silent = [name for name in silent if f"Injected: {name}" not in told and f"({name!r})" not in told]
    return f"nothing reports it: {silent}" if silent else ""


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
    parts = (getattr(value, name, None) for name in _PARTS)
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
        if code.co_filename != "<string>"
        and f"{function.__module__}.".startswith(PACKAGES)
        and not f"{function.__module__}.{function.__qualname__}".startswith(_TAKING)
    }


_TAKING = (
    *("numazones_operator.faults.", "numazones.rebalance.left_out."),
    *("numazones.errors.About.", "numazones.errors.ObjectFault."),
    *("numazones.errors.title", "numazones.errors.full_name"),
)
"""Beginnings of the full names of functions that take what others raise."""


def called_about(mark: str, run: Callable[[], Any]) -> list[FunctionType]:
    """Return the functions that are called about the marked object while something runs."""
    known, seen = functions(), {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code in known and code not in seen and not _is_inside_model(frame):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(mentions(frame.f_locals.get(name), mark) for name in names):
                seen[code] = known[code]

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(seen.values())


def _is_inside_model(frame: FrameType) -> bool:
    """Return whether a module of the kubelet's model calls another: what raises there leaves by the first."""
    caller = frame.f_back
    return caller is not None and all(
        str(one.f_globals.get("__name__")).startswith("numazones.kubelet.") for one in (frame, caller)
    )


_instead: dict[str, Callable[..., Any]] = {}
"""Mark → what is called in place of the function that raises for it."""


@contextmanager
def raising(steps: Mapping[str, FunctionType]) -> Iterator[defaultdict[str, int]]:
    """Let functions raise whenever they are called about the object marked; yield how often each did."""
    struck: defaultdict[str, int] = defaultdict(int)
    kept = [(step, step.__code__, step.__defaults__, step.__kwdefaults__) for step in steps.values()]
    looking = [False]
    for mark, step in steps.items():
        _instead[mark] = _raising(step, mark, struck, looking)
        step.__code__ = _stub_for(mark)
        step.__defaults__, step.__kwdefaults__ = None, None
    try:
        yield struck
    finally:
        for step, code, defaults, named in kept:
            step.__code__, step.__defaults__, step.__kwdefaults__ = code, defaults, named
        _instead.clear()


def _raising(
    step: FunctionType, mark: str, struck: defaultdict[str, int], looking: list[bool]
) -> Callable[..., Any]:
    original = FunctionType(step.__code__, step.__globals__, step.__name__, step.__defaults__, None)
    original.__kwdefaults__ = step.__kwdefaults__

    def instead(*arguments: Any, **named: Any) -> Any:
        if not looking[0]:
            looking[0] = True
            try:
                found = any(mentions(value, mark) for value in (*arguments, *named.values()))
            finally:
                looking[0] = False
            if found:
                struck[mark] += 1
                raise Injected(step.__qualname__)
        return original(*arguments, **named)

    return instead


def _stub_for(mark: str) -> CodeType:
    def stub(*arguments: Any, **named: Any) -> Any:
        module = __import__("sys").modules["tests.operator.steps_of_an_object"]
        return module._instead["MARK"](*arguments, **named)

    constants = tuple(mark if one == "MARK" else one for one in stub.__code__.co_consts)
    return stub.__code__.replace(co_consts=constants)
