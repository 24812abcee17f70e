from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.kubelet import machines
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.machines import MachineShape
from numazones_node.sysfs import SysfsReader
from numazones_simulator import machine_tree
from numazones_simulator.machine_tree import UnwritableMachine
from tests.laws import examples

GIB = 1 << 30

SHAPES = {
    "two sockets": MachineShape(),
    "interleaved": MachineShape(cores_per_numa=12, interleaved=True, hugepages_per_numa=((2048, 512),)),
    "four NUMA nodes on two sockets": MachineShape(numa_per_socket=2, cores_per_numa=8),
    "eight NUMA nodes with split caches": MachineShape(
        numa_per_socket=4, cores_per_numa=8, cores_per_uncore_cache=4
    ),
    "one NUMA node without hyper-threading": MachineShape(sockets=1, cores_per_numa=4, threads_per_core=1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_exporter_reads_back_the_machine(name: str, tmp_path: Path) -> None:
    machine = machines.build(SHAPES[name])
    tree = machine_tree.write(machine, tmp_path)
    reading = SysfsReader(tree.sysfs, tree.procfs).read()
    assert reading.value.machine == machine
    assert reading.problems == ()


def test_offline_and_isolated_cpus_are_told_apart(tmp_path: Path) -> None:
    machine = machines.build(MachineShape(cores_per_numa=2))
    tree = machine_tree.write(machine, tmp_path, offline={8: 0, 11: 1}, isolated=cpuset.of([3, 7]))
    hardware = SysfsReader(tree.sysfs, tree.procfs).read().value
    assert hardware.machine == machine
    assert hardware.offline == ((0, cpuset.of([8])), (1, cpuset.of([11])))
    assert hardware.isolated == cpuset.of([3, 7])


def test_numa_nodes_may_lack_resources_and_ids_have_gaps(tmp_path: Path) -> None:
    machine = Machine(
        cpus=(CPU(id=2, core=5, socket=0, die=0, numa=0), CPU(id=9, core=5, socket=1, die=0, numa=4)),
        numa_nodes=(
            NUMANode(0, GIB, ((2048, 3),), (10, 20, 30)),
            NUMANode(4, 0, (), (20, 10, 30)),
            NUMANode(33, 2 * GIB, (), (30, 30, 10)),
        ),
    )
    tree = machine_tree.write(machine, tmp_path)
    assert SysfsReader(tree.sysfs, tree.procfs).read().value.machine == machine


def test_the_kernels_file_formats_are_kept(tmp_path: Path) -> None:
    tree = machine_tree.write(machines.build(MachineShape(cores_per_numa=20)), tmp_path)
    cpu = tree.sysfs / "devices/system/cpu/cpu3"
    assert (cpu / "topology/core_cpus").read_text() == "00000000,00000800,00000008\n"
    assert (cpu / "topology/core_cpus_list").read_text() == "3,43\n"
    assert (cpu / "cache/index3/shared_cpu_list").read_text() == "0-19,40-59\n"
    assert (tree.sysfs / "devices/system/node/node1/distance").read_text() == "21 10\n"
    assert (tree.sysfs / "devices/system/node/node1/cpu59").exists() is False
    assert (tree.sysfs / "devices/system/node/node1/cpu60/topology/core_id").read_text() == "0\n"
    assert "MemTotal:       134217728 kB\n" in (tree.procfs / "meminfo").read_text()
    assert (tree.procfs / "cpuinfo").read_text().count("processor ") == 80


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine((CPU(0, 0, 0, 0, 0),), (NUMANode(0, 1000),)), "1000 bytes of memory"),
        (
            Machine((CPU(0, 0, 0, 0, 0, 7),), (NUMANode(0, 1024),)),
            "L3 cache 7 has as many CPUs as NUMA node 0",
        ),
        (
            Machine((CPU(0, 0, 0, 0, 0, 7), CPU(1, 0, 0, 0, 0, 8)), (NUMANode(0, 1024),)),
            "CPUs 0-1 are one core but have different L3 caches",
        ),
    ],
)
def test_machines_that_sysfs_cannot_describe_are_rejected(
    machine: Machine, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnwritableMachine, match=message):
        machine_tree.write(machine, tmp_path)


def test_offline_cpus_must_not_be_online(tmp_path: Path) -> None:
    with pytest.raises(UnwritableMachine, match="offline CPU 0"):
        machine_tree.write(machines.build(MachineShape()), tmp_path, offline={0: 0})


@st.composite
def any_machine(draw: st.DrawFn) -> Machine:
    """Irregular: gaps in all ids, CPU-less NUMA nodes, uneven cores, caches split, shared or missing."""
    numas = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=4)))
    cpus: list[CPU] = []
    free = iter(draw(st.permutations(range(48))))
    for index, numa in enumerate(numas):
        socket = draw(st.integers(0, index))
        cores = draw(st.sets(st.integers(0, 9), min_size=0 if cpus else 1, max_size=4))
        for core in sorted(cores):
            uncore = draw(st.none() | st.integers(0, 5))
            cpus += [
                CPU(next(free), core + numa * 10, socket, draw(st.integers(0, 1)), numa, uncore)
                for _ in range(draw(st.integers(1, 3)))
            ]
    sizes = draw(st.sets(st.sampled_from([64, 2048, 1048576])))
    nodes = tuple(
        NUMANode(
            numa,
            draw(st.integers(0, 1 << 40)) * 1024,
            tuple((size, draw(st.integers(0, 1000))) for size in sorted(sizes)),
            draw(st.none() | st.tuples(*[st.integers(10, 254)] * len(numas))),
        )
        for numa in numas
    )
    return Machine(tuple(cpus), nodes)


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(machine=any_machine())
def test_any_machine_that_can_be_written_is_read_back(machine: Machine, tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        try:
            tree = machine_tree.write(machine, Path(folder))
        except UnwritableMachine:
            reject()
        assert SysfsReader(tree.sysfs, tree.procfs).read().value.machine == machine
