"""Pods that kubelets rejected, by owner: a controller that replaces each one runs in a loop."""

from prometheus_client import CollectorRegistry, Counter

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.owners import owner_of

_MAX_SERIES = 200
"""Series that are kept: those counted last."""


class OwnerRejections:
    """One counter for each owner and reason, of the owners whose pods were rejected last."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "numazones_owner_rejections_total",
            f"Pods that a kubelet rejected, by owner and the kubelet's reason: the {_MAX_SERIES} most "
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
