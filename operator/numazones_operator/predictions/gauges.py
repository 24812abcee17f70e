"""Gauges of predictions by verdict, of blocked pods by reason, owner and name, and of the work that waits."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.owners import owner_of
from numazones_operator.faults import Faults, of_pod
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.predictions.publisher import PredictionPublisher
from numazones_program.gauges import gauge

_MAX_OWNERS = 50
"""Owners that are shown by name: those with the most blocked pods."""
_MAX_PODS = 50
"""Blocked pods that are shown by name: the oldest."""


class _Blocked(NamedTuple):
    """A pod that no node would take, as it is shown."""

    pod: ClusterPod
    full_name: str
    reason: str
    owner: tuple[str, ...]
    created: float


def _described(item: tuple[ClusterPod, str]) -> _Blocked:
    pod, reason = item
    created = timestamp.parse(pod.created).timestamp() if pod.created else 0.0
    return _Blocked(pod, pod.full_name, reason, (pod.namespace, *owner_of(pod), reason), created)


class PredictionGauges:
    """Gauges of the predictions for waiting pods."""

    def __init__(
        self,
        forecasts: LiveForecasts,
        *,
        recommendation_for: Callable[[str], str] = lambda _uid: "",
        faults: Faults | None = None,
    ) -> None:
        """``recommendation_for`` names the recommendation in force that makes room for the pod of a UID."""
        self._forecasts = forecasts
        self._recommendation_for = recommendation_for
        self._faults = faults or Faults()
        self._verdicts: Mapping[str, int] = {}
        self._blocked: Mapping[tuple[str, str], int] = {}
        self._owners: Sequence[tuple[tuple[str, ...], int]] = ()
        self._pods: Sequence[tuple[tuple[str, ...], float]] = ()

    def renew(self) -> None:
        """Count."""
        self._verdicts = self._forecasts.verdicts()
        self._blocked = self._forecasts.blocked_by()
        asked = self._faults.over(self._forecasts.blocked_pods(), _described, lambda item: of_pod(item[0]))
        blocked = [found for _, found in asked]
        self._owners = Counter(one.owner for one in blocked).most_common(_MAX_OWNERS)
        dated = (one for one in blocked if one.created)
        oldest = heapq.nsmallest(_MAX_PODS, dated, key=lambda one: (one.created, one.full_name))
        self._pods = [
            (
                (one.pod.namespace, one.pod.name, one.reason, self._recommendation_for(one.pod.uid)),
                one.created,
            )
            for one in oldest
        ]

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
            "Pods that no node would admit, by what rejects them (Kubelet, Scheduler) and the most "
            "important reason.",
            ("source", "reason"),
            self._blocked.items(),
        )
        yield gauge(
            "numazones_owner_blocked_pods",
            "Pods that no node would admit, by owner (a Deployment, not its ReplicaSet; empty for a pod "
            f"without an owner) and the most important reason: the {_MAX_OWNERS} owners with the most of "
            "them.",
            ("namespace", "owner_kind", "owner", "reason"),
            self._owners,
        )
        yield gauge(
            "numazones_blocked_pod_created_timestamp_seconds",
            "Creation time of pods that no node would admit, with the most important reason and the "
            f"RebalanceRecommendation in force that makes room: the {_MAX_PODS} oldest.",
            ("namespace", "pod", "reason", "recommendation"),
            self._pods,
        )


class QueueGauges:
    """Gauges of the operator's own work."""

    def __init__(self, forecasts: LiveForecasts, publisher: PredictionPublisher) -> None:
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
            "Length of the queues: changes to process, and objects to write.",
            ("queue",),
            [(("changes",), self._changes), (("writes",), self._writes)],
        )
