"""Tests of which CPUs are taken. Tables are worked out by hand from the rules; laws hold on any machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet.cpu_distribution import take
from numazones.kubelet.cpu_packing import PackingStrategy
from numazones.kubelet.cpu_topology import CPUTopology
from numazones.kubelet.machine import Machine
from numazones.kubelet.rejection import KubeletHang, Rejection
from tests.laws import examples
from tests.numazones.kubelet.building import machine

PACKED = PackingStrategy()
SPREAD = PackingStrategy(spread=True)
UNCORE = PackingStrategy(align_uncore_caches=True)
DISTRIBUTED = PackingStrategy(distributed=True)
BY_CORE = PackingStrategy(distributed=True, group=2)

# 2 NUMA nodes of 4 cores of 2 threads: node 0 holds 0-3,8-11, node 1 holds 4-7,12-15.
TWO = machine(2, cores=4)
# The same, with an L3 cache for every two cores.
CACHES = machine(2, cores=4, cores_per_uncore_cache=2)
# 1 socket of 2 NUMA nodes, so that sockets are the larger part.
ONE_SOCKET = machine(2, cores=2, sockets=1)


def taken(hardware: Machine, strategy: PackingStrategy, available: str, count: int) -> str:
    return cpuset.format(take(CPUTopology(hardware), strategy, cpuset.parse(available), count))


@pytest.mark.parametrize(
    ("hardware", "strategy", "available", "count", "expected"),
    [
        pytest.param(TWO, PACKED, "0-15", 0, "", id="nothing wanted"),
        pytest.param(TWO, PACKED, "0-15", 1, "0", id="the lowest thread"),
        pytest.param(TWO, PACKED, "0-15", 2, "0,8", id="a whole core"),
        pytest.param(TWO, PACKED, "0-15", 3, "0-1,8", id="a whole core and a thread"),
        pytest.param(TWO, PACKED, "0-15", 8, "0-3,8-11", id="a whole NUMA node"),
        pytest.param(TWO, PACKED, "0-15", 10, "0-4,8-12", id="a NUMA node and a core of the other"),
        pytest.param(TWO, PACKED, "1-15", 2, "1,9", id="whole cores before single threads"),
        pytest.param(TWO, PACKED, "1-15", 1, "8", id="broken cores fill up first"),
        pytest.param(TWO, PACKED, "1-15", 8, "4-7,12-15", id="the NUMA node that is whole"),
        pytest.param(TWO, PACKED, "0-3,8-11,4,12", 2, "4,12", id="the fuller NUMA node first"),
        pytest.param(TWO, SPREAD, "0-15", 2, "0-1", id="spread over cores"),
        pytest.param(TWO, SPREAD, "0-15", 8, "0-3,8-11", id="whole NUMA nodes even when spread"),
        pytest.param(CACHES, UNCORE, "0-15", 4, "0-1,8-9", id="a whole cache"),
        pytest.param(CACHES, UNCORE, "1-15", 4, "2-3,10-11", id="another whole cache"),
        pytest.param(CACHES, UNCORE, "0-15", 3, "0-1,8", id="an odd number within a cache"),
        pytest.param(CACHES, UNCORE, "1-15", 6, "2-4,10-12", id="a cache and whole cores of another"),
        pytest.param(ONE_SOCKET, PACKED, "0-7", 4, "0-1,4-5", id="sockets first, then NUMA nodes"),
        pytest.param(TWO, DISTRIBUTED, "0-15", 8, "0-3,8-11", id="one NUMA node suffices"),
        pytest.param(TWO, DISTRIBUTED, "0-15", 10, "0-2,4-6,8-9,12-13", id="an even share of each"),
        pytest.param(TWO, DISTRIBUTED, "0-15", 11, "0-2,4-6,8-10,12-13", id="a remainder on the first"),
        pytest.param(TWO, BY_CORE, "0-15", 10, "0-2,4-5,8-10,12-13", id="whole cores stay together"),
        pytest.param(TWO, BY_CORE, "0-15", 9, "0-4,8-11", id="no multiple of a core is packed"),
    ],
)
def test_the_same_cpus_are_taken_as_by_the_kubelet(
    hardware: Machine, strategy: PackingStrategy, available: str, count: int, expected: str
) -> None:
    assert taken(hardware, strategy, available, count) == expected


def test_more_than_there_are_is_rejected_in_the_kubelets_words() -> None:
    with pytest.raises(Rejection) as rejected:
        taken(TWO, PACKED, "0-2", 4)
    assert rejected.value.message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=4, available=3, "
        "which is unexpected"
    )


def test_later_combinations_overwrite_the_best_of_four_numa_nodes() -> None:
    """The kubelet keeps a reference, not a copy: the fourth member becomes the last NUMA node."""
    eight = machine(8, cores=16, sockets=2)
    given_cpus = take(CPUTopology(eight), DISTRIBUTED, eight.all_cpus & ~cpuset.parse("0,128"), 100)
    assert [numa for numa in range(8) if given_cpus & eight.cpus_of_numa[numa]] == [1, 2, 3, 7]


def test_an_endless_distribution_is_told_apart() -> None:
    hardware = machine(4, cores=4)
    available = hardware.all_cpus & ~cpuset.parse("0,4,8")
    with pytest.raises(KubeletHang, match="never ends"):
        take(CPUTopology(hardware), BY_CORE, available, 22)


def test_single_thread_offline_makes_every_core_count_as_one_thread() -> None:
    """The nominal size of a core is an average: a core with one free thread is then taken whole."""
    hardware = machine(1, cores=4, offline=frozenset({7}))
    assert CPUTopology(hardware).cpus_per_core == 1
    # CPU 4 is the sibling of CPU 0 and in use; it is given out a second time.
    assert taken(hardware, PACKED, "0-3,5-6", 2) == "0,4"


def test_sockets_of_unequal_size_are_taken_for_average_ones() -> None:
    """Socket 1 has 4 CPUs, the average is 2: with 2 of them free it counts as free and is taken whole."""
    assert taken(machine(4, cores=1, sockets=3), PACKED, "0,2,5,6", 4) == "0-1,4-5"


def test_numa_nodes_across_sockets_may_be_listed_repeatedly() -> None:
    hardware = machine(3, cores=4, sockets=3)
    crossed = Machine(
        tuple(type(cpu)(cpu.id, cpu.core, cpu.core % 2, 0, cpu.numa) for cpu in hardware.cpus),
        hardware.numa_nodes,
    )
    assert cpuset.parse(taken(crossed, DISTRIBUTED, "0-23", 12)).bit_count() == 12


def test_a_cache_that_serves_two_numa_nodes_is_counted_twice() -> None:
    """The kubelet lists it with each of them: both CPUs of it count as four, and the request as served."""
    hardware = machine(2, cores=3, threads=1)
    shared = Machine(
        tuple(cpu._replace(uncore_cache=cpu.id // 2) for cpu in hardware.cpus), hardware.numa_nodes
    )
    assert taken(shared, UNCORE, "0,2-4", 4) == "2-3"


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Machines with sockets that are alike and caches of one NUMA node; else the kubelet miscounts."""
    numas = draw(st.integers(1, 5))
    return machine(
        numas,
        cores=draw(st.integers(1, 5)),
        threads=draw(st.sampled_from([1, 2, 4])),
        sockets=draw(st.sampled_from([1, numas])),
        cores_per_uncore_cache=draw(st.sampled_from([None, 1, 2, 3])),
    )


strategies = st.sampled_from([PACKED, SPREAD, UNCORE, DISTRIBUTED])


@settings(max_examples=examples(300))
@given(machines(), strategies, st.integers(0), st.data())
def test_exactly_the_number_wanted_is_taken_from_what_is_free(
    hardware: Machine, strategy: PackingStrategy, free: int, data: st.DataObject
) -> None:
    available = hardware.all_cpus & free
    count = data.draw(st.integers(0, available.bit_count()))
    cpus = take(CPUTopology(hardware), strategy, available, count)
    assert cpus & ~available == 0
    assert cpus.bit_count() == count


@settings(max_examples=examples(200))
@given(machines(), st.data())
def test_distribution_uses_as_few_numa_nodes_as_packing(hardware: Machine, data: st.DataObject) -> None:
    topology = CPUTopology(hardware)
    count = data.draw(st.integers(1, len(hardware.cpus)))
    cpus = take(topology, DISTRIBUTED, hardware.all_cpus, count)
    assert topology.numas_of(cpus).bit_count() == topology.fewest_numas(count)
