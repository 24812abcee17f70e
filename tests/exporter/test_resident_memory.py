"""Memory of pods with exclusive CPUs: local if it is where their CPUs are, else remote; its metrics."""

import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from numazones.api.snapshot import ContainerHolding
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.resident_memory import confines, homes, resident_memory
from numazones_exporter.sources.cgroups import CgroupReader, ContainerGroup, PodMemory
from tests.exporter.sources.test_cgroups import STATIC, UID, v2
from tests.numazones.kubelet import building

ERRORS = "numazones_exporter_source_errors_total"


def test_a_pods_home_is_where_its_exclusive_cpus_are() -> None:
    holders = [
        ContainerHolding("n", "a", "a", "c", cpus=0b1),
        ContainerHolding("n", "a", "a", "d", cpus=0b1 << 4),
        ContainerHolding("n", "b", "b", "c", cpus=0b10),
        ContainerHolding("n", "shared", "shared", "c"),
    ]
    assert homes(holders, building.machine()) == {"a": 0b11, "b": 0b01}


def test_pods_with_over_a_tenth_of_memory_remote_are_counted() -> None:
    found = resident_memory(
        {"a": 0b01, "b": 0b01, "c": 0b11, "gone": 0b01},
        {
            "a": PodMemory({0: 90, 1: 10}),
            "b": PodMemory({0: 89, 1: 1}, {1: 10}),
            "c": PodMemory({0: 5, 1: 5}),
            "another": PodMemory({0: 1000}),
        },
    )
    assert found.bytes == {(0, "local"): 184, (0, "remote"): 0, (1, "local"): 5, (1, "remote"): 21}
    assert (found.pods, found.remote_pods) == (3, 1)


def test_only_containers_bound_to_some_numa_nodes_have_remote_memory() -> None:
    cpus_of_numa = building.machine().cpus_of_numa
    wanted = confines(cpus_of_numa)
    assert [wanted(cpus) for cpus in (0b1, 0b11, 0b1 << 4, 0b10001, 0)] == [True, True, True, False, False]
    found = resident_memory(
        {"a": 0b01},
        {"a": PodMemory({0: 10})},
        [
            ContainerGroup("b", 0b1, PodMemory({0: 95, 1: 5})),
            ContainerGroup("b", 0b1 << 4, PodMemory({0: 50})),
            ContainerGroup("c", 0b10, PodMemory({0: 100}, {1: 2})),
        ],
        cpus_of_numa,
    )
    assert found.bytes == {(0, "local"): 205, (0, "remote"): 50, (1, "local"): 0, (1, "remote"): 7}
    assert (found.pods, found.remote_pods, found.confined) == (3, 1, {0: 2, 1: 1})


def test_metrics_show_confined_containers(tmp_path: Path) -> None:
    path = v2(tmp_path, f"kubepods/pod{UID}/{'a' * 64}")
    (path / "cpuset.cpus.effective").write_text("4-7\n")
    v2(tmp_path, f"kubepods/burstable/pod{STATIC}/{'b' * 64}")
    metrics = ExporterMetrics(CollectorRegistry(), cgroups=CgroupReader(tmp_path))
    metrics.show("worker-1", {}, {}, building.machine().cpus_of_numa)
    memory = 'numazones_node_resident_memory_bytes{node="worker-1",numa_node="%s",placement="%s"}'
    assert samples(metrics) == {
        memory % (0, "local"): 0,
        memory % (0, "remote"): 1050,
        memory % (1, "local"): 207,
        memory % (1, "remote"): 0,
        'numazones_node_resident_memory_pods{node="worker-1",remote="false"}': 0,
        'numazones_node_resident_memory_pods{node="worker-1",remote="true"}': 1,
    }
    confined = "numazones_node_confined_containers"
    counts = [metrics.registry.get_sample_value(confined, {"node": "worker-1", "numa_node": n}) for n in "01"]
    assert counts == [0, 1]


def samples(metrics: ExporterMetrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    shown = (line.rpartition(" ") for line in lines if line.startswith("numazones_node_resident"))
    return {name: float(value) for name, _, value in shown}


def test_metrics_show_it_when_they_are_asked_for(tmp_path: Path) -> None:
    path = v2(tmp_path, f"kubepods/pod{UID}")
    metrics = ExporterMetrics(CollectorRegistry(), cgroups=CgroupReader(tmp_path))
    assert samples(metrics) == {}
    metrics.show("worker-1", {}, {UID: 0b01})
    memory = 'numazones_node_resident_memory_bytes{node="worker-1",numa_node="%s",placement="%s"}'
    pods = 'numazones_node_resident_memory_pods{node="worker-1",remote="%s"}'
    assert samples(metrics) == {
        memory % (0, "local"): 1050,
        memory % (0, "remote"): 0,
        memory % (1, "local"): 0,
        memory % (1, "remote"): 207,
        pods % "false": 0,
        pods % "true": 1,
    }
    (path / "memory.numa_stat").write_text("anon N0=1000 N1=0\nfile N0=0 N1=0\n")
    assert samples(metrics)[pods % "true"] == 0


def test_what_cannot_be_read_is_logged_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = ExporterMetrics(CollectorRegistry(), cgroups=CgroupReader(tmp_path))
    metrics.show("worker-1", {}, {UID: 0b01})
    with caplog.at_level(logging.WARNING):
        assert samples(metrics) == samples(metrics) == {}
    assert [record.getMessage().partition(" is no")[0] for record in caplog.records] == [
        f"cgroups: NotMounted: {tmp_path}"
    ]
    counted = metrics.registry.get_sample_value(
        "numazones_exporter_source_errors_total", {"source": "cgroups"}
    )
    assert counted == 2


def test_without_the_setting_there_are_no_such_metrics() -> None:
    metrics = ExporterMetrics(CollectorRegistry())
    metrics.show("worker-1", {}, {UID: 0b01})
    assert samples(metrics) == {}
    assert (
        metrics.registry.get_sample_value("numazones_exporter_source_errors_total", {"source": "cgroups"})
        is None
    )
