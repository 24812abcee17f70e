import re
from importlib.metadata import version
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from numazones.api.amounts import ResourceAmounts
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.sources.cgroups import CgroupReader
from numazones_exporter.usage_metrics import CPUUsageTracker
from numazones_program.gauges import unit
from tests.places import ROOT


@pytest.fixture
def metrics() -> ExporterMetrics:
    return ExporterMetrics(CollectorRegistry())


def samples(metrics: ExporterMetrics, prefix: str) -> list[str]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if line.startswith(prefix)]


def test_every_amount_of_every_zone_is_a_gauge(metrics: ExporterMetrics) -> None:
    metrics.show(
        "worker-3",
        {
            0: (ResourceAmounts("cpu", 32, 2, 30, 8, 22),),
            1: (ResourceAmounts("memory", 2**34, 0, 2**34, 0, 2**34),),
        },
    )
    assert samples(metrics, "numazones_zone_") == [
        f'numazones_zone_{name}{{node="worker-3",numa_node="{numa_id}",resource="{resource}",unit="{of}"}} '
        + value
        for name, cpu, memory in (
            ("capacity", "32.0", "1.7179869184e+10"),
            ("reserved", "2.0", "0.0"),
            ("allocatable", "30.0", "1.7179869184e+10"),
            ("assigned", "8.0", "0.0"),
            ("available", "22.0", "1.7179869184e+10"),
        )
        for numa_id, resource, of, value in ((0, "cpu", "core", cpu), (1, "memory", "byte", memory))
    ]


def test_an_unknown_amount_has_no_series_rather_than_a_zero(metrics: ExporterMetrics) -> None:
    metrics.show("worker-3", {0: (ResourceAmounts("cpu", capacity=4),)})
    assert len(samples(metrics, "numazones_zone_")) == 1


def test_vanished_zones_and_resources_leave_no_series_behind(metrics: ExporterMetrics) -> None:
    metrics.show(
        "worker-3",
        {0: (ResourceAmounts("cpu", capacity=4), ResourceAmounts("vendor.example/nic", capacity=1))},
    )
    metrics.show("worker-3", {1: (ResourceAmounts("cpu", capacity=4),)})
    assert samples(metrics, "numazones_zone_") == [
        'numazones_zone_capacity{node="worker-3",numa_node="1",resource="cpu",unit="core"} 4.0'
    ]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [("cpu", "core"), ("memory", "byte"), ("hugepages-1Gi", "byte"), ("vendor.example/nic", "integer")],
)
def test_units_are_those_of_kube_state_metrics(resource: str, expected: str) -> None:
    assert unit(resource) == expected


def test_names_and_types_follow_prometheus_and_stay_stable(metrics: ExporterMetrics) -> None:
    text = generate_latest(metrics.registry).decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == {
        "numazones_exporter_build_info": "gauge",
        "numazones_exporter_landlock_enforced": "gauge",
        "numazones_exporter_scan_duration_seconds": "histogram",
        "numazones_exporter_scan_duration_seconds_created": "gauge",
        "numazones_exporter_source_duration_seconds": "histogram",
        "numazones_exporter_source_errors_total": "counter",
        "numazones_exporter_source_errors_created": "gauge",
        "numazones_exporter_wakeups_total": "counter",
        "numazones_exporter_api_writes_total": "counter",
        "numazones_exporter_last_publish_timestamp_seconds": "gauge",
        "numazones_zone_capacity": "gauge",
        "numazones_zone_reserved": "gauge",
        "numazones_zone_allocatable": "gauge",
        "numazones_zone_assigned": "gauge",
        "numazones_zone_available": "gauge",
        "numazones_exporter_process_cpu_seconds_total": "counter",
        "numazones_exporter_process_resident_memory_bytes": "gauge",
        "numazones_exporter_process_open_fds": "gauge",
        "numazones_exporter_process_virtual_memory_bytes": "gauge",
        "numazones_exporter_process_max_fds": "gauge",
        "numazones_exporter_process_start_time_seconds": "gauge",
    }


def test_build_info_says_what_runs(metrics: ExporterMetrics) -> None:
    assert f'version="{version("numazones")}"' in samples(metrics, "numazones_exporter_build_info")[0]


def test_the_processs_own_use_is_measured(metrics: ExporterMetrics) -> None:
    (memory,) = samples(metrics, "numazones_exporter_process_resident_memory_bytes")
    (files,) = samples(metrics, "numazones_exporter_process_open_fds")
    assert float(memory.split()[1]) > 2**20
    assert float(files.split()[1]) <= len(list(Path("/proc/self/fd").iterdir()))


def test_two_exporters_in_one_process_do_not_share_metrics() -> None:
    first, second = (ExporterMetrics(CollectorRegistry()) for _ in range(2))
    first.wakeups.labels("pods").inc()
    assert samples(second, "numazones_exporter_wakeups_total") == []


def test_the_reference_lists_every_metric_and_no_other(tmp_path: Path) -> None:
    usage = CPUUsageTracker(tmp_path, tmp_path)
    metrics = ExporterMetrics(CollectorRegistry(), cgroups=CgroupReader(tmp_path), usage=usage)
    page = (ROOT / "docs" / "reference" / "exporter-metrics.md").read_text()
    served = re.findall(r"^# TYPE (\S+) ", generate_latest(metrics.registry).decode(), re.MULTILINE)
    listed = re.findall(r"^\| `(numazones_\w+)`", page, re.MULTILINE)
    assert sorted(listed) == sorted(name for name in served if not name.endswith("_created"))
