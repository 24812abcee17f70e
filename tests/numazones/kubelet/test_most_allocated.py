"""KEP-6007's option, ``prefer-most-allocated-numa-node``: of NUMA nodes that fit alike, the fuller one.

As the first draft of the KEP says. How full a NUMA node is, is told in whole percent of its CPUs and of its
memory; where the two disagree, or both are equal, the lower id is taken, as without the option.
"""

from typing import Any

import pytest

from numazones.kubelet.admission import admit
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from tests.numazones.kubelet.building import GI, container, machine, node, pod

MOST = {"prefer-most-allocated-numa-node": "true"}
DEVICES = {
    **{
        f"vendor/on{numa}": (Device(f"on-{numa}", (numa,)), Device(f"on-{numa}-too", (numa,)))
        for numa in range(3)
    },
    "vendor/any": tuple(Device(f"any-{numa}", (numa,)) for numa in range(3)),
}
"""What binds a pod to a NUMA node, and what is on each."""
UNRESERVED = [{"numaNode": numa, "limits": {"memory": "1Gi"}} for numa in range(2)]
EQUAL: dict[str, Any] = {"reservedMemory": UNRESERVED, "systemReserved": {"memory": "2Gi"}}
"""As much memory is reserved on the one as on the other, 1Gi of 16Gi."""


def kubelet(numas: int = 2, **config: Any) -> Node:
    """NUMA nodes of 8 CPUs and 16Gi; CPU 0 and 1Gi of NUMA node 0 are reserved unless told otherwise."""
    return node(machine(numas, cores=8, threads=1), devices=DEVICES, **{"options": MOST, **config})


def loaded(start: Node, *loads: tuple[int, str | int, str]) -> Node:
    """The node with pods: NUMA node, CPUs, memory."""
    for number, (numa, cpu, memory) in enumerate(loads):
        admission = admit(
            start, pod(f"old-{number}", container("c", cpu, memory, **{f"vendor_on{numa}": "1"}))
        )
        assert admission.admitted
        start = admission.node
    return start


def chosen(start: Node, *asked: dict[str, Any]) -> int:
    """The NUMA node that the last container of a pod gets which fits on each."""
    admission = admit(start, pod("new", *(asked or (container("c", 1, "1Mi"),))))
    assert admission.admitted
    *_, last = admission.affinities.values()
    assert last.affinity is not None
    return last.affinity.bit_length() - 1


SHARES = "100m"
"""CPUs of a container that shares them with others."""
CPUS_ONLY: dict[str, Any] = {"memory": "None"}
MEMORY_ONLY: dict[str, Any] = {"cpus": "none", "reserved": ""}


@pytest.mark.parametrize(
    ("config", "loads", "numa"),
    [
        ({}, [], 0),
        ({}, [(1, 2, "2Gi")], 1),
        ({}, [(0, 2, "2Gi"), (1, 2, "1Gi")], 0),
        # CPUs in percent of those that are not reserved: of 7 and 8, then of 8 and 7, then of 8 and none.
        (CPUS_ONLY, [(0, 3, "1Mi"), (1, 3, "1Mi")], 0),
        (CPUS_ONLY, [(0, 3, "1Mi"), (1, 4, "1Mi")], 1),
        ({**CPUS_ONLY, "reserved": "8"}, [(0, 3, "1Mi"), (1, 3, "1Mi")], 1),
        ({**CPUS_ONLY, "reserved": "8"}, [(0, 4, "1Mi"), (1, 3, "1Mi")], 0),
        ({**CPUS_ONLY, "reserved": "8-11"}, [(0, 4, "1Mi"), (1, 3, "1Mi")], 1),
        # Memory in percent of what is not reserved: of 15Gi and 16Gi.
        (MEMORY_ONLY, [(0, SHARES, "6Gi"), (1, SHARES, "6Gi")], 0),
        (MEMORY_ONLY, [(0, SHARES, "6Gi"), (1, SHARES, "7Gi")], 1),
        # Whole percents: 9 and 9.9, 9 and 10, a hundredth and a byte less.
        ({**MEMORY_ONLY, **EQUAL}, [(0, SHARES, str(15 * GI * 9 // 100 + 1)), (1, SHARES, "1520Mi")], 0),
        ({**MEMORY_ONLY, **EQUAL}, [(0, SHARES, str(15 * GI * 9 // 100 + 1)), (1, SHARES, "1536Mi")], 1),
        ({**MEMORY_ONLY, **EQUAL}, [(1, SHARES, str(15 * GI // 100 + 1))], 1),
        ({**MEMORY_ONLY, **EQUAL}, [(1, SHARES, str(15 * GI // 100))], 0),
        # CPUs alone, memory alone, both, and each against the other.
        ({}, [(1, 2, "1Mi")], 1),
        ({}, [(1, SHARES, "2Gi")], 1),
        ({}, [(0, 1, "4Gi"), (1, 4, "1Gi")], 0),
        ({}, [(0, 4, "1Gi"), (1, 1, "4Gi")], 0),
        # Other policies know nothing of it, and neither does the option that is not on.
        ({"policy": "restricted"}, [(1, 4, "4Gi")], 0),
        ({"policy": "best-effort"}, [(1, 4, "4Gi")], 0),
        ({"options": {}}, [(1, 4, "4Gi")], 0),
    ],
)
def test_the_numa_node_is_taken_of_which_more_is_assigned(
    config: dict[str, Any], loads: list[tuple[int, str | int, str]], numa: int
) -> None:
    assert chosen(loaded(kubelet(**config), *loads)) == numa


def test_load_of_numa_nodes_counts_for_every_request() -> None:
    by_device = container("c", SHARES, "1Mi", vendor_any="1")
    full = [(1, 4, "4Gi")]
    assert chosen(loaded(kubelet(**CPUS_ONLY), *full), by_device) == 1
    assert chosen(loaded(kubelet(**MEMORY_ONLY), *full), by_device) == 1
    assert chosen(loaded(kubelet(**CPUS_ONLY, **MEMORY_ONLY), *full), by_device) == 0  # neither keeps books
    assert (
        chosen(kubelet(**CPUS_ONLY, reserved="8-15"), by_device) == 0
    )  # no CPU of NUMA node 1 may be assigned


def test_a_numa_node_without_cpus_counts_as_empty() -> None:
    hardware = machine(3, cores=8, threads=1)
    memory_only = Machine(tuple(cpu for cpu in hardware.cpus if cpu.numa != 2), hardware.numa_nodes)
    start = node(memory_only, devices=DEVICES, options=MOST, **CPUS_ONLY)
    by_device = container("c", SHARES, "1Mi", vendor_any="1")
    assert chosen(start, by_device) == 0
    assert chosen(loaded(start, (1, 1, "1Mi")), by_device) == 1


def test_what_earlier_containers_of_the_pod_were_given_counts_already() -> None:
    start = loaded(kubelet(**CPUS_ONLY), (1, 1, "1Mi"))
    first = container("first", 4, "1Mi", vendor_on0="1")
    assert chosen(start, first, container("c", 1, "1Mi")) == 0
    assert chosen(start, container("c", 1, "1Mi")) == 1


def test_cpus_reused_from_an_init_container_count_once() -> None:
    """Three of 7 assignable CPUs are assigned, two of them by two containers; of 8, 3 or 4."""
    handed_on = pod(
        "old",
        container("app", 2, "1Mi", vendor_on0="1"),
        init=(container("init", 3, "1Mi", vendor_on0="1"),),
    )
    start = admit(kubelet(**CPUS_ONLY), handed_on).node
    assert chosen(loaded(start, (1, 3, "1Mi"))) == 0
    assert chosen(loaded(start, (1, 4, "1Mi"))) == 1


def test_hugepages_do_not_count() -> None:
    pages = machine(2, cores=8, threads=1, hugepages={2048: 1024})
    start = node(pages, devices=DEVICES, options=MOST, cpus="none", reserved="")
    huge = {"hugepages-2Mi": "1Gi"}
    asked = pod("old", container("c", 1, "1Mi", vendor_on1="1", **huge))
    assert chosen(loaded(admit(start, asked).node, (0, SHARES, "200Mi"))) == 0


@pytest.mark.parametrize(
    ("loads", "numa"),
    [
        ([(1, 3, "1Mi"), (2, 1, "9Gi"), (0, SHARES, "6Gi")], 2),
        ([(0, 3, "1Mi"), (2, 1, "9Gi"), (1, SHARES, "6Gi")], 0),
    ],
)
def test_numa_nodes_are_compared_in_one_pass_despite_cycles(
    loads: list[tuple[int, str | int, str]], numa: int
) -> None:
    """Two of three disagree in CPUs and memory, twice; in the third pair both are on the side of one."""
    assert chosen(loaded(kubelet(3), *loads)) == numa
