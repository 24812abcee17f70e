"""Predictions by verdict, blocked pods by reason and owner, gated pods, and work that waits, as gauges."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily

from numazones_operator.placement.admission_gates import AdmissionGates
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.predictions.publisher import Publisher
from numazones_operator.verification.owner_rejections import owner_of
from numazones_program.gauges import gauge

_MAX_OWNERS = 50
"""Owners that are shown by name: those with the most blocked pods."""


class PredictionGauges:
    """Gauges of the predictions for waiting pods."""

    def __init__(self, forecasts: LiveForecasts) -> None:
        self._forecasts = forecasts
        self._verdicts: Mapping[str, int] = {}
        self._blocked: Mapping[tuple[str, str], int] = {}
        self._owners: Sequence[tuple[tuple[str, ...], int]] = ()

    def renew(self) -> None:
        """Count."""
        self._verdicts = self._forecasts.verdicts()
        self._blocked = self._forecasts.blocked_by()
        owners = Counter(
            (pod.namespace, *owner_of(pod), reason) for pod, reason in self._forecasts.blocked_pods()
        )
        self._owners = owners.most_common(_MAX_OWNERS)

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges as they were renewed last."""
        yield gauge(
            "numazones_predictions",
            "Pods without a node, by verdict.",
            ("verdict",),
            (((verdict,), count) for verdict, count in self._verdicts.items()),
        )
        yield gauge(
            "numazones_blocked_pods",
            "Pods that no node would take, by who stands in the way (Kubelet, Scheduler) and the most "
            "important reason.",
            ("source", "reason"),
            self._blocked.items(),
        )
        yield gauge(
            "numazones_owner_blocked_pods",
            "The same by owner (a Deployment, not its ReplicaSet; empty for a pod that nobody owns) and the "
            f"most important reason: the {_MAX_OWNERS} owners with the most.",
            ("namespace", "owner_kind", "owner", "reason"),
            self._owners,
        )


class GateGauges:
    """Gauge of the pods that carry the admission gate."""

    def __init__(self, gates: AdmissionGates) -> None:
        self._gates = gates
        self._waiting = self._unserved = 0

    def renew(self) -> None:
        """Count."""
        self._waiting, self._unserved = self._gates.gated_pod_counts()

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge as it was renewed last."""
        yield gauge(
            "numazones_gated_pods",
            "Pods with the admission gate: true where the operator releases them, false where nobody does.",
            ("served",),
            [(("true",), self._waiting), (("false",), self._unserved)],
        )


class QueueGauges:
    """Gauges of the operator's own work."""

    def __init__(self, forecasts: LiveForecasts, publisher: Publisher) -> None:
        self._forecasts = forecasts
        self._publisher = publisher
        self._changes = self._writes = 0

    def renew(self) -> None:
        """Count."""
        self._changes, self._writes = self._forecasts.backlog, self._publisher.depth

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges as they were renewed last."""
        yield gauge(
            "numazones_operator_queue_depth",
            "What waits: changes to be looked at, and objects to be written.",
            ("queue",),
            [(("changes",), self._changes), (("writes",), self._writes)],
        )
