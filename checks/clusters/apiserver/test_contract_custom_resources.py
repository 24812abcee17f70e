# ruff: noqa: E501 - tables of cases read by rows
"""CustomResourceDefinitions and their objects: types, bounds, defaults, unknown fields."""

import copy
from typing import Any

import pytest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize(
    ("spec", "field", "reason", "text"),
    [
        ({"size": "3"}, "spec.size", "FieldValueTypeInvalid", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 0}, "spec.size", "FieldValueInvalid", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size", "FieldValueInvalid", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"color": "blue"}, "spec.color", "FieldValueNotSupported", 'Unsupported value: "blue": supported values: "red", "green"'),
        ({"short": "abcdef"}, "spec.short", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
        ({"short": "a"}, "spec.short", "FieldValueInvalid", 'Invalid value: "a": spec.short in body should be at least 2 chars long'),
        ({"short": "AB"}, "spec.short", "FieldValueInvalid", "Invalid value: \"AB\": spec.short in body should match '^[a-z]+$'"),
        ({"port": True}, "spec.port", "FieldValueTypeInvalid", 'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"'),
        ({"ratio": "x"}, "spec.ratio", "FieldValueTypeInvalid", 'Invalid value: "string": spec.ratio in body must be of type number: "string"'),
        ({"labels": {"a": 1}}, "spec.labels.a", "FieldValueTypeInvalid", 'Invalid value: "integer": spec.labels.a in body must be of type string: "integer"'),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
        ({"tags": ["a", "b", "c", "d"]}, "spec.tags", "FieldValueTooMany", "Too many: 4: must have at most 3 items"),
        ({"items": [{"name": "a"}, {"name": "a"}]}, "spec.items[1]", "FieldValueDuplicate", 'Duplicate value: {"name":"a"}'),
        ({"items": [{"value": "a"}]}, "spec.items[0].name", "FieldValueRequired", "Required value"),
        ({"when": "yesterday"}, "spec.when", "FieldValueTypeInvalid", 'Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"'),
    ],
)  # fmt: skip
async def test_what_the_schema_forbids_is_invalid(
    api: Any, widget: Any, spec: Any, field: str, reason: str, text: str
) -> None:
    answer = await api.post(api.widgets, widget("a", **spec))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith('Widget.contract.example.com "a" is invalid: ')
    assert f"{field}: {text}" in answer.body["message"]
    assert (field, reason) in answer.causes
    assert answer.body["details"]["kind"] == "Widget"
    assert answer.body["details"]["group"] == "contract.example.com"


async def test_required_fields_must_be_there(api: Any) -> None:
    body = {"apiVersion": "contract.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    answer = await api.post(api.widgets, body)
    unchecked = (
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation"
    )
    head = 'Widget.contract.example.com "a" is invalid'
    assert answer.body["message"] == f"{head}: [spec: Required value, {unchecked}]"
    answer = await api.post(api.widgets, {**body, "spec": {}})
    assert answer.body["message"] == f"{head}: [spec.size: Required value, {unchecked}]"


async def test_everything_that_is_wrong_is_reported_at_once(api: Any, widget: Any) -> None:
    answer = await api.post(api.widgets, widget("a", size=0, color="blue"))
    assert {field for field, _ in answer.causes} == {"spec.size", "spec.color", "<nil>"}
    assert answer.body["message"].startswith('Widget.contract.example.com "a" is invalid: [')


async def test_absent_fields_get_their_defaults(api: Any, widget: Any) -> None:
    spec = (await api.post(api.widgets, widget("a", items=[{"name": "x"}]))).body["spec"]
    assert spec == {"size": 3, "color": "red", "items": [{"name": "x", "weight": 1}]}


async def test_null_is_dropped_or_becomes_the_default_or_is_kept(api: Any, widget: Any) -> None:
    spec = (await api.post(api.widgets, widget("a", color=None, ratio=None, maybe=None))).body["spec"]
    assert spec == {"size": 3, "color": "red", "maybe": None}


async def test_unknown_fields_are_pruned_with_a_warning(api: Any, widget: Any) -> None:
    body = widget("a", extra=1, items=[{"name": "x", "more": True}])
    answer = await api.post(api.widgets, body)
    assert answer.code == 201
    assert answer.body["spec"] == {"size": 3, "color": "red", "items": [{"name": "x", "weight": 1}]}
    warnings = answer.headers.getall("Warning")
    assert sorted(warnings) == [
        '299 - "unknown field \\"spec.extra\\""',
        '299 - "unknown field \\"spec.items[0].more\\""',
    ]


async def test_unknown_fields_are_silently_pruned_when_ignored(api: Any, widget: Any) -> None:
    answer = await api.post(api.widgets, widget("a", extra=1), fieldValidation="Ignore")
    assert answer.code == 201
    assert "Warning" not in answer.headers
    assert "extra" not in answer.body["spec"]


async def test_unknown_fields_are_rejected_when_strict(api: Any, widget: Any) -> None:
    answer = await api.post(api.widgets, widget("a", extra=1), fieldValidation="Strict")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"] == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.extra"'
    )


async def test_unknown_fields_of_a_patch_are_rejected_when_strict(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.merge(f"{api.widgets}/a", {"spec": {"extra": 1}}, fieldValidation="Strict")
    assert answer.code in (400, 422)
    assert 'unknown field "spec.extra"' in answer.body["message"]


async def test_objects_with_preserved_fields_keep_everything(api: Any, widget: Any) -> None:
    free = {"a": {"b": [1, None, {"c": "d"}]}}
    assert (await api.post(api.widgets, widget("a", free=free))).body["spec"]["free"] == free


async def test_a_transition_rule_forbids_changes_of_a_field(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a", identity="me"))
    assert (await api.merge(f"{api.widgets}/a", {"spec": {"size": 4}})).code == 200
    answer = await api.merge(f"{api.widgets}/a", {"spec": {"identity": "you"}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.causes == [("spec.identity", "FieldValueInvalid")]
    assert "identity is immutable" in answer.body["message"]
    await api.post(api.widgets, widget("b"))
    assert (await api.merge(f"{api.widgets}/b", {"spec": {"identity": "late"}})).code == 200


async def test_the_status_is_validated_too(api: Any, widget: Any) -> None:
    await api.post(api.widgets, widget("a"))
    answer = await api.merge(f"{api.widgets}/a/status", {"status": {"phase": 7}})
    assert answer.code == 422
    assert "status.phase" in answer.body["message"]


# --- definitions -----------------------------------------------------------------------------


async def test_a_definition_becomes_established(api: Any) -> None:
    body = (await api.get(f"{DEFINITIONS}/widgets.contract.example.com")).body
    conditions = {one["type"]: one["status"] for one in body["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert body["status"]["storedVersions"] == ["v1"]
    assert body["status"]["acceptedNames"]["listKind"] == "WidgetList"
    assert body["spec"]["names"]["singular"] == "widget"
    assert body["spec"]["conversion"] == {"strategy": "None"}


def _changed(definition: Any, change: Any) -> Any:
    body = copy.deepcopy(definition("gadgets", "Gadget"))
    change(body)
    return body


def _schema(body: Any) -> Any:
    return body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        (lambda body: body["metadata"].update(name="other.contract.example.com"), "metadata.name", 'must be spec.names.plural+"."+spec.group'),
        (lambda body: body["spec"].update(scope="Galaxy"), "spec.scope", "Unsupported value"),
        (lambda body: body["spec"]["versions"][0].update(storage=False), "spec.versions", "must have exactly one version marked as storage version"),
        (lambda body: body["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema", "Required value"),
        (lambda body: _schema(body)["properties"].update(x={}), "spec.validation.openAPIV3Schema.properties[x].type", "must not be empty for specified object fields"),
        (lambda body: _schema(body)["properties"].update(x={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}), "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map"),
        (lambda body: _schema(body)["properties"].update(x={"type": "string", "default": 3}), "spec.validation.openAPIV3Schema.properties[x].default", "must be of type string"),
    ],
)  # fmt: skip
async def test_a_definition_that_breaks_a_rule_is_invalid(
    api: Any, definition: Any, change: Any, field: str, text: str
) -> None:
    answer = await api.post(DEFINITIONS, _changed(definition, change))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert f"{field}: " in answer.body["message"]
    assert text in answer.body["message"]
