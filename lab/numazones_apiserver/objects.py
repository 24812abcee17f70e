"""Prepare a client's object for storage: drop unknown fields, set defaults, validate.

The order is the real server's: decode (types, unknown fields), default, validate names and
metadata, validate the rest. Rules of metadata are those of apimachinery's api/validation.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from numazones.apimachinery import timestamp
from numazones.apimachinery.quantity import InvalidQuantity
from numazones_apiserver import errors
from numazones_apiserver.errors import FieldError, Object, StatusError
from numazones_apiserver.kinds import Kind
from numazones_apiserver.pods import LABEL_DETAIL
from numazones_apiserver.quantities import with_canonical_quantities
from numazones_apiserver.schema import MISSING, Schema, apply_defaults, drop_nulls, prune, validate

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN_DETAIL = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUALIFIED_DETAIL = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_DETAIL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_MAX_NAME = 253
_MAX_LABEL = 63
_MAX_GENERATED = 58
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_MAX_ANNOTATION_BYTES = 256 * 1024


@dataclass(slots=True)
class Validation:
    """Policy for unknown fields, and the warnings it produced."""

    mode: str = "Warn"
    fields: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def now() -> str:
    """The time as metav1.Time writes it."""
    return timestamp.format(datetime.now(UTC))


def generated_name(prefix: str) -> str:
    """A name made of generateName and five letters that spell no words."""
    return prefix[:_MAX_GENERATED] + "".join(random.choices(_SUFFIX_LETTERS, k=5))


def decode(kind: Kind, obj: Object, validation: Validation, *, defaults: bool = True) -> Object:
    """The object without unknown fields; if asked, defaulted and canonical. Raises StatusError 400."""
    unknown: list[str] = []
    schema = kind.schema
    if not kind.custom:
        obj = drop_nulls(obj, schema)
        for error in validate(obj, _types_only(schema)):
            raise _type_mismatch(kind, error)
        obj = _without_empty_fields(obj, schema)
    pruned = prune(obj, schema, unknown)
    if unknown and validation.mode == "Strict":
        listing = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _decoding_error(kind, f"strict decoding error: {listing}")
    validation.fields += unknown
    if validation.mode == "Warn":
        validation.warnings += [f'unknown field "{path}"' for path in unknown]
    if kind.custom:
        pruned = drop_nulls(pruned, schema)
        return apply_defaults(pruned, schema) if defaults else pruned  # type: ignore[no-any-return]
    if not defaults:
        return pruned  # type: ignore[no-any-return]
    try:
        return with_canonical_quantities(pruned, schema)  # type: ignore[no-any-return]
    except InvalidQuantity as error:
        raise _decoding_error(kind, f"quantities must match the regular expression '{_QUANTITY}'") from error


def _decoding_error(kind: Kind, why: str) -> StatusError:
    """400: what was sent cannot be read as an object of the kind."""
    return errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


_TYPE_SCHEMAS: dict[int, tuple[Schema, Schema]] = {}


def _types_only(schema: Schema) -> Schema:
    """The schema of a built-in kind without what is checked after decoding: only types remain."""
    known = _TYPE_SCHEMAS.get(id(schema))
    if known is not None:
        return known[0]
    copy = Schema(type=schema.type, int_or_string=schema.int_or_string, preserve=schema.preserve)
    _TYPE_SCHEMAS[id(schema)] = (copy, schema)
    copy.properties = {name: _types_only(child) for name, child in schema.properties.items()}
    copy.values = _types_only(schema.values) if schema.values is not None else None
    copy.items = _types_only(schema.items) if schema.items is not None else None
    return copy


def _type_mismatch(kind: Kind, error: FieldError) -> StatusError:
    found = re.search(r"must be of type ([a-z,]+): \"([a-z]+)\"", error.message)
    expected, got = (found[1], found[2]) if found else ("another type", "value")
    wanted = {"integer": "int", "boolean": "bool", "object": "struct", "array": "slice"}.get(
        expected, expected
    )
    shown = {"boolean": "bool", "integer": "number"}.get(got, got)
    place = re.sub(r"\[\d+\]", "", error.field)
    target = f"Go struct field {kind.kind}.{place} of type {wanted}"
    return _decoding_error(kind, f"json: cannot unmarshal {shown} into {target}")


def _without_empty_fields(value: Any, schema: Schema) -> Any:
    """The value without empty lists and maps in optional fields, which Go's types do not write back."""
    if isinstance(value, dict) and schema.properties:
        kept = {}
        for key, item in value.items():
            child = schema.properties.get(key)
            if child is None or not isinstance(item, dict | list):
                kept[key] = item
            elif item or key in schema.required or (isinstance(item, dict) and child.values is None):
                kept[key] = _without_empty_fields(item, child)
        return kept
    if isinstance(value, list) and schema.items is not None and schema.items.properties:
        return [_without_empty_fields(item, schema.items) for item in value]
    return value


def check(kind: Kind, obj: Object, old: Object | None) -> None:
    """Raise StatusError 422 naming everything that is wrong with the object."""
    found = [*check_metadata(kind, obj, old), *_check_schema(kind, obj, old), *kind.strategy.check(obj, old)]
    if found:
        raise errors.invalid(kind.group, kind.kind, obj["metadata"].get("name", ""), found)


def _check_schema(kind: Kind, obj: Object, old: Object | None) -> Iterator[FieldError]:
    if kind.custom:
        found = list(validate(obj, kind.schema, "", old if old is not None else MISSING))
        yield from found
        if kind.schema.has_rules and any(error.reason in _BLOCKING for error in found):
            yield FieldError("FieldValueInvalid", "<nil>", _UNCHECKED)
        return
    # Status is written by controllers whose types fill in what the published schema calls required.
    for name, child in kind.schema.properties.items():
        if name in obj and name not in ("metadata", "status", "apiVersion", "kind"):
            if old is not None and old.get(name) == obj[name]:
                continue
            yield from _required_only(obj[name], child, name)


def _required_only(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for name in schema.required:
            # Names and images of containers are checked with their own words.
            if name not in value and name not in ("name", "image", "containers", "template"):
                yield errors.required(f"{path}.{name}")
        for key, item in value.items():
            child = schema.properties.get(key) or schema.values
            if child is not None and isinstance(item, dict | list):
                yield from _required_only(item, child, f"{path}.{key}")
    elif isinstance(value, list) and schema.items is not None:
        for at, item in enumerate(value):
            yield from _required_only(item, schema.items, f"{path}[{at}]")


def check_metadata(kind: Kind, obj: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield the errors in names, labels, annotations, owners and finalizers."""
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    if not name:
        yield errors.required("metadata.name", "name or generateName is required")
    elif old is None:
        yield from _check_name(kind, name)
    for key, value in (metadata.get("labels") or {}).items():
        yield from _check_key(key, "metadata.labels")
        if len(value) > _MAX_LABEL:
            yield errors.invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        if value and not _QUALIFIED.fullmatch(value):
            yield errors.invalid_value("metadata.labels", value, _VALUE_DETAIL)
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        yield from _check_key(key.lower(), "metadata.annotations", shown=key)
        size += len(key.encode()) + len(value.encode())
    if size > _MAX_ANNOTATION_BYTES:
        detail = f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes"
        yield FieldError("FieldValueTooLong", "metadata.annotations", detail)
    yield from _check_owners(metadata.get("ownerReferences") or ())
    if old is not None:
        yield from _check_changes(metadata, old["metadata"])


def _check_name(kind: Kind, name: str) -> Iterator[FieldError]:
    if kind.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            yield errors.invalid_value("metadata.name", name, "may not contain '/' or '%'")
    elif kind.plural in ("namespaces", "services") and not kind.group:
        if len(name) > _MAX_LABEL:
            yield errors.invalid_value("metadata.name", name, "must be no more than 63 characters")
        if not _LABEL.fullmatch(name):
            yield errors.invalid_value("metadata.name", name, LABEL_DETAIL)
    else:
        if len(name) > _MAX_NAME:
            yield errors.invalid_value("metadata.name", name, "must be no more than 253 characters")
        if not _SUBDOMAIN.fullmatch(name):
            yield errors.invalid_value("metadata.name", name, _SUBDOMAIN_DETAIL)


def _check_key(key: str, path: str, shown: str = "") -> Iterator[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        yield errors.invalid_value(path, shown or key, f"prefix part {_SUBDOMAIN_DETAIL}")
    if not name:
        yield errors.invalid_value(path, shown or key, "name part must be non-empty")
    if len(name) > _MAX_LABEL:
        yield errors.invalid_value(path, shown or key, "name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        yield errors.invalid_value(path, shown or key, _QUALIFIED_DETAIL)


def _check_owners(owners: Any) -> Iterator[FieldError]:
    controllers = []
    for at, owner in enumerate(owners):
        here = f"metadata.ownerReferences[{at}]"
        for name, detail in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not owner.get(name):
                field_path = f"{here}.{name}" if name != "apiVersion" else f"{here}.apiVersion"
                yield errors.invalid_value(field_path, owner.get(name, ""), detail)
        if owner.get("controller"):
            controllers.append(owner.get("kind"))
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        yield errors.invalid_value("metadata.ownerReferences", errors.type_name([]), detail)


def _check_changes(metadata: Object, before: Object) -> Iterator[FieldError]:
    for name in ("name", "namespace", "uid"):
        if metadata.get(name) != before.get(name):
            yield errors.invalid_value(f"metadata.{name}", metadata.get(name, ""), "field is immutable")
    if before.get("deletionTimestamp"):
        new = [one for one in metadata.get("finalizers") or () if one not in (before.get("finalizers") or ())]
        if new:
            listing = ", ".join(f'"{one}"' for one in new)
            yield errors.forbidden_field(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listing}}}",
            )
