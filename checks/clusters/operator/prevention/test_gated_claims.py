"""The gate and pods that claim devices (DRA): they wait for NUMA nodes, and no device is out of reach."""

from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import closed_loop, metrics
from numazones.cluster.admission_gate import GATE
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones_client.resources import DEVICE_CLASSES, NAMESPACES, PODS
from numazones_simulator import node_kinds
from tests.numazones.dra.building import GPU, device, device_class, resource_slice
from tests.operator.offline_pipeline import ALL_OF_A_ZONE
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates
from tests.waiting import eventually

GATES = [{"name": GATE}]
RESOURCE = "example.com/gpu"
MINE: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
TEMPLATE: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def released(cluster: Cluster) -> dict[str, Any]:
    """Name of a released pod → what was changed of its node affinity."""
    return {
        name: (patch["spec"].get("affinity") or {}).get("nodeAffinity", {})
        for name, patch in cluster.server.patches
    }


def preferred(affinity: dict[str, Any]) -> list[str]:
    assert affinity.keys() == {PREFERRED}
    return [term["preference"]["matchFields"][0]["values"][0] for term in affinity[PREFERRED]]


def required(affinity: dict[str, Any]) -> list[str]:
    terms = affinity[REQUIRED]["nodeSelectorTerms"]
    return sorted(name for term in terms for name in term["matchFields"][0]["values"])


@pytest.mark.parametrize("spec", [MINE, TEMPLATE], ids=["claim", "template"])
async def test_pod_with_claims_prefers_admitting_nodes_and_excludes_none(
    spec: dict[str, Any],
) -> None:
    cluster = Cluster("a", "b", "full")
    for number in range(2):
        cluster.pod(f"there-{number}", cpu=ALL_OF_A_ZONE, nodeName="full")
    cluster.pod("claims", cpu=20, schedulingGates=GATES, **spec)
    await cluster.offline.renew()
    found = cluster.offline.published["claims"]
    assert found.verdict == "Unknown"
    assert "it claims devices through resourceClaims" in found.sentence
    await offline_gates(cluster).release()
    assert preferred(released(cluster)["claims"]) == ["a", "b"]
    assert set(cluster.held.by_node()) == {"a", "b"}  # where it will most likely go
    assert cluster.offline.metrics.gates_released.labels("devices")._value.get() == 1


async def test_pod_waits_until_numa_nodes_of_a_node_admit_it() -> None:
    cluster = Cluster("a")
    gates = offline_gates(cluster)
    for number in range(2):
        cluster.pod(f"there-{number}", cpu=ALL_OF_A_ZONE, nodeName="a")
    cluster.pod("claims", cpu=20, schedulingGates=GATES, **MINE)
    await cluster.offline.renew()
    assert cluster.offline.published["claims"].verdict == "Inadmissible"
    await gates.release()
    assert released(cluster) == {}
    cluster.delete("there-0")
    await cluster.offline.renew()
    await gates.release()
    assert preferred(released(cluster)["claims"]) == ["a"]


async def test_two_for_one_numa_node_are_not_released_together() -> None:
    cluster = Cluster("a")
    cluster.pod("there", cpu=ALL_OF_A_ZONE, nodeName="a")
    for name in ("one", "two"):
        cluster.pod(name, cpu=20, schedulingGates=GATES, **TEMPLATE)
    await cluster.offline.renew()
    await offline_gates(cluster).release()
    assert len(released(cluster)) == 1


async def test_pod_without_numa_requirements_is_released_immediately_whatever_it_claims() -> None:
    cluster = Cluster("a")
    body = cluster.pod("burstable", mirrored=False, cpu=200, schedulingGates=GATES, **MINE)
    body["spec"]["containers"][0]["resources"].pop("limits")
    cluster.mirror("burstable")
    await cluster.offline.renew()
    await offline_gates(cluster).release()
    assert released(cluster) == {"burstable": {}}


def ask_for_mapped_devices(cluster: Cluster) -> None:
    """A DeviceClass maps an extended resource, and a pod asks for one of that."""
    cluster.state.devices.classes.put(DeviceClass.from_api(device_class("gpus", resource=RESOURCE)))
    cluster.state.devices.slices.put(
        Slice.from_api(resource_slice(device("gpu-0", 0), node="b", pool="b", driver=GPU))
    )
    cluster.pod("asks", cpu=4, limits={RESOURCE: "1"}, schedulingGates=GATES)


async def test_extended_resource_of_a_device_class_counts_as_a_claim() -> None:
    cluster = Cluster("a", "b")
    ask_for_mapped_devices(cluster)
    await cluster.offline.renew()
    assert cluster.offline.published["asks"].verdict == "Admissible"
    await offline_gates(cluster).release()
    assert required(released(cluster)["asks"]) == ["b"]  # which has the device, though a is as free


async def test_pod_is_limited_to_nodes_whose_device_plugin_offers_it() -> None:
    cluster = Cluster("a", "b")
    ask_for_mapped_devices(cluster)
    cluster.state.devices.take_unreadable(["resourceslices.resource.k8s.io"])
    cluster.offer("a", RESOURCE, 1)
    await cluster.offline.renew()
    await offline_gates(cluster).release()
    assert required(released(cluster)["asks"]) == ["a"]


async def test_released_pod_keeps_its_claims_and_may_use_every_node(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        specs = [node_kinds.single_numa_node(name, f"10.0.0.{at}") for at, name in enumerate("ab", 1)]
        await loop.start_nodes(specs)
        await loop.client.create(DEVICE_CLASSES, device_class("gpus", f'device.driver == "{GPU}"'))
        label = {"metadata": {"labels": {"numazones.io/admission-gate": "enabled"}}}
        await loop.client.patch(NAMESPACES, "default", label)
        operator = await loop.start_operator(admission_gate=True)
        await loop.create_pod("claims", cpu=4, schedulingGates=GATES, **TEMPLATE)

        async def counted() -> bool:
            name = 'numazones_admission_gates_released_total{reason="devices"}'
            return (await metrics(operator))[name] == 1

        await eventually(counted, what="the pod is released")
        pod = await loop.client.get(PODS, "claims", namespace="default")
        assert not pod["spec"].get("schedulingGates")
        assert pod["spec"]["resourceClaims"] == TEMPLATE["resourceClaims"]
        assert sorted(preferred(pod["spec"]["affinity"]["nodeAffinity"])) == ["a", "b"]
        said = (await loop.predictions())["claims"]
        assert said["verdict"] == "Unknown"
        assert "the scheduler's allocator" in said["message"]
