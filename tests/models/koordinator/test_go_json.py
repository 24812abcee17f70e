"""JSON as Go reads it: what it rejects, and in which words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from numazones_koordinator.go_json import GoJSONError, decode


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ('{"a":', "unexpected end of JSON input"),
        ("[1,", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{x", "invalid character 'x' looking for beginning of object key string"),
        ("{'a'}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("ä", "invalid character 'Ã' looking for beginning of value"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
    ],
)
def test_what_is_no_json_is_rejected_in_go_s_words(text: str, message: str) -> None:
    with pytest.raises(GoJSONError) as rejected:
        decode(text)
    assert str(rejected.value) == message


def test_what_would_overwhelm_is_rejected() -> None:
    with pytest.raises(GoJSONError, match="exceeded max depth"):
        decode("[" * 100_000)
    with pytest.raises(GoJSONError, match="cannot unmarshal number"):
        decode("1" * 100_000)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values, st.booleans())
def test_what_is_json_is_read(value: object, ascii_: bool) -> None:  # noqa: FBT001
    assert decode(json.dumps(value, ensure_ascii=ascii_)) == value


@given(st.text())
def test_any_text_is_read_or_rejected(text: str) -> None:
    try:
        decode(text)
    except GoJSONError:
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
            "number into Go struct field NUMATopologySpec.numaTopologyPolicy of type extension.",
        ),
        (resource_spec, RESOURCE_SPEC, "[]", "array into Go value of type extension.ResourceSpec"),
        (
            resource_spec, RESOURCE_SPEC, '{"preferredCPUBindPolicy":true}',
            "bool into Go struct field ResourceSpec.preferredCPUBindPolicy of type extension.CPUBindPolicy",
        ),
        (resource_status, RESOURCE_STATUS, '{"cpuset":"a"}', 'strconv.ParseInt: parsing "a": invalid syntax'),
        (resource_status, RESOURCE_STATUS, '{"numaNodeResources":{}}', "object into Go struct field"),
        (
            resource_status, RESOURCE_STATUS, '{"numaNodeResources":[{"node":0,"resources":{"cpu":"many"}}]}',
            "quantities must match the regular expression",
        ),
        (cpu_topology, CPU_TOPOLOGY, '{"detail":[{"id":1.5}]}', "number 1.5 into Go struct field"),
        (cpu_topology, CPU_TOPOLOGY, '{"detail":[{"id":4294967296}]}', "number 4294967296 into Go"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_rejected_naming_the_field(
    reader: object, key: str, text: str, message: str
) -> None:
    assert callable(reader)
    with pytest.raises(GoJSONError) as rejected:
        reader({key: text})
    assert message in str(rejected.value)


def test_cpu_lists_are_read_as_koordinator_reads_them() -> None:
    assert cpu_list("") == 0
    assert cpu_list("0-2,5,5") == 0b100111
    assert cpu_list("3-1") == 0
    for text in ("1-2-3", " 1", "0-5000", "99999999999", "-1", "70000"):
        with pytest.raises(GoJSONError):
            cpu_list(text)
