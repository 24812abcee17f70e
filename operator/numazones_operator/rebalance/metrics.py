"""Metrics of rebalancing: every one says its mode; named like the descheduler's where they mean the same."""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from numazones.api.rebalance import ACTIVE, PlanPhase, RecommendedMove
from numazones.cluster.cluster import is_true
from numazones_operator.rebalance.conflicts import CONFLICTED
from numazones_operator.rebalance.intent import Intent
from numazones_operator.rebalance.readiness import READY
from numazones_program.gauges import gauge

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RebalanceMetrics:
    """Counters and histograms of plans and moves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.recommendations = counter(
            "numazones_rebalance_recommendations_total",
            "Recommendations, by the phase that they entered: Proposed, Approved, Executing, Succeeded, "
            "Failed, Expired, Superseded or Rejected.",
            ("mode", "policy", "phase"),
        )
        self.moves = counter(
            "numazones_rebalance_moves_total",
            "Moves, by result: recommended, approved, executed or failed.",
            ("mode", "policy", "result"),
        )
        self.evicted = counter(
            "numazones_rebalance_pods_evicted_total",
            "Eviction requests, by result as in the descheduler's pods_evicted: success, error, or "
            "blocked by a PodDisruptionBudget (and retried later).",
            ("result", "mode", "policy", "namespace", "node"),
        )
        self.gain = counter(
            "numazones_rebalance_gain_total",
            "Gain of finished plans, as confirmed by NUMAZones: pods or shapes that now fit, pods moved "
            "off a node or NUMA node, or pods that are now aligned.",
            ("mode", "policy"),
        )
        self.plan_seconds = Histogram(
            "numazones_rebalance_plan_duration_seconds",
            "Duration of each search for a plan, by whether a plan was found.",
            ("mode", "found"),
            buckets=_SECONDS,
            registry=registry,
        )

    def expect(self, mode: str, policy: str) -> None:
        """Start the counters of a policy at 0: of one that begins at 1, no rate shows the first event."""
        for phase in PlanPhase:
            self.recommendations.labels(mode, policy, phase)
        for result in ("recommended", "approved", "executed", "failed"):
            self.moves.labels(mode, policy, result)
        self.gain.labels(mode, policy)
        for found in ("true", "false"):
            self.plan_seconds.labels(mode, found)

    def expect_evictions(self, mode: str, policy: str, moves: Iterable[RecommendedMove]) -> None:
        """Start the counters of a plan's moves at 0."""
        for move in moves:
            for result in ("success", "error", "blocked"):
                self.evicted.labels(result, mode, policy, move.pod.namespace, move.source.node)


@dataclass(frozen=True, slots=True)
class RebalanceGauges:
    """Gauges of policies, and of plans that have not ended."""

    intent: Intent

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        policies = {(policy.spec.mode, policy.name): policy.status for policy in self.intent.policies}
        ready, conflicted = (
            {policy: is_true(status, kind) for policy, status in policies.items()}
            for kind in (READY, CONFLICTED)
        )
        return [
            gauge(
                "numazones_rebalance_policy_ready",
                "1 if the RebalancePolicy is valid and followed, 0 otherwise. Its condition Ready "
                "gives the reason.",
                ("mode", "policy"),
                ready.items(),
            ),
            gauge(
                "numazones_rebalance_policy_conflicted",
                "1 if plans of the RebalancePolicy and those of another policy would undo each other, 0 "
                "otherwise.",
                ("mode", "policy"),
                conflicted.items(),
            ),
            gauge(
                "numazones_rebalance_active_plans",
                "Recommendations that have not ended, by phase.",
                ("mode", "policy", "phase"),
                self._plans(policies).items(),
            ),
        ]

    def _plans(self, policies: Iterable[tuple[str, str]]) -> dict[tuple[str, str, str], int]:
        modes = {name: mode for mode, name in policies}
        plans = Tally(
            (modes.get(plan.spec.policy) or plan.status.mode, plan.spec.policy, plan.status.phase)
            for plan in self.intent.in_force()
        )
        none = {(mode, name, str(phase)): 0 for name, mode in modes.items() for phase in ACTIVE}
        return {**none, **plans}
