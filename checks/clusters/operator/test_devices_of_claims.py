"""Devices of dynamic resource allocation, from slices and claims to zones and predictions."""

from pathlib import Path
from typing import Any

from numazones.dra.conflicts import CPU_DRIVER
from numazones_client.resources import (
    DEVICE_CLASSES,
    NUMAZONES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from numazones_simulator import node_kinds
from tests.numazones.dra.building import GPU, claim, device, device_class, resource_slice, result
from tests.operator.closed_loop import Loop, closed_loop, eventually

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
        assert f"has free {GPU}: 2 on NUMA node 1; alignment is not guaranteed" in message

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
