"""Machines, configurations and pods for the laws about zones: small, odd, and reached by real admissions."""

from typing import Any

from hypothesis import strategies as st

from numazones.apimachinery import quantity
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration, MemoryReservation
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.versions import REFERENCE, Release
from tests.numazones.kubelet.building import cpu_option_sets

GIB = 1 << 30
NIC, GPU, TPM, EMPTY = (
    "vendor.example/nic",
    "vendor.example/gpu",
    "vendor.example/tpm",
    "vendor.example/empty",
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """One to three NUMA nodes with gaps in their ids, one of which may have no CPUs."""
    numas = sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=3)))
    threads = draw(st.sampled_from([1, 2]))
    cores = draw(st.integers(2, 4))
    with_cpus = numas[: draw(st.integers(1, len(numas)))]
    sockets = draw(st.integers(1, 2))
    split_cache = draw(st.booleans())
    cpus, total = [], cores * len(with_cpus)
    for number, numa in enumerate(with_cpus):
        for core in range(cores):
            first = number * cores + core
            uncore = number * 2 + core % 2 if split_cache else None
            socket = number % sockets
            cpus += [CPU(first + thread * total, first, socket, 0, numa, uncore) for thread in range(threads)]
    distances = draw(st.booleans())
    pages = draw(st.sampled_from([(), ((2048, 512),), ((2048, 0), (1048576, 1))]))
    return Machine(
        tuple(cpus),
        tuple(
            NUMANode(
                numa,
                4 * GIB + 4096 * numa,
                pages,
                tuple(10 if numa == other else 21 for other in numas) if distances else None,
            )
            for numa in numas
        ),
    )


@st.composite
def configurations(draw: st.DrawFn, machine: Machine) -> KubeletConfiguration:
    """Every combination of policies, with options that go with each other."""
    policy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    options = draw(st.sampled_from(cpu_option_sets(Release(REFERENCE), policy=policy, alpha=False)))
    static_cpus, static_memory = draw(st.booleans()), draw(st.booleans())
    reserved = (MemoryReservation(machine.numa_nodes[0].id, (("memory", quantity.parse("500Mi")),)),)
    return KubeletConfiguration(
        cpu_manager_policy="static" if static_cpus else "none",
        cpu_manager_policy_options=tuple(options.items()) if static_cpus else (),
        reserved_cpu=quantity.parse(draw(st.sampled_from(["1", "1500m"]))),
        memory_manager_policy="Static" if static_memory else "None",
        reserved_memory=reserved if static_memory else (),
        topology_manager_policy=policy,
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        feature_gates=draw(st.sampled_from([(), (("CPUManagerPolicyBetaOptions", True),)])),
    )


@st.composite
def device_lists(draw: st.DrawFn, machine: Machine) -> dict[str, tuple[Device, ...]]:
    """Devices on one NUMA node, on two, on none; sick ones; a plugin without any."""
    ids = [node.id for node in machine.numa_nodes]
    healthy = st.booleans() | st.just(value=True)
    return {
        NIC: tuple(Device(f"nic-{n}", (draw(st.sampled_from(ids)),), draw(healthy)) for n in range(4)),
        GPU: tuple(Device(f"gpu-{n}", tuple(ids[:2]), draw(healthy)) for n in range(2)),
        TPM: (Device("tpm-0", (), healthy=True), Device("tpm-1", (), healthy=False)),
        EMPTY: (),
    }


def pod(uid: str, containers: list[dict[str, str]], inits: list[dict[str, str]]) -> dict[str, Any]:
    """A Guaranteed pod, as the API has it."""

    def container(name: str, amounts: dict[str, str]) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}}

    return {
        "metadata": {"name": f"pod-{uid}", "namespace": "default", "uid": uid},
        "spec": {
            "containers": [container(f"c{n}", amounts) for n, amounts in enumerate(containers)],
            "initContainers": [container(f"i{n}", amounts) for n, amounts in enumerate(inits)],
        },
    }


amounts = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["1", "2", "4", "500m"]),
        "memory": st.sampled_from(["64Mi", "1Gi", "3Gi", "5Gi"]),
    },
    optional={
        NIC: st.sampled_from(["1", "2"]),
        GPU: st.just("1"),
        TPM: st.just("1"),
    },
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node after some admissions and removals."""
    machine = draw(machines())
    try:
        node = Node.fresh(machine, draw(configurations(machine)), draw(device_lists(machine)))
    except InvalidConfiguration:  # too few CPUs for the reservation: take the kubelet without a policy
        node = Node.fresh(machine, KubeletConfiguration(), draw(device_lists(machine)))
    for number in range(draw(st.integers(0, 5))):
        body = pod(
            str(number), draw(st.lists(amounts, min_size=1, max_size=2)), draw(st.lists(amounts, max_size=1))
        )
        node = admit(node, Pod.from_api(body)).node
    for uid in draw(st.sets(st.sampled_from(sorted(node.pods)))) if node.pods else ():
        node = remove(node, uid)
    return node
