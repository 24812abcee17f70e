"""Our exclusive CPUs by NUMA node beside the metric of the kubelet that was recorded at that moment."""

import re

import pytest

from tests.recorded_nodes import Recorded

from .test_recordings import once

SERIES = re.compile(r'^kubelet_cpu_manager_allocation_per_numa\{numa_node="(\d+)"\} (\d+)$', re.MULTILINE)


def test_exclusive_cpus_by_numa_node_are_the_kubelets(recorded: Recorded) -> None:
    path = recorded.state / "metrics.txt"
    if not path.exists():
        pytest.skip("this recording has no metrics of the kubelet")
    theirs = {int(numa): int(count) for numa, count in SERIES.findall(path.read_text())}
    ours = {
        zone["spec"]["numaID"]: int(row["assigned"])
        for zone in once(*recorded.flags())
        for row in zone["status"]["resources"]
        if row["name"] == "cpu"
    }
    assert any(ours.values())
    # For a NUMA node that became empty the kubelet keeps its old figure (before 1.38), or never had one.
    assert {numa: count for numa, count in ours.items() if count} == {
        numa: count for numa, count in theirs.items() if ours[numa]
    }
