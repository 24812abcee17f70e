"""Bodies in Kubernetes' protobuf encoding, turned into the JSON form of the same object.

kubectl's imperative commands (``create configmap``, ``create deployment``, ``drain``) send nothing else.
Field numbers are those of the ``generated.proto`` files that Kubernetes 1.36 publishes with its API
types; ``protobuf_fields.json`` lists them per message: JSON name ("" for a message whose fields
appear in its parent), type, and whether it repeats or is a map. Answers are always JSON, which all
clients accept.
"""

import base64
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from numazones.apimachinery import timestamp
from numazones_apiserver import definitions
from numazones_apiserver.errors import Object, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_META = "apimachinery.pkg.apis.meta.v1."
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# On the wire a field that was left at its zero looks like a pointer to zero. These are pointers, and
# their zero means something.
_POINTERS_TO_ZERO = frozenset(
    {
        "automountServiceAccountToken",
        "backoffLimit",
        "blockOwnerDeletion",
        "completions",
        "controller",
        "enableServiceLinks",
        "gracePeriodSeconds",
        "immutable",
        "minAvailable",
        "maxUnavailable",
        "orphanDependents",
        "parallelism",
        "partition",
        "replicas",
        "terminationGracePeriodSeconds",
    }
)


@cache
def _messages() -> dict[str, dict[int, list[str]]]:
    raw = orjson.loads((files(__package__) / "protobuf_fields.json").read_bytes())
    return {name: {int(number): field for number, field in fields.items()} for name, fields in raw.items()}


def _message_of(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    if kind == "DeleteOptions":
        return f"{_META}DeleteOptions"
    name = definitions.names().get((group, version, kind), "").removeprefix("io.k8s.")
    if name not in _messages():
        raise bad_request(f'kind "{kind}" of version "{api_version}" is not supported in protobuf; send JSON')
    return name


def decode(body: bytes) -> Object:
    """The object in a body; raises StatusError 400."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message: expected prefix k8s")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        identity = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
        api_version, kind = identity.get(1, ""), identity.get(2, "")
        content = _decode(envelope.get(2, b""), _message_of(api_version, kind))
    except (IndexError, UnicodeDecodeError, ValueError, struct.error, AttributeError) as error:
        raise bad_request(f"the body is not a valid protobuf message: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **content}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message as (number, raw value)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _FIXED64:
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        elif wire == _FIXED32:
            value, at = struct.unpack("<f", data[at : at + 4])[0], at + 4
        elif wire == _BYTES:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError(f"field {number} ends beyond the message")
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"unknown wire type {wire}")
        yield number, value


def _decode(data: bytes, message: str) -> Object:
    known = _messages()[message]
    required = definitions.by_name().get(f"io.k8s.{message}", {}).get("required") or ()
    result: Object = {}
    for number, raw in _fields(data):
        if number not in known:
            continue  # a field of a later release
        name, kind, *shape = known[number]
        if shape == ["map"]:
            entry = dict(_fields(raw))
            value = _value(entry[2], kind) if 2 in entry else ""  # noqa: PLR2004 - number of an entry's value
            result.setdefault(name, {})[entry.get(1, b"").decode()] = value
            continue
        value = _value(raw, kind)
        if shape == ["repeated"]:
            result.setdefault(name, []).append(value)
        elif not name:
            result.update(value)
        elif (
            value
            or isinstance(value, dict)
            or name in required
            or (value is not None and name in _POINTERS_TO_ZERO)
        ):
            result[name] = value
    return result


def _value(raw: Any, kind: str) -> Any:
    if kind in _SCALARS:
        return _scalar(raw, kind)
    special = _SPECIAL.get(kind)
    return special(dict(_fields(raw))) if special is not None else _decode(raw, kind)


_SCALARS = ("string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double", "float")


def _scalar(raw: Any, kind: str) -> Any:
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind == "bool":
        return bool(raw)
    if kind in ("int32", "int64") and raw >= 1 << 63:
        return raw - (1 << 64)
    return raw


def _int_or_string(fields: dict[int, Any]) -> int | str:
    if fields.get(1, 0):
        return str(fields.get(3, b"").decode())
    return int(_scalar(fields.get(2, 0), "int32"))


def _time(fields: dict[int, Any]) -> str | None:
    if not fields:
        return None
    return timestamp.format(datetime.fromtimestamp(_scalar(fields.get(1, 0), "int64"), UTC))


def _micro_time(fields: dict[int, Any]) -> str | None:
    text = _time(fields)
    return text and text.replace("Z", f".{fields.get(2, 0) // 1000:06}Z")


_SPECIAL: dict[str, Callable[[dict[int, Any]], Any]] = {
    "apimachinery.pkg.api.resource.Quantity": lambda fields: fields.get(1, b"").decode(),
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    f"{_META}Time": _time,
    f"{_META}MicroTime": _micro_time,
    f"{_META}FieldsV1": lambda fields: orjson.loads(fields.get(1) or b"{}"),
    "apimachinery.pkg.runtime.RawExtension": lambda fields: orjson.loads(fields.get(1) or b"null"),
}
