"""Compiled policies, and which of them with which bindings and parameters a request is put to.

Policies are compiled when they are first needed and again when they have changed. They come in the order of
their names, as do their bindings; Kubernetes promises no order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.errors import NumazonesError
from numazones_apiserver.admission_policies.expressions import (
    BOOL,
    OBJECT,
    PATCHES,
    STRING,
    Evaluation,
    Expressions,
    FailedExpression,
    InvalidPolicyExpression,
    PolicyExpression,
)
from numazones_apiserver.admission_policies.matching import GROUP, Matcher
from numazones_apiserver.admission_policies.parameters import MisconfiguredPolicy, Parameters
from numazones_apiserver.admission_policies.review import Review, converted
from numazones_apiserver.errors import Object
from numazones_apiserver.kinds import Kind, Registry
from numazones_apiserver.store import Store


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """Reason why a policy denies a request; ``reason`` is the Status reason, "" where none is given."""

    policy: str
    binding: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mutation of a policy."""

    patch_type: str
    program: PolicyExpression


@dataclass(frozen=True, slots=True)
class PolicyValidation:
    """One validation of a policy."""

    program: PolicyExpression
    message: str
    message_program: PolicyExpression | None
    reason: str


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy with its compiled expressions."""

    name: str
    spec: Object
    expressions: Expressions
    conditions: tuple[PolicyExpression, ...]
    mutations: tuple[Mutation, ...]
    checks: tuple[PolicyValidation, ...]

    @property
    def ignores_failures(self) -> bool:
        """Return whether a request goes on when the policy cannot be evaluated."""
        return bool(self.spec.get("failurePolicy") == "Ignore")

    def matches(self, evaluation: Evaluation) -> bool:
        """Return whether all conditions are true; raises FailedExpression if one fails and none is false."""
        failed: list[str] = []
        for condition in self.conditions:
            try:
                if self.expressions.evaluate(condition, evaluation) is not True:
                    return False
            except FailedExpression as error:
                failed.append(str(error))
        if failed and not self.ignores_failures:
            raise FailedExpression(failed[0] if len(failed) == 1 else f"[{', '.join(failed)}]")
        return not failed


@dataclass(frozen=True, slots=True)
class Invocation:
    """A policy that a request is put to, with one binding and one parameter."""

    policy: CompiledPolicy
    binding: Object
    parameter: Object | None
    kind: Kind
    """The kind as which the policy matched the resource."""

    @property
    def binding_name(self) -> str:
        """The name of the binding."""
        return str(self.binding["metadata"]["name"])

    def fault(self, message: str, reason: str = "") -> PolicyFault:
        """A denial by this policy and binding."""
        return PolicyFault(self.policy.name, self.binding_name, message, reason)

    def evaluation(self, review: Review, namespace: Object | None) -> Evaluation:
        """The values that expressions see."""
        own, kind = review.kind, self.kind
        values = {
            "object": converted(review.object, own, kind),
            "oldObject": converted(review.old, own, kind),
            "request": review.request(kind),
            "namespaceObject": namespace,
        }
        return Evaluation(
            {**values, "params": self.parameter} if self.policy.spec.get("paramKind") else values
        )


def compiled(policy: Object) -> CompiledPolicy:
    """A policy ready for requests; raises InvalidExpression."""
    spec = policy["spec"]
    expressions = Expressions(params=spec.get("paramKind") is not None)
    conditions = [expressions.compile(one["expression"], BOOL) for one in spec.get("matchConditions") or ()]
    for variable in spec.get("variables") or ():
        expressions.declare(variable["name"], variable["expression"])
    return CompiledPolicy(
        policy["metadata"]["name"],
        spec,
        expressions,
        tuple(conditions),
        tuple(_mutations(spec, expressions)),
        tuple(_checks(spec, expressions)),
    )


def _mutations(spec: Mapping[str, Any], expressions: Expressions) -> Iterator[Mutation]:
    for one in spec.get("mutations") or ():
        patch_type = one["patchType"]
        field, result = (
            ("jsonPatch", PATCHES) if patch_type == "JSONPatch" else ("applyConfiguration", OBJECT)
        )
        yield Mutation(patch_type, expressions.compile(one[field]["expression"], result))


def _checks(spec: Mapping[str, Any], expressions: Expressions) -> Iterator[PolicyValidation]:
    for one in spec.get("validations") or ():
        message = one.get("messageExpression")
        yield PolicyValidation(
            expressions.compile(one["expression"], BOOL),
            one.get("message", "").strip(),
            expressions.compile(message, STRING) if message else None,
            one.get("reason", "Invalid"),
        )


class Policies:
    """The stored policies of one kind, with their bindings."""

    def __init__(self, store: Store, registry: Registry, plural: str) -> None:
        """Follow the policies of a resource, which is named by its plural."""
        self._policies = store.collection(GROUP, plural)
        self._bindings = store.collection(GROUP, plural.removesuffix("ies") + "ybindings")
        self._matcher = Matcher(store, registry)
        self._parameters = Parameters(store, registry)
        self._compiled: dict[str, tuple[str, CompiledPolicy | InvalidPolicyExpression]] = {}

    @property
    def bound(self) -> bool:
        """Return whether any policy has a binding."""
        return bool(self._bindings.objects)

    def namespace(self, review: Review) -> Object | None:
        """Return ``namespaceObject`` as expressions see it: the object's namespace, if it has one."""
        found = self._matcher.namespace(review.namespace) if review.kind.namespaced else None
        if found is None:
            return None
        metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
        return {**found, "metadata": metadata}

    def invocations(self, review: Review, faults: list[PolicyFault]) -> list[Invocation]:
        """Return the policies to evaluate, with parameters; misconfigured ones go to ``faults``."""
        if not self.bound:
            return []
        found: list[Invocation] = []
        for version in self._policies.versions():
            try:
                found += self._of_policy(version.object, review, faults)
            except NumazonesError as error:
                _add_fault(faults, version.object, "", f"failed to configure policy: {error}")
        return found

    def _of_policy(self, body: Object, review: Review, faults: list[PolicyFault]) -> Iterator[Invocation]:
        name, spec = body["metadata"]["name"], body["spec"]
        kind = self._matcher.matched_kind(spec.get("matchConstraints") or {}, review)
        if kind is None:
            return
        param_kind = self._parameters.kind(spec.get("paramKind"))
        policy = self._policy(body)
        for version in self._bindings.versions():
            binding = version.object
            if binding["spec"].get("policyName") != name:
                continue
            resources = binding["spec"].get("matchResources") or {}
            if self._matcher.matched_kind(resources, review) is None:
                continue
            reference = binding["spec"].get("paramRef")
            try:
                parameters = self._parameters.found(param_kind, reference, review.namespace)
            except MisconfiguredPolicy as error:
                _add_fault(faults, body, binding["metadata"]["name"], f"failed to configure binding: {error}")
                continue
            for parameter in parameters:
                yield Invocation(policy, binding, parameter, kind)

    def _policy(self, body: Object) -> CompiledPolicy:
        """The compiled policy; raises InvalidExpression."""
        name, version = body["metadata"]["name"], body["metadata"]["resourceVersion"]
        known = self._compiled.get(name)
        if known is None or known[0] != version:
            try:
                known = (version, compiled(body))
            except InvalidPolicyExpression as error:
                known = (version, error)
            self._compiled[name] = known
        if isinstance(known[1], InvalidPolicyExpression):
            raise known[1]
        return known[1]


def _add_fault(faults: list[PolicyFault], policy: Object, binding: str, message: str) -> None:
    if policy["spec"].get("failurePolicy") != "Ignore":
        faults.append(PolicyFault(policy["metadata"]["name"], binding, message))
