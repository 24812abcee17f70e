# ruff: noqa: E501 - tables of cases read by rows
"""Admission policies on the embedded server beyond the contract: order, versions, hostile expressions."""

import copy
import random
import re
import string
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numazones_apiserver import ApiServer, StatusError, WriteOptions
from numazones_apiserver.admission_policies.expressions import (
    OBJECT,
    PATCHES,
    Evaluation,
    Expressions,
    FailedExpression,
    InvalidPolicyExpression,
)
from numazones_apiserver.admission_policies.matching import Matcher
from numazones_apiserver.admission_policies.review import CREATE, UPDATE, Review, User
from numazones_apiserver.admission_policies.syntax import original_place, translation
from numazones_apiserver.kinds import Kind
from tests.places import ROOT

Spec = dict[str, Any]
PAGE = ROOT / "docs/reference/embedded-api-server.md"
_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}
_POD_RULE = {**_RULE, "operations": ["CREATE"], "resources": ["pods"]}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


def write(server: ApiServer, plural: str, name: str, spec: Spec, *, group: str = "") -> Any:
    kind = server.kind(plural, group or "admissionregistration.k8s.io")
    return server.writes.create(kind, "", {"metadata": {"name": name}, "spec": spec}, WriteOptions("test"))


def install(
    server: ApiServer, name: str, *expressions: str, binding: Spec | None = None, **spec: Any
) -> None:
    """A mutating policy whose mutations are the given expressions, and its binding."""
    mutations = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}
        if "JSONPatch" in text
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
        for text in expressions
    ]
    body = {
        "matchConstraints": {"resourceRules": [_RULE]},
        "reinvocationPolicy": "Never",
        "mutations": mutations,
        **spec,
    }
    write(server, "mutatingadmissionpolicies", name, body)
    write(server, "mutatingadmissionpolicybindings", name, {"policyName": name, **(binding or {})})


def config_map(server: ApiServer, name: str = "c", **data: str) -> Any:
    body = {"metadata": {"name": name}, "data": {"a": "b", **data}}
    return server.writes.create(server.kind("configmaps"), "default", body, WriteOptions("test"))


def pod(name: str = "p", *, cpu: str = "", owner: str = "", **spec: Any) -> Spec:
    container: Spec = {"name": "c", "image": "i"}
    if cpu:
        container["resources"] = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    metadata: Spec = {"name": name}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": True}
        ]
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


# --- order and reinvocation ------------------------------------------------------------------


async def test_policies_apply_in_order_of_name_and_mutations_in_theirs(server: ApiServer) -> None:
    append = 'Object{{data: Object.data{{order: object.data[?"order"].orValue("") + "{}"}}}}'
    for name in ("third", "first", "second"):
        install(server, name, append.format(name[0]), append.format(name[0].upper()))
    assert config_map(server)["data"]["order"] == "fFsStT"


async def test_a_policy_is_evaluated_again_once_at_most(server: ApiServer) -> None:
    count = 'Object{data: Object.data{count: string(int(object.data[?"count"].orValue("0")) + 1)}}'
    for name in ("a", "b", "c"):
        install(server, name, count, reinvocationPolicy="IfNeeded")
    assert config_map(server)["data"]["count"] == "6"


async def test_what_is_evaluated_again_sees_what_others_made(server: ApiServer) -> None:
    copied = "has(object.data.late) ? Object{data: Object.data{copied: object.data.late}} : Object{}"
    install(server, "a-copies", copied, reinvocationPolicy="IfNeeded")
    install(server, "b-adds", 'Object{data: Object.data{late: "x"}}')
    assert config_map(server)["data"] == {"a": "b", "late": "x", "copied": "x"}


async def test_policy_changes_and_deletions_take_effect_immediately(server: ApiServer) -> None:
    install(server, "p", 'Object{data: Object.data{v: "1"}}')
    assert config_map(server, "one")["data"]["v"] == "1"
    kind = server.kind("mutatingadmissionpolicies", "admissionregistration.k8s.io")
    patch = {
        "spec": {
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": 'Object{data: Object.data{v: "2"}}'},
                }
            ]
        }
    }
    server.writes.patch(kind, "", "p", "application/merge-patch+json", patch, WriteOptions("test"))
    assert config_map(server, "two")["data"]["v"] == "2"
    bindings = server.kind("mutatingadmissionpolicybindings", "admissionregistration.k8s.io")
    server.writes.delete(bindings, "", "p", _delete_options())
    assert "v" not in config_map(server, "three")["data"]


def _delete_options() -> Any:
    from numazones_apiserver.writes import DeleteOptions  # noqa: PLC0415 - not part of the public face

    return DeleteOptions()


async def test_write_without_change_stays_one_under_an_idempotent_policy(
    server: ApiServer,
) -> None:
    install(server, "p", 'Object{data: Object.data{v: "1"}}')
    first = config_map(server)
    again = server.writes.replace(
        server.kind("configmaps"), "default", "c", copy.deepcopy(first), WriteOptions("test")
    )
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


# --- other versions of a resource ------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "version", "marked"),
    [("Equivalent", "v2", True), ("Exact", "v2", False), ("Exact", "v1", True)],
)
async def test_a_rule_for_another_version_matches_where_equivalents_do(
    server: ApiServer, definition: Any, policy: str, version: str, *, marked: bool
) -> None:
    body = definition()
    first = body["spec"]["versions"][0]
    body["spec"]["versions"] = [first, {**copy.deepcopy(first), "name": "v2", "storage": False}]
    definitions = server.kind("customresourcedefinitions", "apiextensions.k8s.io")
    server.writes.create(definitions, "", body, WriteOptions("test"))
    rule = {
        **_RULE,
        "apiGroups": ["contract.example.com"],
        "apiVersions": [version],
        "resources": ["widgets"],
    }
    mark = 'Object{metadata: Object.metadata{annotations: {"seen": object.apiVersion + " " + request.kind.version + " " + request.requestKind.version}}}'
    install(server, "p", mark, matchConstraints={"resourceRules": [rule], "matchPolicy": policy})
    kind = server.kind("widgets", "contract.example.com", "v1")
    widget = server.writes.create(
        kind, "default", {"metadata": {"name": "w"}, "spec": {"size": 1}}, WriteOptions("test")
    )
    assert widget["apiVersion"] == "contract.example.com/v1"
    seen = widget["metadata"].get("annotations", {}).get("seen")
    assert seen == (f"contract.example.com/{version} {version} v1" if marked else None)


# --- whom a policy is for --------------------------------------------------------------------


def _namespaced(server: ApiServer, labels: dict[str, str]) -> None:
    body = {"metadata": {"name": "team", "labels": labels}}
    server.writes.create(server.kind("namespaces"), "", body, WriteOptions("test"))


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"gate": "on"}}, True),
        ({"matchLabels": {"gate": "off"}}, False),
        ({"matchExpressions": [{"key": "gate", "operator": "In", "values": ["on", "maybe"]}]}, True),
        ({"matchExpressions": [{"key": "gate", "operator": "DoesNotExist"}]}, False),
    ],
)
async def test_namespaces_are_selected_by_their_labels(
    server: ApiServer, selector: Spec, *, matches: bool
) -> None:
    _namespaced(server, {"gate": "on"})
    matcher = Matcher(server.store, server.registry)
    resources = {"namespaceSelector": selector, "resourceRules": [{**_RULE, "resources": ["*"]}]}

    def matched(kind: Kind, namespace: str, obj: Spec) -> bool:
        review = Review(CREATE, kind, namespace, "x", obj, None, User("u"))
        return matcher.matched_kind(resources, review) is not None

    assert matched(server.kind("configmaps"), "team", {"metadata": {"name": "x"}}) is matches
    # A namespace is selected by its own labels, and what is in none always is.
    assert (
        matched(server.kind("namespaces"), "new", {"metadata": {"name": "new", "labels": {"gate": "on"}}})
        is matches
    )
    assert matched(server.kind("nodes"), "", {"metadata": {"name": "n"}})


async def test_an_object_is_selected_by_what_it_was_too(server: ApiServer) -> None:
    matcher = Matcher(server.store, server.registry)
    resources = {"objectSelector": {"matchLabels": {"a": "b"}}, "resourceRules": [_RULE]}
    old: Spec = {"metadata": {"labels": {"a": "b"}}}
    new: Spec = {"metadata": {}}
    kind = server.kind("configmaps")
    assert matcher.matched_kind(resources, Review(UPDATE, kind, "default", "x", new, old)) is kind
    assert matcher.matched_kind(resources, Review(UPDATE, kind, "default", "x", new, new)) is None


# --- a policy as it may be shipped -----------------------------------------------------------

_GATE_CONDITIONS = {
    "not-bound": "!has(object.spec.nodeName) || object.spec.nodeName == ''",
    "not-of-a-daemon-set": "!object.metadata.?ownerReferences.orValue([]).exists(one, one.kind == 'DaemonSet')",
    "not-gated": "!object.spec.?schedulingGates.orValue([]).exists(one, one.name == 'numazones.io/admission')",
    "whole-cpus": """
        object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && 'cpu' in c.resources.limits
        && quantity(c.resources.limits['cpu']).isInteger()
        && quantity(c.resources.limits['cpu']).compareTo(quantity(params.data.leastCPUs)) >= 0)""",
}
_GATE = """
    [JSONPatch{
      op: "add",
      path: has(object.spec.schedulingGates) ? "/spec/schedulingGates/-" : "/spec/schedulingGates",
      value: has(object.spec.schedulingGates) ? dyn({"name": "numazones.io/admission"}) : dyn([{"name": "numazones.io/admission"}])
    }]"""


@pytest.mark.parametrize(
    ("namespace", "body", "gated"),
    [
        ("team", pod(cpu="4"), True),
        ("team", pod(cpu="4000m"), True),
        ("team", pod(cpu="4", schedulingGates=[{"name": "other"}]), True),
        ("team", pod(cpu="4", schedulingGates=[{"name": "numazones.io/admission"}]), True),
        ("team", pod(cpu="1"), False),
        ("team", pod(cpu="2500m"), False),
        ("team", pod(), False),
        ("team", pod(cpu="4", nodeName="n"), False),
        ("team", pod(cpu="4", owner="DaemonSet"), False),
        ("team", pod(cpu="4", owner="ReplicaSet"), True),
        ("default", pod(cpu="4"), False),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
async def test_policy_adds_a_gate_to_matching_pods(
    server: ApiServer, namespace: str, body: Spec, *, gated: bool, enabled: bool
) -> None:
    _namespaced(server, {"numazones.io/admission-gate": "enabled"})
    selector = {"matchLabels": {"numazones.io/admission-gate": "enabled"}}
    install(
        server,
        "gate",
        _GATE,
        failurePolicy="Ignore",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConstraints={"namespaceSelector": selector, "resourceRules": [_POD_RULE]},
        matchConditions=[{"name": name, "expression": text} for name, text in _GATE_CONDITIONS.items()],
        binding={
            "paramRef": {"name": "gate", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
        },
    )
    if enabled:
        parameters = {"metadata": {"name": "gate"}, "data": {"leastCPUs": "2"}}
        server.writes.create(server.kind("configmaps"), "kube-system", parameters, WriteOptions("test"))
    own = body["spec"].get("schedulingGates", [])
    made = server.writes.create(server.kind("pods"), namespace, copy.deepcopy(body), WriteOptions("test"))
    gates = [gate["name"] for gate in made["spec"].get("schedulingGates", [])]
    before = [gate["name"] for gate in own]
    expected = list(dict.fromkeys([*before, "numazones.io/admission"])) if gated and enabled else before
    assert gates == expected
    conditions = made["status"].get("conditions", [])
    assert [one["reason"] for one in conditions] == (["SchedulingGated"] if gates else [])


async def test_documented_policy_does_what_its_page_says(server: ApiServer) -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    write(server, "mutatingadmissionpolicies", "gate", yaml.safe_load(example)["spec"])
    write(server, "mutatingadmissionpolicybindings", "gate", {"policyName": "gate"})
    _namespaced(server, {"example.com/gate": "enabled"})
    gates = []
    for namespace, body in (("team", pod("p")), ("team", pod("bound", nodeName="n")), ("default", pod("p"))):
        made = server.writes.create(server.kind("pods"), namespace, body, WriteOptions("test"))
        gates.append(made["spec"].get("schedulingGates"))
    assert gates == [[{"name": "example.com/gate"}], None, None]


# --- hostile expressions ---------------------------------------------------------------------

_TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
_LONG = "'" + "a" * 1000 + "'"
# What is refused when it is written, and what of the answer says so.
_REFUSED = {
    "deep": ("(" * 500 + "1" + ")" * 500, "recursion limit exceeded"),
    "deep-lists": ("[" * 500 + "]" * 500, "recursion limit exceeded"),
    "deep-fields": ("object" + ".a" * 500, "recursion depth"),
    "deep-objects": ("Object{a: " * 200 + "1" + "}" * 200, "recursion limit exceeded"),
    "long": ("'a' == " + "'" + "a" * 40_000 + "'", "longer than 32768 characters"),
    "empty-selection": ("object..a", "Syntax error"),
    "unclosed-string": ("'abc", "Syntax error"),
    "unclosed-object": ("Object{a: 1", "Syntax error"),
    "control-characters": ("'\x00' + \x01", "Syntax error"),
    "no-patch": ("'text'", "must evaluate to list(JSONPatch) but got string"),
    "a-map": ("{'op': 'add'}", "must evaluate to list(JSONPatch) but got map"),
    "unknown-function": ("[JSONPatch{op: exec('id')}]", "undeclared reference to 'exec'"),
    "unknown-name": ("[JSONPatch{op: __import__}]", "undeclared reference to '__import__'"),
    "growing-optionals": (
        "[JSONPatch{value: optional.of('a')" + ".optMap(x, x + x)" * 20 + "}]",
        "optMap and optFlatMap more than 8 times",
    ),
    "bytes-for-a-quantity": ("[JSONPatch{op: string(b'abc'.asInteger())}]", "no matching overload"),
}
# What is accepted and fails for every object.
_FAILING = {
    "endless": (
        f"{_TEN}.all(a, {_TEN}.all(b, {_TEN}.all(c, {_TEN}.all(d, {_TEN}.all(e, {_TEN}.all(f, true)))))) ? [JSONPatch{{op: 'x'}}] : []",
        "actual cost limit exceeded",
    ),
    "endless-map": (
        f"{_TEN}.map(a, {_TEN}.map(b, {_TEN}.map(c, {_TEN}.map(d, {_TEN}.map(e, {_TEN}.map(f, 'x')))))).size() > 0 ? [JSONPatch{{}}] : []",
        "actual cost limit exceeded",
    ),
    "growing-replace": (
        "[JSONPatch{op: 'a'" + ".replace('a', 'aaaaaaaaaa')" * 20 + "}]",
        "more than a million elements",
    ),
    "growing-join": (
        f"[JSONPatch{{op: {_TEN}.map(x, 'a').join({_LONG})" + f".replace('a', {_LONG})" * 2 + "}]",
        "more than a million elements",
    ),
    "growing": (
        f"[JSONPatch{{op: [{_LONG}]" + ".map(x, x + x + x + x)" * 12 + "[0]}]",
        "more than a million elements",
    ),
    "growing-lists": ("[JSONPatch{value: [[1]]" + ".map(x, [x, x])" * 20 + "}]", "too many values"),
    "no-operation": ("[JSONPatch{}]", "JSON Patch"),
    "no-such-operation": ("[JSONPatch{op: 'explode', path: '/data/a'}]", "JSON Patch"),
    "no-pointer": ("[JSONPatch{op: 'add', path: 'data', value: 'x'}]", "JSON Patch"),
    "number-for-text": ("[JSONPatch{op: 1, path: '/data/a'}]", "op of a JSONPatch must be a string"),
    "unknown-field": (
        "[JSONPatch{op: 'remove', path: '/data/a', force: true}]",
        "JSONPatch has no field 'force'",
    ),
    "a-map-among-patches": (
        "[JSONPatch{op: 'remove', path: '/data/a'}, dyn({'op': 'x'})]",
        "should evaluate to array of JSONPatch",
    ),
    "a-type-as-value": ("[JSONPatch{op: 'add', path: '/data/c', value: int}]", "cannot be converted to JSON"),
    "an-optional-value": ("[JSONPatch{op: 'add', path: '/data/c', value: object.?data}]", "orValue"),
    "a-quantity-as-value": (
        "[JSONPatch{op: 'add', path: '/data/c', value: quantity('1')}]",
        "a quantity cannot be converted to JSON",
    ),
    "keys-that-are-numbers": (
        "[JSONPatch{op: 'add', path: '/data', value: {1: 'a'}}]",
        "cannot be a JSON field name",
    ),
    "optional-values": ("[JSONPatch{op: 'add', path: '/data/c', value: [{'a': object.?data}]}]", "orValue"),
    "growing-format": (
        "[JSONPatch{op: '%s%s'.format(["
        + f"{_TEN}.map(x, {_LONG}).join(','), " * 2
        + "''])"
        + f".replace('a', {_LONG})"
        + "}]",
        "more than a million elements",
    ),
    "many-values": (
        "[JSONPatch{op: 'add', path: '/data', value: [[1, 2]]" + ".map(x, [x, x, x, x])" * 8 + "}]",
        "too many values",
    ),
    "overflow": ("[JSONPatch{op: string(9223372036854775807 + size(object.data))}]", "overflow"),
    "division": ("[JSONPatch{op: string(1 / (size(object.data) - size(object.data)))}]", "division by zero"),
    "wrong-function": ("[JSONPatch{op: object.data.startsWith('a') ? 'x' : 'y'}]", "no such overload"),
    "no-quantity": (
        "[JSONPatch{op: string(quantity(object.data.a).asInteger())}]",
        "quantities must match",
    ),
    "a-map-for-a-quantity": ("[JSONPatch{op: string(object.data.asInteger())}]", "no such overload"),
}


@pytest.mark.parametrize(("expression", "text"), _REFUSED.values(), ids=_REFUSED)
async def test_hopeless_expression_is_rejected_naming_its_field(
    server: ApiServer, expression: str, text: str
) -> None:
    spec = {
        "matchConstraints": {"resourceRules": [_RULE]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    with pytest.raises(StatusError) as raised:
        write(server, "mutatingadmissionpolicies", "p", spec)
    assert (raised.value.code, raised.value.reason) == (422, "Invalid")
    [cause] = (raised.value.details or {})["causes"]
    assert cause["field"] == "spec.mutations[0].jsonPatch.expression"
    assert text in cause["message"]


@pytest.mark.parametrize(("expression", "text"), _FAILING.values(), ids=_FAILING)
async def test_failing_expression_denies_or_is_ignored_by_failure_policy(
    server: ApiServer, expression: str, text: str
) -> None:
    rules = {"resourceRules": [{**_RULE, "resourceNames": ["denied"]}]}
    install(server, "fails", expression, matchConstraints=rules)
    install(server, "ignored", expression, failurePolicy="Ignore")
    with pytest.raises(StatusError) as raised:
        config_map(server, "denied")
    assert (raised.value.code, raised.value.reason) == (403, "Invalid")
    assert text in raised.value.message
    assert config_map(server)["data"] == {"a": "b"}


async def test_numbers_too_large_for_the_language_fail_only_the_policy(
    server: ApiServer, definition: Any
) -> None:
    definitions = server.kind("customresourcedefinitions", "apiextensions.k8s.io")
    server.writes.create(definitions, "", definition(), WriteOptions("test"))
    rule = {**_RULE, "apiGroups": ["contract.example.com"], "resources": ["widgets"]}
    condition = {"name": "large", "expression": "object.spec.free.a > 0"}
    install(
        server,
        "p",
        "Object{spec: Object.spec{size: 2}}",
        matchConditions=[condition],
        matchConstraints={"resourceRules": [rule]},
        failurePolicy="Ignore",
    )
    kind = server.kind("widgets", "contract.example.com")
    for number, size in ((1, 2), (10**30, 1)):
        body = {"metadata": {"name": f"w{size}"}, "spec": {"size": 1, "free": {"a": number}}}
        assert server.writes.create(kind, "default", body, WriteOptions("test"))["spec"]["size"] == size


@given(st.text(alphabet=string.printable, max_size=60), st.randoms(use_true_random=False))
def test_no_text_does_more_than_be_refused_or_fail(noise: str, chance: random.Random) -> None:
    sound = 'true ? [JSONPatch{op: "add", path: "/a", value: object.data.map(k, k + variables.v)}] : [JSONPatch{}]'
    at = chance.randrange(len(sound))
    expressions = Expressions(params=False)
    expressions.declare("v", "'x'")
    evaluation = Evaluation(
        {"object": {"data": {"a": "b"}}, "oldObject": None, "request": {}, "namespaceObject": None}
    )
    for text in (noise, sound[:at] + noise + sound[at:], sound[:at] + sound[at + len(noise) :]):
        for result in (OBJECT, PATCHES):
            try:
                expressions.evaluate(expressions.compile(text, result), evaluation)
            except (InvalidPolicyExpression, FailedExpression) as error:
                assert str(error)  # noqa: PT017 - either is as good


# --- the translation -------------------------------------------------------------------------

_TYPE = '"\\u0001type"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Object{}", f'{{{_TYPE}: "Object"}}'),
        ("Object.spec{a: 1, ?b: c}", f'{{{_TYPE}: "Object.spec", "a": 1, ?"b": c}}'),
        ("Object{`a/b`: 1}", f'{{{_TYPE}: "Object", "a/b": 1}}'),
        (
            "Object{a: Object.a{b: {c: d}}}",
            f'{{{_TYPE}: "Object", "a": {{{_TYPE}: "Object.a", "b": {{c: d}}}}}}',
        ),
        ("x ? Object{a: 1} : Object{}", f'x ? {{{_TYPE}: "Object", "a": 1}} : {{{_TYPE}: "Object"}}'),
        ("'Object{a: 1}' + r'\\' + \"variables.v\"", None),
        ('"""Object{a: "b"}"""', None),
        ("// Object{a: 1}\n1", None),
        ("object.Object{a: 1}", None),
        ("Object{a: 1", None),
        ('{?"a": b[?"c"], "d": e}', '{?"a": (b[?"c"]).or(optional.none()), "d": e}'),
        ('{?"a": b.?c}', None),
    ],
)
def test_an_expression_is_put_into_terms_that_the_library_knows(text: str, expected: str | None) -> None:
    found = translation(text, objects=True)
    assert found.text == (expected if expected is not None else text)
    assert len(found.origins) == len(found.text) + 1


def test_objects_are_made_in_mutations_only() -> None:
    assert translation("Object{a: 1}", objects=False).text == "Object{a: 1}"


@given(st.text(alphabet="Object{}[]().,:?'\"` variables.v_map+1\n\\", max_size=80))
def test_places_in_a_translation_come_from_places_in_the_text(text: str) -> None:
    found = translation(text, objects=True)
    assert len(found.origins) == len(found.text) + 1
    assert list(found.origins) == sorted(found.origins)
    assert all(0 <= origin <= len(text) for origin in found.origins)
    for line, row in enumerate(found.text.split("\n"), 1):
        for column in range(1, len(row) + 2):
            back = original_place(text, found, line, column)
            assert back[0] >= 1
            assert back[1] >= 1


# --- what variables may hold -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "expression", "expected"),
    [
        ("object.data", "variables.v.a", "b"),
        ("timestamp('2026-01-01T00:00:00Z')", "variables.v < timestamp('2026-02-01T00:00:00Z')", True),
        ("duration('90m')", "variables.v.getMinutes()", 90),
        ("b'abc'", "variables.v == b'abc'", True),
        ("[b'abc', b'd']", "variables.v.size()", 2),
        ("2u", "variables.v + 1u", 3),
        ("object.?data.a", "variables.v.orValue('none')", "b"),
        ("object.?data.z", "variables.v.orValue('none')", "none"),
        ("quantity('2')", "variables.v.asInteger()", 2),
        ("null", "variables.v == null", True),
        ("object.data.z", "false && variables.v == 'a'", False),
        ("object.data.z", "true || variables.v == 'a'", True),
    ],
)
def test_a_variable_is_what_its_expression_is(variable: str, expression: str, expected: Any) -> None:
    expressions = Expressions(params=False)
    expressions.declare("v", variable)
    values: Spec = {"object": {"data": {"a": "b"}}, "oldObject": None, "request": {}, "namespaceObject": None}
    assert expressions.evaluate(expressions.compile(expression), Evaluation(values)) == expected


_CHECK = "authorizer.serviceAccount('n', 'a').group('apps').resource('deployments')"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{_CHECK}.subresource('scale').namespace('n').name('d').check('update').allowed()", True),
        ("authorizer.path('/healthz').check('get').allowed()", True),
        (f"{_CHECK}.check('get').errored()", False),
        (f"{_CHECK}.check('get').reason() + {_CHECK}.check('get').error()", ""),
    ],
)
def test_the_authorizer_allows_what_the_server_does(expression: str, expected: Any) -> None:
    expressions = Expressions(params=False)
    assert expressions.evaluate(expressions.compile(expression), Evaluation({})) == expected


@pytest.mark.parametrize(
    "expression",
    ["authorizer.allowed()", "authorizer.check('get').allowed()", f"{_CHECK}.allowed()", "b'x'.group('')"],
)
def test_a_step_of_the_authorizer_that_there_is_not_fails(expression: str) -> None:
    expressions = Expressions(params=False)
    with pytest.raises(FailedExpression, match="no such overload"):
        expressions.evaluate(expressions.compile(expression), Evaluation({}))


def test_a_variable_is_evaluated_once_for_a_request() -> None:
    expressions = Expressions(params=False)
    expressions.declare("v", f"'aaaa'.replace('a', '{'b' * 30_000}').size()")
    values: Spec = {"object": {}, "oldObject": None, "request": {}, "namespaceObject": None}
    # What a hundred evaluations would make is beyond the limit of one.
    program = expressions.compile(" && ".join(["variables.v > 0"] * 100))
    assert expressions.evaluate(program, Evaluation(values)) is True
