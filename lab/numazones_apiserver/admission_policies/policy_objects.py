"""Policies and bindings as they are written: what they get by default, and what is wrong with them.

Rules and words are those of kube-apiserver (pkg/apis/admissionregistration); expressions are compiled, so
that a wrong one is refused by the name of its field. Every function takes an object whose types are known to
be right.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from numazones.apimachinery.label_selector import InvalidSelector, LabelSelector
from numazones_apiserver import errors
from numazones_apiserver.admission_policies.expressions import (
    BOOL,
    OBJECT,
    PATCHES,
    STRING,
    Expressions,
    InvalidPolicyExpression,
)
from numazones_apiserver.errors import FieldError, Object

_Errors = Iterator[FieldError]
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTATING_OPERATIONS = ("*", "CREATE", "UPDATE")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_NAME = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|"
    "var|void|while"
)


# --- defaults --------------------------------------------------------------------------------


def with_policy_defaults(obj: Object) -> Object:
    """A policy of either kind with its defaults."""
    spec = {"failurePolicy": "Fail", **(obj.get("spec") or {})}
    if "matchConstraints" in spec:
        spec["matchConstraints"] = _with_match_defaults(spec["matchConstraints"])
    return {**obj, "spec": spec}


def with_binding_defaults(obj: Object) -> Object:
    """A binding of either kind with its defaults."""
    spec = obj.get("spec") or {}
    if "matchResources" not in spec:
        return obj
    return {**obj, "spec": {**spec, "matchResources": _with_match_defaults(spec["matchResources"])}}


def _with_match_defaults(resources: Object) -> Object:
    filled = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **resources}
    for name in ("resourceRules", "excludeResourceRules"):
        if name in filled:
            filled[name] = [{"scope": "*", **rule} for rule in filled[name]]
    return filled


# --- policies --------------------------------------------------------------------------------


def check_mutating_policy(obj: Object, _old: Object | None) -> _Errors:
    """Return the errors of a MutatingAdmissionPolicy."""
    spec = obj.get("spec") or {}
    yield from _check_operations(spec.get("matchConstraints"), "spec.matchConstraints")
    expressions = Expressions(params=spec.get("paramKind") is not None)
    yield from _check_policy(spec, expressions)
    if not spec.get("mutations"):
        yield errors.required("spec.mutations", "mutations must contain at least one item")
    for at, mutation in enumerate(spec.get("mutations") or ()):
        yield from _check_mutation(mutation, expressions, f"spec.mutations[{at}]")
    yield from _check_choice(spec, "reinvocationPolicy", ("IfNeeded", "Never"), "spec")


def check_validating_policy(obj: Object, _old: Object | None) -> _Errors:
    """Return the errors of a ValidatingAdmissionPolicy."""
    spec = obj.get("spec") or {}
    expressions = Expressions(params=spec.get("paramKind") is not None)
    yield from _check_policy(spec, expressions)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        detail = "validations or auditAnnotations must contain at least one item"
        yield errors.required("spec.validations", detail)
        yield errors.required("spec.auditAnnotations", detail)
    for at, validation in enumerate(spec.get("validations") or ()):
        yield from _check_validation(validation, expressions, f"spec.validations[{at}]")
    for at, annotation in enumerate(spec.get("auditAnnotations") or ()):
        path = f"spec.auditAnnotations[{at}]"
        yield from _check_expression(annotation, expressions, path, STRING, "null", field="valueExpression")


def _check_policy(spec: Mapping[str, Any], expressions: Expressions) -> _Errors:
    """Return the errors of the part that both kinds of policies share; declares the variables on the way."""
    yield from _check_choice(spec, "failurePolicy", ("Fail", "Ignore"), "spec")
    if spec.get("paramKind") is not None:
        for name in ("apiVersion", "kind"):
            if not spec["paramKind"].get(name):
                yield errors.required(f"spec.paramKind.{name}")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield errors.required("spec.matchConstraints")
    else:
        yield from _check_match_resources(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield errors.required("spec.matchConstraints.resourceRules")
    seen: set[str] = set()
    for at, condition in enumerate(spec.get("matchConditions") or ()):
        path = f"spec.matchConditions[{at}]"
        yield from _check_expression(condition, expressions, path, BOOL)
        name = condition.get("name", "")
        if not name:
            yield errors.required(f"{path}.name")
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        seen.add(name)
    for at, variable in enumerate(spec.get("variables") or ()):
        yield from _check_variable(variable, expressions, f"spec.variables[{at}]")


def _check_variable(variable: Mapping[str, Any], expressions: Expressions, path: str) -> _Errors:
    name, text = variable.get("name", ""), variable.get("expression", "")
    if not name.strip():
        yield errors.required(f"{path}.name", "name is not specified")
    elif not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        yield errors.invalid_value(f"{path}.name", name, "must be a valid CEL identifier")
    elif not text.strip():
        yield errors.required(f"{path}.expression", "expression is not specified")
    else:
        try:
            expressions.declare(name, text)
        except InvalidPolicyExpression as error:
            yield errors.invalid_value(f"{path}.expression", text, str(error))


def _check_mutation(mutation: Mapping[str, Any], expressions: Expressions, path: str) -> _Errors:
    fields = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
    given = mutation.get("patchType", "")
    if not given:
        yield errors.required(f"{path}.patchType")
        return
    if given not in fields:
        yield errors.unsupported(f"{path}.patchType", given, sorted(fields))
        return
    for patch_type, name in fields.items():
        patch = mutation.get(name)
        if patch_type != given:
            if patch is not None:
                detail = f"must not be specified when patchType is {given}"
                yield errors.invalid_value(f"{path}.{name}", f"{{{name}}}", detail)
        elif patch is None:
            yield errors.required(f"{path}.{name}", f"must be specified when patchType is {given}")
        else:
            result = PATCHES if given == "JSONPatch" else OBJECT
            yield from _check_expression(patch, expressions, f"{path}.{name}", result)


def _check_validation(validation: Mapping[str, Any], expressions: Expressions, path: str) -> _Errors:
    yield from _check_expression(validation, expressions, path, BOOL, missing="expression is not specified")
    if "messageExpression" in validation:
        if not validation["messageExpression"].strip():
            given = validation["messageExpression"]
            yield errors.invalid_value(f"{path}.messageExpression", given, "must be non-empty if specified")
        else:
            yield from _check_expression(validation, expressions, path, STRING, field="messageExpression")
    message = validation.get("message", "")
    if message and not message.strip():
        yield errors.invalid_value(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield errors.invalid_value(f"{path}.message", message, "must not contain line breaks")
    if validation.get("reason") not in (None, *_REASONS):
        yield errors.unsupported(f"{path}.reason", validation["reason"], _REASONS)


def _check_expression(
    holder: Mapping[str, Any],
    expressions: Expressions,
    path: str,
    *results: str,
    field: str = "expression",
    missing: str = "",
) -> _Errors:
    text = holder.get(field) or ""
    if not text.strip():
        yield errors.required(f"{path}.{field}", missing)
        return
    try:
        expressions.compile(text, *results)
    except InvalidPolicyExpression as error:
        yield errors.invalid_value(f"{path}.{field}", text, str(error))


# --- bindings --------------------------------------------------------------------------------


def check_mutating_binding(obj: Object, _old: Object | None) -> _Errors:
    """Return the errors of a MutatingAdmissionPolicyBinding."""
    spec = obj.get("spec") or {}
    yield from _check_binding(spec)
    yield from _check_operations(spec.get("matchResources"), "spec.matchResources")


def check_validating_binding(obj: Object, _old: Object | None) -> _Errors:
    """Return the errors of a ValidatingAdmissionPolicyBinding."""
    spec = obj.get("spec") or {}
    yield from _check_binding(spec)
    path, actions = "spec.validationActions", spec.get("validationActions") or ()
    for at, action in enumerate(actions):
        if action not in _ACTIONS:
            yield errors.unsupported(f"{path}[{at}]", action, _ACTIONS)
        if action in actions[:at]:
            yield errors.duplicate(f"{path}[{at}]", action)
    if {"Deny", "Warn"} <= set(actions):
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
            "API response and headers serves no purpose)"
        )
        yield errors.invalid_value(path, list(actions), detail)
    if not actions:
        yield errors.required(path, "at least one validation action is required")


def _check_binding(spec: Mapping[str, Any]) -> _Errors:
    if not spec.get("policyName"):
        yield errors.required("spec.policyName")
    if spec.get("matchResources") is not None:
        yield from _check_match_resources(spec["matchResources"], "spec.matchResources")
    reference, path = spec.get("paramRef"), "spec.paramRef"
    if reference is None:
        return
    if "selector" in reference:
        yield from _check_selector(reference["selector"], f"{path}.selector")
    if reference.get("name") and "selector" in reference:
        for name in ("name", "selector"):
            yield errors.forbidden_field(f"{path}.{name}", "name and selector are mutually exclusive")
    if not reference.get("name") and "selector" not in reference:
        yield errors.required(path, "one of name or selector must be specified")
    yield from _check_choice(reference, "parameterNotFoundAction", ("Deny", "Allow"), path)


# --- both ------------------------------------------------------------------------------------


def _check_choice(holder: Mapping[str, Any], field: str, choices: Iterable[str], path: str) -> _Errors:
    if not holder.get(field):
        yield errors.required(f"{path}.{field}")
    elif holder[field] not in choices:
        yield errors.unsupported(f"{path}.{field}", holder[field], choices)


def _check_match_resources(resources: Mapping[str, Any], path: str) -> _Errors:
    yield from _check_choice(resources, "matchPolicy", ("Equivalent", "Exact"), path)
    for name in ("namespaceSelector", "objectSelector"):
        yield from _check_selector(resources.get(name) or {}, f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for at, rule in enumerate(resources.get(name) or ()):
            yield from _check_rule(rule, f"{path}.{name}[{at}]")


def _check_selector(selector: Mapping[str, Any], path: str) -> _Errors:
    try:
        LabelSelector.from_api(selector)
    except InvalidSelector as error:
        yield errors.invalid_value(path, dict(selector), str(error))


def _check_rule(rule: Mapping[str, Any], path: str) -> _Errors:
    words = {"operations": "operations", "apiGroups": "API groups", "apiVersions": "API versions"}
    for name, word in words.items():
        values = rule.get(name) or ()
        if not values:
            yield errors.required(f"{path}.{name}")
        if "*" in values and len(values) > 1:
            detail = f"if '*' is present, must not specify other {word}"
            yield errors.invalid_value(f"{path}.{name}", list(values), detail)
    for at, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            yield errors.unsupported(f"{path}.operations[{at}]", operation, _OPERATIONS)
    if not rule.get("resources"):
        yield errors.required(f"{path}.resources")
    if rule.get("scope") not in ("*", "Cluster", "Namespaced"):
        yield errors.unsupported(f"{path}.scope", rule.get("scope"), ("*", "Cluster", "Namespaced"))


def _check_operations(resources: Mapping[str, Any] | None, path: str) -> _Errors:
    """Only what creates or updates can be mutated."""
    for rule in (resources or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _MUTATING_OPERATIONS:
                yield errors.unsupported(f"{path}.resourceRules.operations", operation, _MUTATING_OPERATIONS)
