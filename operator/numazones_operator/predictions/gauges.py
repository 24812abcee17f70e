"""Gauges of predictions by verdict, of blocked pods by reason, owner and name, and of the work that waits."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.owners import owner_of
from numazones_operator.faults import ObjectFaults, of_pod
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


@dataclass(frozen=True, slots=True)
class PredictionGauges:
    """Gauges of the predictions for waiting pods."""

    forecasts: LiveForecasts
    _: KW_ONLY
    recommendation_for: Callable[[str], str] = lambda _uid: ""
    """Names the recommendation in force that makes room for the pod of a UID."""
    faults: ObjectFaults = field(default_factory=ObjectFaults)

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        asked = self.faults.over(self.forecasts.blocked_pods(), _described, lambda item: of_pod(item[0]))
        blocked = [found for _, found in asked]
        dated = (one for one in blocked if one.created)
        oldest = heapq.nsmallest(_MAX_PODS, dated, key=lambda one: (one.created, one.full_name))
        return [
            gauge(
                "numazones_predictions",
                "Pods without a node, by verdict.",
                ("verdict",),
                (((verdict,), count) for verdict, count in self.forecasts.verdicts().items()),
            ),
            gauge(
                "numazones_blocked_pods",
                "Pods that no node would admit, by the source of the rejection (such as Kubelet or "
                "Scheduler) and the most important reason.",
                ("source", "reason"),
                self.forecasts.blocked_by().items(),
            ),
            gauge(
                "numazones_owner_blocked_pods",
                "Pods that no node would admit, by owner (the Deployment rather than its ReplicaSet; "
                f"empty for pods without an owner) and the most important reason: the {_MAX_OWNERS} owners "
                "with the most such pods.",
                ("namespace", "owner_kind", "owner", "reason"),
                Counter(one.owner for one in blocked).most_common(_MAX_OWNERS),
            ),
            gauge(
                "numazones_blocked_pod_created_timestamp_seconds",
                "Creation time of pods that no node would admit, with the most important reason and the "
                f"active RebalanceRecommendation that makes room for the pod: the {_MAX_PODS} oldest pods.",
                ("namespace", "pod", "reason", "recommendation"),
                [
                    (
                        (one.pod.namespace, one.pod.name, one.reason, self.recommendation_for(one.pod.uid)),
                        one.created,
                    )
                    for one in oldest
                ],
            ),
        ]


@dataclass(frozen=True, slots=True)
class QueueGauges:
    """Gauges of the operator's own work."""

    forecasts: LiveForecasts
    publisher: PredictionPublisher

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        return [
            gauge(
                "numazones_operator_queue_depth",
                "Length of each queue: changes to process, and objects to write.",
                ("queue",),
                [(("changes",), self.forecasts.backlog), (("writes",), self.publisher.depth)],
            )
        ]
