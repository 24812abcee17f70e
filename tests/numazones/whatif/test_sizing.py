"""Numbers of machines: the result works, and no bound is above it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate
from numazones.whatif.sizing import POLICIES, Size, best, choices, size
from numazones.whatif.workload import PodGroup
from tests.laws import examples

# NUMA nodes of 8 CPUs, two of which the system keeps on the first one.
MACHINE = node_template("sockets=2,numa=2,cores=8,threads=2,memory=32Gi,x.example/nic=2", name="m")


def sized(
    *groups: str, policy: str = "single-numa-node", reserved: str = "0,8", machine: NodeTemplate = MACHINE
) -> Size:
    wanted = {"topologyManagerPolicy": policy, "reservedSystemCPUs": reserved}
    return size(machine, [PodGroup.parse(text) for text in groups], wanted)


@pytest.mark.parametrize(
    ("groups", "policy", "machines", "at_least"),
    [
        (("2xcpu=6",), "single-numa-node", 1, 1),
        (("3xcpu=6",), "single-numa-node", 2, 2),  # no two fit a NUMA node
        (("2xcpu=7",), "single-numa-node", 2, 2),  # one NUMA node of each machine has as many
        (("2xcpu=7",), "none", 1, 1),
        (("4xcpu=3", "1xcpu=2"), "single-numa-node", 1, 1),
        (("5xcpu=2,memory=10Gi",), "single-numa-node", 3, 3),  # nor do two of these, by memory
        (("3xcpu=1,x.example/nic=1",), "single-numa-node", 2, 2),
        (("28xcpu=500m",), "single-numa-node", 1, 1),
        (("29xcpu=500m",), "single-numa-node", 2, 2),
    ],
)
def test_machines_are_added_until_all_pods_are_held(
    groups: tuple[str, ...], policy: str, machines: int, at_least: int
) -> None:
    found = sized(*groups, policy=policy)
    assert (found.machines, found.at_least, found.misfit) == (machines, at_least, "")
    assert found.outcome.admitted == found.outcome.arrived


def test_large_pods_come_first_and_small_ones_fill_the_gaps() -> None:
    found = sized("2xcpu=1", "1xcpu=6", "1xcpu=7")
    assert (found.machines, found.left) == (2, 28 - 15)
    assert sized("1xcpu=1", "1xcpu=6", "1xcpu=7").machines == 1


@pytest.mark.parametrize(
    ("group", "policy", "said"),
    [
        (
            "1xcpu=9",
            "single-numa-node",
            "1xcpu=9: needs 9 exclusive CPUs on one NUMA node, more than any has even when empty",
        ),
        ("1xcpu=15", "none", "1xcpu=15: Insufficient cpu: 15 requested, 14 free"),
        ("1xcpu=15,memory=99Gi", "none", "99Gi requested, 31Gi free; Insufficient cpu: 15 requested"),
        ("1xcpu=1,y.example/gpu=1", "none", "Insufficient y.example/gpu: 1 requested, 0 free"),
    ],
)
def test_a_pod_that_fits_no_machine_is_named(group: str, policy: str, said: str) -> None:
    found = sized("1xcpu=1", group, policy=policy)
    assert said in found.misfit
    assert best([found]) is None


def test_reserved_cpus_are_whole_cores_in_one_place_or_spread() -> None:
    found = choices(MACHINE, 4)
    assert list(dict.fromkeys(one["topologyManagerPolicy"] for one in found)) == list(POLICIES)
    assert [one["reservedSystemCPUs"] for one in found[:2]] == ["0-1,8-9", "0,4,8,12"]
    assert {one["reservedSystemCPUs"] for one in choices(MACHINE, 2)} == {"0,8"}
    assert len(choices(MACHINE, 1)) == len(POLICIES)


@pytest.mark.parametrize(("numa", "word"), [(34, "KubeletHang"), (70, "KubeletCrash")])
def test_kubelet_that_hangs_or_crashes_is_named_with_the_cure(numa: int, word: str) -> None:
    machine = node_template(f"sockets=1,numa={numa},cores={numa},threads=1,memory={numa}Gi", name="m")
    found = [size(machine, [PodGroup.parse("2xcpu=1")], settings) for settings in choices(machine, 1)]
    *misfits, works = found
    assert {one.settings["topologyManagerPolicy"] for one in misfits} == set(POLICIES)
    assert all(one.misfit.startswith(f"2xcpu=1: {word}: the kubelet would") for one in misfits)
    assert all("set topologyManagerPolicy: none" in one.misfit for one in misfits[:3])
    assert "memoryManagerPolicy: None, and remove memory_manager_state" in misfits[3].misfit
    assert (works.machines, works.settings["memoryManagerPolicy"]) == (1, "None")
    assert best(found) is works


def test_kubelet_that_would_not_start_is_named_with_the_cure() -> None:
    machine = node_template("sockets=1,numa=12,cores=24,threads=1,memory=24Gi", name="m")
    refused = sized("1xcpu=1", machine=machine).misfit
    assert refused.endswith(
        "unsupported on machines with more than 8 NUMA Nodes; set topologyManagerPolicyOptions "
        'max-allowable-numa-nodes: "12", or topologyManagerPolicy: none'
    )
    assert not any(size(machine, [PodGroup.parse("1xcpu=1")], one).misfit for one in choices(machine, 1))


def test_where_they_are_decides_what_fits() -> None:
    # 4 and 8 CPUs, or 6 and 6.
    assert sized("2xcpu=6", reserved="0-1,8-9").machines == 2
    assert sized("2xcpu=6", reserved="0,4,8,12").machines == 1


def test_fewest_machines_are_best_then_fewest_pods_across_numa_nodes() -> None:
    sizes = [sized("2xcpu=7", policy=policy) for policy in POLICIES]
    found = best(sizes)
    assert found is not None
    assert (found.machines, found.settings["topologyManagerPolicy"]) == (1, "best-effort")
    aligned = best([sized("2xcpu=6", policy=policy) for policy in reversed(POLICIES)])
    assert aligned is not None
    assert aligned.outcome.crossing == 0


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 14)), min_size=1, max_size=4),
    st.sampled_from(POLICIES),
)
def test_every_pod_is_admitted_and_no_bound_exceeds_the_result(
    groups: list[tuple[int, int, int]], policy: str
) -> None:
    found = sized(*(f"{count}xcpu={cpus},memory={memory}Gi" for count, cpus, memory in groups), policy=policy)
    assert found.misfit == ""
    assert found.outcome.admitted == found.outcome.arrived == sum(count for count, _, _ in groups)
    assert found.at_least <= found.machines
    assert found.left == 14 * found.machines - sum(count * cpus for count, cpus, _ in groups)
