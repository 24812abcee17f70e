"""Tests of a decision's explanation."""

import pytest

from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.device_manager import Device
from numazones.kubelet.explanation import explain
from numazones.kubelet.hints import Hint
from numazones.kubelet.node import Node
from numazones.kubelet.shortfall import Shortage
from tests.numazones.kubelet.building import GI, container, gpus, machine, node, pod

TWO = machine(2, cores=4)


def used(start: Node, *cpus: int) -> Node:
    """Pods with so many CPUs each."""
    for number, count in enumerate(cpus):
        start = admit(start, pod(f"old-{number}", container("c", count, "64Mi"))).node
    return start


def why(admission: Admission) -> str:
    assert not admission.admitted
    return explain(admission).shortfall


def test_an_admission_tells_hints_and_merge() -> None:
    explanation = explain(admit(node(TWO, devices=gpus((1,))), pod("u", container("c", 2, vendor_gpu="1"))))
    (merge,) = explanation.merges
    assert merge.container == "c"
    assert [resource for resource, _ in merge.hints] == ["vendor/gpu", "cpu", "memory"]
    assert merge.hints[0][1] == (Hint(0b10, True),)
    assert (merge.merged, merge.admitted) == (Hint(0b10, True), True)
    everywhere = "NUMA node 0 (preferred), NUMA node 1 (preferred), NUMA nodes 0-1 (not preferred)"
    assert explanation.lines() == (
        "container c: vendor/gpu offers NUMA node 1 (preferred)",
        f"container c: cpu offers {everywhere}",
        f"container c: memory offers {everywhere}",
        "container c: merged to NUMA node 1 (preferred), admitted",
    )


def test_scope_pod_is_told_for_the_pod_as_a_whole() -> None:
    explanation = explain(admit(node(TWO, scope="pod"), pod("u", container("a", 6), container("b", 6))))
    assert explanation.rejected_container == ""
    assert explanation.lines()[-2] == "pod: merged to any NUMA node (not preferred), rejected"


def test_largest_free_amount_is_named_with_its_numa_node() -> None:
    admission = admit(used(node(TWO), 4, 5), pod("u", container("c", 6)))
    assert (
        why(admission)
        == "needs 6 exclusive CPUs on one NUMA node; at most 3 are free on one NUMA node (NUMA node 0)"
    )
    assert explain(admission).shortages == (Shortage("cpu", 6, 3, (0,), True),)
    assert explain(admission).rejected_container == "c"


def test_what_could_never_be_is_said_so() -> None:
    assert why(admit(node(TWO), pod("u", container("c", 10)))) == (
        "needs 10 exclusive CPUs on one NUMA node, more than any has even when empty; "
        "at most 8 are free on one NUMA node (NUMA node 1)"
    )


def test_memory_is_told_in_binary_units() -> None:
    assert why(admit(node(TWO), pod("u", container("c", 1, "17Gi")))) == (
        "needs 17Gi memory on one NUMA node, more than any has even when empty; "
        "at most 16Gi is free on one NUMA node (NUMA node 1)"
    )


def test_nearest_numa_node_is_named_if_only_the_combination_fails() -> None:
    start = used(node(TWO, devices=gpus((1,))), 4, 7)
    admission = admit(start, pod("u", container("c", 3, vendor_gpu="1")))
    assert why(admission) == (
        "no NUMA node has everything free at once; the closest, NUMA node 1, lacks 2 of the 3 exclusive CPUs"
    )


def test_resources_of_different_width_cannot_agree_under_restricted() -> None:
    assert why(admit(node(TWO, policy="restricted"), pod("u", container("c", 10)))) == (
        "memory would fit on one NUMA node, cpu only on two; "
        "policy restricted requires the same NUMA nodes for all"
    )


def test_init_containers_bind_what_follows() -> None:
    start = used(node(TWO, memory="None"), 4)
    admission = admit(start, pod("u", container("c", 8), init=(container("init", 2),)))
    assert why(admission) == (
        "needs 8 exclusive CPUs on one NUMA node; at most 3 are free on one NUMA node (NUMA node 0) "
        "(it must reuse what init containers left there)"
    )


@pytest.mark.parametrize(
    ("policy", "cpus", "sentence"),
    [
        ("none", 16, "needs 16 exclusive CPUs, but only 15 are free"),
        ("best-effort", 16, "needs 16 exclusive CPUs, but only 15 are free"),
    ],
)
def test_without_alignment_the_whole_node_is_what_counts(policy: str, cpus: int, sentence: str) -> None:
    assert why(admit(node(TWO, policy=policy), pod("u", container("c", cpus)))) == sentence


def test_cpu_count_that_splits_a_core_is_named() -> None:
    strict = node(TWO, policy="none", cpu_options={"full-pcpus-only": "true"})
    assert why(admit(strict, pod("u", container("c", 3)))) == (
        "requests 3 CPUs, which is not a multiple of 2, the threads per core"
    )
    assert why(admit(strict, pod("u", container("c", 16)))) == (
        "needs 16 exclusive CPUs in whole cores; 14 CPUs are left on cores without reserved CPUs"
    )


def test_devices_and_their_health() -> None:
    sick = {"vendor/gpu": (Device("a", (0,), healthy=False),)}
    assert why(admit(node(TWO, policy="none", devices=sick), pod("u", container("c", vendor_gpu="1")))) == (
        "needs 1 vendor/gpu, but none is free"
    )


def test_memory_groups_are_named() -> None:
    start = admit(node(TWO, policy="none", cpus="none"), pod("old", container("c", 1, "1Gi"))).node
    admission = admit(start, pod("u", container("c", 1, "20Gi")))
    assert why(admission) == (
        "needs 20Gi memory; at most 16Gi memory is free, on NUMA node 1 (memory in use binds NUMA node 0 "
        "by itself, and other pods can use memory there only in the same combination)"
    )
    wide = admit(
        node(TWO, policy="restricted", cpus="none"), pod("old", container("c", 1, f"{20 * GI}"))
    ).node
    assert why(admit(wide, pod("u", container("c", 1, "1Gi")))) == (
        "needs 1Gi memory on one NUMA node; none is free (memory in use binds NUMA nodes 0-1 together, "
        "and other pods can use memory there only in the same combination)"
    )


def test_rounding_down_never_makes_an_offer_look_sufficient() -> None:
    start = node(machine(1), policy="none", cpus="none")
    start = admit(start, pod("old", container("c", 1, "1Mi"))).node
    assert why(admit(start, pod("u", container("c", 1, "15Gi")))) == (
        "needs 15Gi memory; at most 14.9Gi memory is free, on NUMA node 0 (memory in use binds NUMA node "
        "0 by itself, and other pods can use memory there only in the same combination)"
    )
