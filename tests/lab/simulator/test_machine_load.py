"""Simulated machines are busy where their pods are, in the files that the exporter reads."""

from pathlib import Path
from typing import Any

import pytest

from numazones import build, cpuset
from numazones.kubelet.machine import Machine
from numazones_exporter.sources.cpu_times import CPUTimesReader
from numazones_exporter.sources.interrupts import InterruptsReader
from numazones_exporter.sources.numa_usage import read
from numazones_simulator import machine_tree
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.machine_load import BUSY_ANNOTATION, MachineLoad
from numazones_simulator.node_kinds import single_numa_node


class Simulated:
    """A node and the files of its machine."""

    def __init__(self, directory: Path) -> None:
        self.kubelet = SimulatedKubelet(single_numa_node("n", "10.0.0.1"))
        self.machine: Machine = self.kubelet.spec.machine
        self.tree = machine_tree.write(self.machine, directory)
        self.load = MachineLoad(self.machine, directory)
        self.load.write()

    def run(self, name: str, cpus: int, busy: str = "") -> int:
        """Admit a pod; return its exclusive CPUs."""
        body: dict[str, Any] = build.pod_body(name, cpu=cpus, memory="1Gi")
        body["metadata"]["annotations"] = {BUSY_ANNOTATION: busy} if busy else {}
        assert self.kubelet.admit(body).rejection is None
        return self.kubelet.node.cpus.exclusive_cpus_by_pod()[body["metadata"]["uid"]]

    def let_pass(self, seconds: float) -> None:
        self.load.advance(seconds, self.kubelet.node, self.kubelet.pods)
        self.load.write()


@pytest.fixture
def node(tmp_path: Path) -> Simulated:
    return Simulated(tmp_path)


def test_exclusive_cpus_are_as_busy_as_the_pod_says(node: Simulated) -> None:
    idle, busy = node.run("idle", 4, busy="0.05"), node.run("busy", 2, busy="0.9")
    node.let_pass(1000)
    times = CPUTimesReader(node.tree.procfs, node.tree.sysfs).read()
    shares = {cpu: 1 - found.idle / sum(found) for cpu, found in times.items()}
    assert [shares[cpu] for cpu in cpuset.ids(idle)] == pytest.approx([0.05] * 4, abs=0.001)
    assert [shares[cpu] for cpu in cpuset.ids(busy)] == pytest.approx([0.9] * 2, abs=0.001)


def test_queues_of_the_network_card_interrupt_a_few_cpus(node: Simulated) -> None:
    reader = InterruptsReader(node.tree.procfs)
    reader.read()
    node.let_pass(10)
    came = {interrupt: counts for interrupt, counts in reader.read().items() if interrupt.name.isdigit()}
    assert [sum(counts.values()) for counts in came.values()] == [6000] * 4
    assert {reader.affinity(one) for one in came} == {str(cpu) for counts in came.values() for cpu in counts}


def test_every_numa_node_has_allocation_figures(node: Simulated) -> None:
    node.let_pass(10)
    found = read(node.tree.sysfs, sorted(node.machine.by_numa))
    assert [problem.message for problem in found.problems if "numastat" in problem.message] == []
    assert found.pages[0, "foreign"] == found.pages[1, "miss"] == 30
