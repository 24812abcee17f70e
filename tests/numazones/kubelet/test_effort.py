"""Pods on which a kubelet crashes or hangs: no verdict, a name, an estimate and a cure that helps."""

import re
from collections.abc import Iterable

import pytest

from numazones import build
from numazones.kubelet import cures, effort
from numazones.kubelet.admission import admit
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.rejection import KubeletCrash, KubeletHang

GPU = "vendor.example/gpu"


def machine(ids: Iterable[int], *, with_cpus: int = 2, cpus: int = 8) -> Machine:
    ids = tuple(ids)
    return Machine(
        tuple(CPU(cpu, cpu, 0, 0, ids[cpu % with_cpus]) for cpu in range(cpus)),
        tuple(NUMANode(numa, 16 << 30) for numa in ids),
    )


def kubelet(
    policy: str = "best-effort", memory: str = "None", version: str = "v1.36.2"
) -> KubeletConfiguration:
    settings: dict[str, object] = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "topologyManagerPolicy": policy,
        "memoryManagerPolicy": memory,
    }
    if policy != "none":
        settings["topologyManagerPolicyOptions"] = {"max-allowable-numa-nodes": "64"}
    if memory == "Static":
        settings["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "100Mi"}}]
    return KubeletConfiguration.from_api(settings, version=version)


def gpus(hosts: Iterable[int]) -> dict[str, list[Device]]:
    return {GPU: [Device(f"gpu-{numa}", (numa,)) for numa in hosts]}


PLAIN = build.pod("plain", cpu=2, memory="1Gi")
BURSTABLE = build.pod("burstable", cpu="500m")
WITH_GPU = build.pod("gpu", cpu=2, memory="1Gi", devices={GPU: 1})


@pytest.mark.parametrize("ids", [(0, 1, 64), (0, 1, 250, 251), (0, 1, 4096), (65, 70)])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_numa_ids_from_64_on_crash_every_admission(ids: tuple[int, ...], policy: str) -> None:
    node = Node.fresh(machine(ids), kubelet(policy))
    for pod in (PLAIN, BURSTABLE):
        with pytest.raises(KubeletCrash, match=rf"topologyManagerPolicy {policy}.* NUMA node .*{ids[-1]}"):
            admit(node, pod)
    assert admit(Node.fresh(machine(ids), kubelet("none")), PLAIN).admitted


def test_numa_id_63_is_the_last_that_works() -> None:
    assert admit(Node.fresh(machine((0, 1, 63)), kubelet()), PLAIN).admitted


def test_static_memory_crashes_on_large_ids_for_guaranteed_pods_only() -> None:
    node = Node.fresh(machine((0, 1, 64)), kubelet("none", "Static"))
    with pytest.raises(KubeletCrash, match="would crash under memoryManagerPolicy Static: its sets"):
        admit(node, PLAIN)
    assert admit(node, BURSTABLE).admitted


@pytest.mark.parametrize(
    ("count", "estimate"),
    [(14, None), (16, None), (18, None), (20, "69 seconds"), (24, "22 minutes"), (34, "22 days")],
)
@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_static_memory_hangs_on_many_numa_nodes(count: int, estimate: str | None, policy: str) -> None:
    node = Node.fresh(machine(range(count)), kubelet(policy, "Static"))
    assert admit(node, BURSTABLE).admitted
    if estimate is None:
        assert admit(node, PLAIN).admitted
        return
    with pytest.raises(KubeletHang, match=f"for memory .* {count} NUMA nodes.* about {estimate}") as hang:
        admit(node, PLAIN)
    assert "memoryManagerPolicy: None" in str(hang.value)


@pytest.mark.parametrize(("version", "hangs"), [("v1.31.0", True), ("v1.35.2", True), ("v1.36.0", False)])
def test_devices_hang_before_release_1_36_only(version: str, hangs: bool) -> None:  # noqa: FBT001
    node = Node.fresh(machine(range(34)), kubelet(version=version), gpus((0, 1)))
    assert admit(node, PLAIN).admitted
    if not hangs:
        assert admit(node, WITH_GPU).admitted
        return
    with pytest.raises(KubeletHang, match=f"for {GPU} .* 34 NUMA nodes.*upgrade the kubelet to 1.36"):
        admit(node, WITH_GPU)
    assert admit(
        Node.fresh(machine(range(34)), kubelet("none", version=version), gpus((0,))), WITH_GPU
    ).admitted


def test_devices_on_dozens_of_numa_nodes_hang_in_every_release() -> None:
    node = Node.fresh(machine(range(34)), kubelet(), gpus(range(34)))
    with pytest.raises(KubeletHang, match=f"for {GPU} .*topologyManagerPolicy: none") as hang:
        admit(node, WITH_GPU)
    assert "upgrade" not in str(hang.value)


def test_cpus_on_64_numa_nodes_hang_unless_nothing_is_aligned() -> None:
    wide = machine(range(64), with_cpus=64, cpus=256)
    node = Node.fresh(wide, kubelet())
    with pytest.raises(KubeletHang, match=r"for cpu .* 64 NUMA nodes.* longer than 10000 years") as hang:
        admit(node, PLAIN)
    assert str(hang.value).endswith(cures.NO_ALIGNMENT)
    assert admit(node, BURSTABLE).admitted
    assert admit(Node.fresh(wide, kubelet("none")), PLAIN).admitted


def test_too_many_combinations_of_hints_hang_under_best_effort() -> None:
    kinds = {
        f"vendor.example/{kind}": [Device(f"{kind}-{numa}", (numa,)) for numa in range(6)] for kind in "abc"
    }
    pod = build.pod(cpu=2, memory="1Gi", devices=dict.fromkeys(kinds, 1))
    node = Node.fresh(machine(range(6), with_cpus=6, cpus=36), kubelet(memory="Static"), kinds)
    with pytest.raises(
        KubeletHang, match=r"combinations of the hints for .*cpu \(63\), memory \(63\).*about 33 minutes"
    ):
        admit(node, pod)
    single = Node.fresh(node.machine, kubelet("single-numa-node", "Static"), kinds)
    assert admit(single, pod).admitted
    # Only all NUMA nodes together have so much memory: that is one hint instead of 63.
    assert admit(node, build.pod(cpu=2, memory="95Gi", devices=dict.fromkeys(kinds, 1))).admitted


def test_spreading_cpus_over_dozens_of_numa_nodes_hangs() -> None:
    config = KubeletConfiguration.from_api(
        {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        },
        version="v1.36.0",
    )
    node = Node.fresh(machine(range(64), with_cpus=64, cpus=256), config)
    with pytest.raises(KubeletHang, match="to distribute 40 CPUs it tries all sets of 10 of 64 NUMA nodes"):
        admit(node, build.pod(cpu=40, memory="1Gi"))


def reasons(config: KubeletConfiguration, shape: Machine, hosts: Iterable[int] = ()) -> list[str]:
    hosting = {GPU: (sum(1 << numa for numa in hosts), 4)} if hosts else {}
    return [
        f"{delay.reason} {re.split('[:;]', delay.message)[0]}"
        for delay in effort.delays(shape, config, hosting)
    ]


def test_shape_of_a_node_tells_where_its_kubelet_stalls() -> None:
    assert reasons(kubelet(memory="Static"), machine(range(4), with_cpus=4), (0, 1)) == []
    assert reasons(kubelet(), machine(range(34))) == []
    assert reasons(kubelet(version="v1.35.0"), machine(range(34)), (0, 1)) == [
        f"KubeletHang a pod that requests {GPU} keeps the kubelet busy for about 4 days"
    ]
    assert reasons(kubelet("none", "Static"), machine(range(18))) == [
        "SlowAdmission a pod that requests memory keeps the kubelet busy for about 16 seconds"
    ]
    together = (
        f"a pod that requests cpu, memory, {GPU} together can keep the kubelet busy for about 20 seconds"
    )
    assert reasons(kubelet(memory="Static"), machine(range(8), with_cpus=8), range(8)) == [
        f"SlowAdmission {together}"
    ]
    assert reasons(kubelet("single-numa-node", "Static"), machine(range(8), with_cpus=8), range(8)) == []
    assert reasons(kubelet(), machine((0, 1, 64))) == [
        "KubeletCrash the kubelet crashes on every pod under topologyManagerPolicy best-effort"
    ]
    assert reasons(kubelet("none"), machine((0, 1, 64))) == []
