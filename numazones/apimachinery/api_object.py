"""Validate objects that users pass in as objects of the Kubernetes API.

The API server checks what it takes, so objects from there have the form that their kind prescribes. Files,
scripts and notebooks may hold anything: a mistake is named at once, with the object and the field, not where
a rule trips over it later.
"""

from collections.abc import Mapping
from typing import Any

from numazones.errors import NumazonesError

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a field raises whose form nobody has checked."""
CURE = "; pass it as the API server serves it"
_PARTS = ("metadata", "spec", "status")
_FIELDS: Mapping[str, Mapping[str, type[object]]] = {
    "metadata": {"namespace": str, "uid": str, "labels": dict, "annotations": dict, "ownerReferences": list},
    "spec": {"nodeName": str, "taints": list, "volumes": list},
    "status": {"phase": str, "allocatable": dict, "conditions": list},
}
"""Fields that nodes and pods are read from first, and their types; items of lists are mappings."""
_NOTHING: Mapping[str, Any] = {}

Part = Mapping[str, Any]


class InvalidObject(NumazonesError, ValueError):
    """An object is malformed; the message names it and the field."""


def parts_of(body: Mapping[str, Any], kind: str) -> tuple[Part, Part, Part]:
    """Return metadata, spec and status of an object, empty where it has none; each is a mapping.

    The fields of them that nodes and pods are read from first are of their types then.

    Raises:
        InvalidObject: it is no mapping, has no name, or a field is of another type.
    """
    if not isinstance(body, (dict, Mapping)):
        raise InvalidObject(
            f"a {kind} is a mapping with metadata, spec and status, not {type(body).__name__}{CURE}"
        )
    metadata, spec, status = (_mapping(body, name, body, kind) for name in _PARTS)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        missing = name is None or name == ""
        problem = "it has no metadata.name" if missing else _wrong("metadata.name", "a string", name)
        raise invalid(body, kind, problem)
    for part, content in (("metadata", metadata), ("spec", spec), ("status", status)):
        for field, form in _FIELDS[part].items():
            value = content.get(field)
            if value is None or (type(value) is form and form is not list):  # nearly all, told at once
                continue
            if form is str and not isinstance(value, str):
                raise invalid(body, kind, _wrong(f"{part}.{field}", "a string", value))
            if form is dict:
                _mapping(content, field, body, kind, within=f"{part}.")
            if form is list and value and not _are_mappings(value):
                raise invalid(body, kind, f"{part}.{field} is not a list of mappings")
    return metadata, spec, status


def invalid(body: Mapping[str, Any], kind: str, problem: object) -> InvalidObject:
    """Return the error of an object; ``problem``: what is wrong with it, or what reading it raised."""
    if isinstance(problem, Exception) and not isinstance(problem, NumazonesError):
        problem = f"{type(problem).__name__}: {problem}"
    metadata = body.get("metadata")
    parts = [metadata.get(key) for key in ("namespace", "name")] if isinstance(metadata, Mapping) else []
    name = "/".join(str(part) for part in parts if part) or "(unnamed)"
    return InvalidObject(f"{kind} {name} is malformed: {problem}{CURE}")


def _mapping(parent: Part, field: str, body: Part, kind: str, *, within: str = "") -> Part:
    value = parent.get(field)
    if not value:
        return _NOTHING
    if not isinstance(value, (dict, Mapping)):
        raise invalid(body, kind, _wrong(f"{within}{field}", "a mapping", value))
    return value


def _are_mappings(items: Any) -> bool:
    if isinstance(items, (list, tuple)):
        for item in items:
            if not isinstance(item, (dict, Mapping)):  # fast for a dict, slow for other mappings
                break
        else:
            return True
    return False


def _wrong(field: str, wanted: str, value: object) -> str:
    return f"{field} must be {wanted}, not {type(value).__name__}"
