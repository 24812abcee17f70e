"""PodDisruptionBudgets: their status, and evictions that respect them.

A real cluster splits this between the disruption controller, which keeps the status, and the
pods/eviction subresource, which spends it. Both are here; rules are those of policy/v1 in 1.36.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from numazones.apimachinery.label_selector import InvalidSelector, LabelSelector
from numazones.errors import NumazonesError
from numazones_apiserver import errors
from numazones_apiserver.errors import Object, StatusError
from numazones_apiserver.kinds import Kind, name_of, namespace_of
from numazones_apiserver.objects import now
from numazones_apiserver.tables import instant
from numazones_apiserver.writes import DeleteOptions, Writes, check_preconditions

_DELETION_TIMEOUT = 120
"""Seconds for which an evicted pod that still exists counts as deleted."""
_MANAGER = "kube-controller-manager"
_SEVERAL_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


class UnknownScale(NumazonesError):
    """A pod's controller, whose scale a budget needs, does not exist."""


def is_ready(pod: Object) -> bool:
    """Return whether the pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


class Budgets:
    """The disruption budgets of the cluster."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    @property
    def _kind(self) -> Kind:
        kind = self._writes.registry.find("policy", "v1", "poddisruptionbudgets")
        assert kind is not None  # noqa: S101 - the table of built-in kinds has it
        return kind

    @property
    def _pods(self) -> Kind:
        kind = self._writes.registry.find("", "v1", "pods")
        assert kind is not None  # noqa: S101 - the table of built-in kinds has it
        return kind

    def in_namespace(self, namespace: str) -> list[Object]:
        """The budgets of a namespace."""
        return [version.object for version in self._writes.collection(self._kind).versions(namespace)]

    def budgets_of(self, pod: Object) -> Iterator[Object]:
        """The budgets whose selector matches the pod."""
        labels = pod["metadata"].get("labels") or {}
        for budget in self.in_namespace(namespace_of(pod)):
            selector = _selector(budget)
            if selector is not None and selector.matches(labels):
                yield budget

    # --- status -------------------------------------------------------------------------------

    def refresh(self, budget: Object) -> Object:
        """Bring the budget's status up to date and return the budget."""
        namespace, name = namespace_of(budget), name_of(budget)
        return self._writes.edit(
            self._kind,
            namespace,
            name,
            lambda live: {**live, "status": self._status(live)},
            manager=_MANAGER,
            subresource="status",
        )

    def _status(self, budget: Object) -> Object:
        status = budget.get("status") or {}
        pods = list(self._pods_of(budget))
        disrupted = _disrupted_pods(pods, status.get("disruptedPods") or {})
        healthy = sum(
            not pod["metadata"].get("deletionTimestamp") and name_of(pod) not in disrupted and is_ready(pod)
            for pod in pods
        )
        generation = budget["metadata"].get("generation", 0)
        try:
            expected, desired = self._expected_and_healthy(budget["spec"], pods)
        except UnknownScale as error:
            failed = {**status, "disruptionsAllowed": 0, "observedGeneration": generation}
            return _with_condition(failed, status, ("False", "SyncFailed", str(error)), generation)
        allowed = max(healthy - desired, 0) if expected > 0 else 0
        result: Object = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": generation,
        }
        if disrupted:
            result["disruptedPods"] = disrupted
        return _with_condition(result, status, _verdict(allowed), generation)

    def _pods_of(self, budget: Object) -> Iterator[Object]:
        selector = _selector(budget)
        if selector is None:
            return
        for version in self._writes.collection(self._pods).versions(namespace_of(budget)):
            if selector.matches(version.object["metadata"].get("labels") or {}):
                yield version.object

    def _expected_and_healthy(self, spec: Object, pods: list[Object]) -> tuple[int, int]:
        """Return how many pods there should be, and how many of them must be healthy."""
        if "maxUnavailable" in spec:
            expected = self._scale(pods)
            return expected, max(expected - _share(spec["maxUnavailable"], expected), 0)
        minimum = spec.get("minAvailable")
        if isinstance(minimum, str):
            expected = self._scale(pods)
            return expected, _share(minimum, expected)
        return (len(pods), minimum) if isinstance(minimum, int) else (0, 0)

    def _scale(self, pods: list[Object]) -> int:
        """The sum of the scales of all controllers of the pods."""
        scales: dict[str, int] = {}
        for pod in pods:
            owners = pod["metadata"].get("ownerReferences") or ()
            controller = next((one for one in owners if one.get("controller")), None)
            if controller is not None and controller["uid"] not in scales:
                scales[controller["uid"]] = self._scale_of(controller, pod)
        return sum(scales.values())

    def _scale_of(self, reference: Object, pod: Object) -> int:
        kind = self._writes.registry.by_kind(reference["apiVersion"], reference["kind"])
        found = (
            self._writes.collection(kind).objects.get((namespace_of(pod), reference["name"]))
            if kind is not None
            else None
        )
        if (
            kind is None
            or kind.scale is None
            or found is None
            or found.object["metadata"]["uid"] != reference["uid"]
        ):
            raise UnknownScale(f'found no controllers for pod "{name_of(pod)}"')
        return int((found.object.get("spec") or {}).get("replicas", 0))

    # --- eviction -----------------------------------------------------------------------------

    def evict(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete a pod unless a budget forbids it; raises StatusError 404, 409, 429 or 500."""
        pod = self._writes.get(self._pods, namespace, name)
        if not self._is_unprotected(pod):
            self._decrement(pod, dry_run=options.dry_run)
        if not options.dry_run:
            check_preconditions(self._pods, pod["metadata"], options)
            pod = self._mark(pod)
            if options.resource_version:
                version = pod["metadata"]["resourceVersion"]
                options = DeleteOptions(options.grace, options.propagation, options.uid, version)
        if (namespace, name) in self._writes.collection(self._pods).objects:
            self._writes.delete(self._pods, namespace, name, options)

    @staticmethod
    def _is_unprotected(pod: Object) -> bool:
        phase = (pod.get("status") or {}).get("phase")
        return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))

    def _mark(self, pod: Object) -> Object:
        """Say in the pod's conditions that it is being evicted."""
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now(),
        }

        def with_target(live: Object) -> Object:
            status = live.get("status") or {}
            others = [one for one in status.get("conditions") or () if one.get("type") != "DisruptionTarget"]
            return {**live, "status": {**status, "conditions": [*others, target]}}

        return self._writes.edit(
            self._pods,
            namespace_of(pod),
            name_of(pod),
            with_target,
            manager="kube-apiserver",
            subresource="status",
        )

    def _decrement(self, pod: Object, *, dry_run: bool) -> None:
        """Take one disruption from the pod's budget; raises StatusError 429 when there is none left."""
        budgets = [self.refresh(budget) for budget in self.budgets_of(pod)]
        if len(budgets) > 1:
            raise errors.internal(_SEVERAL_BUDGETS)
        if not budgets:
            return
        budget = budgets[0]
        status = budget["status"]
        if not is_ready(pod):
            policy = budget["spec"].get("unhealthyPodEvictionPolicy")
            if policy == "AlwaysAllow" or status["currentHealthy"] >= status["desiredHealthy"] > 0:
                return
        if not status["disruptionsAllowed"]:
            raise _rejection(budget)
        if dry_run:
            return
        left = status["disruptionsAllowed"] - 1
        disrupted = {**(status.get("disruptedPods") or {}), name_of(pod): now()}
        spent = {**status, "disruptionsAllowed": left, "disruptedPods": disrupted}
        if not left:
            spent = _with_condition(spent, status, _verdict(left), status["observedGeneration"])
        self._writes.edit(
            self._kind,
            namespace_of(budget),
            name_of(budget),
            lambda live: {**live, "status": spent},
            manager="kube-apiserver",
            subresource="status",
        )


def _selector(budget: Object) -> LabelSelector | None:
    """The budget's selector; None where it selects nothing, because there is none or it cannot be read."""
    try:
        return LabelSelector.optional((budget.get("spec") or {}).get("selector"))
    except InvalidSelector:
        return None


def _rejection(budget: Object) -> StatusError:
    status, name = budget["status"], name_of(budget)
    rejects = f"The disruption budget {name} does not allow evicting pods currently"
    condition: Object = next(
        (one for one in status.get("conditions") or () if one["type"] == "DisruptionAllowed"), {}
    )
    if condition.get("reason") == "SyncFailed":
        why = condition["message"]
        message = f"{rejects} because it failed sync: {why}"
    elif status["currentHealthy"] <= status["desiredHealthy"]:
        needed, healthy = status["desiredHealthy"], status["currentHealthy"]
        message = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    else:
        message = rejects
    return StatusError(
        429,
        "TooManyRequests",
        _VIOLATES,
        details={"causes": [{"reason": "DisruptionBudget", "message": message}]},
    )


def _share(amount: Any, total: int) -> int:
    """A count, or a percentage of the total rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(total * int(amount[:-1]) / 100)
    return int(amount)


def _disrupted_pods(pods: list[Object], disrupted: Object) -> Object:
    here = {name_of(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    kept = {}
    for name, since in disrupted.items():
        then = instant(since)
        if (
            name in here
            and then is not None
            and (datetime.now(UTC) - then).total_seconds() < _DELETION_TIMEOUT
        ):
            kept[name] = since
    return kept


def _verdict(allowed: int) -> tuple[str, str, str]:
    return ("True", "SufficientPods", "") if allowed > 0 else ("False", "InsufficientPods", "")


def _with_condition(status: Object, before: Object, verdict: tuple[str, str, str], generation: int) -> Object:
    """The status with its DisruptionAllowed condition, whose time changes when its status does."""
    answer, reason, message = verdict
    known = {one["type"]: one for one in before.get("conditions") or ()}
    was = known.get("DisruptionAllowed")
    since = was["lastTransitionTime"] if was is not None and was["status"] == answer else now()
    known["DisruptionAllowed"] = {
        "type": "DisruptionAllowed",
        "status": answer,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }
    return {**status, "conditions": list(known.values())}
