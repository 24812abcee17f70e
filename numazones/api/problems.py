"""Problems of an object, in words that name the field, its value and the values it may have.

Read from pydantic's errors, and from the JSON schema for what readers let pass but a person should not write:
unknown fields and unknown names (``meta`` says why readers keep them).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from numazones.wording import did_you_mean, enumeration

_SHOWN = 40
_PATTERNS = {
    r"^([0-9]+(\.[0-9]+)?(h|ms|m|s))+$": "is not a duration, such as 90s, 5m or 1h30m",
}
_QUANTITY = "is not a quantity, such as 16, 500m or 32Gi"
_JSON_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "bool_type"),
    "integer": ((int, float), "int_type"),
}
"""Type in a schema → the values that an API server takes for it, and the error of others.

Readers take texts such as "yes" and "1", too.
"""
_TYPES = {
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "dict_type": "must be an object with fields",
    "model_type": "must be an object with fields",
    "dataclass_type": "must be an object with fields",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}


def problems(error: ValidationError) -> list[str]:
    """Return what pydantic found, one sentence for each field, without repetitions."""
    return list(dict.fromkeys(map(_sentence, error.errors(include_url=False))))


def _sentence(found: Any) -> str:
    kind, context, value = found["type"], found.get("ctx") or {}, _shown(found.get("input"))
    if kind == "missing":
        return f"{_path(found['loc'])} is missing"
    if kind in _TYPES:
        said = f"{_TYPES[kind]}, not {value}"
    elif kind in {"greater_than_equal", "less_than_equal"}:
        bound = f"at least {context.get('ge')}" if "ge" in context else f"at most {context.get('le')}"
        said = f"must be {bound}, not {value}"
    elif kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        said = _PATTERNS.get(pattern) or (_QUANTITY if "KMGTPE" in pattern else f"does not match {pattern}")
        said = f"{value} {said}"
    elif kind == "literal_error":
        said = f"{value} is not one of {str(context['expected']).replace(chr(39), '')}"
    elif kind in {"string_too_short", "too_short"}:
        said = "must not be empty"
    else:
        message = found["msg"]
        said = f"{message[:1].lower()}{message[1:]}"
    return f"{_path(found['loc'])}: {said}"


def slips(schema: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an API server would report of spec and status: unknown fields and names, other types."""
    known = {"apiVersion", "kind", "metadata"}
    for name, value in body.items():
        if name not in known:
            yield from _walk(schema, schema, {name: value}, ())


def _walk(
    schema: Mapping[str, Any], part: Mapping[str, Any], value: Any, path: tuple[Any, ...]
) -> Iterator[str]:
    part = _resolved(schema, part)
    if isinstance(value, str) and value not in part.get("enum", (value,)):
        yield f"{_path(path)}: {_shown(value)} is not one of {', '.join(part['enum'])}"
    elif said := _other_type(part.get("type"), value):
        yield f"{_path(path)}: {said}"
    elif isinstance(value, Mapping) and "properties" in part:
        fields = part["properties"]
        for name, item in value.items():
            if name in fields:
                yield from _walk(schema, fields[name], item, (*path, name))
            else:
                cure = did_you_mean(name, fields) or f"; the fields are {enumeration(fields)}"
                yield f"{_path((*path, name))}: unknown field{cure}"
    elif isinstance(value, Mapping) and isinstance(part.get("additionalProperties"), Mapping):
        for name, item in value.items():
            yield from _walk(schema, part["additionalProperties"], item, (*path, name))
    elif isinstance(value, list) and isinstance(part.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from _walk(schema, part["items"], item, (*path, index))


def _other_type(declared: str | None, value: Any) -> str:
    """Say which type a value must have; empty where it has it."""
    types, error = _JSON_TYPES.get(declared or "", ((object,), ""))
    if value is None or (isinstance(value, types) and not (isinstance(value, bool) and int in types)):
        return ""
    return f"{_TYPES[error]}, not {_shown(value)}"


def _resolved(schema: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and take the form of an optional part that is not null."""
    if "$ref" in part:
        return _resolved(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    for form in (*part.get("anyOf", ()), *part.get("allOf", ())):
        if form.get("type") != "null":
            return {**part, **_resolved(schema, form)}
    return part


def _path(parts: tuple[Any, ...]) -> str:
    """Write a place as ``kubectl explain`` does, with the index of an item in brackets."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "the object"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
