"""Nodes under OpenShift's workload partitioning, as exporters of release 0.2 describe them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from numazones.api.zones_from_node import zones_from_node
from tests.kubectl.small_cluster import node_body, written
from tests.numazones.kubelet import building

Run = Callable[..., Result]


def dump(path: Path, reserved: str, *, partitioned: bool = True) -> Path:
    """A node of 16 CPUs whose CPU Manager does not have CPUs 0-1,8-9, by what the zones of 0.2 say of it."""
    node = building.node(cpu_options={"strict-cpu-reservation": "true"}, reserved="0-1,8-9")
    items: list[dict[str, Any]] = [node_body("worker-1")]
    if partitioned:
        items[0]["status"]["capacity"] = {"management.workload.openshift.io/cores": "16k"}
    message = "sources contradict each other; see the condition Consistent"
    missing = f"CPUs {reserved} are online, but not in cpu_manager_state"
    missing += "; was the kubelet restarted since the change?"
    for zone in zones_from_node(node, node_name="worker-1", pods={}, version="v1.36.2"):
        body = zone.to_api()
        del body["status"]["kubelet"]["cpuManagerPolicyOptions"]
        body["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "reason": "SourcesDisagree", "message": message},
            {"type": "Consistent", "status": "False", "reason": "SourcesDisagree", "message": missing},
        ]
        body["status"]["cpus"]["default"] = body["status"]["cpus"]["shared"]
        items.append(body)
    return written(path, items)


def test_the_reported_node_fits_a_pod_and_survives_a_restart(run: Run, shared: Path) -> None:
    case = shared / "cases/openshift-workload-partitioning/dump.json"
    (place,) = json.loads(run("fit", "cpu=2,memory=1Gi", "-f", case, "-o", "json").output)["placements"]
    assert place["cpus"] == "1,9"
    result = run("doctor", "--all", "-f", case)
    assert result.output == "node-1: 0 of 0 pods would be admitted again\n"


def test_two_numa_nodes_are_recognised_and_restart(run: Run, tmp_path: Path) -> None:
    path = dump(tmp_path / "dump.json", "0-1,8-9")
    assert run("fit", "cpu=4,memory=1Gi", "-f", path).output.startswith("1 of 1 fit")
    assert "would not start" not in run("doctor", "--all", "-f", path).output


@pytest.mark.parametrize(
    ("reserved", "partitioned"),
    [
        pytest.param("0-1,8-9", False, id="no OpenShift node"),
        pytest.param("0-2,8-9", True, id="another CPU is missing"),
    ],
)
def test_other_contradictions_stay_unknown(
    run: Run,
    tmp_path: Path,
    reserved: str,
    partitioned: bool,  # noqa: FBT001
) -> None:
    path = dump(tmp_path / "dump.json", reserved, partitioned=partitioned)
    assert run("fit", "cpu=4,memory=1Gi", "-f", path).output.startswith("0 of 1 fit")
