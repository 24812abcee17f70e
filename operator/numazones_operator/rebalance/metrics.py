"""Metrics of rebalancing: every one says its mode; named like the descheduler's where they mean the same."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RebalanceMetrics:
    """Counters and histograms of plans and moves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.recommendations = Counter(
            "numazones_rebalance_recommendations_total",
            "Recommendations by the phase that they entered: Proposed, Approved, Executing, Succeeded, "
            "Failed, Expired, Superseded.",
            ("mode", "policy", "phase"),
            registry=registry,
        )
        self.moves = Counter(
            "numazones_rebalance_moves_total",
            "Moves by what came of them: recommended, approved, executed, failed.",
            ("mode", "policy", "result"),
            registry=registry,
        )
        self.evicted = Counter(
            "numazones_rebalance_pods_evicted_total",
            "Requests for an eviction, like the descheduler's pods_evicted: success, error, or blocked by a "
            "PodDisruptionBudget (asked again later).",
            ("result", "mode", "policy", "namespace", "node"),
            registry=registry,
        )
        self.gain = Counter(
            "numazones_rebalance_gain_total",
            "What finished plans gained, confirmed by zones: pods or shapes that fit, pods out of the way.",
            ("mode", "policy"),
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "numazones_rebalance_plan_duration_seconds",
            "Time to look for one plan, by whether one was found.",
            ("mode", "found"),
            buckets=_SECONDS,
            registry=registry,
        )
