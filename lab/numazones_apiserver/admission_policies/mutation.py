"""Apply an evaluated mutation to an object: a JSON patch (RFC 6902), or an apply configuration.

Values that were written as objects carry the names of their types (``syntax``); the names must be those of
the fields at which they stand, as kube-apiserver demands. Wrong values are errors that the policy's
failurePolicy decides on; a JSON patch that leaves something that is no object of the kind is an error of the
request, whatever the failurePolicy says (policy/mutating/patch).
"""

import base64
import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import jsonpatch
import jsonpointer

from numazones.apimachinery import timestamp
from numazones.apimachinery.quantity import Quantity
from numazones.errors import NumazonesError
from numazones_apiserver import errors, fieldsets
from numazones_apiserver.admission_policies.syntax import TYPE_KEY
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind
from numazones_apiserver.objects import Validation, decode
from numazones_apiserver.schema import Schema

Prepare = Callable[[Object], Object]
"""Makes an object of what a patch leaves: decoded, with its defaults."""

_JSON_PATCH = "JSONPatch"
_PATCH_FIELDS = ("op", "path", "from", "value")


class UnusablePatch(NumazonesError):
    """An expression was evaluated and is no patch of the object; the message says why."""


def with_json_patch(obj: Object, value: Any, kind: Kind, prepare: Prepare) -> Object:
    """The object after a list of JSONPatch operations; unchanged when a ``test`` among them fails.

    Raises:
        UnusablePatch: the value is no list of operations, or one of them cannot be carried out.
        StatusError: 500, what they leave is no object of the kind.
    """
    operations = [_operation(one) for one in _list_of_patches(value)]
    try:
        patched = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(obj))
    except jsonpatch.JsonPatchTestFailed:
        return obj
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, KeyError, TypeError) as error:
        raise UnusablePatch(f"JSON Patch: {error}") from error
    try:
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise errors.bad_request("the patch does not result in an object")
        if (patched.get("apiVersion"), patched.get("kind")) != (kind.api_version, kind.kind):
            raise errors.bad_request("the patch changes apiVersion or kind")
        if not kind.custom:
            decode(kind, patched, Validation("Strict"), defaults=False)
        return prepare(patched)
    except StatusError as error:
        if error.code != 400:  # noqa: PLR2004 - what in-tree admission refuses keeps its own answer
            raise
        raise StatusError(500, "InternalError", f"Internal error occurred: {error.message}") from error


def with_configuration(obj: Object, value: Any, kind: Kind, prepare: Prepare) -> Object:
    """The object with an apply configuration merged in; raises UnusablePatch."""
    if not isinstance(value, dict) or TYPE_KEY not in value:
        raise UnusablePatch("type mismatch: the expression must evaluate to Object, not to a map")
    _check_types(value, "Object")
    config = {**_json(value), "apiVersion": kind.api_version, "kind": kind.kind}
    unknown = Validation("Warn")
    try:
        decode(kind, {"metadata": {}, **config}, unknown, defaults=False)
        if unknown.fields:
            listing = "\n".join(f".{path}: field not declared in schema" for path in unknown.fields)
            raise UnusablePatch(
                f"error applying patch: failed to convert patch object to typed object: {listing}"
            )
        atomic = ", ".join(_atomic_fields(config, kind.schema, ""))
        if atomic:
            raise UnusablePatch(
                "error applying patch: invalid ApplyConfiguration: "
                f"may not mutate atomic arrays, maps or structs: {atomic}"
            )
        return prepare(fieldsets.merge(obj, config, kind.schema))
    except StatusError as error:
        if error.code != 400:  # noqa: PLR2004 - as above
            raise
        raise UnusablePatch(f"error applying patch: {error.message}") from error


def _list_of_patches(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnusablePatch("type mismatch: JSONPatchType.expression should evaluate to array")
    for one in value:
        if not isinstance(one, dict) or one.get(TYPE_KEY) != _JSON_PATCH:
            raise UnusablePatch(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
            )
    return value


def _operation(patch: Mapping[str, Any]) -> Object:
    """One operation as RFC 6902 writes it."""
    for name, value in patch.items():
        if name != TYPE_KEY and name not in _PATCH_FIELDS:
            raise UnusablePatch(f"type mismatch: JSONPatch has no field {name!r}")
        if name in ("op", "path", "from") and not isinstance(value, str):
            raise UnusablePatch(f"type mismatch: {name} of a JSONPatch must be a string")
    operation: Object = {"op": patch.get("op", ""), "path": patch.get("path", "")}
    if patch.get("from"):
        operation["from"] = patch["from"]
    if "value" in patch:
        value = patch["value"]
        if isinstance(value, dict) and TYPE_KEY in value:
            _check_types(value, value[TYPE_KEY])
        operation["value"] = _json(value)
    return operation


def _check_types(value: Any, path: str) -> None:
    """Raise UnusablePatch unless every object has the type of the field at which it stands."""
    if isinstance(value, list):
        for one in value:
            _check_types(one, path)
    elif isinstance(value, dict):
        name = value.get(TYPE_KEY)
        if name is not None and name != path:
            raise UnusablePatch(
                f'type mismatch: unexpected type name "{name}", expected "{path}", '
                "which matches field name path from root Object type"
            )
        for key, one in value.items():
            _check_types(one, f"{path}.{key}" if name is not None else path)


def _json(value: Any) -> Any:
    """A value of the language in JSON; raises UnusablePatch for one that has no form there."""
    match value:
        case float():
            result: Any = int(value) if value.is_integer() else value
        case None | bool() | int() | str():
            result = value
        case list():
            result = [_json(one) for one in value]
        case dict():
            result = {_key(key): _json(one) for key, one in value.items() if key != TYPE_KEY}
        case bytes():
            result = base64.b64encode(value).decode()
        case datetime():
            result = timestamp.format(value)
        case timedelta():
            result = f"{value.total_seconds():g}s"
        case _:
            shown = "a quantity" if isinstance(value, Quantity) else f"the value {value}"
            raise UnusablePatch(f"{shown} cannot be converted to JSON; string() converts many values to text")
    return result


def _key(key: Any) -> str:
    if not isinstance(key, str) or (key and key[0] < " "):
        raise UnusablePatch(f"map key {key!r} cannot be a JSON field name")
    return key


def _atomic_fields(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """The fields of a configuration that may only be replaced as a whole."""
    if isinstance(value, dict):
        if schema.atomic:
            yield path
        for name, one in value.items():
            child = schema.properties.get(name)
            if child is not None:
                yield from _atomic_fields(one, child, f"{path}.{name}")
    elif isinstance(value, list) and schema.items is not None:
        if schema.list_type == "atomic":
            yield path
        for at, one in enumerate(value):
            yield from _atomic_fields(one, schema.items, f"{path}[{at}]")
