"""Reading the topology-aware policy's scenarios into the library's values."""

from collections.abc import Mapping
from typing import Any

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones_topology_aware.hardware import Cache, CPUDetails, Device, Hardware
from numazones_topology_aware.sandbox import (
    CGroup,
    ContainerDevice,
    ContainerSpec,
    PodDevice,
    Sandbox,
)

FORM = {
    "machine": {
        "online": str,
        "present": str,
        "isolated": str,
        "eCores?": str,
        "cpus": [
            {"cpu": int, "core": int, "package": int, "die": int, "numa": int, "cluster": int, "epp?": str}
        ],
        "numa": [{"id": int, "memory": int, "distances": [int], "normal": bool}],
        "caches": [{"id": int, "level": int, "kind": str, "cpus": str}],
        "devices?": [{"type": str, "major": int, "minor": int, "path": str}],
    },
    "config": {},
    "steps?": [{"op?": str}],
}
"""What every scenario of the topology-aware policy looks like (``form``)."""


def hardware(description: Mapping[str, Any]) -> Hardware:
    """The machine of a scenario."""
    online = cpuset.parse(description["online"])
    cpus = [cpu for cpu in description["cpus"] if online >> cpu["cpu"] & 1]
    machine = Machine(
        cpus=tuple(CPU(cpu["cpu"], cpu["core"], cpu["package"], cpu["die"], cpu["numa"]) for cpu in cpus),
        numa_nodes=tuple(
            NUMANode(node["id"], node["memory"], distances=tuple(node["distances"]))
            for node in description["numa"]
        ),
    )
    return Hardware(
        machine=machine,
        details={
            cpu["cpu"]: CPUDetails(cpu["cluster"], cpu.get("base") or 0, cpu.get("epp") or "") for cpu in cpus
        },
        caches=tuple(
            Cache(cache["id"], cache["level"], cache["kind"], cpuset.parse(cache["cpus"]))
            for cache in description["caches"]
        ),
        present=cpuset.parse(description["present"]),
        isolated=cpuset.parse(description["isolated"]),
        efficient=cpuset.parse(description.get("eCores") or ""),
        movable=cpuset.of(node["id"] for node in description["numa"] if not node["normal"]),
        devices=tuple(_device(device) for device in description.get("devices") or ()),
    )


def _device(device: Mapping[str, Any]) -> Device:
    return Device(
        device["type"],
        device["major"],
        device["minor"],
        device["path"],
        device.get("numa"),
        device.get("cpus"),
    )


def sandbox(pod: Mapping[str, Any]) -> Sandbox:
    """A pod of a scenario."""
    return Sandbox(
        id=pod["id"],
        name=pod["name"],
        namespace=pod["namespace"],
        uid=pod.get("uid") or "",
        qos=QOSClass(pod["qos"]),
        labels=pod.get("labels") or {},
        annotations=pod.get("annotations") or {},
        devices={
            name: tuple(PodDevice(entry["resource"], tuple(entry.get("numa") or ())) for entry in entries)
            for name, entries in (pod.get("podDevices") or {}).items()
        },
    )


def container(description: Mapping[str, Any]) -> ContainerSpec:
    """A container of a scenario."""
    return ContainerSpec(
        id=description["id"],
        name=description["name"],
        cgroup=cgroup(description.get("linux") or {}),
        labels=description.get("labels") or {},
        devices=tuple(
            ContainerDevice(device["type"], device["major"], device["minor"], device.get("access") or "")
            for device in description.get("devices") or ()
        ),
    )


def cgroup(linux: Mapping[str, Any]) -> CGroup:
    """Values that the runtime passes."""
    return CGroup(
        shares=linux.get("cpuShares") or 0,
        quota=linux.get("cpuQuota") or 0,
        period=linux.get("cpuPeriod") or 0,
        memory_limit=linux.get("memoryLimit") or 0,
        oom_score=linux.get("oomScoreAdj") or 0,
    )
