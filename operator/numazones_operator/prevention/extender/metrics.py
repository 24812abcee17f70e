"""Metrics of the scheduler extender; kube-scheduler itself has none of its calls to extenders."""

from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from numazones_operator.prevention.held_room import HeldRoom
from numazones_program.gauges import gauge

VERBS = ("filter", "prioritize", "preempt", "bind")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ExtenderMetrics:
    """Counters and histograms."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.seconds = Histogram(
            "numazones_extender_request_duration_seconds",
            "Time to respond to kube-scheduler, by verb; the scheduler waits during filter, prioritize "
            "and preempt.",
            ("verb",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.errors = counter(
            "numazones_extender_errors_total",
            "Requests that failed, by verb.",
            ("verb",),
        )
        self.rejected_nodes = counter(
            "numazones_extender_rejected_nodes_total",
            "Nodes ruled out in filter requests, by reason; each node counts once per request.",
            ("reason",),
        )
        self.rejected_pods = counter(
            "numazones_extender_rejected_pods_total", "Filter requests in which no node passed."
        )
        self.sampled = counter(
            "numazones_extender_sampled_requests_total",
            "Filter requests in which no node passed, although a node that the scheduler had left out would "
            "admit the pod: set percentageOfNodesToScore to 100.",
        )
        self.repeated = counter(
            "numazones_extender_repeated_requests_total",
            "Excess filter requests for one pod: those within 10 s that exceed 20 plus the number of "
            "changes to bound pods in that time. They are a sign that something keeps requeuing the pod.",
        )
        self.unread = counter(
            "numazones_extender_unread_answers_total",
            "Responses sent after the scheduler had given up, by verb: its httpTimeout is too short, or "
            "this process is too slow.",
            ("verb",),
        )
        self.vetoed = counter(
            "numazones_extender_vetoed_preemptions_total",
            "Nodes ruled out in preempt requests, because they would not admit the pod even after the "
            "evictions.",
        )
        self.bind_conflicts = counter(
            "numazones_extender_bind_conflicts_total",
            "Bindings refused because the node had changed since it was chosen.",
        )
        self.woken = counter(
            "numazones_extender_woken_pods_total",
            "Pods annotated so that the scheduler retries them, because a node would admit them now.",
        )
        self.serving = Gauge(
            "numazones_extender_serving",
            "1 if this replica serves the scheduler extender, 0 otherwise.",
            registry=registry,
        )
        for verb in VERBS:
            self.seconds.labels(verb)
            self.errors.labels(verb)
            self.unread.labels(verb)


@dataclass(frozen=True, slots=True)
class HeldRoomGauges:
    """Gauge of the pods that room is held for."""

    held: HeldRoom

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        pods = {pod.uid for pods in self.held.by_node().values() for pod in pods}
        return [
            gauge(
                "numazones_held_room_pods",
                "Pods on their way to a node for which room is held: released from the gate, being bound, "
                "or nominated.",
                (),
                [((), len(pods))],
            )
        ]
