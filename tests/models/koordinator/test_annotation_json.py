"""JSON in annotations: what is read, what is rejected, and in which words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones_koordinator.annotation_json import UnreadableAnnotation, decode
from numazones_koordinator.annotations import (
    CPU_TOPOLOGY,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    cpu_list,
    cpu_topology,
    numa_topology_spec,
    resource_spec,
    resource_status,
)

KEY = "koordinator.sh/anything"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ('{"a":', "unexpected end of JSON input"),
        ("[1,", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
    ],
)
def test_truncated_or_invalid_json_is_rejected_in_the_schedulers_words(text: str, message: str) -> None:
    with pytest.raises(UnreadableAnnotation) as rejected:
        decode(KEY, text)
    assert str(rejected.value) == rejected.value.why == message


@pytest.mark.parametrize(
    "text",
    [
        "{x", "{'a'}", '{"a" 1}', '{"a":1 "b"}', '{"a":1,}', "[1 2]", "[1,]", "{} x", '"a\nb"', '"\\x"',
        '"\\u12g4"', "-x", "1.x", "1ex", "01", "trux", "\u00e4", "NaN", "Infinity", "-Infinity", "\ufeff1",
        "[" * 100_000, "1" * 100_000,
    ],
)  # fmt: skip
def test_other_invalid_json_is_rejected_naming_the_annotation(text: str) -> None:
    with pytest.raises(
        UnreadableAnnotation, match=f"annotation {KEY} is not what koord-scheduler expects: "
    ) as rejected:
        decode(KEY, text)
    assert len(str(rejected.value)) < 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values, st.booleans())
def test_what_is_json_is_read(value: object, ascii_: bool) -> None:  # noqa: FBT001
    assert decode(KEY, json.dumps(value, ensure_ascii=ascii_)) == value


@given(st.text())
def test_any_text_is_read_or_rejected(text: str) -> None:
    try:
        decode(KEY, text)
    except UnreadableAnnotation:
        return
    json.loads(text)


def test_keys_match_without_case_null_and_unknown_keys_do_nothing() -> None:
    spec = '{"NUMATopologyPolicy":"Restricted","singlenumanodeexclusive":"Required","more":1}'
    read = numa_topology_spec({NUMA_TOPOLOGY_SPEC: spec})
    assert (read.policy, read.exclusive) == ("Restricted", "Required")
    assert numa_topology_spec({NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":null}'}).policy == ""
    assert numa_topology_spec({NUMA_TOPOLOGY_SPEC: "null"}).policy == ""
    assert resource_spec({}).json() == "{}"


@pytest.mark.parametrize(
    ("reader", "key", "text", "message"),
    [
        (
            numa_topology_spec, NUMA_TOPOLOGY_SPEC, '{"numaTopologyPolicy":1}',
            f"{NUMA_TOPOLOGY_SPEC} is not what koord-scheduler expects: numaTopologyPolicy is 1, not",
        ),
        (resource_spec, RESOURCE_SPEC, "[]", "a list is not an object"),
        (
            resource_spec, RESOURCE_SPEC, '{"preferredCPUBindPolicy":true}',
            "preferredCPUBindPolicy is true, not a string",
        ),
        (resource_status, RESOURCE_STATUS, '{"cpuset":"a"}', "'a' is not a CPU or a range of CPUs"),
        (
            resource_status, RESOURCE_STATUS, '{"numaNodeResources":{}}',
            "numaNodeResources is an object, not a list",
        ),
        (
            resource_status, RESOURCE_STATUS, '{"numaNodeResources":[{"node":0,"resources":{"cpu":"many"}}]}',
            "resources holds a value that is not a quantity",
        ),
        (cpu_topology, CPU_TOPOLOGY, '{"detail":[{"id":1.5}]}', "id is 1.5, not an integer of 32 bits"),
        (cpu_topology, CPU_TOPOLOGY, '{"detail":[{"id":4294967296}]}', "id is 4294967296, not an integer"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_rejected_naming_the_field(
    reader: object, key: str, text: str, message: str
) -> None:
    assert callable(reader)
    with pytest.raises(UnreadableAnnotation) as rejected:
        reader({key: text})
    assert message in str(rejected.value)


def test_cpu_lists_are_read_as_koordinator_reads_them() -> None:
    assert cpu_list(KEY, "") == 0
    assert cpu_list(KEY, "0-2,+5,5") == 0b100111
    assert cpu_list(KEY, "3-1,5000-1") == 0
    for text in ("1-2-3", " 1", "0-5000", "99999999999", "-1", "70000"):
        with pytest.raises(UnreadableAnnotation):
            cpu_list(KEY, text)
