# ruff: noqa: E501 - tables of cases read by rows
"""Bodies in protobuf: what they mean, and what is rejected."""

from typing import Any

import pytest

from numazones_apiserver.errors import StatusError
from numazones_apiserver.protobuf import decode


def field(number: int, value: bytes | str | int) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def body(api_version: str, kind: str, content: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, content)


METADATA = field(1, field(1, "m") + field(3, "") + field(8, b"") + field(11, field(1, "k") + field(2, "v")))


@pytest.mark.parametrize(
    ("api_version", "kind", "content", "expected"),
    [
        ("v1", "ConfigMap", METADATA + field(2, field(1, "a") + field(2, "")), {"metadata": {"name": "m", "labels": {"k": "v"}}, "data": {"a": ""}}),
        ("v1", "Secret", field(2, field(1, "a") + field(2, b"\x01")), {"data": {"a": "AQ=="}}),
        ("policy/v1", "PodDisruptionBudget", field(2, field(1, field(1, 1) + field(3, "50%"))), {"spec": {"minAvailable": "50%"}}),
        ("policy/v1", "PodDisruptionBudget", field(2, field(1, field(1, 0) + field(2, 0))), {"spec": {"minAvailable": 0}}),
        ("policy/v1", "Eviction", METADATA + field(2, field(1, 0)), {"metadata": {"name": "m", "labels": {"k": "v"}}, "deleteOptions": {"gracePeriodSeconds": 0}}),
        ("apps/v1", "Deployment", field(2, field(1, 0) + field(5, 0)), {"spec": {"replicas": 0}}),
        ("scheduling.k8s.io/v1", "PriorityClass", field(2, -5), {"value": -5}),
        ("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 1) + field(2, 5000))), {"spec": {"renewTime": "1970-01-01T00:00:01.000005Z"}}),
        ("v1", "Pod", field(2, field(2, field(1, "c") + field(2, "i") + field(8, field(1, field(1, "cpu") + field(2, field(1, "2")))))), {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}}),
        ("v1", "Pod", field(2, field(1, field(1, "v") + field(2, field(19, field(1, field(1, "cm")))))), {"spec": {"volumes": [{"name": "v", "configMap": {"name": "cm"}}]}}),
    ],
)  # fmt: skip
def test_an_object_is_read_from_protobuf(api_version: str, kind: str, content: bytes, expected: Any) -> None:
    assert decode(body(api_version, kind, content)) == {"apiVersion": api_version, "kind": kind, **expected}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (
            body("v1", "Unheard", b""),
            'kind "Unheard" of version "v1" is not supported in protobuf; send JSON',
        ),
        (
            body("v1", "ConfigMap", b"\x0a\x7f"),
            "not a valid protobuf message: field 1 ends beyond the message",
        ),
        (body("v1", "ConfigMap", b"\x0f"), "not a valid protobuf message: unknown wire type 7"),
        (body("v1", "ConfigMap", b"\x8a"), "not a valid protobuf message"),
    ],
)
def test_a_body_that_is_not_protobuf_is_a_bad_request(data: bytes, message: str) -> None:
    with pytest.raises(StatusError, match=message) as rejected:
        decode(data)
    assert rejected.value.code == 400


def test_fields_of_a_later_release_are_skipped() -> None:
    assert decode(body("v1", "ConfigMap", field(15, "new") + METADATA))["metadata"]["name"] == "m"
