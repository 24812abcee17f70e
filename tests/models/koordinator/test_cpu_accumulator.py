"""Tests of which CPUs a bound pod gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones import cpuset
from numazones_koordinator.annotations import CPUBindPolicy, CPUExclusivePolicy
from numazones_koordinator.cpu_accumulator import NoCPUs, Preference, take_cpus
from numazones_koordinator.cpu_topology import CPUInfo, CPUTopology
from tests.models.koordinator.building import detail

FULL, SPREAD = CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS


def machine(numas: int = 2, cores: int = 4, threads: int = 2, sockets: int = 1) -> CPUTopology:
    """CPU n and its second thread are as far apart as there are cores."""
    listed = detail(numas, cores, threads, sockets=sockets)
    return CPUTopology(tuple(CPUInfo(cpu["id"], cpu["core"], cpu["socket"], cpu["node"]) for cpu in listed))


def take(
    topology: CPUTopology,
    need: int,
    policy: str = FULL,
    *,
    used: str = "",
    most: bool = False,
    exclusive: str = "",
    clashing: str = "",
) -> str:
    preference = Preference(policy, exclusive, most, cpuset.parse(clashing))
    return cpuset.format(take_cpus(topology, topology.all & ~cpuset.parse(used), need, preference))


@pytest.mark.parametrize(
    ("policy", "need", "used", "most", "taken"),
    [
        (FULL, 4, "", False, "0-1,8-9"),
        (FULL, 3, "", False, "0-1,8"),
        (SPREAD, 4, "", False, "0-3"),
        (SPREAD, 6, "", False, "0-3,8-9"),
        (FULL, 2, "0", False, "4,12"),
        (FULL, 2, "0", True, "1,9"),
        (SPREAD, 2, "0", True, "1-2"),
        (FULL, 10, "", False, "0-4,8-12"),
        (FULL, 4, "0,2,4,6,8,10", False, "1,3,9,11"),
        (FULL, 6, "0,2,4,6,9,11", False, "1,5,7-8,13,15"),
        (FULL, 0, "", False, ""),
    ],
)
def test_one_numa_node_that_has_enough_then_what_is_left(
    policy: str, need: int, used: str, taken: str, *, most: bool
) -> None:
    assert take(machine(), need, policy, used=used, most=most) == taken


def test_too_few_cpus_are_rejected() -> None:
    with pytest.raises(NoCPUs, match="not enough cpus available to satisfy request"):
        take(machine(), 3, used="0-13")


def test_preferred_odd_number_over_two_sockets_gives_one_too_many() -> None:
    sockets = machine(3, 4, 2, sockets=3)
    assert cpuset.parse(take(sockets, 13, used="4,8")).bit_count() == 14


def test_pods_of_the_same_exclusive_policy_are_avoided_if_possible() -> None:
    cores, numas = CPUExclusivePolicy.PCPU_LEVEL, CPUExclusivePolicy.NUMA_NODE_LEVEL
    assert take(machine(1, 4), 2, SPREAD, used="0", exclusive=cores, clashing="0") == "1-2"
    assert take(machine(1, 2), 3, SPREAD, used="0", exclusive=cores, clashing="0") == "1-3"
    assert take(machine(), 2, FULL, used="0", most=True, exclusive=numas, clashing="0") == "4,12"
    assert take(machine(), 2, FULL, used="0", most=True, exclusive=numas) == "1,9"
    assert take(machine(), 2, SPREAD, used="0", most=True, exclusive=numas, clashing="0") == "4-5"


def test_a_machine_without_second_threads_takes_cores_under_every_policy() -> None:
    assert take(machine(2, 4, 1), 3, SPREAD, used="0") == "4-6"


shapes = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))


@st.composite
def machines(draw: st.DrawFn) -> CPUTopology:
    """Machines of all kinds: some threads offline, second threads anywhere, core ids that repeat."""
    numas, cores, threads, sockets = draw(shapes)
    whole = machine(numas, cores, threads, sockets)
    kept = draw(st.lists(st.sampled_from(whole.cpus), min_size=1, unique=True))
    ids = draw(st.permutations(range(len(kept))))
    apart = draw(st.booleans())
    return CPUTopology(
        tuple(
            cpu._replace(id=new, core=cpu.core if apart else cpu.core % cores)
            for cpu, new in zip(kept, ids, strict=True)
        )
    )


@given(st.data(), machines())
def test_what_is_taken_was_free_and_is_enough(data: st.DataObject, topology: CPUTopology) -> None:
    available = data.draw(st.integers(0, topology.all)) & topology.all
    need = data.draw(st.integers(0, available.bit_count()))
    exclusive = data.draw(st.sampled_from(["", *CPUExclusivePolicy]))
    preference = Preference(
        bind_policy=data.draw(st.sampled_from(["", FULL, SPREAD])),
        exclusive_policy=exclusive,
        most_allocated=data.draw(st.booleans()),
        clashing=data.draw(st.integers(0, 1 << 16)),
    )
    taken = take_cpus(topology, available, need, preference)
    assert taken & ~available == 0
    assert taken.bit_count() >= need


@given(st.data(), machines())
def test_cores_are_counted_alike_on_regular_and_odd_machines(
    data: st.DataObject, topology: CPUTopology
) -> None:
    cpus = data.draw(st.integers(0, topology.all)) & topology.all
    cores = [core & cpus for _, core in topology.cores if core & cpus]
    assert topology.whole_cores(cpus) == sum(core for core in cores if core.bit_count() == topology.per_core)
    assert topology.one_per_core(cpus) == sum(core & -core for core in cores)
    assert topology.cores_touched(cpus) == len(cores)
    assert list(topology.by_core(cpus)) == cores
    count = data.draw(st.integers(0, cpus.bit_count()))
    in_order = [cpu for core in cores for cpu in cpuset.ids(core)]
    assert topology.first_by_core(cpus, count) == cpuset.of(in_order[:count])
