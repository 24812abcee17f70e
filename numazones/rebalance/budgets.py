"""PodDisruptionBudgets: whether the API server would let a pod be evicted, over all moves of a plan.

Rules are those of the eviction subresource in kube-apiserver 1.36 (policy/v1). Only the API server enforces
budgets, and only at the moment of the eviction; a plan must know before. Each planned eviction uses up
one of ``status.disruptionsAllowed``, though replacements may give it back while the plan is carried out:
what has not happened yet is not counted on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from numazones.apimachinery.label_selector import InvalidSelector, LabelSelector
from numazones.cluster.cluster import ClusterPod
from numazones.errors import About
from numazones.wording import pluralize

ALWAYS_ALLOW = "AlwaysAllow"
_MAX_DISRUPTED_PODS = 2000


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget."""

    KIND: ClassVar[str] = "PodDisruptionBudget"

    namespace: str
    name: str
    selector: LabelSelector | None
    """None where it selects nothing, because there is none or because it cannot be read."""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"
    disrupted_pods: int = 0
    """How many evictions the disruption controller has yet to confirm."""
    observed: bool = True
    """Whether the status belongs to the current spec."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> Self:
        """Read a policy/v1 PodDisruptionBudget."""
        metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            selector=_selector(spec),
            disruptions_allowed=status.get("disruptionsAllowed", 0),
            current_healthy=status.get("currentHealthy", 0),
            desired_healthy=status.get("desiredHealthy", 0),
            unhealthy_pod_eviction_policy=spec.get("unhealthyPodEvictionPolicy") or "IfHealthyBudget",
            disrupted_pods=len(status.get("disruptedPods") or ()),
            observed=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        )

    def selects(self, pod: ClusterPod) -> bool:
        """Return whether the budget protects the pod."""
        selector = self.selector if pod.namespace == self.namespace else None
        return selector is not None and selector.matches(pod.labels)

    def ignores(self, pod: ClusterPod) -> bool:
        """Return whether an eviction of the pod would not count, because the pod is unhealthy."""
        if pod.ready:
            return False
        return self.unhealthy_pod_eviction_policy == ALWAYS_ALLOW or (
            self.current_healthy >= self.desired_healthy > 0
        )

    def rejection(self, *, used: int) -> str:
        """Say why one more eviction is rejected after ``used`` planned ones; empty if it is not."""
        name = f"{self.namespace}/{self.name}"
        if not self.observed:
            return f"PodDisruptionBudget {name} is still being processed by the disruption controller"
        if self.disruptions_allowed < 0:
            return f"PodDisruptionBudget {name} has a negative number of allowed disruptions"
        if self.disrupted_pods + used > _MAX_DISRUPTED_PODS:
            return f"PodDisruptionBudget {name} has too many evictions that have not been confirmed yet"
        if self.disruptions_allowed > used:
            return ""
        if used:
            return (
                f"blocked by PodDisruptionBudget {name}: the plan already uses the "
                f"{pluralize(self.disruptions_allowed, 'eviction')} that it allows"
            )
        return (
            f"blocked by PodDisruptionBudget {name}: needs {self.desired_healthy} healthy pods, "
            f"has {self.current_healthy}"
        )


@dataclass(frozen=True, slots=True)
class BudgetHeadroom:
    """The evictions that budgets still allow after some planned ones."""

    budgets: Mapping[str, tuple[Budget, ...]] = field(default_factory=dict)
    """Namespace → its budgets."""
    used: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(namespace, name) → planned evictions that count."""

    @classmethod
    def of(cls, budgets: Iterable[Budget]) -> Self:
        """Return the headroom before any eviction."""
        grouped: dict[str, tuple[Budget, ...]] = {}
        for budget in budgets:
            grouped[budget.namespace] = (*grouped.get(budget.namespace, ()), budget)
        return cls(grouped)

    def budgets_of(self, pod: ClusterPod) -> tuple[Budget, ...]:
        """Return the budgets that protect the pod."""
        return tuple(budget for budget in self.budgets.get(pod.namespace, ()) if _selects(budget, pod))

    def rejection(self, pod: ClusterPod) -> str:
        """Say why the API server would not evict the pod now; empty if it would."""
        if _ignores_budgets(pod):
            return ""
        selecting = self.budgets_of(pod)
        if len(selecting) > 1:
            names = ", ".join(f"{budget.namespace}/{budget.name}" for budget in selecting)
            return (
                "more than one PodDisruptionBudget selects the pod, so the API server rejects its eviction: "
                f"{names}"
            )
        for budget in selecting:
            with About(budget):
                if not budget.ignores(pod):
                    return budget.rejection(used=self.used.get((budget.namespace, budget.name), 0))
        return ""

    def after(self, pod: ClusterPod) -> "BudgetHeadroom":
        """Return the headroom after the pod's eviction."""
        if _ignores_budgets(pod):
            return self
        used = dict(self.used)
        for budget in self.budgets_of(pod):
            with About(budget):
                if not budget.ignores(pod):
                    key = (budget.namespace, budget.name)
                    used[key] = used.get(key, 0) + 1
        return BudgetHeadroom(self.budgets, used)


def _ignores_budgets(pod: ClusterPod) -> bool:
    """Return whether the API server deletes the pod without a look at budgets, as it disrupts nothing."""
    return pod.terminal or pod.phase == "Pending" or pod.deleting


def _selects(budget: Budget, pod: ClusterPod) -> bool:
    with About(budget):
        return budget.selects(pod)


def _selector(spec: Mapping[str, Any]) -> LabelSelector | None:
    try:
        return LabelSelector.optional(spec.get("selector"))
    except InvalidSelector:
        return None
