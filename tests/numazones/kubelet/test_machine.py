import pytest

from numazones import cpuset
from numazones.kubelet.machine import CPU, InvalidMachine, Machine, NUMANode


def two_sockets() -> Machine:
    """Two sockets with repeating core ids; siblings are n and n + 4; NUMA ids 0, 2 and, without CPUs, 5."""
    cpus = [
        CPU(
            id=thread * 4 + socket * 2 + core,
            core=core,
            socket=socket,
            die=0,
            numa=socket * 2,
            uncore_cache=socket,
        )
        for thread in range(2)
        for socket in range(2)
        for core in range(2)
    ]
    nodes = (
        NUMANode(id=5, memory=1 << 30, distances=(10, 30, 40)),
        NUMANode(id=0, memory=1 << 32, hugepages=((1048576, 1), (2048, 8)), distances=(30, 10, 20)),
        NUMANode(id=2, memory=1 << 32, distances=(40, 20, 10)),
    )
    return Machine(cpus=tuple(reversed(cpus)), numa_nodes=nodes)


def test_masks_are_derived_per_numa_node_socket_core_and_cache() -> None:
    machine = two_sockets()
    assert cpuset.format(machine.all_cpus) == "0-7"
    assert machine.numa_mask == cpuset.of([0, 2, 5])
    assert {numa: cpuset.format(cpus) for numa, cpus in machine.cpus_of_numa.items()} == {
        0: "0-1,4-5",
        2: "2-3,6-7",
        5: "",
    }
    assert {key: cpuset.format(cpus) for key, cpus in machine.cpus_of_socket.items()} == {
        0: "0-1,4-5",
        1: "2-3,6-7",
    }
    assert cpuset.format(machine.cpus_of_core[2, 1, 0]) == "2,6"
    assert cpuset.format(machine.cpus_of_uncore_cache[1]) == "2-3,6-7"


def test_everything_is_kept_in_ascending_order_distances_included() -> None:
    machine = two_sockets()
    assert [cpu.id for cpu in machine.cpus] == list(range(8))
    assert [node.id for node in machine.numa_nodes] == [0, 2, 5]
    assert machine.numa_nodes[0].hugepages == ((2048, 8), (1048576, 1))
    assert [node.distances for node in machine.numa_nodes] == [(10, 20, 30), (20, 10, 40), (30, 40, 10)]


def test_equal_machines_are_equal_values() -> None:
    assert two_sockets() == two_sockets()
    assert hash(two_sockets()) == hash(two_sockets())


@pytest.mark.parametrize(
    ("cpus", "nodes", "message"),
    [
        ([(0, 0), (0, 0)], [NUMANode(0, 1)], "CPU id appears twice"),
        ([(0, 0)], [NUMANode(0, 1), NUMANode(0, 1)], "NUMA id appears twice"),
        ([(0, 1)], [NUMANode(0, 1)], "CPU 0 belongs to NUMA node 1"),
        ([(0, 0)], [NUMANode(0, 1, (), (10, 20))], "2 distances, 1 NUMA nodes"),
        ([(0, 0)], [NUMANode(0, -1)], "negative amount"),
        ([(-1, 0)], [NUMANode(0, 1)], "must not be negative"),
    ],
)
def test_contradictions_are_rejected(
    cpus: list[tuple[int, int]], nodes: list[NUMANode], message: str
) -> None:
    with pytest.raises(InvalidMachine, match=message):
        Machine(
            cpus=tuple(CPU(id=cpu, core=cpu, socket=0, die=0, numa=numa) for cpu, numa in cpus),
            numa_nodes=tuple(nodes),
        )
