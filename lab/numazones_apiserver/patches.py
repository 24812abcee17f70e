"""Patches of the PATCH verb: JSON patch, merge patch, strategic merge patch.

RFC 6902, RFC 7386 and, for the strategic kind, Kubernetes' sig-api-machinery
strategic-merge-patch document; the merge keys and strategies come from the schema's
``x-kubernetes-patch-merge-key`` and ``x-kubernetes-patch-strategy``.
Every function returns a new object and leaves its arguments alone.
"""

import copy
from collections.abc import Mapping
from typing import Any

import jsonpatch
import jsonpointer

from numazones_apiserver.errors import Object, StatusError, bad_request
from numazones_apiserver.schema import Schema

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_MAX_OPERATIONS = 10000
_DIRECTIVES = ("$patch", "$retainKeys")


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Object, operations: Any) -> Any:
    """RFC 6902; a failed test or a missing path is the 422 that the real server sends."""
    if not isinstance(operations, list):
        raise bad_request("json patch must be an array of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(operations)}",
        )
    try:
        return jsonpatch.JsonPatch(operations).apply(copy.deepcopy(target))
    except (jsonpatch.InvalidJsonPatch, KeyError, TypeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, "Invalid", message) from error


def strategic_merge(target: Any, patch: Any, schema: Schema | None) -> Any:
    """Strategic merge patch of one value by its schema."""
    if isinstance(patch, Mapping):
        return _merge_mapping(target, patch, schema)
    return patch


def _merge_mapping(target: Any, patch: Mapping[str, Any], schema: Schema | None) -> Any:
    directive = patch.get("$patch", "merge")
    if directive not in ("merge", "replace", "delete"):
        raise bad_request(f"invalid strategic merge patch: unknown $patch directive {directive!r}")
    if directive != "merge":
        given = patch if directive == "replace" else {}
        return {key: value for key, value in given.items() if key != "$patch"}
    result = _retain_keys(target, patch.get("$retainKeys"))
    orders = {}
    for key, value in patch.items():
        directive, _, name = key.partition("/")
        if directive == "$setElementOrder":
            orders[name] = value
        elif directive == "$deleteFromPrimitiveList":
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key not in _DIRECTIVES:
            _merge_key(result, key, value, schema)
    for name, order in orders.items():
        if isinstance(result.get(name), list):
            field = schema.field(name) if schema is not None else None
            result[name] = _order_items(result[name], order, field.merge_key if field is not None else "")
    return result


def _retain_keys(target: Any, keys: list[str] | None) -> Object:
    """A copy of the target, with only the keys that a patch retains."""
    result = target if isinstance(target, Mapping) else {}
    return {key: value for key, value in result.items() if keys is None or key in keys}


def _merge_key(result: Object, key: str, value: Any, schema: Schema | None) -> None:
    if value is None:
        result.pop(key, None)
    else:
        result[key] = _merge_field(result.get(key), value, schema.field(key) if schema is not None else None)


def _merge_field(target: Any, patch: Any, schema: Schema | None) -> Any:
    if not isinstance(patch, list):
        return strategic_merge(target, patch, schema)
    if schema is None or "merge" not in schema.patch_strategy or not isinstance(target, list | type(None)):
        return [item for item in patch if not _is_replace(item)]
    existing = list(target or [])
    if any(_is_replace(item) for item in patch):
        return [item for item in patch if not _is_replace(item)]
    if not schema.merge_key:
        return existing + [item for item in patch if item not in existing]
    return _merge_list(existing, patch, schema)


def _is_replace(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("$patch") == "replace"


def _merge_list(existing: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.merge_key
    for item in patch:
        if not isinstance(item, Mapping) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next(
            (i for i, one in enumerate(existing) if isinstance(one, Mapping) and one.get(key) == item[key]),
            None,
        )
        if item.get("$patch") == "delete":
            if at is not None:
                del existing[at]
        elif at is None:
            existing.append(strategic_merge({}, item, schema.items))
        else:
            existing[at] = strategic_merge(existing[at], item, schema.items)
    return existing


def _order_items(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Items that the order names, in that order; the others keep their places among them."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, Mapping) else item

    rank = {identity(item): at for at, item in enumerate(order)}
    listed = iter(
        sorted((item for item in items if identity(item) in rank), key=lambda item: rank[identity(item)])
    )
    return [next(listed) if identity(item) in rank else item for item in items]
