"""Every metric of the operator, in one registry that is handed in.

Names begin with ``numazones_``, units are base units, nothing is labelled by pod. The one exception is
``cpu_manager_numa_allocation_spread``, which KEP-2902 names; ``numazones_topology_manager_admission_*`` and
``numazones_container_aligned_compute_resources_*`` mirror the kubelet's metrics of these names for the
admissions that the model makes. What the cluster holds is reported by the leader alone, so that sums over
replicas count nothing twice; ``docs/reference/metrics.md`` lists everything.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.owners import owner_of
from numazones.placement import models
from numazones.placement.kubelet import KUBELET
from numazones_client import APIError, Resource, Unreachable
from numazones_program import self_metrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# The kubelet's own buckets for an admission, doubling from 50 µs.
_ADMISSION_SECONDS = tuple(0.00005 * 2**power for power in range(15))


_MAX_SERIES = 200
"""Series of rejections by owner that are kept: those counted last."""

_log = logging.getLogger(__name__)


class Metrics:
    """The operator's counters and histograms; gauges about the cluster come from collectors."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self_metrics.register(registry, prefix="numazones_operator")
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self.leader = Gauge(
            "numazones_operator_leader", "1 if this replica is the leader, 0 otherwise.", registry=registry
        )
        self.watch_restarts = counter(
            "numazones_operator_watch_restarts_total",
            "Watches that ended, by resource and reason: ended (closed by the server on time), broken, "
            "expired (410 Gone), rejected or unreachable.",
            ("resource", "reason"),
        )
        self.list_seconds = histogram(
            "numazones_operator_list_duration_seconds",
            "Time to list all objects of a resource.",
            ("resource",),
        )
        self.api_writes = counter(
            "numazones_operator_api_writes_total",
            "Writes to the API server, by resource and result: ok, the HTTP status of the failure, or "
            "unreachable.",
            ("resource", "result"),
        )
        self.object_errors = counter(
            "numazones_operator_object_errors_total",
            "Failures to read or evaluate an object, by kind and error. The object is then treated as "
            "missing or as Unknown, an event on it says why, and other objects are not affected.",
            ("kind", "error"),
        )
        self.events_dropped = counter(
            "numazones_operator_events_dropped_total",
            "Events dropped because of the rate limit.",
        )
        self.lag_seconds = histogram(
            "numazones_operator_lag_seconds",
            "Time between observing a change and publishing the resulting prediction.",
        )
        self.compute_seconds = histogram(
            "numazones_operator_compute_duration_seconds",
            "Time to update all predictions after a batch of changes.",
        )
        self.outcomes = counter(
            "numazones_prediction_outcomes_total",
            "Pods bound to a node, by the prediction for that node and the kubelet's decision: Admitted, "
            "or the reason for the rejection.",
            ("predicted", "actual"),
        )
        self.accuracy = counter(
            "numazones_prediction_accuracy_total",
            "Pods bound to a node, by accuracy of the prediction and by placement model. The accuracy is "
            "right, unknown if nothing was predicted, or the cause of a wrong prediction: race (pods came "
            "or went, and the kubelet noticed first), stale (NUMAZones were out of date) or model. The "
            "model is kubelet, the name of another placement model, or unknown; for dra, a prediction is "
            "right if the claims got the predicted devices. Wrong predictions are counted up to 30 s late.",
            ("accuracy", "model"),
        )
        self.gates_released = counter(
            "numazones_admission_gates_released_total",
            "Pods whose scheduling gate was removed, by reason: admissible, devices (admissible, but the "
            "nodes are only a preference, because the scheduler must still find devices for the pod), "
            "preemption (the scheduler has to preempt less important pods), unconcerned (no NUMA "
            "requirements) or timeout.",
            ("reason",),
        )
        self.released_pods_replaced = counter(
            "numazones_released_pods_replaced_total",
            "Pods evicted before they were bound, because all nodes that the gate had released them to "
            "were gone, cordoned or tainted.",
        )
        self._start_at_zero()
        self.owner_rejections = OwnerRejections(registry)
        self._admission_metrics(registry)

    def _start_at_zero(self) -> None:
        """Start series at 0 before they are counted: of one that begins at 1, no rate shows the first."""
        for reason in ("admissible", "devices", "preemption", "unconcerned", "timeout"):
            self.gates_released.labels(reason)

    def expect_accuracies(self, accuracies: Iterable[str]) -> None:
        """Start the counters of predictions at 0, for every model."""
        for model in (KUBELET, *models.models()):
            for accuracy in accuracies:
                self.accuracy.labels(accuracy.lower(), model)

    def _admission_metrics(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.admission_requests = counter(
            "numazones_topology_manager_admission_requests_total",
            "Admissions simulated by the model, for pods on the nodes that they were bound to.",
        )
        self.admission_errors = counter(
            "numazones_topology_manager_admission_errors_total",
            "Simulated admissions that the model rejected, by the kubelet's reason.",
            ("reason",),
        )
        self.admission_seconds = Histogram(
            "numazones_topology_manager_admission_duration_seconds",
            "Time to simulate one admission.",
            buckets=_ADMISSION_SECONDS,
            registry=registry,
        )
        self.aligned = counter(
            "numazones_container_aligned_compute_resources_count",
            "Containers or whole pods that the model aligned, by scope and boundary, counted as the "
            "kubelet does.",
            ("scope", "boundary"),
        )
        self.unaligned = counter(
            "numazones_container_aligned_compute_resources_failure_count",
            "Containers or whole pods that the model could not align, so it rejected the pod.",
            ("scope", "boundary"),
        )

    def count_accuracy(self, accuracy: str, model: str | None) -> None:
        """Count a prediction by how right it was."""
        self.accuracy.labels(accuracy.lower(), model or "unknown").inc()

    def count_restart(self, resource: str, reason: str) -> None:
        """Count the end of a watch."""
        self.watch_restarts.labels(resource, reason).inc()

    def count_write(self, resource: Resource, error: APIError | None = None) -> None:
        """Count a write that succeeded, or its error."""
        result = "ok" if error is None else str(error.code)
        if isinstance(error, Unreachable):
            result = "unreachable"
        self.api_writes.labels(resource.plural, result).inc()

    def count_object_error(self, kind: str, error: str) -> None:
        """Count an object that could not be read or decided about."""
        self.object_errors.labels(kind, error).inc()

    def observe_list(self, resource: str, seconds: float) -> None:
        """Observe how long a whole list took."""
        self.list_seconds.labels(resource).observe(seconds)


class OwnerRejections:
    """One counter for each owner and reason, of the owners whose pods were rejected last.

    A controller that replaces each rejected pod runs in a loop.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "numazones_owner_rejections_total",
            f"Pods that kubelets rejected, by owner and the kubelet's reason: the {_MAX_SERIES} most "
            "recent series.",
            ("namespace", "owner_kind", "owner", "reason"),
            registry=registry,
        )
        self._latest: dict[tuple[str, ...], None] = {}

    def count(self, pod: ClusterPod, reason: str) -> None:
        """Count a rejection; forget the owner that was counted longest ago where there are too many."""
        labels = (pod.namespace, *owner_of(pod), reason)
        self._latest.pop(labels, None)
        self._latest[labels] = None
        self._counter.labels(*labels).inc()
        if len(self._latest) > _MAX_SERIES:
            oldest = next(iter(self._latest))
            del self._latest[oldest]
            self._counter.remove(*oldest)


class Gauges(Protocol):
    """Gauges that are computed when Prometheus scrapes."""

    def families(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges of this moment.

        It is called on the event loop, so it has to be quick; what it returns is read in another thread.
        """


class GaugeCollector(Collector):
    """Shows gauges, those about the cluster only while this replica leads."""

    def __init__(self, gauges: Gauges, *, visible: Callable[[], bool] = lambda: True) -> None:
        self.gauges = gauges
        self._is_visible = visible
        self._families: Iterable[GaugeMetricFamily] = ()

    def renew(self) -> None:
        """Take the values of this moment, on the event loop."""
        self._families = ()
        if self._is_visible():
            try:
                self._families = self.gauges.families()
            except Exception:  # noqa: BLE001 - the other gauges are shown
                _log.exception("could not update the gauges of %s", type(self.gauges).__name__)

    def describe(self) -> list[Metric]:
        """Return nothing: which gauges there are is known only when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges as they were renewed last, in whatever thread writes them out."""
        yield from self._families
