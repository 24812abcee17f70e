"""The exporter's own metrics: what each zone holds, how reading and writing go, what the process uses.

Names begin with ``numazones_``; units are base units, as Prometheus asks. Amounts of a resource carry
``resource`` and ``unit`` labels as kube-state-metrics does (CPUs in ``core``, memory and hugepages in
``byte``, devices as ``integer``). Everything lives in the registry that is handed in, so that tests
and several exporters in one process do not share counters.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from numazones import quantity
from numazones.resources import is_memory
from numazones_program import self_metrics

AMOUNTS = {
    "capacity": "What the hardware of the zone has.",
    "reserved": "What the kubelet keeps from pods in the zone.",
    "allocatable": "What pods can be given in the zone.",
    "assigned": "What containers were given exclusively in the zone.",
    "available": "What the zone could still give.",
}
"""Field of a zone's resource → what the gauge of that name says."""

_ZONE_LABELS = ("node", "numa_node", "resource", "unit")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """The amounts of one resource in one zone, in base units; None where unknown."""

    node: str
    numa_id: int
    resource: str
    amounts: Mapping[str, float | None]
    """Keys as in ``AMOUNTS``."""


class Metrics:
    """Every metric of the exporter, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything."""
        self.registry = registry
        self._zones: tuple[ZoneAmounts, ...] = ()
        self_metrics.register(registry, prefix="numazones_exporter")
        self.scan_seconds = Histogram(
            "numazones_exporter_scan_duration_seconds",
            "Time to read the whole node once.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.source_seconds = Histogram(
            "numazones_exporter_source_duration_seconds",
            "Time to read one source.",
            ("source",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.source_errors = Counter(
            "numazones_exporter_source_errors_total",
            "Reads of a source that failed.",
            ("source",),
            registry=registry,
        )
        self.wakeups = Counter(
            "numazones_exporter_wakeups_total",
            "Why the node was read; a reading may have several reasons.",
            ("reason",),
            registry=registry,
        )
        self.api_writes = Counter(
            "numazones_exporter_api_writes_total",
            "Writes to the API server by kind of object and result (the HTTP status or 'unreachable').",
            ("kind", "result"),
            registry=registry,
        )
        self.published = Gauge(
            "numazones_exporter_last_publish_timestamp_seconds",
            "Unix time at which the API server was last known to hold this node's zones.",
            registry=registry,
        )
        registry.register(_ZonesCollector(self))

    @property
    def zones(self) -> tuple[ZoneAmounts, ...]:
        """The amounts of the zones as last read."""
        return self._zones

    def show(self, zones: Iterable[ZoneAmounts]) -> None:
        """Replace the zones' amounts; zones and resources that vanished leave no series behind."""
        self._zones = tuple(zones)


def unit(resource: str) -> str:
    """Name the unit of a resource's amounts."""
    if resource == "cpu":
        return "core"
    return "byte" if is_memory(resource) else "integer"


def amount(text: str | int) -> float:
    """Turn a Kubernetes quantity into a base unit's number, milli-CPUs included.

    Raises:
        numazones.quantity.InvalidQuantity: the text is no quantity.
    """
    return quantity.parse(text).milli() / 1000


class _ZonesCollector(Collector):
    """Turns the amounts of the moment into gauges when Prometheus asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for name, documentation in AMOUNTS.items():
            family = GaugeMetricFamily(f"numazones_zone_{name}", documentation, labels=_ZONE_LABELS)
            for zone in self._metrics.zones:
                value = zone.amounts.get(name)
                if value is not None:
                    family.add_metric(
                        (zone.node, str(zone.numa_id), zone.resource, unit(zone.resource)), value
                    )
            yield family
