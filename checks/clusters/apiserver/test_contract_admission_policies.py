# ruff: noqa: E501 - tables of cases read by rows
"""Admission policies as a real kube-apiserver evaluates them: matching, patches, parameters, failures, answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

Spec = dict[str, Any]
_ROOT = "/apis/admissionregistration.k8s.io/v1"
_MARK = "policies.example.com"


def rule(resources: str = "configmaps", group: str = "", operations: str = "CREATE", **more: Any) -> Spec:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": operations.split(","),
        "resources": resources.split(","),
        **more,
    }


def constraints(*rules: Spec, **more: Any) -> Spec:
    return {"resourceRules": list(rules) or [rule()], **more}


def json_patch(expression: str) -> Spec:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def configuration(expression: str) -> Spec:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def mark(name: str, value: str = '"yes"') -> Spec:
    """A mutation that annotates the object."""
    return configuration(
        f"Object{{metadata: Object.metadata{{annotations: {{{_MARK!r} + '/{name}': {value}}}}}}}"
    )


def mutating(*mutations: Spec, **spec: Any) -> Spec:
    return {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": constraints(),
        "mutations": list(mutations),
        **spec,
    }


def named(case: str, **more: Any) -> Spec:
    """Constraints that only an object of one name meets."""
    return constraints(rule(resourceNames=[case], **more))


def marks(answer: Any) -> set[str]:
    annotations = answer.body["metadata"].get("annotations") or {}
    return {key.partition("/")[2] for key in annotations if key.startswith(_MARK)}


async def eventually(api: Any, ask: Callable[[], Awaitable[Any]], done: Callable[[Any], bool]) -> Any:
    """The answer once it is as expected; the embedded server gives it at once, a real one when its caches know."""
    async with asyncio.timeout(120):
        while True:
            answer = await ask()
            if done(answer) or not api.real:
                break
            await asyncio.sleep(0.2)
    assert done(answer), answer
    return answer


def is_known(answer: Any) -> bool:
    """Return whether the server knows the kind's schema, without which policies cannot mutate objects."""
    return bool(answer.code != 503)


class Cluster:
    """A server with the policies of one test, which hold in one namespace."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.created: list[str] = []

    async def add(self, name: str, spec: Spec, kind: str = "Mutating", **binding: Any) -> Any:
        """Create a policy and its binding; both hold in the test's namespace only."""
        name = f"{self.api.namespace}-{name}"
        plural = f"{kind.lower()}admissionpolic"
        policy = await self._create(f"{plural}ies", {"metadata": {"name": name}, "spec": spec})
        if policy.code != 201:
            return policy
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.api.namespace}}
        resources = {"namespaceSelector": selector, **binding.pop("matchResources", {})}
        body = {"policyName": name, "matchResources": resources, **binding}
        if kind == "Validating":
            body.setdefault("validationActions", ["Deny"])
        answer = await self._create(f"{plural}ybindings", {"metadata": {"name": name}, "spec": body})
        assert answer.code == 201, answer.body.get("message")
        return policy

    async def _create(self, plural: str, body: Spec) -> Any:
        answer = await self.api.post(f"{_ROOT}/{plural}", body)
        if answer.code == 201:
            self.created.append(f"{_ROOT}/{plural}/{body['metadata']['name']}")
        return answer

    async def settle(self, kind: str = "Mutating") -> None:
        """Wait until what was created holds: a policy that is created last does."""
        name = f"settled-{kind.lower()}"
        if kind == "Mutating":
            spec = mutating(mark("settled"), matchConstraints=named(name))
        else:
            spec = {"validations": [{"expression": "false"}], "matchConstraints": named(name)}
        await self.add(name, spec, kind)
        await eventually(
            self.api,
            lambda: self.configmap(name, dryRun="All"),
            lambda answer: answer.code != 201 or "settled" in marks(answer),
        )

    async def configmap(self, name: str, labels: Mapping[str, str] | None = None, **query: Any) -> Any:
        body = {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "data": {"a": "b"}}
        return await self.api.post(self.api.core("configmaps"), body, **query)


@pytest.fixture
async def cluster(api: Any) -> Any:
    found = Cluster(api)
    yield found
    for path in reversed(found.created):
        await api.delete(path)


# --- matching --------------------------------------------------------------------------------

_MATCHING: dict[str, tuple[Spec, str]] = {
    "configmaps": (constraints(), "create"),
    "update": (constraints(rule(operations="UPDATE")), "update"),
    "both": (constraints(rule(operations="CREATE,UPDATE")), "create update"),
    "any-operation": (constraints(rule(operations="*")), "create update"),
    "pods": (constraints(rule("pods")), "pod"),
    "two-rules": (constraints(rule("pods"), rule("configmaps")), "create pod"),
    "any-resource": (constraints(rule("*")), "create pod"),
    "any-group": (constraints({**rule("*"), "apiGroups": ["*"]}), "create pod widget"),
    "any-version": (constraints({**rule(), "apiVersions": ["*"]}), "create"),
    "other-version": (constraints({**rule(), "apiVersions": ["v2"]}), ""),
    "other-group": (constraints(rule(group="apps")), ""),
    "widgets": (constraints(rule("widgets", "contract.example.com")), "widget"),
    "pod-status": (constraints(rule("pods/status", operations="UPDATE")), "status"),
    "any-status": (constraints({**rule("*/status", operations="UPDATE"), "apiGroups": ["*"]}), "status"),
    "any-subresource": (
        constraints({**rule("*/*", operations="*"), "apiGroups": ["*"]}),
        "create update pod widget status",
    ),
    "no-subresource": (constraints({**rule("*", operations="UPDATE"), "apiGroups": ["*"]}), "update"),
    "own-and-sub": (constraints(rule("pods/*", operations="*")), "pod status"),
    "namespaced": (constraints(rule(scope="Namespaced")), "create"),
    "cluster": (constraints(rule(scope="Cluster")), ""),
    "by-name": (constraints(rule(resourceNames=["labelled"])), "create"),
    "other-name": (constraints(rule(resourceNames=["nobody"])), ""),
    "excluded": (constraints(excludeResourceRules=[rule()]), ""),
    "excluded-other": (constraints(excludeResourceRules=[rule("pods")]), "create"),
    "object-labels": (constraints(objectSelector={"matchLabels": {"app": "web"}}), "create"),
    "old-labels": (
        constraints(rule(operations="UPDATE"), objectSelector={"matchLabels": {"app": "web"}}),
        "update",
    ),
    "other-labels": (
        constraints(objectSelector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        "",
    ),
    "other-namespace": (
        constraints(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}}),
        "",
    ),
    "exact": (constraints(matchPolicy="Exact"), "create"),
}


async def test_a_policy_is_for_what_its_rules_and_selectors_name(cluster: Any, pod: Any, widget: Any) -> None:
    api = cluster.api
    for name, (resources, _) in _MATCHING.items():
        answer = await cluster.add(name, mutating(mark(name), matchConstraints=resources))
        assert answer.code == 201, answer.body.get("message")
    await cluster.settle()
    made = await eventually(api, lambda: api.post(api.widgets, widget("w")), is_known)
    created = await cluster.configmap("labelled", {"app": "web"})
    plain = created.body | {"metadata": {"name": "labelled"}}
    answers = {
        "create": created,
        "update": await api.put(api.core("configmaps") + "/labelled", plain),
        "pod": await api.post(api.core("pods"), pod()),
        "widget": made,
    }
    status = {"metadata": {"annotations": None}, "status": {"message": "known"}}
    answers["status"] = await api.merge(api.core("pods") + "/p/status", status)
    assert {name: answer.code for name, answer in answers.items()} == {
        "create": 201, "update": 200, "pod": 201, "widget": 201, "status": 200,
    }  # fmt: skip
    found = {what: marks(answer) for what, answer in answers.items()}
    for name, (_, expected) in _MATCHING.items():
        assert {what for what in found if name in found[what]} == set(expected.split()), name


async def test_a_binding_narrows_what_its_policy_is_for(cluster: Any) -> None:
    await cluster.add(
        "narrow", mutating(mark("narrow")), matchResources={"objectSelector": {"matchLabels": {"app": "web"}}}
    )
    await cluster.add(
        "names", mutating(mark("names")), matchResources={"resourceRules": [rule(resourceNames=["two"])]}
    )
    await cluster.add("unbound", mutating(mark("unbound")), policyName="somebody-else")
    await cluster.settle()
    assert marks(await cluster.configmap("one", {"app": "web"})) == {"narrow"}
    assert marks(await cluster.configmap("two")) == {"names"}


async def test_policies_are_not_asked_about_what_configures_admission(cluster: Any) -> None:
    everything = {**rule("*", operations="*"), "apiGroups": ["*"], "apiVersions": ["*"]}
    name = f"{cluster.api.namespace}-everything"
    spec = {
        "validations": [{"expression": "false"}],
        "matchConstraints": constraints(everything, objectSelector={"matchLabels": {"app": name}}),
    }
    await cluster.add("everything", spec, "Validating", matchResources={"namespaceSelector": {}})
    await cluster.settle("Validating")
    labels = {"app": name}
    assert (await cluster.configmap("labelled", labels)).code == 422
    path = f"{_ROOT}/validatingadmissionpolicies/{name}"
    assert (await cluster.api.merge(path, {"metadata": {"labels": labels}})).code == 200
    assert (
        await cluster.api.merge(path, {"metadata": {"labels": labels, "annotations": {"a": "b"}}})
    ).code == 200


# --- patches ---------------------------------------------------------------------------------

# What a policy says of a config map {data: {a: b}} named "case", and what comes of it: data, or code, reason and text.
_PATCHES: dict[str, tuple[Spec, Any]] = {
    "add": (json_patch('[JSONPatch{op: "add", path: "/data/c", value: "d"}]'), {"a": "b", "c": "d"}),
    "two": (json_patch('[JSONPatch{op: "add", path: "/data/c", value: "d"}, JSONPatch{op: "remove", path: "/data/a"}]'), {"c": "d"}),
    "test-holds": (json_patch('[JSONPatch{op: "test", path: "/data/a", value: "b"}, JSONPatch{op: "replace", path: "/data/a", value: "c"}]'), {"a": "c"}),
    "test-fails": (json_patch('[JSONPatch{op: "test", path: "/data/a", value: "x"}, JSONPatch{op: "replace", path: "/data/a", value: "c"}]'), {"a": "b"}),
    "copy": (json_patch('[JSONPatch{op: "copy", from: "/data/a", path: "/data/c"}]'), {"a": "b", "c": "b"}),
    "move": (json_patch('[JSONPatch{op: "move", from: "/data/a", path: "/data/c"}]'), {"c": "b"}),
    "escaped": (json_patch('[JSONPatch{op: "add", path: "/data/" + jsonpatch.escapeKey("x.y"), value: "d"}]'), {"a": "b", "x.y": "d"}),
    "conditional": (json_patch('has(object.data.a) ? [JSONPatch{op: "add", path: "/data/c", value: "d"}] : []'), {"a": "b", "c": "d"}),
    "nothing": (json_patch('has(object.data.z) ? [JSONPatch{op: "add", path: "/data/c", value: "d"}] : []'), {"a": "b"}),
    "for-each": (json_patch('object.data.map(k, JSONPatch{op: "add", path: "/data/" + k + k, value: object.data[k]})'), {"a": "b", "aa": "b"}),
    "map-value": (json_patch('[JSONPatch{op: "add", path: "/data", value: {"c": "d"}}]'), {"c": "d"}),
    "object-value": (json_patch('[JSONPatch{op: "add", path: "/data", value: Object.data{c: "d"}}]'), {"c": "d"}),
    "merge": (configuration('Object{data: {"c": "d"}}'), {"a": "b", "c": "d"}),
    "merge-object": (configuration("Object{data: Object.data{c: object.data.a}}"), {"a": "b", "c": "b"}),
    "merge-replaces": (configuration('Object{data: Object.data{a: "c"}}'), {"a": "c"}),
    "merge-optional": (configuration('Object{data: Object.data{?c: object.data[?"a"], ?d: object.data[?"z"]}}'), {"a": "b", "c": "b"}),
    "merge-nothing": (configuration("Object{}"), {"a": "b"}),
    "conditional-merge": (configuration('object.data.a == "b" ? Object{data: Object.data{c: "d"}} : Object{}'), {"a": "b", "c": "d"}),
    "missing-path": (json_patch('[JSONPatch{op: "remove", path: "/data/z"}]'), (403, "Invalid", "JSON Patch: ")),
    "missing-parent": (json_patch('[JSONPatch{op: "add", path: "/metadata/labels/a", value: "b"}]'), (403, "Invalid", "JSON Patch: ")),
    "unknown-operation": (json_patch('[JSONPatch{op: "increase", path: "/data/a"}]'), (403, "Invalid", "JSON Patch: ")),
    "no-such-key": (json_patch('[JSONPatch{op: "add", path: "/data/c", value: object.data.z}]'), (403, "Invalid", "resulted in error: no such key: z")),
    "wrong-type-of-data": (json_patch('[JSONPatch{op: "add", path: "/data/c", value: 5}]'), (500, "InternalError", "Internal error occurred: ")),
    "unknown-field": (json_patch('[JSONPatch{op: "add", path: "/datum", value: "d"}]'), (500, "InternalError", "Internal error occurred: ")),
    "merge-unknown-field": (configuration('Object{datum: "c"}'), (403, "Invalid", ".datum: field not declared in schema")),
    "merge-wrong-type": (configuration("Object{data: Object.data{c: 5}}"), (403, "Invalid", "error applying patch: ")),
    "wrong-type-name": (configuration('Object{data: Object.spec{c: "d"}}'), (403, "Invalid", 'type mismatch: unexpected type name "Object.spec", expected "Object.data"')),
    "division": (json_patch('[JSONPatch{op: "add", path: "/data/c", value: string(1 / size(object.data.z))}]'), (403, "Invalid", "resulted in error: ")),
}  # fmt: skip


async def test_mutations_patch_the_object(cluster: Any) -> None:
    for name, (mutation, _) in _PATCHES.items():
        answer = await cluster.add(name, mutating(mutation, matchConstraints=named(name)))
        assert answer.code == 201, (name, answer.body.get("message"))
    await cluster.settle()
    for name, (_, expected) in _PATCHES.items():
        answer = await cluster.configmap(name)
        if isinstance(expected, dict):
            assert answer.code == 201, (name, answer.body.get("message"))
            assert answer.body["data"] == expected, name
        else:
            code, reason, text = expected
            assert (answer.code, answer.body["reason"]) == (code, reason), (name, answer.body)
            assert text in answer.body["message"], name


async def test_a_failing_mutation_says_which_policy_it_is(cluster: Any) -> None:
    await cluster.add(
        "broken", mutating(json_patch('[JSONPatch{op: "add", path: "/data/c", value: object.data.z}]'))
    )
    await cluster.settle()
    answer = await cluster.configmap("a")
    name = f"{cluster.api.namespace}-broken"
    text = (
        f"policy '{name}' with binding '{name}' denied request: "
        """expression '[JSONPatch{op: "add", path: "/data/c", value: object.data.z}]' resulted in error: no such key: z"""
    )
    assert answer.body["message"] == text
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "causes": [{"message": text}]}


async def test_what_fails_is_ignored_where_the_policy_says_so(cluster: Any) -> None:
    broken = [
        json_patch('[JSONPatch{op: "add", path: "/data/c", value: object.data.z}]'),
        json_patch('[JSONPatch{op: "remove", path: "/data/z"}]'),
        configuration('Object{datum: "c"}'),
        configuration('Object{data: Object.spec{c: "d"}}'),
        configuration('Object{data: Object.data{c: "d"}}'),
    ]
    await cluster.add("ignored", mutating(*broken, failurePolicy="Ignore"))
    wrong = [json_patch('[JSONPatch{op: "add", path: "/datum", value: "d"}]')]
    await cluster.add(
        "no-object", mutating(*wrong, failurePolicy="Ignore", matchConstraints=named("no-object"))
    )
    await cluster.settle()
    assert (await cluster.configmap("a")).body["data"] == {"a": "b", "c": "d"}
    # What leaves no object at all is an error whatever the policy says.
    assert (await cluster.configmap("no-object")).code == 500


async def test_pods_get_gates_containers_and_defaults_from_policies(cluster: Any, pod: Any) -> None:
    pods = constraints(rule("pods"))
    gate = '[JSONPatch{op: "add", path: has(object.spec.schedulingGates) ? "/spec/schedulingGates/-" : "/spec/schedulingGates", value: has(object.spec.schedulingGates) ? dyn({"name": "example.com/gate"}) : dyn([{"name": "example.com/gate"}])}]'
    sidecar = """Object{spec: Object.spec{initContainers: [Object.spec.initContainers{
        name: "mesh", image: "registry.example/mesh:1", restartPolicy: "Always"}]}}"""
    atomic = 'Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "a"}]}}'
    await cluster.add(
        "gate",
        mutating(
            json_patch(gate),
            matchConstraints=constraints(rule("pods", resourceNames=["gated", "gated-twice"])),
        ),
    )
    await cluster.add("sidecar", mutating(configuration(sidecar), matchConstraints=pods))
    await cluster.add(
        "atomic", mutating(configuration(atomic), matchConstraints=named("atomic", resources="pods"))
    )
    await cluster.settle()
    api = cluster.api
    gated = (await api.post(api.core("pods"), pod("gated"))).body
    assert gated["spec"]["schedulingGates"] == [{"name": "example.com/gate"}]
    assert gated["status"]["conditions"][0]["reason"] == "SchedulingGated"
    [mesh] = gated["spec"]["initContainers"]
    assert (mesh["name"], mesh["imagePullPolicy"]) == ("mesh", "IfNotPresent")
    twice = (
        await api.post(api.core("pods"), pod("gated-twice", schedulingGates=[{"name": "example.com/own"}]))
    ).body
    assert twice["spec"]["schedulingGates"] == [{"name": "example.com/own"}, {"name": "example.com/gate"}]
    answer = await api.post(api.core("pods"), pod("atomic"))
    assert "may not mutate atomic arrays, maps or structs: .spec.tolerations" in answer.body["message"]


async def test_nobody_owns_what_a_policy_adds(cluster: Any) -> None:
    await cluster.add(
        "data",
        mutating(
            configuration('Object{data: {"c": "d"}}'),
            matchConstraints=constraints(rule(operations="CREATE,UPDATE")),
        ),
    )
    await cluster.settle()
    created = (await cluster.configmap("owned")).body
    assert created["data"] == {"a": "b", "c": "d"}
    [entry] = created["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:data"] == {".": {}, "f:a": {}}
    api = cluster.api
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}
    applied = (await api.apply(api.core("configmaps") + "/applied", config)).body
    assert applied["data"] == {"a": "b", "c": "d"}
    [entry] = applied["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}
    changed = (await api.merge(api.core("configmaps") + "/owned", {"data": {"c": None, "e": "f"}})).body
    assert changed["data"] == {"a": "b", "c": "d", "e": "f"}


async def test_what_a_policy_makes_of_an_object_is_checked(cluster: Any, widget: Any) -> None:
    widgets = rule("widgets", "contract.example.com", resourceNames=["large"])
    await cluster.add(
        "large",
        mutating(configuration("Object{spec: Object.spec{size: 11}}"), matchConstraints=constraints(widgets)),
    )
    default = rule("widgets", "contract.example.com", resourceNames=["default"])
    await cluster.add(
        "default",
        mutating(
            json_patch('[JSONPatch{op: "add", path: "/spec/items", value: [{"name": object.spec.color}]}]'),
            matchConstraints=constraints(default),
        ),
    )
    await cluster.settle()
    api = cluster.api
    answer = await eventually(api, lambda: api.post(api.widgets, widget("large")), is_known)
    assert (answer.code, answer.causes) == (422, [("spec.size", "FieldValueInvalid")])
    answer = await api.post(api.widgets, widget("default"))
    assert answer.body["spec"]["items"] == [{"name": "red", "weight": 1}]


# --- conditions, variables, what expressions see -----------------------------------------------


async def test_conditions_decide_whether_a_policy_is_evaluated(cluster: Any) -> None:
    true, false, error = (
        {"name": f"c{at}", "expression": text}
        for at, text in enumerate(("true", "false", "object.data.z == 'a'"))
    )
    cases = {
        "holds": ([true], "Fail", 201, True),
        "two-hold": ([true, {**true, "name": "again"}], "Fail", 201, True),
        "one-does-not": ([true, false], "Fail", 201, False),
        "false-outweighs-errors": ([error, false], "Fail", 201, False),
        "error": ([true, error], "Fail", 403, False),
        "ignored-error": ([true, error], "Ignore", 201, False),
    }
    for name, (conditions, policy, _, _) in cases.items():
        spec = mutating(
            mark(name), matchConditions=conditions, failurePolicy=policy, matchConstraints=named(name)
        )
        assert (await cluster.add(name, spec)).code == 201
    await cluster.settle()
    for name, (_, _, code, marked) in cases.items():
        answer = await cluster.configmap(name)
        assert answer.code == code, (name, answer.body)
        assert code != 201 or (name in marks(answer)) == marked, name
        if code == 403:
            assert answer.body["reason"] == "Invalid"
            assert "resulted in error: no such key: z" in answer.body["message"]


async def test_expressions_see_object_request_namespace_and_variables(cluster: Any) -> None:
    seen = {
        "operation": "request.operation",
        "name": "request.name",
        "namespace": "request.namespace",
        "kind": "request.kind.kind + '.' + request.kind.version + '.' + request.kind.group",
        "resource": "request.resource.resource",
        "subresource": "has(request.subResource) ? request.subResource : 'none'",
        "dry": "string(request.dryRun)",
        "user": "request.userInfo.username",
        "old": "oldObject == null ? 'none' : string(oldObject.metadata.name)",
        "label": "string(namespaceObject.metadata.labels['kubernetes.io/metadata.name'])",
        "uid": "has(object.metadata.uid) ? 'some' : 'none'",
        "variable": "string(variables.twice)",
        "lazy": "true || variables.fails == 'x' ? 'yes' : 'no'",
        "optional": "string(variables.perhaps.orValue('nothing'))",
    }
    variables = [
        {"name": "once", "expression": "object.metadata.name"},
        {"name": "twice", "expression": "variables.once + '-' + variables.once"},
        {"name": "fails", "expression": "object.data.z"},
        {"name": "perhaps", "expression": "object.?data.z"},
    ]
    listing = ", ".join(f'"{name}": {expression}' for name, expression in seen.items())
    everything = rule(operations="CREATE,UPDATE", resourceNames=["seen"])
    spec = mutating(
        configuration(f"Object{{metadata: Object.metadata{{annotations: {{{listing}}}}}}}"),
        variables=variables,
        matchConstraints=constraints(everything),
    )
    answer = await cluster.add("seen", spec)
    assert answer.code == 201, answer.body.get("message")
    await cluster.settle()
    namespace = cluster.api.namespace
    created = (await cluster.configmap("seen", dryRun="All")).body
    expected = {
        "operation": "CREATE", "name": "seen", "namespace": namespace, "kind": "ConfigMap.v1.", "resource": "configmaps",
        "subresource": "none", "dry": "true", "user": "admin", "old": "none", "label": namespace, "uid": "none",
        "variable": "seen-seen", "lazy": "yes", "optional": "nothing",
    }  # fmt: skip
    assert created["metadata"]["annotations"] == expected
    await cluster.configmap("seen")
    updated = (await cluster.api.merge(cluster.api.core("configmaps") + "/seen", {"data": {"c": "d"}})).body
    changes = {"operation": "UPDATE", "dry": "false", "old": "seen", "uid": "some"}
    assert updated["metadata"]["annotations"] == {**expected, **changes}


async def test_a_generated_name_is_not_known_to_mutating_policies(cluster: Any) -> None:
    name = "has(object.metadata.name) ? 'known' : 'unknown'"
    await cluster.add("name", mutating(mark("generated", name)))
    await cluster.settle()
    body = {"metadata": {"generateName": "some-"}}
    created = (await cluster.api.post(cluster.api.core("configmaps"), body)).body
    assert created["metadata"]["annotations"] == {f"{_MARK}/generated": "unknown"}
    assert created["metadata"]["name"].startswith("some-")


_QUANTITIES = {
    "quantity('1.5').isGreaterThan(quantity('1'))": True,
    "quantity('500m').isLessThan(quantity('1'))": True,
    "quantity('1Gi') == quantity('1024Mi')": True,
    "quantity('1k').compareTo(quantity('1Ki')) == -1": True,
    "quantity('2').isInteger() && !quantity('2500m').isInteger()": True,
    "quantity('4').asInteger() == 4": True,
    "quantity('1').add(quantity('500m')).compareTo(quantity('1.5')) == 0": True,
    "quantity('3').sub(1).asInteger() == 2": True,
    "sign(quantity('-2')) == -1": True,
    "quantity('2500m').asApproximateFloat() == 2.5": True,
    "isQuantity('1Gi') && !isQuantity('1Gigabyte')": True,
    "quantity(object.data.a).isInteger()": None,
    "object.data.all(k, k.startsWith('a')) && 'abc'.replace('b', 'd') == 'adc'": True,
    "['a', 'b'].join('-') == 'a-b' && 'a,b'.split(',') == ['a', 'b'] && 'A'.lowerAscii() == 'a'": True,
    "'%s-%d'.format(['a', 3]) == 'a-3' && 'abc'.matches('^a.c$') && 'abc'.substring(1) == 'bc'": True,
    "[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6] && [1].exists_one(x, x == 1)": True,
    "object.?data[?'z'].orValue('none') == 'none' && object.?data.a.hasValue()": True,
    "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-02T00:00:00Z') && duration('1h') > duration('1m')": True,
    "has(object.metadata.labels)": False,
}


async def test_expressions_have_the_functions_of_kubernetes(cluster: Any) -> None:
    for at, (expression, _) in enumerate(_QUANTITIES.items()):
        spec = {
            "validations": [{"expression": expression, "message": "does not hold"}],
            "matchConstraints": named(f"f{at}"),
        }
        answer = await cluster.add(f"f{at}", spec, "Validating")
        assert answer.code == 201, answer.body.get("message")
    await cluster.settle("Validating")
    for at, (expression, expected) in enumerate(_QUANTITIES.items()):
        answer = await cluster.configmap(f"f{at}")
        if expected:
            assert answer.code == 201, (expression, answer.body)
        else:
            text = "resulted in error" if expected is None else "does not hold"
            assert text in answer.body["message"], expression


# --- parameters ------------------------------------------------------------------------------

_PARAM = "has(params.data) ? string(params.data.value) : params.spec.color"


def with_params(name: str, kind: Spec | None = None, value: str = _PARAM, **spec: Any) -> Spec:
    wanted = kind or {"apiVersion": "v1", "kind": "ConfigMap"}
    return mutating(mark(name, value), paramKind=wanted, matchConstraints=named(name), **spec)


async def test_parameters_are_found_by_name_and_selector(cluster: Any, widget: Any) -> None:
    api = cluster.api
    for name, value in (("p1", "one"), ("p2", "two")):
        body = {"metadata": {"name": name, "labels": {"param": "yes"}}, "data": {"value": value}}
        assert (await api.post(api.core("configmaps"), body)).code == 201
    assert (await api.post(api.widgets, widget("w", color="green"))).code == 201
    widgets = {"apiVersion": "contract.example.com/v1", "kind": "Widget"}
    selector = {"matchLabels": {"param": "yes"}}
    none = {"matchLabels": {"param": "no"}}
    cases: dict[str, tuple[Spec, Spec | None, Any]] = {
        "by-name": (with_params("by-name"), {"name": "p1"}, "one"),
        "in-namespace": (with_params("in-namespace"), {"name": "p2", "namespace": api.namespace}, "two"),
        "custom": (with_params("custom", widgets), {"name": "w"}, "green"),
        "absent-allowed": (with_params("absent-allowed"), {"name": "p3"}, None),
        "absent-denied": (
            with_params("absent-denied"),
            {"name": "p3", "parameterNotFoundAction": "Deny"},
            "no params found",
        ),
        "absent-denied-ignored": (
            with_params("absent-denied-ignored", failurePolicy="Ignore"),
            {"name": "p3", "parameterNotFoundAction": "Deny"},
            None,
        ),
        "elsewhere": (with_params("elsewhere"), {"name": "p1", "namespace": "default"}, None),
        "none-selected": (with_params("none-selected"), {"selector": none}, None),
        "no-reference": (with_params("no-reference", value="params == null ? 'null' : 'some'"), None, "null"),
    }
    for name, (spec, reference, _) in cases.items():
        given = (
            {"paramRef": {"parameterNotFoundAction": "Allow", **reference}} if reference is not None else {}
        )
        answer = await cluster.add(name, spec, **given)
        assert answer.code == 201, (name, answer.body.get("message"))
    value = "(object.?metadata.annotations[?'policies.example.com/each'].orValue('')) + params.data.value"
    each = with_params("each", value=value)
    await cluster.add("each", each, paramRef={"selector": selector, "parameterNotFoundAction": "Allow"})
    await cluster.settle()
    for name, (_, _, expected) in cases.items():
        answer = await cluster.configmap(name)
        if expected == "no params found":
            assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.body
            assert (
                "failed to configure binding: no params found for policy binding with `Deny`"
                in answer.body["message"]
            )
        else:
            annotations = answer.body["metadata"].get("annotations", {})
            assert annotations.get(f"{_MARK}/{name}") == expected, (name, answer.body)
    answer = await cluster.configmap("each")
    assert answer.body["metadata"]["annotations"][f"{_MARK}/each"] in ("onetwo", "twoone")


async def test_unserved_parameter_kind_fails_the_policy(cluster: Any) -> None:
    unknown = {"apiVersion": "nobody.example.com/v1", "kind": "Nothing"}
    reference = {"name": "p", "parameterNotFoundAction": "Allow"}
    await cluster.add("unknown", with_params("unknown", unknown), paramRef=reference)
    ignored = with_params("ignored", unknown, failurePolicy="Ignore")
    await cluster.add("ignored", ignored, paramRef=reference)
    await cluster.settle()
    answer = await cluster.configmap("unknown")
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"].startswith(
        f'policy "{cluster.api.namespace}-unknown" denied request: failed to configure policy: '
    )
    assert (await cluster.configmap("ignored")).code == 201


# --- reinvocation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "expected"), [("Never", 1), ("IfNeeded", 2)])
async def test_policy_is_evaluated_again_after_another_has_changed_the_object(
    cluster: Any, policy: str, expected: int
) -> None:
    count = "string(int(object.?metadata.annotations[?'policies.example.com/count'].orValue('0')) + 1)"
    await cluster.add("a-count", mutating(mark("count", count), reinvocationPolicy=policy))
    await cluster.add("b-change", mutating(mark("changed")))
    await cluster.settle()
    annotations = (await cluster.configmap("counted")).body["metadata"]["annotations"]
    assert annotations[f"{_MARK}/count"] == str(expected)
    assert annotations[f"{_MARK}/changed"] == "yes"


# --- validating ------------------------------------------------------------------------------


async def test_validating_policies_deny_with_their_message_and_reason(cluster: Any) -> None:
    cases: dict[str, tuple[Spec, int, str, str]] = {
        "message": ({"expression": "false", "message": "not this one"}, 422, "Invalid", "not this one"),
        "expression": ({"expression": "object.data.a != 'b'"}, 422, "Invalid", "failed expression: object.data.a != 'b'"),
        "forbidden": ({"expression": "false", "message": "m", "reason": "Forbidden"}, 403, "Forbidden", "m"),
        "too-large": ({"expression": "false", "message": "m", "reason": "RequestEntityTooLarge"}, 413, "RequestEntityTooLarge", "m"),
        "message-expression": ({"expression": "false", "message": "m", "messageExpression": "'no ' + object.metadata.name"}, 422, "Invalid", "no message-expression"),
        "message-fails": ({"expression": "false", "message": "m", "messageExpression": "object.data.z"}, 422, "Invalid", "m"),
        "message-empty": ({"expression": "false", "message": "m", "messageExpression": "' '"}, 422, "Invalid", "m"),
        "message-lines": ({"expression": "false", "messageExpression": r"'a\nb'"}, 422, "Invalid", "failed expression: false"),
        "error": ({"expression": "object.data.z == 'a'"}, 422, "Invalid", "expression 'object.data.z == 'a'' resulted in error: no such key: z"),
    }  # fmt: skip
    for name, (validation, _, _, _) in cases.items():
        if name == "message-fails":
            validation["messageExpression"] = "string(object.data.z)"
        answer = await cluster.add(
            name, {"validations": [validation], "matchConstraints": named(name)}, "Validating"
        )
        assert answer.code == 201, answer.body.get("message")
    await cluster.settle("Validating")
    for name, (_, code, reason, text) in cases.items():
        answer = await cluster.configmap(name)
        assert (answer.code, answer.body["reason"]) == (code, reason), name
        policy = f"{cluster.api.namespace}-{name}"
        denial = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {text}"
        assert answer.body["message"] == f'configmaps "{name}" is forbidden: {denial}'
        assert answer.body["details"] == {"name": name, "kind": "configmaps", "causes": [{"message": denial}]}


async def test_validating_policies_see_updates_deletions_and_mutations(
    cluster: Any,
) -> None:
    mutated = {
        "expression": "request.operation != 'CREATE' || object.data.c == 'd'",
        "message": "not mutated",
    }
    update = {
        "expression": "request.operation != 'UPDATE' || object.data.a == oldObject.data.a",
        "message": "a may not change",
    }
    delete = {
        "expression": "request.operation != 'DELETE' || object == null && oldObject.data.a == 'gone'",
        "message": "may not go",
    }
    everything = constraints(rule(operations="*", resourceNames=["kept"]))
    await cluster.add(
        "data",
        mutating(
            configuration('Object{data: {"c": "d"}}'),
            matchConstraints=constraints(rule(resourceNames=["kept"])),
        ),
    )
    await cluster.add(
        "kept", {"validations": [mutated, update, delete], "matchConstraints": everything}, "Validating"
    )
    await cluster.settle()
    await cluster.settle("Validating")
    api = cluster.api
    path = api.core("configmaps") + "/kept"
    assert (await cluster.configmap("kept")).code == 201
    assert (await api.merge(path, {"data": {"x": "y"}})).code == 200
    assert "a may not change" in (await api.merge(path, {"data": {"a": "c"}})).body["message"]
    assert "may not go" in (await api.delete(path)).body["message"]
    assert (await api.get(path)).body["data"] == {"a": "b", "c": "d", "x": "y"}


async def test_a_violation_may_only_warn(cluster: Any) -> None:
    spec = {
        "validations": [{"expression": "false", "message": "better not"}],
        "matchConstraints": named("warned"),
    }
    await cluster.add("warned", spec, "Validating", validationActions=["Warn"])
    audited = {"validations": [{"expression": "false"}], "matchConstraints": named("audited")}
    await cluster.add("audited", audited, "Validating", validationActions=["Audit"])
    ignored = {
        "validations": [{"expression": "object.data.z == 'a'"}],
        "matchConstraints": named("ignored"),
        "failurePolicy": "Ignore",
    }
    await cluster.add("ignored", ignored, "Validating")
    await cluster.settle("Validating")
    answer = await cluster.configmap("warned")
    name = f"{cluster.api.namespace}-warned"
    assert answer.code == 201
    text = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': better not"
    assert text in answer.headers["Warning"]
    assert (await cluster.configmap("audited")).code == 201
    assert (await cluster.configmap("ignored")).code == 201


async def test_policies_see_who_is_impersonated(cluster: Any) -> None:
    condition = {
        "name": "robot",
        "expression": "request.userInfo.username == 'system:serviceaccount:default:robot'",
    }
    message = "request.userInfo.groups.join(',') + ' ' + request.userInfo.extra['example.com/node'][0]"
    spec = {
        "validations": [{"expression": "false", "messageExpression": message}],
        "matchConditions": [condition],
        "matchConstraints": named("robot"),
    }
    await cluster.add("robot", spec, "Validating")
    await cluster.settle("Validating")
    api = cluster.api
    binding = {
        "metadata": {"name": f"{api.namespace}-robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    }
    assert (await api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).code == 201
    headers = {
        "Impersonate-User": "system:serviceaccount:default:robot",
        "Impersonate-Extra-example.com%2Fnode": "n1",
    }
    body = {"metadata": {"name": "robot"}}

    async def write() -> str:
        async with api.session.post(api.url + api.core("configmaps"), json=body, headers=headers) as answer:
            return str((await answer.json())["message"])

    text = await eventually(api, write, lambda text: "cannot create resource" not in text)
    assert "system:serviceaccounts,system:serviceaccounts:default,system:authenticated n1" in text
    assert (await cluster.configmap("robot")).code == 201


# --- what may be written ---------------------------------------------------------------------


def _set(path: str, value: Any) -> Callable[[Spec], None]:
    """Set a field of a policy, or remove it (None)."""

    def change(spec: Spec) -> None:
        *parents, last = path.split(".")
        target: Any = spec
        for name in parents:
            target = target[int(name)] if name.isdigit() else target[name]
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


_INVALID = [
    (_set("failurePolicy", "Perhaps"), "spec.failurePolicy", "Unsupported value"),
    (_set("reinvocationPolicy", None), "spec.reinvocationPolicy", "Required value"),
    (_set("reinvocationPolicy", "Always"), "spec.reinvocationPolicy", "Unsupported value"),
    (_set("matchConstraints", None), "spec.matchConstraints", "Required value"),
    (_set("matchConstraints", {}), "spec.matchConstraints.resourceRules", "Required value"),
    (_set("matchConstraints.matchPolicy", "Fuzzy"), "spec.matchConstraints.matchPolicy", "Unsupported value"),
    (_set("matchConstraints.resourceRules.0.operations", ["DELETE"]), "spec.matchConstraints.resourceRules.operations", "Unsupported value"),
    (_set("matchConstraints.resourceRules.0.operations", ["READ"]), "spec.matchConstraints.resourceRules[0].operations[0]", "Unsupported value"),
    (_set("matchConstraints.resourceRules.0.operations", None), "spec.matchConstraints.resourceRules[0].operations", "Required value"),
    (_set("matchConstraints.resourceRules.0.apiGroups", None), "spec.matchConstraints.resourceRules[0].apiGroups", "Required value"),
    (_set("matchConstraints.resourceRules.0.apiVersions", ["*", "v1"]), "spec.matchConstraints.resourceRules[0].apiVersions", "if '*' is present"),
    (_set("matchConstraints.resourceRules.0.resources", None), "spec.matchConstraints.resourceRules[0].resources", "Required value"),
    (_set("matchConstraints.resourceRules.0.scope", "Near"), "spec.matchConstraints.resourceRules[0].scope", "Unsupported value"),
    (_set("mutations", []), "spec.mutations", "mutations must contain at least one item"),
    (_set("mutations.0.patchType", "Merge"), "spec.mutations[0].patchType", "Unsupported value"),
    (_set("mutations.0.patchType", "JSONPatch"), "spec.mutations[0].jsonPatch", "must be specified when patchType is JSONPatch"),
    (_set("mutations.0.applyConfiguration.expression", " "), "spec.mutations[0].applyConfiguration.expression", "Required value"),
    (_set("mutations.0.applyConfiguration.expression", "Object{"), "spec.mutations[0].applyConfiguration.expression", "compilation failed: ERROR: <input>:1:8: Syntax error"),
    (_set("mutations.0.applyConfiguration.expression", "nobody"), "spec.mutations[0].applyConfiguration.expression", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody'"),
    (_set("mutations.0.applyConfiguration.expression", "params.x"), "spec.mutations[0].applyConfiguration.expression", "undeclared reference to 'params"),
    (_set("mutations.0.applyConfiguration.expression", "variables.nope"), "spec.mutations[0].applyConfiguration.expression", "compilation failed"),
    (_set("mutations.0.applyConfiguration.expression", "'text'"), "spec.mutations[0].applyConfiguration.expression", "must evaluate to Object but got string"),
    (_set("mutations.0.applyConfiguration.expression", "{'data': {'a': 'b'}}"), "spec.mutations[0].applyConfiguration.expression", "must evaluate to Object but got map"),
    (_set("mutations.0.applyConfiguration.expression", "'a' + 1"), "spec.mutations[0].applyConfiguration.expression", "no matching overload for '_+_'"),
    (_set("mutations.1.jsonPatch.expression", "JSONPatch{op: 'add', path: '/a'}"), "spec.mutations[1].jsonPatch.expression", "must evaluate to list(JSONPatch) but got"),
    (_set("mutations.1.jsonPatch.expression", "[]"), "spec.mutations[1].jsonPatch.expression", "must evaluate to list(JSONPatch) but got"),
    (_set("matchConditions.0.expression", "object.data.a"), "spec.matchConditions[0].expression", "must evaluate to bool but got dyn"),
    (_set("matchConditions.0.expression", "variables.v == 'a'"), "spec.matchConditions[0].expression", "undeclared reference to 'variables"),
    (_set("matchConditions.0.expression", "true &&"), "spec.matchConditions[0].expression", "Syntax error"),
    (_set("matchConditions.0.name", None), "spec.matchConditions[0].name", "Required value"),
    (_set("variables.0.expression", "object.("), "spec.variables[0].expression", "Syntax error"),
    (_set("variables.0.name", "not-a-name"), "spec.variables[0].name", "must be a valid CEL identifier"),
    (_set("variables.0.name", "namespace"), "spec.variables[0].name", "must be a valid CEL identifier"),
    (_set("paramKind", {"apiVersion": "v1"}), "spec.paramKind.kind", "Required value"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "text"), _INVALID)
async def test_wrong_policy_is_rejected_naming_the_field(
    api: Any, change: Callable[[Spec], None], field: str, text: str
) -> None:
    spec = mutating(
        mark("a"),
        json_patch('[JSONPatch{op: "add", path: "/data/a", value: variables.v}]'),
        matchConstraints=constraints(),
        matchConditions=[{"name": "c", "expression": "true"}],
        variables=[{"name": "v", "expression": "'x'"}],
    )
    change(spec)
    body = {"metadata": {"name": f"{api.namespace}-wrong"}, "spec": spec}
    answer = await api.post(f"{_ROOT}/mutatingadmissionpolicies", body, dryRun="All")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid"), answer.body
    found = {cause["field"]: cause["message"] for cause in answer.body["details"]["causes"]}
    assert field in found, found
    assert text in found[field]


async def test_policies_and_bindings_get_their_defaults(cluster: Any) -> None:
    spec = mutating(mark("a"))
    del spec["failurePolicy"]
    spec["matchConstraints"]["excludeResourceRules"] = [rule("pods")]
    policy = (await cluster.add("defaults", spec)).body["spec"]
    assert policy["failurePolicy"] == "Fail"
    match = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    rules = {
        "resourceRules": [{**rule(), "scope": "*"}],
        "excludeResourceRules": [{**rule("pods"), "scope": "*"}],
    }
    assert policy["matchConstraints"] == {**match, **rules}
    name = f"{cluster.api.namespace}-defaults"
    binding = (await cluster.api.get(f"{_ROOT}/mutatingadmissionpolicybindings/{name}")).body["spec"]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": cluster.api.namespace}}
    assert binding == {"policyName": name, "matchResources": {**match, "namespaceSelector": selector}}


_BINDINGS = [
    ("mutating", {"policyName": ""}, "spec.policyName", "Required value"),
    ("mutating", {"paramRef": {"parameterNotFoundAction": "Deny"}}, "spec.paramRef", "one of name or selector must be specified"),
    ("mutating", {"paramRef": {"name": "p"}}, "spec.paramRef.parameterNotFoundAction", "Required value"),
    ("mutating", {"paramRef": {"name": "p", "parameterNotFoundAction": "Wait"}}, "spec.paramRef.parameterNotFoundAction", "Unsupported value"),
    ("mutating", {"paramRef": {"name": "p", "selector": {}, "parameterNotFoundAction": "Deny"}}, "spec.paramRef.name", "mutually exclusive"),
    ("mutating", {"matchResources": {"resourceRules": [rule(operations="DELETE")]}}, "spec.matchResources.resourceRules.operations", "Unsupported value"),
    ("validating", {}, "spec.validationActions", "Required value"),
    ("validating", {"validationActions": ["Refuse"]}, "spec.validationActions[0]", "Unsupported value"),
    ("validating", {"validationActions": ["Deny", "Warn"]}, "spec.validationActions", "must not contain both Deny and Warn"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "field", "text"), _BINDINGS)
async def test_wrong_binding_is_rejected_naming_the_field(
    api: Any, kind: str, spec: Spec, field: str, text: str
) -> None:
    body = {"metadata": {"name": f"{api.namespace}-wrong"}, "spec": {"policyName": "p", **spec}}
    answer = await api.post(f"{_ROOT}/{kind}admissionpolicybindings", body, dryRun="All")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid"), answer.body
    found = {cause["field"]: cause["message"] for cause in answer.body["details"]["causes"]}
    assert field in found, found
    assert text in found[field]


_VALIDATIONS = [
    ({"expression": "1"}, "expression", "must evaluate to bool but got int"),
    ({"expression": " "}, "expression", "expression is not specified"),
    (
        {"expression": "true", "messageExpression": "1"},
        "messageExpression",
        "must evaluate to string but got int",
    ),
    ({"expression": "true", "message": "a\nb"}, "message", "must not contain line breaks"),
    ({"expression": "true", "reason": "Unauthorized"}, "reason", "Unsupported value"),
    ({"expression": "Object{} == Object{}"}, "expression", "undeclared reference to 'Object'"),
]


@pytest.mark.parametrize(("validation", "field", "text"), _VALIDATIONS)
async def test_wrong_validation_is_rejected_naming_the_field(
    api: Any, validation: Spec, field: str, text: str
) -> None:
    spec = {"validations": [validation], "matchConstraints": constraints()}
    body = {"metadata": {"name": f"{api.namespace}-wrong"}, "spec": spec}
    answer = await api.post(f"{_ROOT}/validatingadmissionpolicies", body, dryRun="All")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid"), answer.body
    found = {cause["field"]: cause["message"] for cause in answer.body["details"]["causes"]}
    assert text in found[f"spec.validations[0].{field}"]
