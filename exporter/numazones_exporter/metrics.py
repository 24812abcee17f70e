"""The exporter's own metrics: what each zone holds, how reading and writing go, what the process uses.

Names begin with ``numazones_``; units are base units, as Prometheus asks. Amounts of a resource carry
``resource`` and ``unit`` labels as kube-state-metrics does (CPUs in ``core``, memory and hugepages in
``byte``, devices as ``integer``). Everything lives in the registry that is handed in, so that tests
and several exporters in one process do not share counters.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from numazones.api.amounts import ResourceAmounts
from numazones.cpuset import CPUSet
from numazones_exporter.observation import ORDER
from numazones_exporter.resident_memory import confines, resident_memory
from numazones_exporter.sources.cgroups import CgroupReader
from numazones_exporter.usage_metrics import SOURCES, CPUUsageTracker, UsageCollector
from numazones_node.problems import SourceError
from numazones_program import self_metrics
from numazones_program.gauges import gauge, zone_gauges

AMOUNTS = {
    "capacity": "Amount that the hardware of the NUMA node provides.",
    "reserved": "Amount that the kubelet reserves on the NUMA node.",
    "allocatable": "Amount that can be allocated to pods on the NUMA node.",
    "assigned": "Amount that containers hold exclusively on the NUMA node.",
    "available": "Amount still available on the NUMA node.",
}
"""Field of a zone's resource → what the gauge of that name says."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


CGROUPS = "cgroups"
"""The source that is read when Prometheus asks, and no part of the zones."""

_log = logging.getLogger(__name__)


class ExporterMetrics:
    """Every metric of the exporter, in one registry."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        cgroups: CgroupReader | None = None,
        usage: CPUUsageTracker | None = None,
    ) -> None:
        """Register everything; what ``cgroups`` counts, and what ``usage`` measures, where they are given."""
        self.registry = registry
        self.usage = usage
        self._homes: Mapping[str, int] = {}
        self._cpus_of_numa: Mapping[int, CPUSet] = {}
        self._node = ""
        self._zones: Mapping[int, tuple[ResourceAmounts, ...]] = {}
        self_metrics.register(registry, prefix="numazones_exporter")
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=registry)
        self.scan_seconds = histogram(
            "numazones_exporter_scan_duration_seconds", "Time to read the whole node once."
        )
        self.source_seconds = histogram(
            "numazones_exporter_source_duration_seconds", "Time to read one source.", ("source",)
        )
        self.source_errors = counter(
            "numazones_exporter_source_errors_total", "Failed reads of a source.", ("source",)
        )
        for source in (
            *ORDER,
            *([CGROUPS] if cgroups else ()),
            *(SOURCES if usage else ()),
        ):  # a rate needs a beginning
            self.source_errors.labels(source)
        self.wakeups = counter(
            "numazones_exporter_wakeups_total",
            "Readings of the node, by reason; a reading may have several: start, interval, state-files, "
            "device-plugins (one came or went, or the devices that the kubelet offers changed), kubelet, "
            "pods, departures (pods are being deleted, but the kubelet still lists them), zones (another "
            "program deleted a NUMAZone).",
            ("reason",),
        )
        self.api_writes = counter(
            "numazones_exporter_api_writes_total",
            "Writes to the API server, by kind of object and result: ok, or the HTTP status of a failure, or "
            "unreachable.",
            ("kind", "result"),
        )
        self.published = Gauge(
            "numazones_exporter_last_publish_timestamp_seconds",
            "Unix time at which the API server was last known to have this node's NUMAZones.",
            registry=registry,
        )
        self.landlock = Gauge(
            "numazones_exporter_landlock_enforced",
            "1 if the kernel restricts the exporter to the files that it needs (--landlock), else 0.",
            registry=registry,
        )
        registry.register(_ZonesCollector(self))
        if cgroups is not None:
            registry.register(_MemoryCollector(self, cgroups))
        if usage is not None:
            registry.register(UsageCollector(usage, lambda source: self.source_errors.labels(source).inc()))

    @property
    def zones(self) -> Iterator[tuple[str, int, str, ResourceAmounts]]:
        """Node, NUMA id, resource and amounts of each zone's resources as last read."""
        for numa, resources in self._zones.items():
            for amounts in resources:
                yield self._node, numa, amounts.name, amounts

    @property
    def homes(self) -> tuple[str, Mapping[str, int], Mapping[int, CPUSet]]:
        """The node, pod uid → mask of the NUMA nodes of its exclusive CPUs, NUMA id → CPUs, as last read."""
        return self._node, self._homes, self._cpus_of_numa

    def show(
        self,
        node: str,
        zones: Mapping[int, tuple[ResourceAmounts, ...]],
        homes: Mapping[str, int] = MappingProxyType({}),
        cpus_of_numa: Mapping[int, CPUSet] = MappingProxyType({}),
    ) -> None:
        """Replace the zones' amounts and the pods' homes; what vanished leaves no series behind."""
        self._node, self._zones, self._homes, self._cpus_of_numa = node, zones, homes, cpus_of_numa


class _ZonesCollector(Collector):
    """Turns the amounts of the moment into gauges when Prometheus asks."""

    def __init__(self, metrics: ExporterMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from zone_gauges("numazones_zone", AMOUNTS, self._metrics.zones)


class _MemoryCollector(Collector):
    """Reads the pods' control groups when Prometheus asks: nothing is read where nobody looks."""

    def __init__(self, metrics: ExporterMetrics, cgroups: CgroupReader) -> None:
        self._metrics = metrics
        self._cgroups = cgroups
        self._problem = ""

    def collect(self) -> Iterator[Metric]:
        node, homes, cpus_of_numa = self._metrics.homes
        try:
            found, problem = None, ""
            if node:
                confined = self._cgroups.confined(homes, confines(cpus_of_numa))
                found = resident_memory(homes, self._cgroups.read(homes), confined, cpus_of_numa)
        except SourceError as error:
            found, problem = None, f"{CGROUPS}: {error.reason}: {error}"
            self._metrics.source_errors.labels(CGROUPS).inc()
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
        sizes = found.bytes if found else {}
        yield gauge(
            "numazones_node_resident_memory_bytes",
            "Resident memory and huge pages, by NUMA node, of pods with exclusive CPUs and of containers "
            "that are confined to some NUMA nodes: local if they have CPUs on that NUMA node, else remote.",
            ("node", "numa_node", "placement"),
            (((node, str(numa), placement), size) for (numa, placement), size in sizes.items()),
        )
        yield gauge(
            "numazones_node_confined_containers",
            "Containers of pods without exclusive CPUs whose cgroups confine them to some NUMA nodes, by "
            "NUMA node; a container that is confined to several NUMA nodes is counted on each of them.",
            ("node", "numa_node"),
            (((node, str(numa)), count) for numa, count in (found.confined if found else {}).items()),
        )
        counts = [] if found is None else [(False, found.pods - found.remote_pods), (True, found.remote_pods)]
        yield gauge(
            "numazones_node_resident_memory_pods",
            "Pods with exclusive CPUs, or with containers that are confined to some NUMA nodes, by "
            "whether more than 10 % of their memory is remote.",
            ("node", "remote"),
            (((node, str(remote).lower()), count) for remote, count in counts),
        )
