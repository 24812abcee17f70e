"""Small machines, configurations and pods to write tests with."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.versions import ALIGN_BY_SOCKET, EXCLUSIVE_CPU_OPTIONS, Maturity, Release

GI = 1 << 30
GATES = {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True}


def machine(
    numas: int = 2,
    *,
    cores: int = 4,
    threads: int = 2,
    sockets: int | None = None,
    memory: int = 16 * GI,
    hugepages: Mapping[int, int] | None = None,
    distances: bool = True,
    ids: tuple[int, ...] | None = None,
    offline: frozenset[int] = frozenset(),
    cores_per_uncore_cache: int | None = None,
) -> Machine:
    """NUMA nodes of equal size; CPU n and its sibling are as far apart as there are cores."""
    ids = ids or tuple(range(numas))
    sockets = sockets or numas
    total = numas * cores
    cpus = tuple(
        CPU(
            id=thread * total + index * cores + core,
            core=core,
            socket=index * sockets // numas,
            die=0,
            numa=numa,
            uncore_cache=None
            if cores_per_uncore_cache is None
            else index * -(-cores // cores_per_uncore_cache) + core // cores_per_uncore_cache,
        )
        for thread in range(threads)
        for index, numa in enumerate(ids)
        for core in range(cores)
    )
    far = {True: 10, False: 20}
    nodes = tuple(
        NUMANode(
            id=numa,
            memory=memory,
            hugepages=tuple((hugepages or {}).items()),
            distances=tuple(far[other == numa] for other in ids) if distances else None,
        )
        for numa in ids
    )
    return Machine(tuple(cpu for cpu in cpus if cpu.id not in offline), nodes)


def configuration(
    policy: str = "single-numa-node",
    *,
    scope: str = "container",
    cpus: str = "static",
    memory: str = "Static",
    reserved: str = "0",
    cpu_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    gates: Mapping[str, bool] | None = None,
    version: str = "1.36",
    **fields: Any,
) -> KubeletConfiguration:
    """Static managers, CPU 0 and 1Gi of NUMA node 0 reserved, alpha options allowed."""
    return KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": cpus,
            "cpuManagerPolicyOptions": dict(cpu_options or {}),
            "reservedSystemCPUs": reserved,
            "memoryManagerPolicy": memory,
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "systemReserved": {"memory": "1Gi"},
            "evictionHard": {"memory.available": "0"},
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "topologyManagerPolicyOptions": dict(options or {}),
            "featureGates": {**GATES, **(gates or {})},
            **fields,
        },
        version=version,
    )


def cpu_option_sets(kubelet: Release, *, policy: str, alpha: bool = True) -> list[dict[str, str]]:
    """No option of the CPU Manager, each that a release has, and each two that go together.

    Args:
        kubelet: the release, which knows the options.
        policy: that of the Topology Manager, which not every option goes with.
        alpha: whether options that a gate hides by default are among them.
    """
    names = [
        name
        for name, maturity in kubelet.cpu_options.items()
        if (alpha or maturity is not Maturity.ALPHA)
        and not (name == ALIGN_BY_SOCKET and policy == "single-numa-node")
    ]
    exclusive = [set(pair) for pair in EXCLUSIVE_CPU_OPTIONS]
    sets = [(), *((name,) for name in names), *combinations(names, 2)]
    return [dict.fromkeys(chosen, "true") for chosen in sets if set(chosen) not in exclusive]


def node(
    hardware: Machine | None = None, *, devices: Mapping[str, tuple[Device, ...]] | None = None, **config: Any
) -> Node:
    """A fresh node."""
    return Node.fresh(hardware or machine(), configuration(**config), devices or {})


def container(name: str, cpu: str | int = 1, memory: str = "1Gi", **limits: str) -> dict[str, Any]:
    """A container whose requests equal its limits; ``vendor_gpu="1"`` asks for vendor/gpu."""
    amounts = {"cpu": str(cpu), "memory": memory}
    amounts |= {name.replace("_", "/", 1) if "_" in name else name: count for name, count in limits.items()}
    return {"name": name, "resources": {"requests": amounts, "limits": dict(amounts)}}


def pod(
    uid: str,
    *containers: Mapping[str, Any],
    init: tuple[Mapping[str, Any], ...] = (),
    **spec: Any,
) -> Pod:
    """A pod of these containers; without any, of one with one CPU and 1Gi."""
    return Pod.from_api(
        {
            "metadata": {"name": f"pod-{uid}", "namespace": "default", "uid": uid},
            "spec": {
                "containers": list(containers) or [container("c")],
                "initContainers": list(init),
                **spec,
            },
        }
    )


def sidecar(name: str, cpu: str | int = 1, memory: str = "1Gi", **limits: str) -> dict[str, Any]:
    """An init container that keeps running."""
    return {**container(name, cpu, memory, **limits), "restartPolicy": "Always"}


def gpus(*numas: tuple[int, ...]) -> dict[str, tuple[Device, ...]]:
    """vendor/gpu: one device per set of NUMA nodes."""
    return {"vendor/gpu": tuple(Device(f"gpu-{index}", numa) for index, numa in enumerate(numas))}
