"""Admission by policies: what mutating ones make of an object, and what validating ones refuse.

kubernetes.io, "Mutating Admission Policy" and "Validating Admission Policy"; where those are silent, kube-
apiserver's dispatchers (apiserver/pkg/admission/plugin/policy). A mutation that was applied makes policies
whose reinvocationPolicy is IfNeeded, and which were evaluated before, be evaluated once more.
"""

from collections.abc import Sequence
from typing import Any

from numazones_apiserver import errors
from numazones_apiserver.admission_policies.expressions import Evaluation, FailedExpression
from numazones_apiserver.admission_policies.matching import is_exempt
from numazones_apiserver.admission_policies.mutation import (
    Prepare,
    UnusablePatch,
    with_configuration,
    with_json_patch,
)
from numazones_apiserver.admission_policies.policies import (
    Invocation,
    Mutation,
    Policies,
    PolicyFault,
    PolicyValidation,
)
from numazones_apiserver.admission_policies.review import Review, converted
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Registry
from numazones_apiserver.store import Store

_CODES = {"Forbidden": 403, "RequestEntityTooLarge": 413}
_INVALID = 422
_MAX_MESSAGE = 5 * 1024

_Key = tuple[str, str, str, str]


class PolicyAdmission:
    """Puts writes and deletions to the stored policies."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._mutating = Policies(store, registry, "mutatingadmissionpolicies")
        self._validating = Policies(store, registry, "validatingadmissionpolicies")

    # --- mutating -----------------------------------------------------------------------------

    @property
    def may_mutate(self) -> bool:
        """Return whether there are any mutating policies."""
        return self._mutating.bound

    def mutated(self, review: Review, prepare: Prepare) -> Object:
        """The object as mutating policies make it; the same object when none does anything.

        Args:
            review: the write.
            prepare: makes an object of what a patch leaves: decoded, with its defaults.

        Raises:
            StatusError: 403, a policy denies the write or fails and may not be ignored; 500, a patch leaves
            no object of the kind.
        """
        assert review.object is not None  # noqa: S101 - deletions have nothing to mutate
        if is_exempt(review.kind):
            return review.object
        once = _Pass(self._mutating, prepare)
        obj = once.run(review, None)
        if not once.patched or not once.reinvocable:
            return obj
        return _Pass(self._mutating, prepare).run(review.with_object(obj), once.reinvocable)

    # --- validating ---------------------------------------------------------------------------

    def check(self, review: Review) -> list[str]:
        """Warnings about a write or deletion; raises StatusError when a validating policy denies it."""
        if is_exempt(review.kind):
            return []
        denied: list[PolicyFault] = []
        warnings: list[str] = []
        namespace: Object | None = None
        for number, invocation in enumerate(self._validating.invocations(review, denied)):
            namespace = self._validating.namespace(review) if not number else namespace
            actions = invocation.binding["spec"].get("validationActions") or ()
            for fault in _violations(invocation, review, namespace):
                if "Deny" in actions:
                    denied.append(fault)
                if "Warn" in actions:
                    warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{fault.policy}' with binding "
                        f"'{fault.binding}': {fault.message}"
                    )
        if denied:
            raise _validation_error(review, denied[0])
        return warnings


class _Pass:
    """One round of the mutating policies."""

    def __init__(self, policies: Policies, prepare: Prepare) -> None:
        self._policies = policies
        self._prepare = prepare
        self.patched = False
        self.reinvocable: set[_Key] = set()
        """The policies, bindings and parameters that want to see what others have changed."""

    def run(self, review: Review, only: set[_Key] | None) -> Object:
        """The object after all policies, or the given ones; raises StatusError."""
        assert review.object is not None  # noqa: S101 - as above
        faults: list[PolicyFault] = []
        namespace: Object | None = None
        for number, invocation in enumerate(self._policies.invocations(review, faults)):
            namespace = self._policies.namespace(review) if not number else namespace
            key = _key(invocation)
            if only is None or key in only:
                review = self._invoked(invocation, review, namespace, faults)
        if faults:
            raise _mutation_error(review, faults)
        assert review.object is not None  # noqa: S101 - as above
        return review.object

    def _invoked(
        self, invocation: Invocation, review: Review, namespace: Object | None, faults: list[PolicyFault]
    ) -> Review:
        """The review after one policy."""
        policy = invocation.policy
        try:
            if not policy.matches(invocation.evaluation(review, None)):
                return review
        except FailedExpression as error:
            faults.append(invocation.fault(str(error), "Invalid"))
            return review
        for mutation in policy.mutations:
            evaluation = invocation.evaluation(review, namespace)
            try:
                review = review.with_object(self._patched(mutation, invocation, evaluation, review))
                self.patched = True
            except (FailedExpression, UnusablePatch) as error:
                if not policy.ignores_failures:
                    faults.append(invocation.fault(str(error), "Invalid"))
        if policy.spec.get("reinvocationPolicy") == "IfNeeded":
            self.reinvocable.add(_key(invocation))
        return review

    def _patched(
        self, mutation: Mutation, invocation: Invocation, evaluation: Evaluation, review: Review
    ) -> Object:
        """The object after one mutation; raises FailedExpression, UnusablePatch or StatusError."""
        value = invocation.policy.expressions.evaluate(mutation.program, evaluation)
        own, kind = review.kind, invocation.kind
        seen = evaluation.values["object"]

        def prepared(obj: Object) -> Object:
            return self._prepare(converted(obj, kind, own) or obj)

        patch = with_json_patch if mutation.patch_type == "JSONPatch" else with_configuration
        patched = patch(seen, value, kind, prepared)
        assert review.object is not None  # noqa: S101 - as above
        return review.object if patched is seen else patched


def _key(invocation: Invocation) -> _Key:
    metadata = (invocation.parameter or {}).get("metadata") or {}
    place = metadata.get("namespace", ""), metadata.get("name", "")
    return invocation.policy.name, invocation.binding_name, *place


def _violations(invocation: Invocation, review: Review, namespace: Object | None) -> list[PolicyFault]:
    """Return the faults that a validating policy finds in a request, with one binding and one parameter."""
    policy = invocation.policy
    try:
        if not policy.matches(invocation.evaluation(review, None)):
            return []
    except FailedExpression as error:
        return [invocation.fault(str(error))]
    evaluation = invocation.evaluation(review, namespace)
    found = []
    for check in policy.checks:
        try:
            holds: Any = policy.expressions.evaluate(check.program, evaluation)
        except FailedExpression as error:
            if not policy.ignores_failures:
                found.append(invocation.fault(str(error)))
            continue
        if holds is not True:
            found.append(invocation.fault(_message(invocation, check, evaluation), check.reason))
    return found


def _message(invocation: Invocation, check: PolicyValidation, evaluation: Evaluation) -> str:
    """Return a check's message: the result of its messageExpression if that is one line, else its message."""
    if check.message_program is not None:
        try:
            text = str(invocation.policy.expressions.evaluate(check.message_program, evaluation)).strip()
        except FailedExpression:
            text = ""
        if text and "\n" not in text and len(text.encode()) <= _MAX_MESSAGE:
            return text
    return check.message or f"failed expression: {check.program.text}"


# --- answers ---------------------------------------------------------------------------------


def _denial(review: Review, message: str, reason: str, code: int, causes: Sequence[str]) -> StatusError:
    error = errors.forbidden(review.kind.group, review.kind.plural, review.shown_name, message)
    details = {**(error.details or {}), "causes": [{"message": cause} for cause in causes]}
    return StatusError(code, reason, error.message, details=details)


def _mutation_error(review: Review, faults: Sequence[PolicyFault]) -> StatusError:
    """The answer of kube-apiserver, whose code is that of Forbidden whatever the reason."""
    texts = [
        f"policy '{fault.policy}' with binding '{fault.binding}' denied request: {fault.message}"
        if fault.binding
        else f'policy "{fault.policy}" denied request: {fault.message}'
        for fault in faults
    ]
    error = _denial(review, "", faults[0].reason or "Forbidden", 403, texts)
    return StatusError(error.code, error.reason, texts[0], details=error.details)


def _validation_error(review: Review, fault: PolicyFault) -> StatusError:
    binding = f" with binding '{fault.binding}'" if fault.binding else ""
    message = f"ValidatingAdmissionPolicy '{fault.policy}'{binding} denied request: {fault.message}"
    reason = fault.reason or "Invalid"
    return _denial(review, message, reason, _CODES.get(reason, _INVALID), [message])
