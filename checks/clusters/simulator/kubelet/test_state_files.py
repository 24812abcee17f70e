import json
from pathlib import Path

from numazones import cpuset
from numazones.kubelet import checkpoints, machines
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machines import MachineShape
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.state_files import KubeletFiles
from numazones_simulator.node_spec import NodeSpec, configuration

MACHINE = machines.build(
    MachineShape(cores_per_numa=4, memory_per_numa=8 << 30, hugepages_per_numa=((2048, 16),))
)
NIC = "vendor.example/nic"


def kubelet() -> SimulatedKubelet:
    config = configuration(MACHINE, topology_manager_policy="none", reserved_cpus="0,8")
    devices = {NIC: (Device("a", (0,)), Device("b", (0, 1)), Device("c"), Device("d", (1,), healthy=False))}
    return SimulatedKubelet(NodeSpec("n1", MACHINE, config, devices))


def pod(uid: str, *, cpus: str, nics: int = 0) -> dict[str, object]:
    amounts = {"cpu": cpus, "memory": "1Gi"} | ({NIC: str(nics)} if nics else {})
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": uid, "namespace": "x", "uid": uid}, "spec": {"containers": [container]}}


def test_the_files_say_what_is_assigned(tmp_path: Path) -> None:
    simulated = kubelet()
    assert simulated.admit(pod("p1", cpus="2", nics=3)).rejection is None
    KubeletFiles(tmp_path).write(simulated.node)

    cpu = checkpoints.parse_cpu_manager_state((tmp_path / "cpu_manager_state").read_bytes())
    assert cpu.policy == "static"
    assert cpuset.format(cpu.default) == "0,2-8,10-15"
    assert {uid: dict(held) for uid, held in cpu.entries.items()} == {"p1": {"c": cpuset.parse("1,9")}}

    memory = checkpoints.parse_memory_manager_state((tmp_path / "memory_manager_state").read_bytes())
    (block,) = memory.entries["p1"]["c"]
    assert (block.affinity, block.type, block.size) == (1, "memory", 1 << 30)
    table = memory.machine[0].memory["memory"]
    assert table.total == 8 << 30
    assert table.allocatable == table.total - table.system_reserved - (32 << 20)
    assert (table.reserved, table.free) == (1 << 30, table.allocatable - (1 << 30))
    assert memory.machine[0].assignments == 1
    assert memory.machine[1].memory["hugepages-2Mi"].free == 32 << 20

    devices = checkpoints.parse_device_manager_state(
        (tmp_path / "device-plugins/kubelet_internal_checkpoint").read_bytes()
    )
    (entry,) = devices.entries
    assert (entry.pod_uid, entry.container, entry.resource) == ("p1", "c", NIC)
    assert dict(entry.devices) == {-1: ("c",), 0: ("a", "b"), 1: ("b",)}
    assert dict(devices.registered) == {NIC: ("a", "b", "c")}


def test_kubelets_of_1_37_repeat_what_is_assigned(tmp_path: Path) -> None:
    spec = NodeSpec("n1", MACHINE, configuration(MACHINE, reserved_cpus="0,8"), version="v1.37.0")
    simulated = SimulatedKubelet(spec)
    assert simulated.admit(pod("p1", cpus="2")).rejection is None
    KubeletFiles(tmp_path).write(simulated.node)
    cpu, memory = ((tmp_path / name).read_bytes() for name in ("cpu_manager_state", "memory_manager_state"))
    assert all("p1" in json.loads(json.loads(blob)["data"])["entries"] for blob in (cpu, memory))
    assert checkpoints.parse_cpu_manager_state(cpu).entries["p1"]
    assert checkpoints.parse_memory_manager_state(memory).entries["p1"]


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    simulated, files = kubelet(), KubeletFiles(tmp_path)
    files.write(simulated.node)
    before = (tmp_path / "cpu_manager_state").stat().st_ino
    files.write(simulated.node)
    assert (tmp_path / "cpu_manager_state").stat().st_ino == before
    simulated.admit(pod("p1", cpus="2"))
    files.write(simulated.node)
    assert (tmp_path / "cpu_manager_state").stat().st_ino != before
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_removed_pods_leave_no_trace(tmp_path: Path) -> None:
    simulated, files = kubelet(), KubeletFiles(tmp_path)
    files.write(simulated.node)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*_*") if path.is_file()}
    assert len(before) == 3
    simulated.admit(pod("p1", cpus="4", nics=1))
    files.write(simulated.node)
    simulated.remove("p1")
    files.write(simulated.node)
    assert {path: path.read_bytes() for path in before} == before
