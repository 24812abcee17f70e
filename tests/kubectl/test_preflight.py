"""Tests of warnings before a kubelet or a machine goes down, and of their cures."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from numazones.api.zones_from_node import zones_from_node
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.state_validation import refusals_of_files, refusals_of_node
from tests.kubectl.small_cluster import TIME, node_body, written
from tests.numazones.kubelet import building

Run = Callable[..., Result]

STRICT = {"strict-cpu-reservation": "true"}
DEVICE = "vendor/gpu"


def body(name: str, cpus: int, **devices: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": TIME},
        "spec": {"nodeName": "worker-1", "containers": [building.container("main", cpus, **devices)]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": TIME}}}],
        },
    }


def dump(path: Path, node: Node, *pods: dict[str, Any], version: str = "v1.36.2") -> Path:
    names = {pod["metadata"]["uid"]: ("team", pod["metadata"]["name"]) for pod in pods}
    for pod in pods:
        said = admit(node, Pod.from_api(pod))
        assert said.admitted, said.message
        node = said.node
    zones = zones_from_node(node, node_name="worker-1", pods=names, version=version)
    return written(path, [node_body("worker-1"), *pods, *(zone.to_api() for zone in zones)])


def messages(run: Run, *arguments: object) -> dict[str, str]:
    """Message → cure."""
    findings = json.loads(run("doctor", *arguments, "-o", "json").output)["findings"]
    return {finding["message"]: finding["cure"] for finding in findings}


def test_device_pods_are_rejected_after_reboot_until_plugins_return(run: Run, tmp_path: Path) -> None:
    node = building.node(devices=building.gpus((0,), (1,)))
    path = dump(tmp_path / "dump.json", node, body("plain", 1), body("trainer", 2, vendor_gpu="1"))
    assert messages(run, "--restart", "worker-1", "-f", path) == {}
    ((message, cure),) = messages(run, "--restart", "worker-1", "--reboot", "-f", path).items()
    assert message.startswith(
        "its kubelet rejects it unless the device plugin that it needs, usually itself a pod, has "
    )
    assert "no healthy devices present; cannot allocate unhealthy devices vendor/gpu" in message
    assert cure == "drain the node first"


def test_a_reboot_of_plain_pods_is_safe(run: Run, tmp_path: Path) -> None:
    path = dump(tmp_path / "dump.json", building.node(), body("plain", 1))
    result = run("doctor", "--all", "--reboot", "-f", path)
    assert result.output == "worker-1: 1 of 1 pod would be admitted again\n"


def test_empty_shared_pool_is_warned_of_and_both_cures_work(run: Run, tmp_path: Path) -> None:
    node = building.node(policy="none", cpu_options=STRICT)
    path = dump(tmp_path / "dump.json", node, body("large", 13), body("small", 2))
    said = messages(run, "-f", path)
    cure = said[
        "a restart of its kubelet would fail: default cpuset cannot be empty; the shared pool is empty"
    ]
    assert cure == (
        "delete a pod with exclusive CPUs on worker-1 before the kubelet is restarted, or drain worker-1, "
        "stop its kubelet, remove /var/lib/kubelet/cpu_manager_state and start it again"
    )
    full = admit(admit(node, Pod.from_api(body("large", 13))).node, Pod.from_api(body("small", 2))).node
    assert refusals_of_node(full, full.kubelet)
    assert refusals_of_node(remove(full, "small"), full.kubelet) == ()
    assert refusals_of_files(full.kubelet, None, None) == ()


SHARED = "reserved CPUs stay in the shared pool: pods without exclusive CPUs also run on them"


@pytest.mark.parametrize(
    ("config", "partitioned", "told"),
    [
        pytest.param({}, False, True, id="without the option"),
        pytest.param({"cpu_options": STRICT}, False, False, id="with it"),
        pytest.param({}, True, False, id="workload partitioning"),
        pytest.param({"version": "1.32"}, False, False, id="a release with the option in alpha"),
        pytest.param({"version": "v1.34.9+1a2b3c4"}, False, False, id="OpenShift"),
        pytest.param({"cpus": "none"}, False, False, id="no CPU Manager"),
    ],
)
def test_reserved_cpus_in_the_shared_pool_are_told(
    run: Run,
    tmp_path: Path,
    config: dict[str, Any],
    partitioned: bool,  # noqa: FBT001
    told: bool,  # noqa: FBT001
) -> None:
    made = replace(building.configuration(**config), workload_partitioning=partitioned)
    node = Node.fresh(building.machine(), made)
    path = dump(tmp_path / "dump.json", node, version=made.release.version)
    assert (SHARED in messages(run, "-f", path)) == told
