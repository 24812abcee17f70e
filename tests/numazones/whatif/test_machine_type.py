"""A machine in a line of text."""

import pytest

from numazones import cpuset
from numazones.whatif.machine_type import InvalidMachineType, node_template, parse
from numazones.whatif.node_template import start_nodes


def test_counts_are_those_of_the_whole_machine() -> None:
    machine, devices = parse(
        "sockets=2,numa=4,cores=32,threads=2,memory=256Gi,x.example/nic=6,x.example/gpu@3=1"
    )
    assert len(machine.cpus) == 64
    assert [cpuset.format(cpus) for cpus in machine.cpus_of_socket.values()] == ["0-15,32-47", "16-31,48-63"]
    assert [cpus.bit_count() for cpus in machine.cpus_of_numa.values()] == [16] * 4
    assert {node.memory for node in machine.numa_nodes} == {64 << 30}
    assert [device.numa for device in devices["x.example/nic"]] == [(0,), (0,), (1,), (2,), (2,), (3,)]
    assert [device.numa for device in devices["x.example/gpu"]] == [(3,)]


def test_machine_defaults_to_one_socket_and_two_threads_per_core() -> None:
    machine, devices = parse("cores=4,memory=8Gi")
    assert (len(machine.cpus), len(machine.numa_nodes), len(machine.cpus_of_socket)) == (8, 1, 1)
    assert not devices


def test_kubelet_keeps_a_core_and_a_gibibyte_unless_told_otherwise() -> None:
    (node,) = start_nodes([node_template("numa=2,cores=4,memory=8Gi,x.example/nic=2", name="m")])
    assert node.allocatable == {"cpu": 6000, "memory": 7 << 30, "x.example/nic": 2}
    given = {
        "reservedSystemCPUs": "0",
        "reservedMemory.0.memory": "2Gi",
        "topologyManagerPolicy": "restricted",
    }
    (node,) = start_nodes([node_template("numa=2,cores=4,memory=8Gi", name="m").with_settings(given)])
    assert node.allocatable == {"cpu": 7000, "memory": 6 << 30}
    assert node.state is not None
    assert node.state.config.topology_manager_policy == "restricted"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' has no amount"),
        ("cores=4", "memory is missing"),
        ("memory=4Gi", "cores are missing"),
        ("cores=some,memory=4Gi", "'cores=some' has no amount"),
        ("cores=1.5,memory=4Gi", "'cores=1.5' is not a count"),
        ("cores=0,memory=4Gi", "'cores=0' is not a count"),
        ("cores=6,numa=4,memory=4Gi", "6 cores and 4 NUMA nodes cannot be divided evenly among 1 sockets"),
        ("cores=6,numa=3,sockets=2,memory=4Gi", "cannot be divided evenly among 2 sockets"),
        ("cores=9999,memory=4Gi", "more than 4096 CPUs"),
        ("chips=4,memory=4Gi", "'chips=4' is unknown; use sockets, numa, threads, cores, memory"),
        ("cores=4,memory=4Gi,x/nic@1=1", "there is no NUMA node 1"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidMachineType) as error:
        parse(text)
    assert said in str(error.value)
    assert "use a value such as sockets=2" in str(error.value)
