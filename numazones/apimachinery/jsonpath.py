"""The JSONPath that printer columns and selectable fields of custom resources are written in.

Kubernetes' dialect (client-go's ``util/jsonpath``) as far as ``additionalPrinterColumns`` admits it:
fields, quoted fields and unions of them, indexes, slices, wildcards and equality or order filters.
A path begins with a dot instead of ``$``, and a backslash quotes a dot within a field's name.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from numazones.errors import NumazonesError

PathStep = Callable[[Any], Iterator[Any]]

_STEP = re.compile(
    r"""
      \.(?P<field>(?:\\.|[^.\[\]\\'"()@\s])+)
    | \[\s*'(?P<quoted>[^']*)'\s*\]
    | \[\s*"(?P<double>[^"]*)"\s*\]
    | \[\s*(?P<union>'[^']*'(?:\s*,\s*'[^']*')+)\s*\]
    | \[\s*(?P<wild>\*)\s*\]
    | \[\s*(?P<index>-?[0-9]{1,9})\s*\]
    | \[\s*(?P<start>(?:-?[0-9]{1,9})?)\s*:\s*(?P<stop>(?:-?[0-9]{1,9})?)\s*\]
    | \[\?\(\s*(?P<filter>.*?)\s*\)\]
    """,
    re.VERBOSE,
)
_FILTER = re.compile(r"""^@(?P<path>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+))?$""")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class InvalidJSONPath(NumazonesError):
    """The text is not a JSONPath of the admitted kind; the message quotes it."""


@lru_cache(maxsize=4096)
def compile_path(text: str) -> tuple[PathStep, ...]:
    """Return the steps of a path such as ``.status.conditions[?(@.type=="Ready")].status``.

    Raises:
        InvalidJSONPath: the path uses more of JSONPath than columns may, or is none.
    """
    path = text.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[PathStep] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            if path == ".":
                return ()
            raise InvalidJSONPath(f"{text!r} is not a simple JSONPath; write one like .status.phase")
        steps.append(_step(match))
        at = match.end()
    return tuple(steps)


def find(value: Any, path: str) -> list[Any]:
    """Return everything that the path leads to, in order.

    Raises:
        InvalidJSONPath: as for ``compile_path``.
    """
    found = [value]
    for step in compile_path(path):
        found = [item for one in found for item in step(one)]
    return found


def _step(match: re.Match[str]) -> PathStep:
    if match["union"]:
        fields = [_field(name) for name in re.findall(r"'([^']*)'", match["union"])]
        return lambda value: (item for field in fields for item in field(value))
    name = match["field"] if match["field"] is not None else match["quoted"]
    name = name if name is not None else match["double"]
    if match["wild"] or name == "*":
        return lambda value: iter(
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    if name is not None:
        return _field(re.sub(r"\\(.)", r"\1", name) if match["field"] is not None else name)
    if match["filter"] is not None:
        return _filter(match["filter"])
    if match["index"] is not None:
        at = int(match["index"])
        return lambda value: iter(
            [value[at]] if isinstance(value, list) and -len(value) <= at < len(value) else []
        )
    start = int(match["start"]) if match["start"] else None
    stop = int(match["stop"]) if match["stop"] else None
    return lambda value: iter(value[start:stop] if isinstance(value, list) else [])


def _field(name: str) -> PathStep:
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])


def _filter(text: str) -> PathStep:
    match = _FILTER.match(text)
    if match is None:
        raise InvalidJSONPath(f'{text!r} is not a JSONPath filter; write one like @.type=="Ready"')
    path = match["path"].strip() or "."
    compile_path(path)
    if match["op"] is None:
        return lambda value: (item for item in _items(value) if find(item, path))
    wanted, compares = _literal(match["value"]), _COMPARISONS[match["op"]]

    def passes(item: Any) -> bool:
        found = find(item, path)
        try:
            return bool(found) and compares(found[0], wanted)
        except TypeError:
            return False

    return lambda value: (item for item in _items(value) if passes(item))


def _items(value: Any) -> Iterator[Any]:
    return iter(value if isinstance(value, list) else value.values() if isinstance(value, dict) else ())


def _literal(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidJSONPath(f"{text!r} in a JSONPath filter is not a string, number or boolean") from error
