"""Structural schemas: what an object may hold, what it gets by default, how its lists merge.

One compiled form serves both the custom resources (from a CRD's ``openAPIV3Schema``) and the
built-in kinds (from the published OpenAPI definitions), and everything that walks objects by
schema: validation, pruning, defaulting, strategic merge, server-side apply.
Rules: the Kubernetes documentation on structural schemas (types, nullable, int-or-string,
preserve-unknown-fields, list types) and apiextensions-apiserver's validation for the messages.
"""

import base64
import binascii
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from numazones_apiserver import errors
from numazones_apiserver.errors import FieldError, Object


class _Missing:
    """Distinguishes "no default" from a default of null."""


MISSING = _Missing()
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """A validation rule of the one form that is evaluated: the value may not change once set."""

    message: str


@dataclass(slots=True, eq=False)
class Schema:
    """One node of a compiled schema; ``compile_schema`` fills it in place, because schemas may recur."""

    type: str = ""
    format: str = ""
    properties: "dict[str, Schema]" = field(default_factory=dict)
    values: "Schema | None" = None
    items: "Schema | None" = None
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    nullable: bool = False
    required: tuple[str, ...] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    enum: tuple[Any, ...] | None = None
    pattern: str = ""
    default: Any = MISSING
    has_defaults: bool = False
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    atomic: bool = False
    merge_key: str = ""
    patch_strategy: str = ""
    rules: tuple[TransitionRule, ...] = ()
    has_rules: bool = False
    """Whether there are validation rules here or below, evaluated or not."""
    alternatives: "tuple[tuple[str, tuple[Schema, ...]], ...]" = ()

    def field(self, name: str) -> "Schema | None":
        """The schema of a field, None when the schema says nothing about it."""
        return self.properties.get(name) or self.values


_BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)
IMMUTABLE_RULE = "self==oldSelf"


def compile_schema(
    source: Mapping[str, Any],
    resolve: Callable[[str], Schema] | None = None,
    into: Schema | None = None,
) -> Schema:
    """Compile an OpenAPI v3 schema; ``resolve`` finds what a ``$ref`` names, ``into`` is filled in place."""
    schema = into or Schema()
    if "$ref" in source and resolve is not None:
        return _with_patch_strategy(resolve(source["$ref"]), source)
    kinds = source.get("type", "")
    schema.type = next((one for one in kinds if one != "null"), "") if isinstance(kinds, list) else kinds
    schema.format = source.get("format", "")
    schema.int_or_string = (
        bool(source.get("x-kubernetes-int-or-string")) or source.get("format") == "int-or-string"
    )
    schema.preserve = bool(source.get("x-kubernetes-preserve-unknown-fields"))
    schema.embedded = bool(source.get("x-kubernetes-embedded-resource"))
    schema.nullable = bool(source.get("nullable"))
    schema.required = tuple(source.get("required") or ())
    schema.bounds = {name: source[name] for name in _BOUNDS if source.get(name) is not None}
    schema.enum = tuple(source["enum"]) if source.get("enum") is not None else None
    schema.pattern = source.get("pattern", "")
    schema.default = source.get("default", MISSING)
    _compile_structure(schema, source, resolve)
    _compile_merging(schema, source)
    schema.has_rules = bool(source.get("x-kubernetes-validations")) or any(
        child.has_rules
        for child in (*schema.properties.values(), schema.values, schema.items)
        if child is not None
    )
    schema.alternatives = tuple(
        (
            word,
            tuple(
                compile_schema(one, resolve) for one in (source[word] if word != "not" else [source[word]])
            ),
        )
        for word in ("allOf", "anyOf", "oneOf", "not")
        if source.get(word) and not schema.int_or_string
    )
    return schema


def _compile_structure(
    schema: Schema, source: Mapping[str, Any], resolve: Callable[[str], Schema] | None
) -> None:
    schema.properties = {
        name: compile_schema(one, resolve) for name, one in (source.get("properties") or {}).items()
    }
    additional = source.get("additionalProperties")
    if isinstance(additional, Mapping):
        schema.values = compile_schema(additional, resolve)
    elif additional is True:
        schema.values = Schema(preserve=True)
    items = source.get("items")
    if isinstance(items, Mapping):
        schema.items = compile_schema(items, resolve)
    schema.has_defaults = schema.default is not MISSING or any(
        child.has_defaults
        for child in (*schema.properties.values(), schema.values, schema.items)
        if child is not None
    )


def _compile_merging(schema: Schema, source: Mapping[str, Any]) -> None:
    schema.list_type = source.get("x-kubernetes-list-type", "atomic")
    schema.map_keys = tuple(source.get("x-kubernetes-list-map-keys") or ())
    schema.atomic = source.get("x-kubernetes-map-type") == "atomic"
    schema.merge_key = source.get("x-kubernetes-patch-merge-key", "")
    schema.patch_strategy = source.get("x-kubernetes-patch-strategy", "")
    schema.rules = tuple(
        TransitionRule(rule.get("message") or f"failed rule: {rule['rule']}")
        for rule in source.get("x-kubernetes-validations") or ()
        if is_evaluated(rule)
    )


def _with_patch_strategy(target: Schema, source: Mapping[str, Any]) -> Schema:
    """A reference may add a patch strategy to what it refers to; the fields themselves stay shared."""
    strategy = source.get("x-kubernetes-patch-strategy", "")
    if not strategy or target.patch_strategy == strategy:
        return target
    clone = copy.copy(target)
    clone.patch_strategy = strategy
    return clone


def is_evaluated(rule: Mapping[str, Any]) -> bool:
    """Return whether this server evaluates the ``x-kubernetes-validations`` rule; it knows one kind."""
    return re.sub(r"\s", "", rule.get("rule", "")) == IMMUTABLE_RULE


def child_path(path: str, key: str) -> str:
    """A field's path as error messages write it: ``spec.x``, ``spec.labels.a/b``."""
    return f"{path}.{key}" if path else key


# --- pruning ---------------------------------------------------------------------------------


def prune(value: Any, schema: Schema, unknown: list[str], path: str = "") -> Any:
    """The value without fields the schema does not know; their paths are appended to ``unknown``."""
    if isinstance(value, dict):
        return _prune_mapping(value, schema, unknown, path)
    if isinstance(value, list) and schema.items is not None:
        return [prune(item, schema.items, unknown, f"{path}[{at}]") for at, item in enumerate(value)]
    return value


def _prune_mapping(value: Object, schema: Schema, unknown: list[str], path: str) -> Object:
    if schema.type not in ("object", ""):
        return value
    kept = {}
    for key, item in value.items():
        known = schema.properties.get(key) or schema.values
        if known is not None:
            kept[key] = prune(item, known, unknown, child_path(path, key))
        elif schema.preserve or (schema.embedded and key in ("apiVersion", "kind", "metadata")):
            kept[key] = item
        else:
            unknown.append(child_path(path, key))
    return kept


# --- defaulting ------------------------------------------------------------------------------


def apply_defaults(value: Any, schema: Schema) -> Any:
    """The value with absent fields set to their defaults; what needs none is returned as it is."""
    if not schema.has_defaults:
        return value
    if isinstance(value, dict):
        return {**value, **_field_defaults(value, schema)}
    if isinstance(value, list) and schema.items is not None and schema.items.has_defaults:
        return [apply_defaults(item, schema.items) for item in value]
    return value


def _field_defaults(value: Object, schema: Schema) -> Object:
    changed = {}
    for name, child in schema.properties.items():
        present = value.get(name, child.default)
        if child.has_defaults and present is not MISSING and present is not None:
            changed[name] = apply_defaults(present if name in value else copy.deepcopy(present), child)
    if schema.values is not None and schema.values.has_defaults:
        for name in value.keys() - schema.properties.keys():
            changed[name] = apply_defaults(value[name], schema.values)
    return changed


def drop_nulls(value: Any, schema: Schema) -> Any:
    """The value without nulls in declared fields that may not be null; defaulting may then fill them."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            declared = schema.properties.get(key)
            if item is None and declared is not None and not declared.nullable:
                continue
            child = declared or schema.values
            kept[key] = drop_nulls(item, child) if child is not None else item
        return kept
    if isinstance(value, list) and schema.items is not None:
        return [drop_nulls(item, schema.items) for item in value]
    return value


# --- validation ------------------------------------------------------------------------------


def validate(value: Any, schema: Schema, path: str = "", old: Any = MISSING) -> Iterator[FieldError]:
    """Everything wrong with the value.

    With ``old``, the stored value at the same place, what did not change is not complained about
    again (CRD validation ratcheting), and transition rules are checked.
    """
    if old is not MISSING and old == value and type(old) is type(value):
        return
    if value is None and schema.nullable:
        return
    problem = _type_error(value, schema, path)
    if problem is not None:
        yield problem
        return
    if schema.enum is not None and value not in schema.enum:
        yield errors.unsupported(path, value, schema.enum)
    yield from _validate_content(value, schema, path, old)
    yield from _validate_alternatives(value, schema, path)
    if old is not MISSING:
        shown = errors.type_name(value) if isinstance(value, dict | list) else value
        yield from (errors.invalid_value(path, shown, rule.message) for rule in schema.rules)


def _validate_content(value: Any, schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    if isinstance(value, str):
        yield from _validate_string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _validate_number(value, schema, path)
    elif isinstance(value, list):
        yield from _validate_list(value, schema, path, old)
    elif isinstance(value, dict):
        yield from _validate_mapping(value, schema, path, old)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


def _type_error(value: Any, schema: Schema, path: str) -> FieldError | None:
    if schema.int_or_string:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return None
        return errors.wrong_type(path, value, "integer,string")
    if not schema.type:
        return None
    if isinstance(value, bool):
        fits = schema.type == "boolean"
    elif schema.type == "integer" and isinstance(value, float):
        fits = value.is_integer()
    else:
        fits = isinstance(value, _TYPES[schema.type])
    return None if fits else errors.wrong_type(path, value, schema.type)


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    """A Go (RE2) pattern; the two dialects agree on everything structural schemas commonly use."""
    return re.compile(text)


def _validate_string(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    bounds = schema.bounds
    if "maxLength" in bounds and len(value) > bounds["maxLength"]:
        yield FieldError(
            "FieldValueTooLong", path, f"Too long: may not be more than {bounds['maxLength']} bytes"
        )
    if "minLength" in bounds and len(value) < bounds["minLength"]:
        yield errors.invalid_value(
            path, value, f"{path} in body should be at least {bounds['minLength']} chars long"
        )
    if schema.pattern and not _pattern(schema.pattern).search(value):
        yield errors.invalid_value(path, value, f"{path} in body should match '{schema.pattern}'")
    if schema.format and not _has_format(value, schema.format):
        detail = f"{path} in body must be of type {schema.format}: {errors.json_text(value)}"
        yield FieldError("FieldValueTypeInvalid", path, f"Invalid value: {errors.json_text(value)}: {detail}")


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w)\s*)+|0")


def _has_format(value: str, name: str) -> bool:
    if name == "date-time":
        return is_timestamp(value)
    if name == "uuid":
        return _UUID.fullmatch(value) is not None
    if name == "duration":
        return _DURATION.fullmatch(value) is not None
    if name == "byte":
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return False
    return True


def is_timestamp(value: str) -> bool:
    """Return whether the text is an RFC 3339 time, as metav1.Time and metav1.MicroTime are written."""
    if not _RFC3339.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _validate_number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    bounds = schema.bounds
    if schema.format == "int32" and not -(2**31) <= value < 2**31:
        yield errors.invalid_value(
            path, value, f"{path} in body must be of type int32: {errors.json_text(value)}"
        )
    low, high = bounds.get("minimum"), bounds.get("maximum")
    if low is not None and (value < low or (bounds.get("exclusiveMinimum") and value == low)):
        strictly = "" if bounds.get("exclusiveMinimum") else " or equal to"
        yield errors.invalid_value(path, value, f"{path} in body should be greater than{strictly} {low}")
    if high is not None and (value > high or (bounds.get("exclusiveMaximum") and value == high)):
        strictly = "" if bounds.get("exclusiveMaximum") else " or equal to"
        yield errors.invalid_value(path, value, f"{path} in body should be less than{strictly} {high}")
    step = bounds.get("multipleOf")
    if step and value % step:
        yield errors.invalid_value(path, value, f"{path} in body should be a multiple of {step}")


def _validate_list(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    bounds = schema.bounds
    if "maxItems" in bounds and len(value) > bounds["maxItems"]:
        detail = f"Too many: {len(value)}: must have at most {bounds['maxItems']} items"
        yield FieldError("FieldValueTooMany", path, detail)
    if "minItems" in bounds and len(value) < bounds["minItems"]:
        yield errors.invalid_value(
            path, len(value), f"{path} in body should have at least {bounds['minItems']} items"
        )
    seen: set[str] = set()
    unique = schema.list_type in ("set", "map")
    before = _by_keys(old, schema) if schema.list_type == "map" and isinstance(old, list) else {}
    for at, item in enumerate(value):
        here = f"{path}[{at}]"
        identity = ""
        if unique:
            shown = (
                {key: item.get(key) for key in schema.map_keys if key in item}
                if _has_keys(item, schema)
                else item
            )
            identity = errors.json_text(shown)
            if identity in seen:
                yield errors.duplicate(here, shown)
            seen.add(identity)
        if schema.items is not None:
            yield from validate(item, schema.items, here, before.get(identity, MISSING))


def _has_keys(item: Any, schema: Schema) -> bool:
    return schema.list_type == "map" and isinstance(item, dict)


def _by_keys(items: list[Any], schema: Schema) -> dict[str, Any]:
    return {
        errors.json_text({key: item.get(key) for key in schema.map_keys if key in item}): item
        for item in items
        if isinstance(item, dict)
    }


def _validate_mapping(value: Object, schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    bounds = schema.bounds
    if "maxProperties" in bounds and len(value) > bounds["maxProperties"]:
        detail = f"Too many: {len(value)}: must have at most {bounds['maxProperties']} items"
        yield FieldError("FieldValueTooMany", path, detail)
    if "minProperties" in bounds and len(value) < bounds["minProperties"]:
        detail = f"{path} in body should have at least {bounds['minProperties']} properties"
        yield errors.invalid_value(path, value, detail)
    for name in schema.required:
        if name not in value:
            yield errors.required(child_path(path, name))
    before = old if isinstance(old, dict) else _NOTHING
    for key, item in value.items():
        child = schema.properties.get(key) or schema.values
        if child is not None:
            yield from validate(item, child, child_path(path, key), before.get(key, MISSING))
    if schema.embedded:
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield errors.required(child_path(path, name), "must not be empty")


def _validate_alternatives(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    for word, options in schema.alternatives:
        fitting = sum(1 for option in options if not any(validate(value, option, path)))
        shown = value if not isinstance(value, dict | list) else errors.type_name(value)
        if word == "allOf":
            for option in options:
                yield from validate(value, option, path)
        elif word == "anyOf" and not fitting:
            yield errors.invalid_value(
                path, shown, f"{path} in body must validate at least one schema (anyOf)"
            )
        elif word == "oneOf" and fitting != 1:
            count = fitting or "none"
            detail = f"{path} in body must validate one and only one schema (oneOf). Found {count} valid"
            yield errors.invalid_value(path, shown, detail)
        elif word == "not" and fitting:
            yield errors.invalid_value(path, shown, f"{path} in body must not validate the schema (not)")
