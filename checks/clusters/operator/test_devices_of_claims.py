"""Devices of dynamic resource allocation, from slices and claims to zones and predictions."""

from functools import partial
from pathlib import Path
from typing import Any

from checks.clusters.operator.closed_loop import Loop, closed_loop, metrics
from checks.clusters.operator.test_why_live import SCHEDULER, asking
from numazones.dra.conflicts import CPU_DRIVER
from numazones_client.resources import (
    DEVICE_CLASSES,
    NUMAZONES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from numazones_simulator import node_kinds
from numazones_simulator.device_scheduling import DeviceScheduling
from numazones_simulator.kube_scheduler.scheduler import KubeScheduler
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result
from tests.operator.pods import pod_body
from tests.waiting import eventually

NODE = "strict"


async def told(loop: Loop, numa: int) -> dict[str, Any]:
    """Return what a zone shows of such devices."""
    zone = await loop.client.get(NUMAZONES, f"{NODE}-numa-{numa}")
    found: dict[str, Any] = (zone.get("status") or {}).get("dynamicResources") or {}
    return found


async def available(loop: Loop, numa: int) -> int | None:
    """Devices of a zone that could still be allocated."""
    rows = [row for row in (await told(loop, numa)).get("drivers", ()) if row["driver"] == GPU]
    return rows[0]["available"] if rows else None


async def allocate(loop: Loop, *devices: str) -> None:
    """The scheduler allocates devices to a claim of team."""
    body = claim(*(result(name, pool=NODE) for name in devices), name="-".join(devices))
    body["metadata"]["namespace"] = "default"
    await loop.client.create(RESOURCE_CLAIMS, body, namespace="default")
    await loop.client.apply(
        RESOURCE_CLAIMS,
        {key: body[key] for key in ("apiVersion", "kind", "metadata", "status")},
        field_manager="scheduler",
        namespace="default",
        subresource="status",
    )


async def test_zones_follow_slices_and_claims_and_predictions_locate_devices(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node(NODE, "10.0.0.1")])
        devices = (device("gpu-0", 0), device("gpu-1", 1), device("gpu-2", 1))
        body = resource_slice(*devices, node=NODE, pool=NODE)
        await loop.client.create(RESOURCE_SLICES, body)
        await loop.client.create(DEVICE_CLASSES, device_class("gpus", f'device.driver == "{GPU}"'))
        operator = await loop.start_operator()

        async def counted() -> bool:
            return [await available(loop, numa) for numa in (0, 1)] == [1, 2]

        await eventually(counted, what="zones say which devices there are")
        await allocate(loop, "gpu-0")

        async def taken() -> bool:
            return await available(loop, 0) == 0

        await eventually(taken, what="the zone says that a device is allocated")
        assert (await told(loop, 0))["drivers"][0]["classes"] == [
            {"name": "gpus", "devices": 1, "allocated": 1, "available": 0}
        ]
        assert await available(loop, 1) == 2

        await loop.create_pod("claims", cpu=2, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])

        async def predicted() -> str:
            status = (await loop.predictions()).get("claims", {})
            return str(status.get("message") or "")

        message = await eventually(predicted, what="the pod has a prediction")
        assert f"{NODE} would place the pod on NUMA node" in message
        assert f"{GPU} devices (2 on NUMA node 1); alignment is not guaranteed" in message

        cpus = resource_slice(
            device("cpudevnuma000", 0), name="cpus", driver=CPU_DRIVER, node=NODE, pool=NODE
        )
        await loop.client.create(RESOURCE_SLICES, cpus)

        async def conflicting() -> bool:
            return "static CPU manager" in (await told(loop, 1)).get("conflict", "")

        await eventually(conflicting, what="zones name two that give out the same CPUs")
        for name in ("slice-1", "cpus"):
            await loop.client.delete(RESOURCE_SLICES, name)

        async def gone() -> bool:
            return not any([await told(loop, numa) for numa in (0, 1)])

        await eventually(gone, what="zones say nothing where there are no devices")
        assert not operator.failed


CLAIMING: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}
GPUS_OF = {"near": 0, "apart": 1}
"""Node → NUMA node of its two GPUs; the kubelet takes CPUs of NUMA node 0 first."""


async def publish_gpus(loop: Loop) -> None:
    """Nodes with GPUs, a class and a template."""
    specs = [node_kinds.single_numa_node(name, f"10.0.0.{at}") for at, name in enumerate(GPUS_OF, 1)]
    await loop.start_nodes(specs)
    await loop.client.create(DEVICE_CLASSES, device_class(GPU, f'device.driver == "{GPU}"'))
    for name, numa in GPUS_OF.items():
        gpus = [device(f"gpu-{at}", numa) for at in range(2)]
        body = resource_slice(*gpus, name=f"slice-{name}", node=name, pool=name)
        await loop.client.create(RESOURCE_SLICES, body)
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"spec": claim()["spec"]},
    }
    await loop.client.create(RESOURCE_CLAIM_TEMPLATES, template, namespace="default")


async def numa_nodes_of(loop: Loop, name: str) -> tuple[str, set[int]]:
    """Node of a pod, and NUMA nodes of its CPUs (by its kubelet) and its GPU (by its claim)."""
    assert loop.fleet is not None
    pod = await loop.client.get(PODS, name, namespace="default")
    node = pod["spec"]["nodeName"]
    made = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    claimed = await loop.client.get(RESOURCE_CLAIMS, made, namespace="default")
    (given,) = claimed["status"]["allocation"]["devices"]["results"]
    assert given["pool"] == node
    kubelet = loop.fleet.agents[node].kubelet
    (cpus,) = kubelet.node.cpus.assignments[pod["metadata"]["uid"]].values()
    by_numa = kubelet.spec.machine.cpus_of_numa
    return node, {numa for numa, own in by_numa.items() if own & cpus} | {GPUS_OF[node]}


async def test_scheduled_pods_get_foreseen_devices_near_their_cpus(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await publish_gpus(loop)
        operator = await loop.start_operator(extender_address="127.0.0.1:0")
        scheduler = KubeScheduler(
            loop.client, asking(operator.extender_port), devices=DeviceScheduling(loop.client)
        )
        loop.tasks.create_task(scheduler.run())
        for name in ("one", "two"):
            await loop.create_pod(name, cpu=4, schedulerName=SCHEDULER, **CLAIMING)
            await eventually(partial(loop.runs, name), what="the pod runs")
            assert await numa_nodes_of(loop, name) == ("near", {0})
        body = pod_body("needy", cpu=4, schedulerName=SCHEDULER, **CLAIMING)
        body["metadata"]["annotations"] = {"numazones.io/alignment": "required"}
        await loop.client.create(PODS, body, namespace="default")
        await loop.create_pod("any", cpu=4, schedulerName=SCHEDULER, **CLAIMING)
        await eventually(partial(loop.runs, "any"), what="the pod runs")
        assert await numa_nodes_of(loop, "any") == ("apart", {0, 1})

        async def said() -> bool:
            pod = await loop.client.get(PODS, "needy", namespace="default")
            conditions = pod["status"].get("conditions") or ()
            return any("would not be on one NUMA node" in (one.get("message") or "") for one in conditions)

        await eventually(said, what="the scheduler says why the pod waits")
        assert (await loop.predictions())["needy"]["reasons"][0]["reason"] == "NotAligned"
        counted = await metrics(operator)
        accuracy = 'numazones_prediction_accuracy_total{accuracy="right",model="dra"}'
        assert counted[accuracy] == 3
        await loop.client.delete(PODS, "one", namespace="default", grace_seconds=0)
        await eventually(partial(loop.runs, "needy"), what="the pod runs once a GPU near CPUs is free")
        assert await numa_nodes_of(loop, "needy") == ("near", {0})
        assert not operator.failed
