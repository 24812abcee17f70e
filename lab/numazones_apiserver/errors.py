"""Answers that are not an object: the ``Status`` bodies of the Kubernetes API.

Clients decide by ``reason`` and ``code`` and print ``message``, so the three must be what a real
kube-apiserver sends (apimachinery's api/errors and util/validation/field say which).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from numazones.errors import NumazonesError

Object = dict[str, Any]


class StatusError(NumazonesError):
    """An answer with a ``Status`` body; ``code`` is the HTTP status, ``headers`` go with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> Object:
        """The ``Status`` object to send."""
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field, in the words of field.ErrorList."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def json_text(value: Any) -> str:
    """A value as validation messages write it: in JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def required(field: str, detail: str = "") -> FieldError:
    """The field is needed and absent."""
    return FieldError("FieldValueRequired", field, f"Required value: {detail}".removesuffix(": "))


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    """The field's value breaks a rule."""
    return FieldError(
        "FieldValueInvalid", field, f"Invalid value: {json_text(value)}: {detail}".removesuffix(": ")
    )


def wrong_type(field: str, value: Any, expected: str) -> FieldError:
    """The field's value is of another type than the schema says."""
    found = type_name(value)
    detail = f"{field} in body must be of type {expected}: {json_text(found)}"
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {json_text(found)}: {detail}")


def unsupported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """The field's value is not one of an enumeration."""
    allowed = ", ".join(json_text(one) for one in supported)
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {json_text(value)}: supported values: {allowed}"
    )


def duplicate(field: str, value: Any) -> FieldError:
    """The item occurs twice in a list that is a set or a map."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {json_text(value)}")


def forbidden_field(field: str, detail: str) -> FieldError:
    """The field must not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def type_name(value: Any) -> str:
    """The JSON type of a value by the name schemas use."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def resource_name(group: str, plural: str) -> str:
    """``numazones.numazones.io``, ``pods``: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404: no such object."""
    message = f'{resource_name(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(group, plural, name))


def no_such_resource() -> StatusError:
    """404: the API has no such resource or subresource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409: an object of that name exists."""
    message = f'{resource_name(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> StatusError:
    """409: optimistic locking or a precondition failed."""
    message = f'Operation cannot be fulfilled on {resource_name(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(group, plural, name))


def apply_conflict(causes: Sequence[tuple[str, str]]) -> StatusError:
    """409 of server-side apply; ``causes`` are (manager description, field path)."""
    managers: dict[str, list[str]] = {}
    for manager, field in causes:
        managers.setdefault(manager, []).append(field)
    plural = "s" if len(causes) > 1 else ""
    if len(managers) == 1:
        manager, fields = next(iter(managers.items()))
        text = f"conflict{plural} with {manager}"
        lines = f": {fields[0]}" if len(fields) == 1 else ":\n" + "\n".join(f"- {field}" for field in fields)
        text += lines
    else:
        text = f"conflict{plural} with " + "\nconflicts with ".join(
            f"{manager}:\n" + "\n".join(f"- {field}" for field in fields)
            for manager, fields in managers.items()
        )
    details = {
        "causes": [
            {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
            for manager, field in causes
        ]
    }
    head = f"Apply failed with {len(causes)} conflict{plural}: "
    return StatusError(409, "Conflict", head + text, details=details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: the object breaks rules; every broken rule is a cause."""
    texts = [str(error) for error in dict.fromkeys(errors)]
    listing = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(group, kind, name)
    details["causes"] = [
        {"reason": error.reason, "message": error.message, "field": error.field}
        for error in dict.fromkeys(errors)
    ]
    return StatusError(
        422, "Invalid", f'{resource_name(group, kind)} "{name}" is invalid: {listing}', details=details
    )


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def resource_expired(message: str) -> StatusError:
    """410: the resource version that was asked for is compacted."""
    return StatusError(410, "Expired", message)


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """415: the body is in a format that is not read."""
    listing = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listing}"
    return StatusError(415, "UnsupportedMediaType", message)


def internal(message: str) -> StatusError:
    """500: what the real server did not foresee a reason for."""
    return StatusError(500, "", message)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403: rejected for a reason that is not a broken rule of the schema."""
    subject = f'{resource_name(group, plural)} "{name}"' if name else resource_name(group, plural)
    return StatusError(
        403, "Forbidden", f"{subject} is forbidden: {why}", details=_details(group, plural, name)
    )


def too_large_resource_version(asked: int, current: int) -> StatusError:
    """504: the resource version that was asked for has not been reached; retry after a second."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details=details, headers={"Retry-After": "1"})
