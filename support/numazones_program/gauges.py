"""Gauges whose values are computed when Prometheus asks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from numazones.apimachinery.resources import is_memory

_ZONE_LABELS = ("node", "numa_node", "resource", "unit")


def gauge(
    name: str, documentation: str, labels: Sequence[str], figures: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """Return a gauge; each figure comes with the values of its labels."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, figure in figures:
        family.add_metric(values, figure)
    return family


def zone_gauges(
    prefix: str, documentation: Mapping[str, str], zones: Iterable[tuple[str, int, str, Any]]
) -> Iterator[GaugeMetricFamily]:
    """Yield a gauge per amount of the zones' resources.

    Args:
        prefix: of the gauges' names.
        documentation: amount → what its gauge says.
        zones: (node, NUMA id, resource, what has the amounts as attributes, None where one is unknown).
    """
    held = list(zones)
    for amount, text in documentation.items():
        figures = (
            ((node, str(numa), resource, unit(resource)), getattr(amounts, amount))
            for node, numa, resource, amounts in held
            if getattr(amounts, amount) is not None
        )
        yield gauge(f"{prefix}_{amount}", text, _ZONE_LABELS, figures)


def unit(resource: str) -> str:
    """Return the unit of a resource's amounts, as kube-state-metrics does."""
    if resource == "cpu":
        return "core"
    return "byte" if is_memory(resource) else "integer"
