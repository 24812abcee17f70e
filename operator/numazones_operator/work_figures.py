"""Predictions by verdict, blocked pods by reason, and what waits to be done, as gauges."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from numazones_operator.live_forecasts import LiveForecasts
from numazones_operator.publisher import Publisher


class PredictionFigures:
    """Gauges of the predictions for waiting pods."""

    def __init__(self, forecasts: LiveForecasts) -> None:
        self._forecasts = forecasts
        self._verdicts: Mapping[str, int] = {}
        self._blocked: Mapping[tuple[str, str], int] = {}

    def renew(self) -> None:
        """Count."""
        self._verdicts = self._forecasts.verdicts()
        self._blocked = self._forecasts.blocked_by()

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges as they were renewed last."""
        verdicts = GaugeMetricFamily(
            "numazones_predictions", "Pods without a node, by verdict.", labels=("verdict",)
        )
        for verdict, count in self._verdicts.items():
            verdicts.add_metric((verdict,), count)
        yield verdicts
        blocked = GaugeMetricFamily(
            "numazones_blocked_pods",
            "Pods that no node would take, by who stands in the way and the most important reason.",
            labels=("source", "reason"),
        )
        for labels, count in self._blocked.items():
            blocked.add_metric(labels, count)
        yield blocked


class QueueFigures:
    """Gauges of the operator's own work."""

    def __init__(self, forecasts: LiveForecasts, publisher: Publisher) -> None:
        self._forecasts = forecasts
        self._publisher = publisher
        self._depths: Mapping[str, int] = {}

    def renew(self) -> None:
        """Count."""
        self._depths = {"changes": self._forecasts.backlog, "writes": self._publisher.depth}

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges as they were renewed last."""
        depth = GaugeMetricFamily(
            "numazones_operator_queue_depth",
            "What waits: changes to be looked at, and objects to be written.",
            labels=("queue",),
        )
        for queue, number in self._depths.items():
            depth.add_metric((queue,), number)
        yield depth
