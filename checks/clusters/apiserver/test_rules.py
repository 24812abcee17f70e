"""The rules behind the server, by themselves: selectors, quantities, field sets, ownership, patches."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones_apiserver import fieldsets, ownership, patches
from numazones_apiserver.ownership import OwnershipChange, Writer
from numazones_apiserver.quantities import canonical
from numazones_apiserver.schema import Schema, apply_defaults, compile_schema, prune, validate
from numazones_apiserver.selectors import parse_labels, selector_text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        (0.5, "500m"),
        (3, "3"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("512Ki", "512Ki"),
        ("1000k", "1M"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("0Mi", "0"),
        ("100n", "100n"),
    ],
)
def test_quantities_are_written_in_canonical_form(text: Any, written: str) -> None:
    assert canonical(text) == written


# --- laws ------------------------------------------------------------------------------------

SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "free": {"type": "object", "additionalProperties": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "plain": {"type": "array", "items": {"type": "string"}},
            "map": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                },
            },
        },
    }
)

_words = st.sampled_from(["a", "b", "c"])
_items = st.lists(
    st.fixed_dictionaries({"name": _words}, optional={"value": _words}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
_configs = st.fixed_dictionaries(
    {},
    optional={
        "text": _words,
        # Applying an empty map over one with keys names nothing: the keys are others'.
        "free": st.dictionaries(_words, _words, min_size=1, max_size=2),
        "set": st.lists(_words, max_size=3, unique=True),
        "plain": st.lists(_words, max_size=2),
        "map": _items,
    },
)
_CHANGE = OwnershipChange(SCHEMA, "now")
_ONE, _TWO = Writer("one", "Apply", "v1"), Writer("two", "Apply", "v1")


@given(_configs)
def test_field_set_is_the_same_after_writing_and_reading_it(config: Any) -> None:
    fields = fieldsets.fields_of(config, SCHEMA)
    assert fieldsets.from_fields_v1(fieldsets.to_fields_v1(fields)) == fields


@given(_configs, _configs)
def test_objects_are_equal_exactly_when_no_field_differs(one: Any, two: Any) -> None:
    difference = fieldsets.compare(one, two, SCHEMA)
    same = not (difference.added or difference.removed or difference.modified)
    assert not same or one == two or _sorted(one) == _sorted(two)
    assert same or one != two


def _sorted(config: Any) -> Any:
    """Order in sets and list maps is nobody's field."""
    result = copy.deepcopy(config)
    for name in ("set", "map"):
        if name in result:
            result[name] = sorted(result[name], key=str)
    return result


@given(_configs, _configs)
def test_a_second_apply_of_the_same_changes_nothing(one: Any, two: Any) -> None:
    first, owners = ownership.apply({}, one, _ONE, {}, _CHANGE, force=True)
    second, owners = ownership.apply(first, two, _TWO, owners, _CHANGE, force=True)
    third, after = ownership.apply(second, two, _TWO, owners, _CHANGE, force=True)
    assert third == second
    assert after == owners


@given(_configs, _configs)
def test_the_object_is_the_last_configuration_of_its_only_manager(one: Any, two: Any) -> None:
    first, owners = ownership.apply({}, one, _ONE, {}, _CHANGE, force=False)
    second, _ = ownership.apply(first, two, _ONE, owners, _CHANGE, force=False)
    named = fieldsets.fields_of(two, SCHEMA)
    assert fieldsets.fields_of(second, SCHEMA) == named


@given(_configs, _configs)
def test_an_applied_configuration_is_part_of_the_object(one: Any, two: Any) -> None:
    first, owners = ownership.apply({}, one, _ONE, {}, _CHANGE, force=True)
    second, _ = ownership.apply(first, two, _TWO, owners, _CHANGE, force=True)
    assert fieldsets.fields_of(two, SCHEMA) <= fieldsets.fields_of(second, SCHEMA)


@given(_configs, _configs)
def test_a_second_merge_patch_of_the_same_changes_nothing(one: Any, two: Any) -> None:
    merged = patches.merge(one, two)
    assert patches.merge(merged, two) == merged
    assert patches.merge(one, {}) == one


@given(_configs)
def test_a_valid_object_is_neither_pruned_nor_invalid(config: Any) -> None:
    unknown: list[str] = []
    assert prune(config, SCHEMA, unknown) == config
    assert unknown == []
    assert list(validate(config, SCHEMA)) == []
    assert apply_defaults(config, SCHEMA) == config


@given(st.dictionaries(_words, _words, max_size=3))
def test_labels_match_either_a_selector_or_its_negation(labels: dict[str, str]) -> None:
    for selector, negation in (("a=b", "a!=b"), ("a in (a,b)", "a notin (a,b)"), ("a", "!a")):
        assert parse_labels(selector).matches(labels) is not parse_labels(negation).matches(labels)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]}, "a in (x,y)"),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, "<error>"),
        ({"b": "2", "a": "1"}, "a=1,b=2"),
        ({}, ""),
        ("a=1", "a=1"),
    ],
)
def test_stored_selectors_are_written_as_people_read_them(selector: Any, text: str) -> None:
    assert selector_text(selector) == text


UUID = "0b5e71fc-0000-0000-0000-000000000000"

# --- schema corners --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "good", "bad", "message"),
    [
        ({"type": "integer", "multipleOf": 4}, 8, 6, "should be a multiple of 4"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0.1, 0, "should be greater than 0"),
        ({"type": "integer", "format": "int32"}, 1, 2**31, "must be of type int32"),
        ({"type": "integer"}, 3.0, 3.5, "must be of type integer"),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ["a"],
            [],
            "should have at least 1 items",
        ),
        ({"type": "object", "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}, "must have at most 1 items"),
        ({"type": "object", "minProperties": 1}, {"a": 1}, {}, "should have at least 1 properties"),
        ({"type": "string", "format": "byte"}, "YQ==", "?", "must be of type byte"),
        (
            {"type": "string", "format": "uuid"},
            "0b5e71fc-0000-0000-0000-000000000000",
            "x",
            "must be of type uuid",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, [], "at least one schema (anyOf)"),
        ({"oneOf": [{"minimum": 5}, {"maximum": 3}]}, 9, 4, "Found none valid"),
        ({"allOf": [{"minimum": 5}]}, 5, 4, "greater than or equal to 5"),
        ({"not": {"enum": ["x"]}}, "y", "x", "must not validate the schema (not)"),
        ({"type": "boolean"}, True, 1, "must be of type boolean"),
        ({"type": "string", "nullable": True}, None, 1, "must be of type string"),
    ],
)
def test_a_schema_takes_what_fits_and_says_what_does_not(
    source: Any, good: Any, bad: Any, message: str
) -> None:
    schema = compile_schema(source)
    assert list(validate(good, schema, "f")) == []
    assert message in " ".join(str(error) for error in validate(bad, schema, "f"))


def test_a_value_that_did_not_change_is_not_checked_again() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}, "b": {"type": "string"}}}
    )
    assert list(validate({"a": 9, "b": "y"}, schema, "", {"a": 9, "b": "x"})) == []
    assert list(validate({"a": 8, "b": "x"}, schema, "", {"a": 9, "b": "x"})) != []


def test_values_of_unknown_type_are_merged_by_their_form() -> None:
    merged = fieldsets.merge({"a": {"b": 1}, "l": [1]}, {"a": {"c": 2}, "l": [2]}, Schema(preserve=True))
    assert merged == {"a": {"b": 1, "c": 2}, "l": [2]}
