"""The tables of metrics in the reference, made from what the programs register.

A page marks where a table stands and which names belong in it, ``<!-- metrics: numazones_zone_* -->``, and
where it ends. What stands around the tables is written by hand.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from numazones_client import ClusterConfig
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.sources.cgroups import CgroupReader
from numazones_exporter.usage_metrics import CPUUsageTracker
from numazones_operator.metrics.registry import GaugeCollector
from numazones_operator.options import OperatorOptions
from numazones_operator.process import Operator

PAGES: Mapping[str, Sequence[str]] = {
    "exporter": ("exporter-metrics.md",),
    "operator": ("metrics.md", "rebalance.md"),
}
"""Program → the pages that have its metrics."""
_TABLE = re.compile(
    r"(<!-- metrics: ([^>]+) -->\n).*?(<!-- end: written by `make reference` -->\n)", re.DOTALL
)
_HEAD = "| Metric | Type | Labels | What it says |\n|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Registered:
    """A metric as a program registers it, under the name that queries use."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def row(self) -> str:
        """Its row of a table."""
        labels = "".join(f" `{label}`," for label in self.labels).rstrip(",")
        text = self.help.replace("|", "\\|").replace("<", "&lt;")
        return f"| `{self.name}` | {self.type} |{labels} | {text} |\n"


def written(program: str, pages: Mapping[str, str]) -> dict[str, str]:
    """Pages, by name, with their tables made anew.

    ValueError where a metric is in no table or in several, or a pattern fits none.
    """
    metrics = list(exporter_metrics() if program == "exporter" else operator_metrics())
    places = dict.fromkeys((metric.name for metric in metrics), 0)

    def table(match: re.Match[str]) -> str:
        rows = []
        for pattern in match[2].split():
            fitting = [metric for metric in metrics if fnmatchcase(metric.name, pattern)]
            if not fitting:
                raise ValueError(
                    f"the {program} has no metric {pattern}, which the reference wants in a table"
                )
            for metric in fitting:
                places[metric.name] += 1
                rows.append(metric.row)
        return f"{match[1]}\n{_HEAD}{''.join(rows)}\n{match[3]}"

    made = {name: _TABLE.sub(table, text) for name, text in pages.items()}
    if wrong := [f"{name} ({count} tables)" for name, count in places.items() if count != 1]:
        where = ", ".join(pages)
        raise ValueError(
            f"metrics of the {program} that are not in exactly one table of {where}: {', '.join(wrong)}"
        )
    return made


def exporter_metrics() -> Iterator[Registered]:
    """Every metric of the exporter."""
    registry = CollectorRegistry()
    usage = CPUUsageTracker(Path("/proc"), Path("/sys"))
    ExporterMetrics(registry, cgroups=CgroupReader(Path("/sys/fs/cgroup")), usage=usage)
    yield from _of(registry)


def operator_metrics() -> Iterator[Registered]:
    """Every metric of an operator that is put together as usual; it is not started."""
    operator = Operator(OperatorOptions(), ClusterConfig(server="http://127.0.0.1:0"))
    yield from _of(operator.registry)


def _of(registry: CollectorRegistry) -> Iterator[Registered]:
    for collector in list(registry._collector_to_names):  # noqa: SLF001 - no public way leads to labels
        if isinstance(collector, MetricWrapperBase):
            families, labels = collector.describe(), tuple(collector._labelnames)  # noqa: SLF001
            yield from (_registered(family, labels) for family in families)
        else:
            shown = (
                collector.gauges.families() if isinstance(collector, GaugeCollector) else collector.collect()
            )
            for family in shown:
                yield _registered(family, tuple(getattr(family, "_labelnames", ())))


def _registered(family: Metric, labels: tuple[str, ...]) -> Registered:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Registered(name, family.type, labels, family.documentation)
