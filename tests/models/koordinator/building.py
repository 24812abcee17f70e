"""Small nodes and pods under Koordinator to write tests with: as objects of the API, and as values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from numazones.kubelet.pod import Pod
from numazones_koordinator.annotations import (
    CPU_TOPOLOGY,
    NODE_NUMA_TOPOLOGY_POLICY,
    NUMA_TOPOLOGY_SPEC,
    QOS_CLASS,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
)
from numazones_koordinator.node import Node
from numazones_koordinator.scheduler import SCHEDULER_NAME, Scheduler

GPU = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "16Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}


def detail(
    numas: int = 2, cores: int = 4, threads: int = 2, *, sockets: int = 1, ids: Sequence[int] = ()
) -> list[dict[str, int]]:
    """CPUs: second threads after all first ones."""
    total = numas * cores
    return [
        {
            "id": thread * total + core,
            "core": core,
            "socket": core // cores * sockets // numas,
            "node": ids[core // cores] if ids else core // cores,
        }
        for thread in range(threads)
        for core in range(total)
    ]


def nrt(
    cpus: Sequence[Mapping[str, int]] | None,
    zones: Mapping[int, Mapping[str, str]],
    *,
    annotations: Mapping[str, str] | None = None,
    policies: Sequence[str] = (),
) -> dict[str, Any]:
    """A NodeResourceTopology."""
    noted = dict(annotations or {})
    if cpus is not None:
        noted[CPU_TOPOLOGY] = json.dumps({"detail": cpus})
    return {
        "metadata": {"annotations": noted},
        "topologyPolicies": list(policies),
        "zones": [
            {
                "name": f"node-{numa}",
                "type": "Node",
                "resources": [
                    {"name": name, "allocatable": amount, "available": "0", "capacity": amount}
                    for name, amount in resources.items()
                ],
            }
            for numa, resources in zones.items()
        ],
    }


def node_object(
    name: str = "n",
    *,
    cpu: str = "16",
    memory: str = "32Gi",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Node."""
    return {
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "status": {"allocatable": {"cpu": cpu, "memory": memory}},
    }


def node(
    numas: int = 2,
    *,
    cores: int = 4,
    threads: int = 2,
    sockets: int = 1,
    policy: str = "",
    labels: Mapping[str, str] | None = None,
    zone: Mapping[str, str] | None = None,
    ids: Sequence[int] = (),
    topology: bool = True,
    annotations: Mapping[str, str] | None = None,
    gpus: Sequence[int | None] | None = None,
    scheduler: Scheduler | None = None,
    name: str = "n",
) -> Node:
    """NUMA nodes of equal size, without pods; ``gpus`` holds the NUMA node of each."""
    each = zone or {"cpu": str(cores * threads), "memory": "16Gi"}
    ids = ids or range(numas)
    cpus = detail(numas, cores, threads, sockets=sockets, ids=ids) if topology else None
    marked = {**(labels or {}), **({NODE_NUMA_TOPOLOGY_POLICY: policy} if policy else {})}
    host = node_object(name, cpu=str(numas * cores * threads), memory=f"{numas * 16}Gi", labels=marked)
    device = None
    if gpus is not None:
        device = {"spec": {"devices": [gpu(minor, numa) for minor, numa in enumerate(gpus)]}}
    topologies = nrt(cpus, dict.fromkeys(ids, each), annotations=annotations)
    return Node.read(host, topologies, device, scheduler=scheduler)


def gpu(minor: int, numa: int | None, **more: Any) -> dict[str, Any]:
    """A healthy GPU; without a NUMA node its place is not known."""
    place = {} if numa is None else {"topology": {"socketID": 0, "nodeID": numa, "pcieID": str(numa)}}
    return {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": True,
        "resources": GPU,
        **place,
        **more,
    }


def pod_object(
    uid: str = "p",
    *,
    policy: str | None = None,
    exclusive: str | None = None,
    qos: str = "LSR",
    spec: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **requests: str,
) -> dict[str, Any]:
    """A pod with one container; resources are named as arguments, ``_`` for the dots and slashes of GPUs."""
    noted = dict(annotations or {})
    numa = {"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive}
    if policy is not None or exclusive is not None:
        noted[NUMA_TOPOLOGY_SPEC] = json.dumps({key: word for key, word in numa.items() if word is not None})
    if spec is not None:
        noted[RESOURCE_SPEC] = json.dumps(spec)
    if status is not None:
        noted[RESOURCE_STATUS] = json.dumps(status)
    asked = {_RESOURCES.get(name, name): amount for name, amount in requests.items()}
    container = {"name": "c", "resources": {"requests": asked, "limits": asked if limits is None else limits}}
    marked = {**({QOS_CLASS: qos} if qos else {}), **(labels or {})}
    return {
        "metadata": {"name": uid, "namespace": "d", "uid": uid, "labels": marked, "annotations": noted},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]},
    }


_RESOURCES = {"nvidia": "nvidia.com/gpu", "gpu_memory": "koordinator.sh/gpu-memory", "nic": "example.com/nic"}


def pod(uid: str = "p", **more: Any) -> Pod:
    """A pod as a value; see ``pod_object``."""
    return Pod.from_api(pod_object(uid, **more))


def running(uid: str, cpus: str = "", amounts: Mapping[int, Mapping[str, str]] | None = None) -> Pod:
    """A pod that runs with CPUs of its own and amounts of NUMA nodes."""
    status: dict[str, Any] = {"cpuset": cpus}
    status["numaNodeResources"] = [
        {"node": numa, "resources": resources} for numa, resources in (amounts or {}).items()
    ]
    return pod(uid, status=status, cpu="1")
