"""Messages on pods whose devices are still to be allocated: free devices, possible CPUs."""

from typing import Any

import pytest

from numazones import build
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.dump import Dump, read_nodes
from numazones.prediction.forecast import UNKNOWN, predict
from tests.numazones.dra.building import NODE, device, device_class, resource_slice

STATIC = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
}
GPUS = device_class("gpus", 'device.driver == "gpu.example"', resource="gpu.example/gpu")
UNCLEAR = device_class("gpus", "device.attributes.exists(a, true)", resource="gpu.example/gpu")
SLICES = (
    resource_slice(device("gpu-0", 0), device("gpu-1", 0), device("gpu-2", 1), device("gpu-3")),
    resource_slice(device("nic-0", 1), name="slice-2", driver="nic.example"),
)
ALL_FREE = "2 on NUMA node 0, 1 on NUMA node 1, 1 on an unknown NUMA node"
PLACED = "worker-1 would place the pod on NUMA node 1, and "
ADDED = "; alignment is not guaranteed, because the kubelet's policies do not consider such devices"


def worker(*objects: dict[str, Any]) -> ClusterNode:
    """A node of two NUMA nodes with 4 CPUs each, of which NUMA node 0 has 3 to give."""
    state = build.node(build.machine(numa=2, cores=8, threads=1, memory="8Gi"), STATIC)
    body = {
        "kind": "Node",
        "metadata": {"name": NODE},
        "status": {"allocatable": {"cpu": "7", "memory": "7Gi", "pods": "9"}},
    }
    zones = [zone.to_api() for zone in zones_from_node(state, node_name=NODE, pods={})]
    (found,) = read_nodes(Dump.of([body, *zones, *objects]), lambda: ())
    return found


def claiming(cpus: int = 4) -> ClusterPod:
    body = build.pod_body("web", cpu=cpus, memory="1Gi")
    body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    return ClusterPod.from_api(body)


def asking() -> ClusterPod:
    body = build.pod_body("web", cpu=4, memory="1Gi")
    for amounts in body["spec"]["containers"][0]["resources"].values():
        amounts["gpu.example/gpu"] = "1"
    return ClusterPod.from_api(body)


CASES: dict[str, tuple[ClusterPod, tuple[dict[str, Any], ...], str]] = {
    "claims": (
        claiming(),
        SLICES,
        f"has free gpu.example devices ({ALL_FREE}) and nic.example devices (1 on NUMA node 1)",
    ),
    "an extended resource": (asking(), (*SLICES, GPUS), f"has free gpu.example devices ({ALL_FREE})"),
    "which devices the class means is not known": (
        asking(),
        (SLICES[1], UNCLEAR),
        "has free nic.example devices (1 on NUMA node 1)",
    ),
    "slices are missing": (
        claiming(),
        (resource_slice(device("gpu-0", 0), count=2),),
        "its free devices are unknown, because ResourceSlices of gpu.example are missing",
    ),
}


@pytest.mark.parametrize(("pod", "objects", "expected"), CASES.values(), ids=CASES)
def test_the_prediction_says_where_free_devices_and_cpus_are(
    pod: ClusterPod, objects: tuple[dict[str, Any], ...], expected: str
) -> None:
    found = predict(pod, [worker(*objects)])
    assert found.verdict == UNKNOWN
    unknown = "no ResourceClaims were read, so it is not known which devices are taken; "
    assert found.sentence.split("; ", 1)[1] == f"{unknown}{PLACED}{expected}{ADDED}"


def test_without_devices_nothing_is_added() -> None:
    assert predict(claiming(), [worker()]).sentence.endswith(
        ": only the scheduler's allocator knows which nodes have such devices free"
    )


def test_a_rejection_stays_one() -> None:
    found = predict(claiming(cpus=5), [worker(*SLICES)])
    assert found.verdict == "Inadmissible"
    assert "alignment" not in found.sentence
